// Resizes signals, images and volumes. Nearest and linear interpolation are linear maps of planes
// with a kernel of their own. The gradient is the transposed map, and the gradient of the
// transposed map is the interpolation again. Signals are planes with one row. Volumes are resized
// in two passes, first the planes and then the depth. Bicubic and antialiased resizing are in
// resample.cpp; mode area is adaptive average pooling.
#include "kernels/ops/interpolate.h"

#include <cmath>
#include <vector>

#include "core/autograd/autograd.h"
#include "core/check.h"
#include "core/launch.h"
#include "core/ops.h"
#include "core/ops/sampling/resample.h"
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

constexpr std::int64_t kLargestSize = INT32_MAX;

const char* mode_name(Interpolation mode) {
    switch (mode) {
        case Interpolation::nearest:
            return "nearest";
        case Interpolation::bilinear:
            return "bilinear";
        case Interpolation::nearest_exact:
            return "nearest_exact";
        case Interpolation::linear:
            return "linear";
        case Interpolation::bicubic:
            return "bicubic";
        case Interpolation::trilinear:
            return "trilinear";
        case Interpolation::area:
            return "area";
    }
    return "";
}

// Returns the number of dimensions that the mode resizes, or 0 if it resizes any number.
int dimensions_of(Interpolation mode) {
    switch (mode) {
        case Interpolation::linear:
            return 1;
        case Interpolation::bilinear:
        case Interpolation::bicubic:
            return 2;
        case Interpolation::trilinear:
            return 3;
        default:
            return 0;
    }
}

void check_resize_options(const InterpolateOptions& o) {
    if (o.size.has_value() == o.scale_factor.has_value())
        throw ValueError(str("interpolate: exactly one of size and scale_factor must be set: ",
                             o.size ? "both are" : "neither is", " set"));
    if (o.recompute_scale_factor && o.size)
        throw ValueError("interpolate: recompute_scale_factor needs scale_factor, not size");
    if (o.align_corners && dimensions_of(o.mode) == 0)
        throw ValueError(str(
            "interpolate: align_corners needs mode linear, bilinear, bicubic or trilinear: mode "
            "is ",
            mode_name(o.mode)));
    if (o.antialias && o.mode != Interpolation::bilinear && o.mode != Interpolation::bicubic)
        throw ValueError(str("interpolate: antialias needs mode bilinear or bicubic: mode is ",
                             mode_name(o.mode)));
}

void check_resized(const Tensor& x, Interpolation mode) {
    bool fits = x.dim() >= 3 && x.dim() <= 5;
    for (int d = 1; fits && d < x.dim(); ++d) fits = x.shape()[d] > 0;
    if (!fits)
        throw ShapeError(
            str("interpolate: x must be [N, C, L], [N, C, H, W] or [N, C, D, H, W], and "
                "only N can be 0: x ",
                x.shape()));
    if (const int needed = dimensions_of(mode); needed != 0 && needed != x.dim() - 2)
        throw ShapeError(str("interpolate: mode ", mode_name(mode), " needs x with ", needed + 2,
                             " dimensions: x ", x.shape()));
}

// The new size of a dimension, and the factor from which positions are computed, or 0 if they are
// computed from the sizes.
struct NewSize {
    std::int64_t size = 0;
    double scale = 0;
};

NewSize new_size(const Tensor& x, int dim, const InterpolateOptions& o) {
    const int count = x.dim() - 2, given = o.size ? o.size->count : o.scale_factor->count;
    if (given != 0 && given != count)
        throw ShapeError(str("interpolate: ", o.size ? "size" : "scale_factor", " has ", given,
                             " numbers, but x has ", count, " dimensions to resize: x ",
                             x.shape()));
    NewSize result;
    if (o.size) {
        result.size = o.size->of[dim];
    } else {
        const double scale = o.scale_factor->of[dim];
        const double size = std::floor(static_cast<double>(x.size(dim + 2)) * scale);
        if (!(scale > 0 && size < 0x1p62))  // larger sizes could overflow int64
            throw ValueError(
                str("interpolate: scale_factor must be positive, and the new size below 2^62: "
                    "scale_factor ",
                    scale, ", x ", x.shape()));
        result.size = static_cast<std::int64_t>(size);
        if (!o.recompute_scale_factor) result.scale = scale;
    }
    return result;
}

