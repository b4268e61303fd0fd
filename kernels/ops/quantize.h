// 8-bit floating-point products, conversion to and from the 8-bit types, and the scales that fit
// values into their range; weights in 4 or 8 bits.
//
// A scale of 8-bit floats is two f32 values in device memory: the factor by which values are
// multiplied before rounding, and its inverse. The largest magnitude of a tensor's elements
// (`largest`) is one f32 value in device memory. The Cuda functions do not wait for the GPU to read
// these values.
#pragma once

#include <cstdint>

#include "kernels/exec.h"
#include "kernels/view.h"
#include "kernels/weight_format.h"

namespace axle::kernels {

// Computes y = x * scale[0], rounded as in kernels/float8.h. x is floating, y is f8_e4m3 or
// f8_e5m2; both are contiguous and have the same size. If largest is not null, sets *largest =
// max(*largest, max |x|), where NaN counts as the largest value.
void quantize(Cpu& on, ConstView x, const float* scale, View y, float* largest);
void quantize(Cuda& on, ConstView x, const float* scale, View y, float* largest);

// Sets *largest = max(*largest, max |x|), like quantize(), without converting x. x is floating and
// contiguous.
void find_largest(Cpu& on, ConstView x, float* largest);
void find_largest(Cuda& on, ConstView x, float* largest);

// Computes y = x. The conversion is exact. x is f8_e4m3 or f8_e5m2, y is f32; both are contiguous
// and have the same size.
void dequantize(Cpu& on, ConstView x, View y);
void dequantize(Cuda& on, ConstView x, View y);

// Computes scale[0] = range / max(*largest, 1e-12) and its inverse scale[1]. If power_of_two is
// true, scale[0] is rounded down to a power of two.
void current_scale(Cpu& on, const float* largest, float range, bool power_of_two, float* scale);
void current_scale(Cuda& on, const float* largest, float range, bool power_of_two, float* scale);

// The parameters of delayed scaling, which computes the scales of three tensors from the largest
// magnitudes of previous steps. The history of these values is [length, 3]; its first row collects
// the values of the current step.
struct DelayedScaling {
    std::int64_t length = 1;
    bool most_recent = true;  // if false, uses the largest value of the history
    float margin = 0;         // number of powers of two kept as headroom
    float range[3] = {};      // the largest number of each tensor's type
    bool rescales = true;     // if false, only the history is updated
};
// Sets scales[i][0] = range[i] / largest / 2^margin (at most the largest finite f32) and
// scales[i][1] to its inverse, if `largest` is finite and positive; otherwise the scale does not
// change. `largest` is the value that most_recent selects. Then rotates the history by one row, so
// that the first row becomes the last, and clears the new first row.
void update_delayed_scales(Cpu& on, const DelayedScaling& rule, float* history, float* scales);
void update_delayed_scales(Cuda& on, const DelayedScaling& rule, float* history, float* scales);

// Computes c = (a b^T) * *a_inverse * *b_inverse in f32, rounded to c's dtype. a is [M, K] and b is
// [N, K], 8-bit and contiguous; c is [M, N], bf16 or f32. If `fast` is true, sums may be less
// accurate. Returns false without computing anything if the product is not supported. It is
// supported if a or b is f8_e4m3, K is not 0, K and N are multiples of 16, a, b and c are aligned
// to 16 bytes, the GPU has compute capability 8.9 or higher, and cuBLASLt has an algorithm for it.
bool float8_matmul(Cpu& on, ConstView a, ConstView b, const float* a_inverse,
                   const float* b_inverse, bool fast, View c);
bool float8_matmul(Cuda& on, ConstView a, ConstView b, const float* a_inverse,
                   const float* b_inverse, bool fast, View c);

// --- weights of linear layers in 4 or 8 bits, with the values of bitsandbytes
//
// absmax is the largest magnitude of the elements that share a scale:
//   int8: an element is round(127 * x / absmax), with one absmax per row.
//   nf4: an element is the index of the value of NF4 nearest to x / absmax. Blocks of `block`
//     elements share an absmax. They run over the rows without gaps; the last block can be shorter.
//     Two elements share a byte: the first has the upper half.
// With double quantization, the absmax values of nf4 are 8-bit codes: after the mean of all values
// is subtracted, a value is divided by the largest magnitude of its group of kAbsmaxGroup values,
// and becomes the index of the nearest value of the dynamic map (kernels/rules).

inline constexpr std::int64_t kAbsmaxGroup = 256;

// The operands of a quantized weight [rows, columns]. All arrays are contiguous.
struct QuantizedMatrix {
    WeightFormat format = WeightFormat::int8;
    std::int64_t columns = 0;
    std::int64_t block = 64;        // nf4: an even number of elements
    const void* values = nullptr;   // int8: [rows * columns] i8; nf4: pairs of elements, u8
    const float* absmax = nullptr;  // null with double quantization
    // Only with double quantization: the codes of absmax, the largest magnitude of each group of
    // codes, and the mean that was subtracted (one value).
    const std::uint8_t* absmax_codes = nullptr;
    const float* nested_absmax = nullptr;
    const float* nested_offset = nullptr;
};

// Writes rows [first, first + n) of a weight to y [n, columns], which is floating and contiguous.
// Values are computed in f32 and rounded once.
void dequantize(Cpu& on, const QuantizedMatrix& weight, std::int64_t first, View y);
void dequantize(Cuda& on, const QuantizedMatrix& weight, std::int64_t first, View y);

// Quantize x, which is floating and contiguous, in f32. Weights are quantized on the CPU only. Rows
// and blocks of zeros get absmax 0 and codes of 0. If x has an infinite element or NaN, so has
// absmax, and the values are unspecified. quantize_int8 gets x [rows, columns] and absmax [rows];
// quantize_nf4 gets absmax with an element for each block.
void quantize_int8(Cpu& on, ConstView x, std::int8_t* values, float* absmax);
void quantize_nf4(Cpu& on, ConstView x, std::int64_t block, std::uint8_t* values, float* absmax);
// Quantizes n absmax values; n is positive.
void quantize_absmax(Cpu& on, const float* absmax, std::int64_t n, std::uint8_t* codes,
                     float* nested_absmax, float* nested_offset);

}  // namespace axle::kernels
