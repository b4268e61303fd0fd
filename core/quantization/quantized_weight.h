// Weights of linear layers in 4 or 8 bits, and the product with them.
// nn/precision/quantized_linear.h provides a layer.
#pragma once

#include <cstdint>
#include <optional>

#include "core/tensor.h"
#include "kernels/weight_format.h"

namespace axle {

struct WeightQuantization {
    WeightFormat format = WeightFormat::nf4;
    // The following options apply to nf4 only. The number of elements with a common scale: a power
    // of two in [32, 4096].
    std::int64_t block_size = 64;
    // If true, the scales are quantized to 8 bits, so that they need 0.127 instead of 0.5 bits per
    // element with blocks of 64.
    bool double_quantization = false;
    // int8 only. If it is set, products also quantize x, as LLM.int8 does (Dettmers et al.,
    // arXiv:2208.07339). The elements of a row become integers times 1/127 of the row's largest
    // absolute value. Elements of at least the threshold are outliers: they do not count for this
    // value, and a column with an outlier in any row is not quantized. 0: there are no outliers.
    std::optional<double> llm_int8_threshold = {};
};

// A quantized weight [out, in], as bitsandbytes stores it: kernels/ops/quantize.h documents
// the values. The tensors do not require a gradient. Copies share the tensors.
struct QuantizedWeight {
    WeightQuantization options;
    std::int64_t out = 0, in = 0;
    DType dtype = f32;  // of the weight before quantization
    // int8: [out, in] i8. nf4: u8, two elements in a byte: [(out * in + 1) / 2].
    Tensor values;
    // The scales. int8: [out] f32. nf4: [blocks] f32, or u8 with double quantization.
    Tensor absmax;
    // The scales of the scales, [(blocks + 255) / 256], and their mean [1], in f32. Undefined
    // without double quantization.
    Tensor nested_absmax, nested_offset;

    // Returns the size of the tensors in bytes.
    std::int64_t bytes() const;
};

// Quantizes a weight [out, in]. Values are computed on the CPU, and the result is on the device of
// the weight. Throws ShapeError unless the weight is a matrix with elements, DTypeError unless it
// is floating, and ValueError if an element is infinite or NaN, if block_size is invalid, and if
// llm_int8_threshold is set for nf4 or is not finite or is negative.
QuantizedWeight quantize_weight(const Tensor& weight, const WeightQuantization& options = {});
// Returns the weight [out, in] in a floating dtype (otherwise DTypeError), rounded from f32.
Tensor dequantize_weight(const QuantizedWeight& weight, DType dtype);

// Returns x W^T + bias [..., out] for x [..., in], where W is the dequantized weight in the dtype
// of x (under autocast, in the autocast dtype), which is the dtype of the result. bias [out] is
// undefined or floating. The weight has no gradient; the gradient of x is dy W. The forward and the
// backward pass dequantize blocks of rows, of at most 2^20 elements if a row has no more. With
// llm_int8_threshold, the product of bf16 and f16 tensors is computed in f32, and the gradient of x
// is the same as without it, because rounding has no gradient. Throws DTypeError and ShapeError as
// linear() does, and DeviceError if the operands are on different devices.
Tensor quantized_linear(const Tensor& x, const QuantizedWeight& weight, const Tensor& bias = {});

}  // namespace axle
