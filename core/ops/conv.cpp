// Convolution. Without the bias, the convolution, its transpose and the gradient of the weight are
// linear in each of their two operands. The gradients of each of these three ops are the other two
// ops, so derivatives of any order are supported.
#include "kernels/ops/conv.h"

#include "core/autograd/autocast.h"
#include "core/autograd/autograd.h"
#include "core/check.h"
#include "core/launch.h"
#include "core/ops.h"
#include "core/ops/spatial/conv_checks.h"
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

ConvSizes sizes_of(Size2 stride, Size2 padding, Size2 dilation, std::int64_t groups,
                   Size2 output_padding = 0) {
    return {.stride = {stride.h, stride.w},
            .padding = {padding.h, padding.w},
            .dilation = {dilation.h, dilation.w},
            .groups = groups,
            .output_padding = {output_padding.h, output_padding.w}};
}

ConvGeometry geometry_of(const ConvSizes& sizes) {
    const auto axis = [&](int d) {
        return kernels::ConvAxis{sizes.stride[d], sizes.padding[d], sizes.dilation[d]};
    };
    return {axis(0), axis(1), sizes.groups};
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
    const ConvSizes sizes =
        sizes_of(options.stride, options.padding, options.dilation, options.groups);
    const Dims size = conv_size("conv2d", x, weight, bias, sizes);
    const Size2 to = {size[0], size[1]};
    ConvGeometry geometry = geometry_of(sizes);
    drop_strides(geometry, to);
    return on_batch(
        x, [&](const Tensor& batch) { return forward(batch, weight, bias, geometry, to); });
}

Tensor conv_transpose2d(const Tensor& x_in, const Tensor& weight_in, const Tensor& bias_in,
                        const ConvTranspose2dOptions& options) {
    const profiler::OpScope scope("conv_transpose2d");
    check_device("conv_transpose2d", {&x_in, &weight_in, bias_in.defined() ? &bias_in : &x_in});
    const Tensor x = autocast(x_in), weight = autocast(weight_in), bias = autocast(bias_in);
    const ConvSizes sizes = sizes_of(options.stride, options.padding, options.dilation,
                                     options.groups, options.output_padding);
    const Dims size = conv_transpose_size("conv_transpose2d", x, weight, bias, sizes);
    const Size2 to = {size[0], size[1]};
    ConvGeometry geometry = geometry_of(sizes);
    drop_strides(geometry, {x.size(-2), x.size(-1)});
    return on_batch(
        x, [&](const Tensor& batch) { return transposed(batch, weight, bias, geometry, to); });
}

}  // namespace axle
