// Private to core: what the ops around x weight^T share.
#pragma once

#include <optional>
#include <utility>

#include "core/ops/pointwise.h"
#include "kernels/ops/matmul.h"

namespace axle::inline v0 {

// [..., width] as [rows, width]
inline Tensor fold(const Tensor& x) {
    if (x.dim() == 2) return x;
    std::int64_t rows = 1;
    for (int d = 0; d + 1 < x.dim(); ++d) rows *= x.shape()[d];
    return reshape(x, {rows, x.shape().back()});
}

// x [..., in], weight [out, in], bias [out] or undefined, of one floating dtype.
void check_linear(const char* op, const Tensor& x, const Tensor& weight, const Tensor& bias);

// y = activation(x weight^T + bias) without a record; a pre that is defined receives the argument
// of the activation.
void write_linear(const Tensor& x, const Tensor& weight, const Tensor& bias, Activation activation,
                  const Tensor& pre, const Tensor& y);

kernels::Activation kernel_activation(Activation activation);
// Whether the slope is written in the argument of the activation and not in its value.
bool keeps_argument(Activation activation);
// dy behind the activation; `kept` is what the activation's slope is written in.
Tensor through_activation(const char* op, Activation activation, const Tensor& dy,
                          const Tensor& kept);

// That in which the engine takes the gradient of an operand, were it narrower until a cast.
DType gradient_dtype(const Tensor& operand);
// Those of a weight and its bias behind x, from dz at x weight^T + bias, in these dtypes; undefined
// where none is asked for.
std::pair<Tensor, Tensor> parameter_gradients(const Tensor& dz, const Tensor& x,
                                              const Tensor& weight, std::optional<DType> dw_dtype,
                                              std::optional<DType> db_dtype);

}  // namespace axle::inline v0
