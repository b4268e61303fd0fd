// Products of 8-bit floats: to the types and back, the scales that bring values into their range,
// and the product itself.
//
// A scale is two f32 in the device's memory: what values are multiplied by on their way in, and its
// inverse. Nothing here reads them on the host.
#pragma once

#include <cstdint>

#include "kernels/exec.h"
#include "kernels/view.h"

namespace axle::inline v0::kernels {

// y = x * scale[0] as kernels/float8.h rounds: x floating, y f8_e4m3 or f8_e5m2, contiguous and of
// one size. *largest, unless null, becomes the largest of itself and all |x|; NaN is larger.
void quantize(Cpu& on, ConstView x, const float* scale, View y, float* largest);
void quantize(Cuda& on, ConstView x, const float* scale, View y, float* largest);

// The other half alone.
void find_largest(Cpu& on, ConstView x, float* largest);
void find_largest(Cuda& on, ConstView x, float* largest);

// y = x, exactly: y f32, both contiguous.
void dequantize(Cpu& on, ConstView x, View y);
void dequantize(Cuda& on, ConstView x, View y);

// scale[0] = range / max(*largest, 1e-12), rounded down to a power of two if asked.
void current_scale(Cpu& on, const float* largest, float range, bool power_of_two, float* scale);
void current_scale(Cuda& on, const float* largest, float range, bool power_of_two, float* scale);

// Scales of three tensors from what was largest in the steps before: history [length, 3], the first
// row of the step that ends.
struct DelayedScaling {
    std::int64_t length = 1;
    bool most_recent = true;  // else the largest of the history
    float margin = 0;         // powers of two that are left free
    float range[3] = {};      // the largest number of each tensor's type
    bool rescales = true;     // else only the history moves on
};
// scales[i][0] = range[i] / largest / 2^margin where that is finite and above 0, else as it was.
// The rows move up, the first goes to the end, and a row of zeros takes its place.
void end_step(Cpu& on, const DelayedScaling& rule, float* history, float* scales);
void end_step(Cuda& on, const DelayedScaling& rule, float* history, float* scales);

// c = (a b^T) * *a_inverse * *b_inverse in f32, rounded to c: a [M, K] and b [N, K] of 8 bits,
// contiguous, c [M, N] bf16 or f32. False, and nothing done, where that is not to be had: on a CPU,
// a GPU before compute capability 8.9, for K or N that are not multiples of 16, or both f8_e5m2.
// fast: sums may be less exact.
bool float8_matmul(Cpu& on, ConstView a, ConstView b, const float* a_inverse,
                   const float* b_inverse, bool fast, View c);
bool float8_matmul(Cuda& on, ConstView a, ConstView b, const float* a_inverse,
                   const float* b_inverse, bool fast, View c);

}  // namespace axle::inline v0::kernels
