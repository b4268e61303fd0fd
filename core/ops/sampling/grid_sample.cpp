// Reads images and volumes at positions. For each position and dimension, taps are the elements
// that are read, with their weights. The result is the sum, over all combinations of taps, of the
// products of weights times the elements, which gather() reads. So autograd computes all gradients.
#include <utility>
#include <vector>

#include "core/autograd/autocast.h"
#include "core/check.h"
#include "core/ops.h"
#include "core/ops/sampling/resample.h"
#include "core/profiler/profiler.h"
#include "core/sampling.h"

namespace axle {
namespace {

// A dimension of x, and how positions are converted to elements and read outside of it.
struct SampledAxis {
    std::int64_t size;
    GridPadding padding;
    bool align_corners;
};

// Elements of a dimension and their weights, for all positions. The weights of elements that are
// out of range are not used.
struct AxisTap {
    Tensor place, weight;
};

// Converts a position, which is from -1 to 1 inside the dimension, to elements. -1 and 1 become 0
// and size - 1 with align_corners, otherwise -0.5 and size - 0.5.
Tensor in_elements(const Tensor& position, const SampledAxis& axis) {
    const auto size = static_cast<double>(axis.size);
    if (axis.align_corners) return (position + 1.0) * ((size - 1) / 2);
    return ((position + 1.0) * size - 1.0) / 2.0;
}

// Clamps positions to [0, size - 1]. The gradient is also 0 at both ends, as in PyTorch.
Tensor within_axis(const Tensor& at, const SampledAxis& axis) {
    const double last = static_cast<double>(axis.size - 1);
    return where(logical_and(at > 0.0, at < last), at, clamp(at.detach(), 0.0, last));
}

// Mirrors positions at the borders, or with align_corners at the centers of the outer elements.
Tensor mirrored(const Tensor& at, const SampledAxis& axis) {
    const double low = axis.align_corners ? 0 : -0.5;
    const double span = static_cast<double>(axis.align_corners ? axis.size - 1 : axis.size);
    if (span == 0) return where(at < at, at, 0.0);  // 0, with the gradient 0
    const Tensor moved = at - low;
    const Tensor distance = where(moved < 0.0, -moved, moved);
    const Tensor period = full({}, span, {.dtype = at.dtype(), .device = at.device()});
    const Tensor rest = fmod(distance, period);
    const Tensor flips = floor(distance.detach() / span);
    const Tensor is_even = floor(flips / 2.0) * 2.0 == flips;
    return where(is_even, rest + low, span + low - rest);
}

Tensor padded_place(const Tensor& at, const SampledAxis& axis) {
    if (axis.padding == GridPadding::zeros) return at;
    return within_axis(axis.padding == GridPadding::border ? at : mirrored(at, axis), axis);
}

// Replaces positions that are not finite, or too large for an integer, by a position outside of x.
Tensor representable(const Tensor& at) {
    constexpr double kLimit = 0x1p30;
    return where(logical_and(at > -kLimit, at < kLimit), at, -100.0);
}

std::vector<AxisTap> taps_of(const Tensor& position, const SampledAxis& axis, GridMode mode) {
    const Tensor elements = in_elements(position, axis);
    if (mode == GridMode::bicubic) {
        const Tensor base = floor(elements.detach());
        const Tensor t = elements - base;
        const Tensor weights[4] = {far_cubic(t + 1.0, -0.75), near_cubic(t, -0.75),
                                   near_cubic(1.0 - t, -0.75), far_cubic(2.0 - t, -0.75)};
        std::vector<AxisTap> taps;
        taps.reserve(4);
        for (int k = 0; k < 4; ++k)
            taps.push_back(
                {trunc(representable(padded_place(base + double{k - 1.0}, axis))), weights[k]});
        return taps;
    }
    const Tensor at = representable(padded_place(elements, axis));
    if (mode == GridMode::nearest) {
        const Tensor place = round(at.detach());
        // The weight is 1. As in PyTorch, the gradient of the grid is 0.
        return {{place, where(at < at, at, 1.0)}};
    }
    const Tensor base = floor(at.detach());
    return {{base, (base + 1.0) - at}, {base + 1.0, at - base}};
}

// The taps of all positions in one or more flattened dimensions of x.
struct Taps {
    Tensor index;   // [N, 1, n], i64, in these dimensions
    Tensor inside;  // [N, 1, n], whether the element is in x
    Tensor weight;  // [N, 1, n]
};

// Returns the taps of one dimension, one tap after another, as [N, 1, taps * positions].
Taps joined_taps(const std::vector<AxisTap>& taps, const SampledAxis& axis) {
    std::vector<Tensor> places, weights;
    for (const AxisTap& tap : taps) {
        places.push_back(tap.place);
        weights.push_back(tap.weight);
    }
    const double last = static_cast<double>(axis.size - 1);
    const Tensor place = unsqueeze(cat(places, 1), 1);
    return {clamp(place, 0.0, last).to(i64), logical_and(place >= 0.0, place <= last),
            unsqueeze(cat(weights, 1), 1)};
}

// Returns all combinations of the taps `a` with the taps of the next dimension. `next` contains
// `several` taps per position, one tap after another.
Taps combined(const Taps& a, const Taps& next, std::int64_t size, std::int64_t several) {
    if (!a.index.defined()) return next;
    const auto again = [&](const Tensor& x) {
        return several == 1 ? x : repeat(x, {1, 1, several});
    };
    return {again(a.index * size) + next.index, logical_and(again(a.inside), next.inside),
            again(a.weight) * next.weight};
}

// Returns the weighted sum of `several` elements of x [N, C, elements] for each position.
Tensor read_taps(const Tensor& x, const Taps& taps, std::int64_t several) {
    const std::int64_t n = x.size(0), c = x.size(1), count = taps.index.size(2);
    const Tensor elements = gather(x, 2, expand(taps.index, {n, c, count}));
    const Tensor weighted = where(taps.inside, elements, 0.0) * taps.weight;
    return sum(reshape(weighted, {n, c, several, count / several}), {2});
}

// Returns the sum over all combinations of the taps of the dimensions. The taps of the last
// dimension are read together.
Tensor sum_of_taps(const Tensor& x, const std::vector<std::vector<AxisTap>>& taps,
                   const std::vector<SampledAxis>& axes) {
    const std::size_t last = axes.size() - 1;
    std::vector<Taps> outer(1);
    for (std::size_t d = 0; d < last; ++d) {
        std::vector<Taps> more;
        for (const Taps& before : outer)
            for (const AxisTap& tap : taps[d])
                more.push_back(combined(before, joined_taps({tap}, axes[d]), axes[d].size, 1));
        outer = std::move(more);
    }
    const auto several = static_cast<std::int64_t>(taps[last].size());
    const Taps inner = joined_taps(taps[last], axes[last]);
    Tensor total;
    for (const Taps& before : outer) {
        const Tensor part =
            read_taps(x, combined(before, inner, axes[last].size, several), several);
        total = total.defined() ? total + part : part;
    }
    return total;
}

void check_sampled(const Tensor& x, const Tensor& grid) {
    const int spatial = x.dim() - 2;
    bool fits = (spatial == 2 || spatial == 3) && grid.dim() == x.dim() &&
                grid.size(0) == x.size(0) && grid.size(-1) == spatial;
    for (int d = 2; fits && d < x.dim(); ++d) fits = x.size(d) > 0;
    if (!fits)
        throw ShapeError(
            str("grid_sample: x and grid must be [N, C, H, W] and [N, Ho, Wo, 2], or [N, "
                "C, D, H, W] and [N, Do, Ho, Wo, 3], and only N and C of x can be 0: x ",
                x.shape(), ", grid ", grid.shape()));
}

// Returns the centers of n elements, in positions from -1 to 1. With align_corners, the first and
// the last center are -1 and 1.
Tensor centers(std::int64_t n, bool align_corners, const TensorOptions& options) {
    if (n == 1) return zeros({1}, options);
    const double end = align_corners ? 1 : static_cast<double>(n - 1) / static_cast<double>(n);
    return linspace(-end, end, n, options);
}

}  // namespace

Tensor grid_sample(const Tensor& x, const Tensor& grid, const GridSampleOptions& options) {
    const profiler::OpScope scope("grid_sample");
    check_device("grid_sample", {&x, &grid});
    check_floating("grid_sample", x);
    check_floating("grid_sample", grid, "grid");
    if (!autocast_dtype()) check_same_dtype("grid_sample", x, grid, "x", "grid");
    check_sampled(x, grid);
    const DType result = promote(x.dtype(), grid.dtype());
    const DType wide = result == f64 ? f64 : f32;
    const AutocastGuard off(std::nullopt);
    const int spatial = x.dim() - 2;
    const Tensor positions = flatten(grid.to(wide), 1, spatial);  // [N, positions, spatial]
    std::vector<SampledAxis> axes;
    std::vector<std::vector<AxisTap>> taps;
    for (int d = 0; d < spatial; ++d) {
        axes.push_back({x.size(d + 2), options.padding_mode, options.align_corners});
        taps.push_back(taps_of(select(positions, 2, spatial - 1 - d), axes.back(), options.mode));
    }
    Shape shape = {x.size(0), x.size(1)};
    for (int d = 1; d <= spatial; ++d) shape.push_back(grid.size(d));
    return reshape(sum_of_taps(flatten(x.to(wide), 2), taps, axes), shape).to(result);
}

Tensor affine_grid(const Tensor& theta, const Shape& size, bool align_corners) {
    const profiler::OpScope scope("affine_grid");
    check_device("affine_grid", {&theta});
    check_floating("affine_grid", theta, "theta");
    const int spatial = static_cast<int>(size.size()) - 2;
    bool fits = spatial == 2 || spatial == 3;
    for (const std::int64_t n : size) fits = fits && n > 0;
    if (!fits)
        throw ShapeError(
            str("affine_grid: size must be [N, C, H, W] or [N, C, D, H, W], with positive "
                "numbers: size ",
                size));
    if (theta.shape() != Shape{size[0], spatial, spatial + 1})
        throw ShapeError(str("affine_grid: theta must be ", Shape{size[0], spatial, spatial + 1},
                             " for size ", size, ": theta ", theta.shape()));
    const AutocastGuard off(std::nullopt);
    const DType wide = theta.dtype() == f64 ? f64 : f32;
    const TensorOptions options = {.dtype = wide, .device = theta.device()};
    // The base grid [.., spatial + 1]: x, y (and z), 1.
    Shape grid_shape;
    for (int d = 0; d < spatial; ++d) grid_shape.push_back(size[d + 2]);
    std::vector<Tensor> columns;
    for (int d = spatial - 1; d >= 0; --d) {
        Shape along;
        for (int other = 0; other < spatial; ++other) along.push_back(other == d ? size[d + 2] : 1);
        columns.push_back(
            expand(reshape(centers(size[d + 2], align_corners, options), along), grid_shape));
    }
    columns.push_back(ones(grid_shape, options));
    const Tensor base = flatten(stack(columns, -1), 0, spatial - 1);  // [positions, spatial + 1]
    const Tensor grid = matmul(base, transpose(theta.to(wide), 1, 2));
    Shape shape = {size[0]};
    for (const std::int64_t n : grid_shape) shape.push_back(n);
    shape.push_back(spatial);
    return reshape(grid, shape).to(theta.dtype());
}

}  // namespace axle
