// Private to nn: the parameters of convolution layers.
#pragma once

#include <cmath>

#include "core/ops.h"
#include "nn/init.h"

namespace axle::nn {

// Throws ValueError if the sizes of a convolution layer are invalid. The op checks strides, padding
// and dilation in every call.
inline void check_conv_sizes(const char* who, std::int64_t in, std::int64_t out, const Dims& kernel,
                             std::int64_t groups) {
    bool positive = in > 0 && out > 0;
    for (const std::int64_t n : kernel) positive = positive && n > 0;
    if (!positive)
        throw ValueError(
            str(who, ": sizes must be positive: in ", in, ", out ", out, ", kernel ", kernel));
    if (groups < 1 || in % groups != 0 || out % groups != 0)
        throw ValueError(str(who, ": groups must be positive and divide in and out: groups ",
                             groups, ", in ", in, ", out ", out));
}

// Initializes a weight [rows, columns, kernel...] and, if has_bias is true, a bias [out] as PyTorch
// does.
inline void make_conv_parameters(Tensor& weight, Tensor& bias, std::int64_t rows,
                                 std::int64_t columns, const Dims& kernel, std::int64_t out,
                                 bool has_bias) {
    Shape shape = {rows, columns};
    for (const std::int64_t n : kernel) shape.push_back(n);
    weight = init::parameter(shape);
    init::kaiming_uniform_(weight, std::sqrt(5.0));
    if (!has_bias) return;
    const double bound = 1 / std::sqrt(static_cast<double>(columns * numel(kernel)));
    bias = init::parameter({out});
    init::uniform_(bias, -bound, bound);
}

}  // namespace axle::nn
