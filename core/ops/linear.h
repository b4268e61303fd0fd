// Private to core: helpers of the ops that compute x weight^T (linear layers): checks, the product
// with bias and activation, and gradients.
#pragma once

#include <optional>
#include <utility>

#include "core/ops/pointwise.h"
#include "kernels/ops/matmul.h"

namespace axle {

// Returns x [..., width] reshaped to [rows, width].
inline Tensor flatten_rows(const Tensor& x) {
    if (x.dim() == 2) return x;
    std::int64_t rows = 1;
    for (int d = 0; d + 1 < x.dim(); ++d) rows *= x.shape()[d];
    return reshape(x, {rows, x.shape().back()});
}

// Throws ShapeError unless x is [..., in], weight is [out, in], and bias is [out] or undefined.
// Throws DTypeError unless all have one floating dtype.
void check_linear(const char* op, const Tensor& x, const Tensor& weight, const Tensor& bias);

// Returns whether the activation's derivative is computed from its input (true) or its output.
bool saves_input(Activation activation);
// Returns whether write_linear() stores the activation's derivative instead of its input.
inline bool saves_slope(Activation activation, Device device) {
    return saves_input(activation) && device.is_cpu();
}

// Writes activation(x weight^T + bias) to y without recording. If `pre` is defined, it receives the
// input of the activation or, if saves_slope() is true, the activation's derivative.
void write_linear(const Tensor& x, const Tensor& weight, const Tensor& bias, Activation activation,
                  const Tensor& pre, const Tensor& y);

// Returns the gradient of the activation's input, given the gradient dy of its output. `kept` is
// the activation's input if saves_input(activation), else its output.
Tensor activation_backward(const char* op, Activation activation, const Tensor& dy,
                           const Tensor& kept);

// Returns the dtype in which the engine accumulates the operand's gradient. It is f32 for a leaf in
// half precision, otherwise the dtype of the operand.
DType gradient_dtype(const Tensor& operand);
// Calls parameter_gradients() and writes the results to dw and db. If defer_gradients()
// (core/autograd/deferred.h) accepts the call, queues it instead, and does not change dw and db.
// `weight_input` is the index of the weight among the inputs of the running node; the bias is the
// next input.
void defer_parameter_gradients(int weight_input, const Tensor& dz, const Tensor& x,
                               const Tensor& weight, std::optional<DType> dw_dtype,
                               std::optional<DType> db_dtype, Tensor& dw, Tensor& db);
// Returns the gradients of weight and bias in the given dtypes, where dz is the gradient of x
// weight^T + bias. If a dtype is nullopt, that gradient is not computed and is undefined. If rules
// are recorded (create_graph), the gradient of the bias is dz, and the dtypes are not used.
std::pair<Tensor, Tensor> parameter_gradients(const Tensor& dz, const Tensor& x,
                                              const Tensor& weight, std::optional<DType> dw_dtype,
                                              std::optional<DType> db_dtype);

}  // namespace axle
