#include "core/ops/spatial/conv_checks.h"

#include <algorithm>

#include "core/check.h"

namespace axle {
namespace {

void check_option(const char* op, const char* name, const Dims& values, std::int64_t least) {
    for (const std::int64_t n : values)
        if (n < least || n > INT32_MAX)
            throw ValueError(
                str(op, ": ", name, " must be from ", least, " to 2^31 - 1: ", values));
}

void check_options(const char* op, const ConvSizes& sizes) {
    check_option(op, "stride", sizes.stride, 1);
    check_option(op, "padding", sizes.padding, 0);
    check_option(op, "dilation", sizes.dilation, 1);
    check_option(op, "output_padding", sizes.output_padding, 0);
    if (sizes.groups < 1) throw ValueError(str(op, ": groups must be positive: ", sizes.groups));
}

// Throws DTypeError unless x is floating and weight and bias have the dtype of x. Throws ShapeError
// unless the shapes of x, weight and bias match. is_transposed selects the layout of weight.
void check_operands(const char* op, const Tensor& x, const Tensor& weight, const Tensor& bias,
                    const ConvSizes& sizes, bool is_transposed) {
    const int spatial = sizes.stride.size();
    const std::int64_t groups = sizes.groups;
    check_floating(op, x);
    check_same_dtype(op, x, weight, "x", "weight");
    const auto operands = [&] { return str("x ", x.shape(), ", weight ", weight.shape()); };
    if (x.dim() != spatial + 1 && x.dim() != spatial + 2) {
        const char* const names[] = {"L", "H, W", "D, H, W"};
        throw ShapeError(str(op, ": x must be [N, C, ", names[spatial - 1], "] or [C, ",
                             names[spatial - 1], "]: ", operands()));
    }
    if (weight.dim() != spatial + 2)
        throw ShapeError(str(op, ": weight must have ", spatial + 2, " dimensions: ", operands()));
    for (const std::int64_t size : weight.shape())
        if (size == 0) throw ShapeError(str(op, ": weight must not be empty: ", operands()));
    if (weight.size(0) % groups != 0)
        throw ShapeError(str(op, ": size 0 of weight must be a multiple of groups: weight ",
                             weight.shape(), ", groups ", groups));
    const std::int64_t channels = is_transposed ? weight.size(0) : weight.size(1) * groups;
    const std::int64_t out = is_transposed ? weight.size(1) * groups : weight.size(0);
    if (x.size(-spatial - 1) != channels)
        throw ShapeError(
            str(op, ": x must have ", channels, " channels: ", operands(), ", groups ", groups));
    for (int d = 1; d <= spatial; ++d)
        if (x.size(-d) == 0)
            throw ShapeError(str(op, ": the images must not be empty: ", operands()));
    if (!bias.defined()) return;
    check_same_dtype(op, x, bias, "x", "bias");
    if (bias.shape() != Shape{out})
        throw ShapeError(str(op, ": bias must be [", out, "]: bias ", bias.shape(), ", weight ",
                             weight.shape()));
}

// Throws ShapeError if a padded image has more than 2^40 pixels. Kernels multiply this number by
// the numbers of channels and images to compute the sizes of scratch memory.
void check_padded(const char* op, const Tensor& x, Dims padded, const ConvSizes& sizes) {
    std::int64_t room = std::int64_t{1} << 40;
    for (int d = 0; d < padded.size(); ++d) {
        padded[d] += 2 * sizes.padding[d];
        room /= padded[d];
    }
    if (room > 0) return;
    throw ShapeError(str(op, ": the padded images must have at most 2^40 pixels: their size is ",
                         padded, ", x ", x.shape(), ", padding ", sizes.padding, ", stride ",
                         sizes.stride, ", dilation ", sizes.dilation));
}

// Returns the number of elements that a kernel covers along spatial dimension d.
std::int64_t covered(const Tensor& weight, const ConvSizes& sizes, int d) {
    return sizes.dilation[d] * (weight.size(d + 2) - 1) + 1;
}

}  // namespace

Dims conv_size(const char* op, const Tensor& x, const Tensor& weight, const Tensor& bias,
               const ConvSizes& sizes) {
    check_options(op, sizes);
    check_operands(op, x, weight, bias, sizes, false);
    const int spatial = sizes.stride.size();
    Dims from = sizes.stride, to = from;
    for (int d = 0; d < spatial; ++d) {
        from[d] = x.size(d - spatial);
        const std::int64_t free = from[d] + 2 * sizes.padding[d] - covered(weight, sizes, d);
        if (free < 0)
            throw ShapeError(str(op, ": the kernel is larger than the padded input: x ", x.shape(),
                                 ", weight ", weight.shape(), ", padding ", sizes.padding,
                                 ", dilation ", sizes.dilation));
        to[d] = free / sizes.stride[d] + 1;
    }
    check_padded(op, x, from, sizes);
    return to;
}

Dims conv_transpose_size(const char* op, const Tensor& x, const Tensor& weight, const Tensor& bias,
                         const ConvSizes& sizes) {
    check_options(op, sizes);
    check_operands(op, x, weight, bias, sizes, true);
    const int spatial = sizes.stride.size();
    Dims to = sizes.stride;
    for (int d = 0; d < spatial; ++d) {
        const std::int64_t extra = sizes.output_padding[d], stride = sizes.stride[d];
        if (extra >= std::max(stride, sizes.dilation[d]))
            throw ValueError(str(op,
                                 ": output_padding must be smaller than the stride or the "
                                 "dilation: output_padding ",
                                 sizes.output_padding, ", stride ", sizes.stride, ", dilation ",
                                 sizes.dilation));
        to[d] = (x.size(d - spatial) - 1) * stride - 2 * sizes.padding[d] +
                covered(weight, sizes, d) + extra;
        if (to[d] < 1)
            throw ShapeError(str(op, ": the result would be empty: x ", x.shape(), ", weight ",
                                 weight.shape(), ", padding ", sizes.padding));
    }
    check_padded(op, x, to, sizes);
    return to;
}

}  // namespace axle
