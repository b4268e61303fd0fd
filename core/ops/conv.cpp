// Convolution. The convolution, its transpose and the gradient of the weight are linear in each of
// their two operands. The gradients of each of these three ops are the other two ops, so
// derivatives of any order are supported.
#include "kernels/ops/conv.h"

#include <algorithm>

#include "core/autograd/autocast.h"
#include "core/autograd/autograd.h"
#include "core/check.h"
#include "core/launch.h"
#include "core/ops.h"
#include "core/profiler/profiler.h"

namespace axle {
namespace {

using kernels::ConvGeometry;

Tensor weight_gradient(const Tensor& dy, const Tensor& x, const ConvGeometry& geometry,
                       Size2 kernel);
Tensor transposed(const Tensor& dy, const Tensor& weight, const Tensor& bias,
                  const ConvGeometry& geometry, Size2 size);

Tensor bias_gradient(const Tensor& dy) { return sum(dy, {0, 2, 3}); }

Size2 image_size(const Tensor& x) { return {x.size(2), x.size(3)}; }

// Returns the convolution of x, with output size `size`. x is saved only if weight needs a
// gradient, and weight only if x needs a gradient.
Tensor forward(const Tensor& x, const Tensor& weight, const Tensor& bias,
               const ConvGeometry& geometry, Size2 size) {
    Tensor y = empty({x.size(0), weight.size(0), size.h, size.w}, {x.dtype(), x.device()});
    launch(x.device(), [&](auto& on) {
        kernels::conv2d(on, x.view(), weight.view(), view_or_none(bias), geometry, y.view());
    });
    return record("conv2d", y, {x, weight, bias},
                  [x = saved(weight.requires_grad() ? x : Tensor()),
                   weight = saved(x.requires_grad() ? weight : Tensor()), geometry,
                   from = image_size(x), kernel = image_size(weight),
                   has_bias = bias.defined()](const Grads& dy, Needs needs) -> Grads {
                      Grads result(3);
                      if (needs[0]) result[0] = transposed(dy[0], weight, {}, geometry, from);
                      if (needs[1]) result[1] = weight_gradient(dy[0], x, geometry, kernel);
                      if (needs[2] && has_bias) result[2] = bias_gradient(dy[0]);
                      return result;
                  });
}

Tensor transposed(const Tensor& dy, const Tensor& weight, const Tensor& bias,
                  const ConvGeometry& geometry, Size2 size) {
    Tensor x = empty({dy.size(0), weight.size(1) * geometry.groups, size.h, size.w},
                     {dy.dtype(), dy.device()});
    launch(dy.device(), [&](auto& on) {
        kernels::conv2d_transposed(on, dy.view(), weight.view(), view_or_none(bias), geometry,
                                   x.view());
    });
    return record("conv_transpose2d", x, {dy, weight, bias},
                  [dy = saved(weight.requires_grad() ? dy : Tensor()),
                   weight = saved(dy.requires_grad() ? weight : Tensor()), geometry,
                   from = image_size(dy), kernel = image_size(weight),
                   has_bias = bias.defined()](const Grads& dx, Needs needs) -> Grads {
                      Grads result(3);
                      if (needs[0]) result[0] = forward(dx[0], weight, {}, geometry, from);
                      if (needs[1]) result[1] = weight_gradient(dy, dx[0], geometry, kernel);
                      if (needs[2] && has_bias) result[2] = bias_gradient(dx[0]);
                      return result;
                  });
}

Tensor weight_gradient(const Tensor& dy, const Tensor& x, const ConvGeometry& geometry,
                       Size2 kernel) {
    Tensor dw = empty({dy.size(1), x.size(1) / geometry.groups, kernel.h, kernel.w},
                      {x.dtype(), x.device()});
    launch(x.device(), [&](auto& on) {
        kernels::conv2d_weight_gradient(on, dy.view(), x.view(), geometry, dw.view());
    });
    return record("conv2d_weight_gradient", dw, {dy, x},
                  [dy = saved(x.requires_grad() ? dy : Tensor()),
                   x = saved(dy.requires_grad() ? x : Tensor()), geometry, from = image_size(x),
                   to = image_size(dy)](const Grads& g, Needs needs) -> Grads {
                      Grads result(2);
                      if (needs[0]) result[0] = forward(x, g[0], {}, geometry, to);
                      if (needs[1]) result[1] = transposed(dy, g[0], {}, geometry, from);
                      return result;
                  });
}

// --- argument checks of conv2d and conv_transpose2d

void check_range(const char* op, const char* name, Size2 value, std::int64_t min_value) {
    constexpr std::int64_t kMax = INT32_MAX;
    if (value.h < min_value || value.w < min_value || value.h > kMax || value.w > kMax)
        throw ValueError(str(op, ": ", name, " must be from ", min_value, " to 2^31 - 1: ", value));
}

// Throws unless x, weight and bias are valid operands of conv2d, or of conv_transpose2d if
// is_transposed.
void check_operands(const char* op, const Tensor& x, const Tensor& weight, const Tensor& bias,
                    const ConvGeometry& geometry, bool is_transposed) {
    check_floating(op, x);
    check_same_dtype(op, x, weight, "x", "weight");
    const auto operands = [&] { return str("x ", x.shape(), ", weight ", weight.shape()); };
    if (x.dim() != 3 && x.dim() != 4)
        throw ShapeError(str(op, ": x must be [N, C, H, W] or [C, H, W]: ", operands()));
    if (weight.dim() != 4)
        throw ShapeError(str(op, ": weight must have 4 dimensions: ", operands()));
    for (const std::int64_t size : weight.shape())
        if (size == 0) throw ShapeError(str(op, ": weight is empty: ", operands()));
    if (weight.size(0) % geometry.groups != 0)
        throw ShapeError(str(op, ": size 0 of weight must be a multiple of groups: weight ",
                             weight.shape(), ", groups ", geometry.groups));
    const std::int64_t channels = is_transposed ? weight.size(0) : weight.size(1) * geometry.groups;
    const std::int64_t out = is_transposed ? weight.size(1) * geometry.groups : weight.size(0);
    if (x.size(-3) != channels)
        throw ShapeError(str(op, ": x must have ", channels, " channels: ", operands(), ", groups ",
                             geometry.groups));
    if (x.size(-1) == 0 || x.size(-2) == 0)
        throw ShapeError(str(op, ": the images are empty: ", operands()));
    if (!bias.defined()) return;
    check_same_dtype(op, x, bias, "x", "bias");
    if (bias.shape() != Shape{out})
        throw ShapeError(str(op, ": bias must be [", out, "]: bias ", bias.shape(), ", weight ",
                             weight.shape()));
}

ConvGeometry make_geometry(const char* op, Size2 stride, Size2 padding, Size2 dilation,
                           std::int64_t groups) {
    check_range(op, "stride", stride, 1);
    check_range(op, "padding", padding, 0);
    check_range(op, "dilation", dilation, 1);
    if (groups < 1) throw ValueError(str(op, ": groups must be positive: ", groups));
    return {{stride.h, padding.h, dilation.h}, {stride.w, padding.w, dilation.w}, groups};
}

std::int64_t window(std::int64_t kernel, const kernels::ConvAxis& axis) {
    return axis.dilation * (kernel - 1) + 1;
}

// Throws ShapeError if a padded image has more than 2^40 pixels. Kernels multiply this number by
// the numbers of channels and images to compute the sizes of scratch memory.
void check_padded(const char* op, Size2 padded, const Tensor& x, const ConvGeometry& geometry) {
    constexpr std::int64_t kMax = std::int64_t{1} << 40;
    if (padded.h <= kMax / padded.w) return;
    throw ShapeError(str(op, ": the padded images must have at most 2^40 pixels: their size is ",
                         padded, ", x ", x.shape(), ", padding ",
                         Size2(geometry.h.padding, geometry.w.padding), ", stride ",
                         Size2(geometry.h.stride, geometry.w.stride), ", dilation ",
                         Size2(geometry.h.dilation, geometry.w.dilation)));
}

// Sets the stride to 1 along dimensions with a single window. There the stride has no effect, and
// stride 1 is the fastest.
void drop_strides(ConvGeometry& geometry, Size2 windows) {
    if (windows.h == 1) geometry.h.stride = 1;
    if (windows.w == 1) geometry.w.stride = 1;
}

// Calls f with x as a batch. Removes the batch dimension from the result if x has none.
template <class F>
Tensor on_batch(const Tensor& x, F&& f) {
    return x.dim() == 4 ? f(x) : squeeze(f(unsqueeze(x, 0)), 0);
}

}  // namespace

Tensor conv2d(const Tensor& x_in, const Tensor& weight_in, const Tensor& bias_in,
              const Conv2dOptions& options) {
    const profiler::OpScope scope("conv2d");
    check_device("conv2d", {&x_in, &weight_in, bias_in.defined() ? &bias_in : &x_in});
    const Tensor x = autocast(x_in), weight = autocast(weight_in), bias = autocast(bias_in);
    ConvGeometry geometry =
        make_geometry("conv2d", options.stride, options.padding, options.dilation, options.groups);
    check_operands("conv2d", x, weight, bias, geometry, false);
    const auto size = [&](int dim, const kernels::ConvAxis& axis) {
        const std::int64_t padded = x.size(dim) + 2 * axis.padding;
        const std::int64_t covered = window(weight.size(dim), axis);
        if (padded < covered)
            throw ShapeError(str("conv2d: the kernel is larger than the padded input: x ",
                                 x.shape(), ", weight ", weight.shape(), ", padding ",
                                 options.padding, ", dilation ", options.dilation));
        return (padded - covered) / axis.stride + 1;
    };
    const Size2 to = {size(-2, geometry.h), size(-1, geometry.w)};
    check_padded("conv2d",
                 {x.size(-2) + 2 * geometry.h.padding, x.size(-1) + 2 * geometry.w.padding}, x,
                 geometry);
    drop_strides(geometry, to);
    return on_batch(
        x, [&](const Tensor& batch) { return forward(batch, weight, bias, geometry, to); });
}

Tensor conv_transpose2d(const Tensor& x_in, const Tensor& weight_in, const Tensor& bias_in,
                        const ConvTranspose2dOptions& options) {
    const profiler::OpScope scope("conv_transpose2d");
    check_device("conv_transpose2d", {&x_in, &weight_in, bias_in.defined() ? &bias_in : &x_in});
    const Tensor x = autocast(x_in), weight = autocast(weight_in), bias = autocast(bias_in);
    ConvGeometry geometry = make_geometry("conv_transpose2d", options.stride, options.padding,
                                          options.dilation, options.groups);
    check_range("conv_transpose2d", "output_padding", options.output_padding, 0);
    check_operands("conv_transpose2d", x, weight, bias, geometry, true);
    const auto size = [&](int dim, const kernels::ConvAxis& axis, std::int64_t extra) {
        if (extra >= std::max(axis.stride, axis.dilation))
            throw ValueError(
                str("conv_transpose2d: output_padding must be smaller than the stride "
                    "or the dilation: output_padding ",
                    options.output_padding, ", stride ", options.stride, ", dilation ",
                    options.dilation));
        const std::int64_t n = (x.size(dim) - 1) * axis.stride - 2 * axis.padding +
                               window(weight.size(dim), axis) + extra;
        if (n < 1)
            throw ShapeError(str("conv_transpose2d: the result would be empty: x ", x.shape(),
                                 ", weight ", weight.shape(), ", padding ", options.padding));
        return n;
    };
    const Size2 to = {size(-2, geometry.h, options.output_padding.h),
                      size(-1, geometry.w, options.output_padding.w)};
    check_padded("conv_transpose2d", {to.h + 2 * geometry.h.padding, to.w + 2 * geometry.w.padding},
                 x, geometry);
    drop_strides(geometry, {x.size(-2), x.size(-1)});
    return on_batch(
        x, [&](const Tensor& batch) { return transposed(batch, weight, bias, geometry, to); });
}

}  // namespace axle