// Returns x [.., H, W] with its planes resized to h and w.
Tensor resized_planes(const Tensor& x, kernels::Resize resize, const NewSize& h, const NewSize& w) {
    Shape shape = x.shape();
    shape[x.dim() - 2] = h.size;
    shape[x.dim() - 1] = w.size;
    resize.scale_h = h.scale;
    resize.scale_w = w.scale;
    return resized(x, resize, shape);
}

// Calls resize(x [.., H, W], h, w) for the planes of x and, if x has volumes, once more for the
// depth.
template <class F>
Tensor in_planes(const Tensor& x, const std::vector<NewSize>& to, const F& resize) {
    if (x.dim() == 3) return squeeze(resize(unsqueeze(x, 2), NewSize{1}, to[0]), 2);
    if (x.dim() == 4) return resize(x, to[0], to[1]);
    const std::int64_t n = x.size(0), c = x.size(1), d = x.size(2);
    const Tensor planes = resize(reshape(x, {n, c * d, x.size(3), x.size(4)}), to[1], to[2]);
    const std::int64_t elements = to[1].size * to[2].size;
    const Tensor columns = reshape(planes, {n, c, d, elements});
    return reshape(resize(columns, to[0], NewSize{elements}),
                   {n, c, to[0].size, to[1].size, to[2].size});
}

Tensor resampled_planes(const Tensor& x, const InterpolateOptions& o, const NewSize& h,
                        const NewSize& w) {
    const auto along = [&](const Tensor& planes, int dim, const NewSize& to) {
        return resample(planes, dim,
                        {.in = planes.size(dim),
                         .out = to.size,
                         .scale = to.scale,
                         .align_corners = o.align_corners,
                         .cubic = o.mode == Interpolation::bicubic,
                         .antialias = o.antialias});
    };
    return along(along(x, -1, w), -2, h);
}

}  // namespace

Tensor interpolate(const Tensor& x, const InterpolateOptions& options) {
    const profiler::OpScope scope("interpolate");
    check_device("interpolate", {&x});
    check_floating("interpolate", x);
    check_resize_options(options);
    check_resized(x, options.mode);
    std::vector<NewSize> to;
    for (int d = 0; d < x.dim() - 2; ++d) {
        to.push_back(new_size(x, d, options));
        if (to.back().size < 1 || to.back().size > kLargestSize)
            throw ShapeError(str("interpolate: the new size of dimension ", d + 2,
                                 " must be positive and below 2^31: ", to.back().size, " from x ",
                                 x.shape()));
    }
    const auto mode = options.mode;
    if (mode == Interpolation::area)
        return in_planes(x, to, [](const Tensor& planes, const NewSize& h, const NewSize& w) {
            return adaptive_avg_pool2d(planes, {h.size, w.size});
        });
    // With two passes, half precision is computed in f32 and rounded only once.
    const bool two_passes = x.dim() == 5 || mode == Interpolation::bicubic || options.antialias;
    const Tensor wide = two_passes && is_half(x.dtype()) ? x.to(f32) : x;
    if (mode == Interpolation::bicubic || options.antialias)
        return resampled_planes(wide, options, to[0], to[1]).to(x.dtype());
    const kernels::Resize resize = {.bilinear = dimensions_of(mode) != 0,
                                    .align_corners = options.align_corners,
                                    .exact = mode == Interpolation::nearest_exact};
    return in_planes(wide, to,
                     [&](const Tensor& planes, const NewSize& h, const NewSize& w) {
                         return resized_planes(planes, resize, h, w);
                     })
        .to(x.dtype());
}

}  // namespace axle
