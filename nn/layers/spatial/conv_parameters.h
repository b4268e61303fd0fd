// Private to nn: the parameters of convolution layers.
#pragma once

#include <cmath>

#include "core/ops.h"
#include "nn/init.h"

namespace axle::nn {

// Throws ValueError unless in, out, the kernel sizes and groups are positive, and groups divides in
// and out. The op checks strides, padding and dilation in every call.
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

// Returns the output padding for which a transposed convolution of x has the output size `wanted`.
// Throws ValueError unless each size is in [n, n + stride), where n is the size without output
// padding. If x has a wrong number of dimensions, returns zeros, and the op throws.
inline Dims output_padding_for(const char* who, const Tensor& x, const Tensor& weight,
                               const Dims& wanted, const Dims& stride, const Dims& padding,
                               const Dims& dilation) {
    const int spatial = wanted.size();
    Dims least = wanted, extra = wanted;
    for (int d = 0; d < spatial; ++d) {
        const bool fits = x.dim() == spatial + 1 || x.dim() == spatial + 2;
        least[d] = fits ? (x.size(d - spatial) - 1) * stride[d] - 2 * padding[d] +
                              dilation[d] * (weight.size(d + 2) - 1) + 1
                        : wanted[d];
        extra[d] = wanted[d] - least[d];
    }
    for (int d = 0; d < spatial; ++d)
        if (extra[d] < 0 || extra[d] >= stride[d])
            throw ValueError(str(who, ": output_size must be at least ", least,
                                 " and at most stride - 1 larger: output_size ", wanted,
                                 ", stride ", stride));
    return extra;
}

}  // namespace axle::nn
