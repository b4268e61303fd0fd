// Resizes images. Nearest and bilinear interpolation are linear maps. The gradient is the
// transposed map, and the gradient of the transposed map is the interpolation again.
#include "kernels/ops/interpolate.h"

#include <cmath>

#include "core/autograd/autograd.h"
#include "core/check.h"
#include "core/launch.h"
#include "core/ops.h"
#include "core/profiler/profiler.h"

namespace axle {
namespace {

Tensor transposed(const Tensor& dy, const kernels::Resize& resize, const Shape& shape);

Tensor resized(const Tensor& x, const kernels::Resize& resize, const Shape& shape) {
    Tensor y = empty(shape, {.dtype = x.dtype(), .device = x.device()});
    launch(x.device(), [&](auto& on) { kernels::interpolate(on, resize, x.view(), y.view()); });
    return record("interpolate", y, {x}, [resize, in = x.shape()](const Grads& dy, Needs) -> Grads {
        return {transposed(dy[0], resize, in)};
    });
}

// Returns the transposed map of dy. Half-precision gradients are accumulated and returned in f32.
Tensor transposed(const Tensor& dy, const kernels::Resize& resize, const Shape& shape) {
    Tensor dx = empty(shape, {.dtype = dy.dtype() == f64 ? f64 : f32, .device = dy.device()});
    launch(dy.device(),
           [&](auto& on) { kernels::interpolate_backward(on, resize, dy.view(), dx.view()); });
    return record("interpolate", dx, {dy},
                  [resize, out = dy.shape()](const Grads& ddx, Needs) -> Grads {
                      return {resized(ddx[0], resize, out)};
                  });
}

Size2 new_size(const Tensor& x, const InterpolateOptions& options) {
    if (options.size.has_value() == options.scale_factor.has_value())
        throw ValueError(str("interpolate: exactly one of size and scale_factor must be set: ",
                             options.size ? "both are" : "neither is", " set"));
    if (options.size) return *options.size;
    const auto [h, w] = *options.scale_factor;
    const double height = std::floor(static_cast<double>(x.size(-2)) * h);
    const double width = std::floor(static_cast<double>(x.size(-1)) * w);
    constexpr double kLimit = 0x1p62;  // larger sizes could overflow int64
    if (!(h > 0 && w > 0 && height < kLimit && width < kLimit))
        throw ValueError(
            str("interpolate: scale_factor must be positive, and the new size below 2^62: "
                "scale_factor [",
                h, ", ", w, "], x ", x.shape()));
    return {static_cast<std::int64_t>(height), static_cast<std::int64_t>(width)};
}

}  // namespace

Tensor interpolate(const Tensor& x, const InterpolateOptions& options) {
    const profiler::OpScope scope("interpolate");
    check_device("interpolate", {&x});
    check_floating("interpolate", x);
    // As in PyTorch, an input with three dimensions is not accepted. It would mean [N, C, L] here,
    // but [C, H, W] in the other image ops.
    bool planes = x.dim() == 4;
    for (int d = 1; planes && d < x.dim(); ++d) planes = x.shape()[d] > 0;
    if (!planes)
        throw ShapeError(
            str("interpolate: x must be [N, C, H, W], and only N can be 0: x ", x.shape()));
    const bool bilinear = options.mode == Interpolation::bilinear;
    if (options.align_corners && !bilinear)
        throw ValueError("interpolate: align_corners needs mode bilinear: mode is nearest");
    const Size2 size = new_size(x, options);
    constexpr std::int64_t kMax = INT32_MAX;
    if (size.h < 1 || size.w < 1 || size.h > kMax || size.w > kMax)
        throw ShapeError(str("interpolate: the new size must be positive and below 2^31: ", size,
                             " from x ", x.shape()));
    kernels::Resize resize = {.bilinear = bilinear, .align_corners = options.align_corners};
    if (options.scale_factor)
        resize.scale_h = options.scale_factor->h, resize.scale_w = options.scale_factor->w;
    Shape shape = x.shape();
    shape[x.dim() - 2] = size.h;
    shape[x.dim() - 1] = size.w;
    return resized(x, resize, shape);
}

}  // namespace axle
