// Convolution of volumes with the kernels for images. The frames that the kernel covers for one
// output frame become channels of one image:
//
//     images[n, o][c * kernel d + k] = x[n, c, o * stride - padding + k * dilation]
//
// so that the sums over the depth are sums over channels, which the kernels compute in f32 or f64.
// As for images (conv.cpp), the convolution, its transpose and the gradient of the weight are the
// gradients of each other. So derivatives of any order are supported.
#include <algorithm>

#include "core/autograd/autocast.h"
#include "core/autograd/autograd.h"
#include "core/check.h"
#include "core/launch.h"
#include "core/ops.h"
#include "core/ops/spatial/conv_checks.h"
#include "core/ops/spatial/pool_checks.h"
#include "core/profiler/profiler.h"
#include "core/spatial.h"
#include "kernels/ops/conv.h"

namespace axle {
namespace {

struct VolumeGeometry {
    kernels::ConvAxis d;
    kernels::ConvGeometry plane;
    Dims kernel;   // d, h, w
    Dims in, out;  // the sizes of the volumes x and y = convolution of x: d, h, w
};

// The output frames [first, first + count) for which a position of the kernel is inside of x, not
// in the padding. At this position, output frame first + i reads frame from + i * stride of x.
struct FrameRange {
    std::int64_t first, count, from;
};

// Returns the frames for position k of the kernel.
FrameRange frames_at(const VolumeGeometry& g, std::int64_t k) {
    const std::int64_t shift = g.d.padding - k * g.d.dilation, last = g.in[0] - 1 + shift;
    const std::int64_t first = shift > 0 ? (shift + g.d.stride - 1) / g.d.stride : 0;
    const std::int64_t end = last < 0 ? 0 : std::min(last / g.d.stride + 1, g.out[0]);
    if (end <= first) return {0, 0, 0};
    return {first, end - first, first * g.d.stride - shift};
}

// Returns the frames of x [N, C, D, H, W] in `range`, as [N, frames, C, H, W].
Tensor frames_in(const Tensor& x, const VolumeGeometry& g, const FrameRange& range) {
    return transpose(
        slice(x, 2, range.from, range.from + (range.count - 1) * g.d.stride + 1, g.d.stride), 1, 2);
}

// Returns a view of the images of position k of the kernel, [N, frames, C, H, W].
Tensor images_at(const Tensor& images, const VolumeGeometry& g, std::int64_t k) {
    const std::int64_t channels = images.size(1) / g.kernel[0];
    return select(
        view(images, {-1, g.out[0], channels, g.kernel[0], images.size(2), images.size(3)}), 3, k);
}

// Returns the windows of x [N, C, D, H, W] as images [N * out d, C * kernel d, H, W].
Tensor images_of_volumes(const Tensor& x, const VolumeGeometry& g) {
    const NoGrad no_grad;
    const Tensor images =
        empty({x.size(0) * g.out[0], x.size(1) * g.kernel[0], x.size(3), x.size(4)},
              {.dtype = x.dtype(), .device = x.device()});
    if (images.numel() == 0) return images;
    for (std::int64_t k = 0; k < g.kernel[0]; ++k) {
        const Tensor part = images_at(images, g, k);
        const FrameRange range = frames_at(g, k);
        const std::int64_t end = range.first + range.count;
        if (range.first > 0) narrow(part, 1, 0, range.first).zero_();
        if (range.count > 0)
            narrow(part, 1, range.first, range.count).copy_(frames_in(x.detach(), g, range));
        if (end < g.out[0]) narrow(part, 1, end, g.out[0] - end).zero_();
    }
    return images;
}

// Returns volumes [N, C, D, H, W] in which each pixel is the sum of its values in the images, plus
// bias [C], which can be undefined.
Tensor volumes_of_images(const Tensor& images, const Tensor& bias, const VolumeGeometry& g) {
    const DType sums = is_half(images.dtype()) ? f32 : images.dtype();
    const Shape shape = {images.size(0) / g.out[0], images.size(1) / g.kernel[0], g.in[0],
                         images.size(2), images.size(3)};
    Tensor x = zeros(shape, {.dtype = sums, .device = images.device()});
    if (x.numel() == 0) return to(x, images.dtype());
    if (bias.defined()) x.add_(reshape(to(bias.detach(), sums), {-1, 1, 1, 1}));
    for (std::int64_t k = 0; k < g.kernel[0]; ++k) {
        const FrameRange range = frames_at(g, k);
        if (range.count > 0)
            frames_in(x, g, range)
                .add_(to(narrow(images_at(images, g, k), 1, range.first, range.count), sums));
    }
    return to(x, images.dtype());
}

// Convert between y [N, O, D, H, W] and images [N * D, O, H, W].
Tensor images_of_frames(const Tensor& y) {
    return reshape(transpose(y.detach(), 1, 2),
                   {y.size(0) * y.size(2), y.size(1), y.size(3), y.size(4)});
}
Tensor frames_of_images(const Tensor& images, std::int64_t depth) {
    return contiguous(transpose(view(images, {images.size(0) / depth, depth, images.size(1),
                                              images.size(2), images.size(3)}),
                                1, 2));
}

// Returns weight [O, C, kernel d, kernel h, kernel w] as the weight of images.
Tensor image_weight(const Tensor& weight) {
    return reshape(weight.detach(), {weight.size(0), weight.size(1) * weight.size(2),
                                     weight.size(3), weight.size(4)});
}

Tensor volume_weight_gradient(const Tensor& dy, const Tensor& x, const VolumeGeometry& g);
Tensor transposed_volumes(const Tensor& dy, const Tensor& weight, const Tensor& bias,
                          const VolumeGeometry& g);

Tensor convolved_volumes(const Tensor& x, const Tensor& weight, const Tensor& bias,
                         const VolumeGeometry& g) {
    Tensor y;
    {
        const NoGrad no_grad;
        const Tensor images = images_of_volumes(x, g), w = image_weight(weight);
        Tensor frames = empty({images.size(0), weight.size(0), g.out[1], g.out[2]},
                              {.dtype = x.dtype(), .device = x.device()});
        launch(x.device(), [&](auto& on) {
            kernels::conv2d(on, images.view(), w.view(), view_or_none(bias), g.plane,
                            frames.view());
        });
        y = frames_of_images(frames, g.out[0]);
    }
    return record("conv3d", y, {x, weight, bias},
                  [x = saved(weight.requires_grad() ? x : Tensor()),
                   weight = saved(x.requires_grad() ? weight : Tensor()), g,
                   has_bias = bias.defined()](const Grads& dy, Needs needs) -> Grads {
                      Grads result(3);
                      if (needs[0]) result[0] = transposed_volumes(dy[0], weight, {}, g);
                      if (needs[1]) result[1] = volume_weight_gradient(dy[0], x, g);
                      if (needs[2] && has_bias) result[2] = sum(dy[0], {0, 2, 3, 4});
                      return result;
                  });
}

Tensor transposed_volumes(const Tensor& dy, const Tensor& weight, const Tensor& bias,
                          const VolumeGeometry& g) {
    Tensor x;
    {
        const NoGrad no_grad;
        const Tensor frames = images_of_frames(dy), w = image_weight(weight);
        Tensor images = empty({frames.size(0), w.size(1) * g.plane.groups, g.in[1], g.in[2]},
                              {.dtype = dy.dtype(), .device = dy.device()});
        launch(dy.device(), [&](auto& on) {
            kernels::conv2d_transposed(on, frames.view(), w.view(), {}, g.plane, images.view());
        });
        x = volumes_of_images(images, bias, g);
    }
    return record("conv_transpose3d", x, {dy, weight, bias},
                  [dy = saved(weight.requires_grad() ? dy : Tensor()),
                   weight = saved(dy.requires_grad() ? weight : Tensor()), g,
                   has_bias = bias.defined()](const Grads& dx, Needs needs) -> Grads {
                      Grads result(3);
                      if (needs[0]) result[0] = convolved_volumes(dx[0], weight, {}, g);
                      if (needs[1]) result[1] = volume_weight_gradient(dy, dx[0], g);
                      if (needs[2] && has_bias) result[2] = sum(dx[0], {0, 2, 3, 4});
                      return result;
                  });
}

Tensor volume_weight_gradient(const Tensor& dy, const Tensor& x, const VolumeGeometry& g) {
    const std::int64_t channels = x.size(1) / g.plane.groups;
    Tensor dw = empty({dy.size(1), channels * g.kernel[0], g.kernel[1], g.kernel[2]},
                      {.dtype = x.dtype(), .device = x.device()});
    {
        const NoGrad no_grad;
        const Tensor frames = images_of_frames(dy), images = images_of_volumes(x, g);
        launch(x.device(), [&](auto& on) {
            kernels::conv2d_weight_gradient(on, frames.view(), images.view(), g.plane, dw.view());
        });
        dw = view(dw, {dy.size(1), channels, g.kernel[0], g.kernel[1], g.kernel[2]});
    }
    return record("conv3d_weight_gradient", dw, {dy, x},
                  [dy = saved(x.requires_grad() ? dy : Tensor()),
                   x = saved(dy.requires_grad() ? x : Tensor()),
                   g](const Grads& gradient, Needs needs) -> Grads {
                      Grads result(2);
                      if (needs[0]) result[0] = convolved_volumes(x, gradient[0], {}, g);
                      if (needs[1]) result[1] = transposed_volumes(dy, gradient[0], {}, g);
                      return result;
                  });
}

// Returns the geometry of the convolution from volumes of the size `in` to volumes of the size
// `out`. The stride has no effect along dimensions with a single window; there it becomes 1, which
// is the fastest.
VolumeGeometry geometry_of_volumes(const ConvSizes& sizes, const Tensor& weight, const Dims& in,
                                   const Dims& out) {
    const auto axis = [&](int d) {
        return kernels::ConvAxis{out[d] == 1 ? 1 : sizes.stride[d], sizes.padding[d],
                                 sizes.dilation[d]};
    };
    return {axis(0),
            {axis(1), axis(2), sizes.groups},
            {weight.size(2), weight.size(3), weight.size(4)},
            in,
            out};
}

Dims volume_size(const Tensor& x) { return {x.size(-3), x.size(-2), x.size(-1)}; }

// Calls f with x as a batch. Removes the batch dimension from the result if x has none.
template <class F>
Tensor on_volume_batch(const Tensor& x, F&& f) {
    return x.dim() == 5 ? f(x) : squeeze(f(unsqueeze(x, 0)), 0);
}

}  // namespace

Tensor conv3d(const Tensor& x_in, const Tensor& weight_in, const Tensor& bias_in,
              const Conv3dOptions& options) {
    const profiler::OpScope scope("conv3d");
    check_device("conv3d", {&x_in, &weight_in, bias_in.defined() ? &bias_in : &x_in});
    const Tensor x = autocast(x_in), weight = autocast(weight_in), bias = autocast(bias_in);
    const ConvSizes sizes = {.stride = dims_of(options.stride),
                             .padding = dims_of(options.padding),
                             .dilation = dims_of(options.dilation),
                             .groups = options.groups};
    const Dims to = conv_size("conv3d", x, weight, bias, sizes);
    const VolumeGeometry g = geometry_of_volumes(sizes, weight, volume_size(x), to);
    return on_volume_batch(
        x, [&](const Tensor& batch) { return convolved_volumes(batch, weight, bias, g); });
}

Tensor conv_transpose3d(const Tensor& x_in, const Tensor& weight_in, const Tensor& bias_in,
                        const ConvTranspose3dOptions& options) {
    const profiler::OpScope scope("conv_transpose3d");
    check_device("conv_transpose3d", {&x_in, &weight_in, bias_in.defined() ? &bias_in : &x_in});
    const Tensor x = autocast(x_in), weight = autocast(weight_in), bias = autocast(bias_in);
    const ConvSizes sizes = {.stride = dims_of(options.stride),
                             .padding = dims_of(options.padding),
                             .dilation = dims_of(options.dilation),
                             .groups = options.groups,
                             .output_padding = dims_of(options.output_padding)};
    const Dims to = conv_transpose_size("conv_transpose3d", x, weight, bias, sizes);
    const VolumeGeometry g = geometry_of_volumes(sizes, weight, to, volume_size(x));
    return on_volume_batch(
        x, [&](const Tensor& batch) { return transposed_volumes(batch, weight, bias, g); });
}

}  // namespace axle
