// Bicubic and antialiased resizing, as products with matrices of weights. Neighboring outputs use
// neighboring inputs, so a tile of outputs is the product of a small matrix with a part of x. The
// gradient is the transposed map, and the gradient of the transposed map is the resizing again.
#include "core/ops/sampling/resample.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/autograd/autocast.h"
#include "core/autograd/autograd.h"
#include "core/ops.h"

namespace axle {
namespace {

constexpr std::int64_t kTile = 64;  // outputs

double step_of(const Resampling& r) {
    const auto in = static_cast<double>(r.in), out = static_cast<double>(r.out);
    if (r.align_corners) return r.out > 1 ? (in - 1) / (out - 1) : 0;
    return r.scale != 0 ? 1 / r.scale : in / out;
}

// Returns the distance from the center of the filter to its end, in inputs.
double reach_of(const Resampling& r) {
    const double reach = r.cubic ? 2 : 1;
    return r.antialias ? reach * std::max(1.0, step_of(r)) : reach;
}

// Outputs [first, first + count), and inputs [begin, begin + length) that include all inputs of
// these outputs.
struct Tile {
    std::int64_t first, count, begin, length;
};

std::vector<Tile> tiles_of(const Resampling& r) {
    const double step = step_of(r), reach = reach_of(r) + 2;
    std::vector<Tile> tiles;
    for (std::int64_t first = 0; first < r.out; first += kTile) {
        const std::int64_t count = std::min(kTile, r.out - first);
        const auto end = static_cast<double>(first + count);
        const auto bounded = [&](double at) {
            return static_cast<std::int64_t>(std::clamp(at, 0.0, static_cast<double>(r.in)));
        };
        // Inputs beyond the border are replaced by the inputs at the border.
        const std::int64_t begin =
            std::min(bounded(static_cast<double>(first) * step - reach), r.in - 1);
        const std::int64_t last = std::max(bounded(std::ceil(end * step + reach)), begin + 1);
        tiles.push_back({first, count, begin, last - begin});
    }
    return tiles;
}

// Returns the weights [count, length] of antialiased resizing: the filter, normalized.
Tensor filter_weights(const Resampling& r, const Tensor& outputs, const Tensor& inputs) {
    const double step = step_of(r), reach = reach_of(r);
    const Tensor center = (outputs + 0.5) * step;
    const Tensor begin = clamp(trunc(center - (reach - 0.5)), 0.0, std::nullopt);
    const Tensor end = trunc(center + (reach + 0.5));
    const Tensor distance = abs((inputs - center + 0.5) * (1 / std::max(1.0, step)));
    const Tensor inside = logical_and(inputs >= begin, inputs < end);
    // Pillow's bicubic filter has a = -0.5.
    const Tensor weights = r.cubic ? where(distance < 1.0, near_cubic(distance, -0.5),
                                           where(distance < 2.0, far_cubic(distance, -0.5), 0.0))
                                   : clamp(1.0 - distance, 0.0, std::nullopt);
    const Tensor kept = where(inside, weights, 0.0);
    return kept / sum(kept, {1}, true);
}

// Returns the weights [count, length] of bicubic resizing.
Tensor cubic_weights(const Resampling& r, const Tensor& outputs, const Tensor& inputs) {
    const double step = step_of(r), last = static_cast<double>(r.in - 1);
    const Tensor at = r.align_corners ? outputs * step : (outputs + 0.5) * step - 0.5;
    const Tensor base = clamp(floor(at), std::nullopt, last);
    const Tensor t = clamp(at - base, 0.0, 1.0);
    const Tensor taps[4] = {far_cubic(t + 1.0, -0.75), near_cubic(t, -0.75),
                            near_cubic(1.0 - t, -0.75), far_cubic(2.0 - t, -0.75)};
    Tensor weights;
    for (int k = 0; k < 4; ++k) {
        const Tensor place = clamp(base + double{k - 1.0}, 0.0, last);
        const Tensor part = where(inputs == place, taps[k], 0.0);
        weights = weights.defined() ? weights + part : part;
    }
    return weights;
}

Tensor weights_of(const Resampling& r, const Tile& tile, const Tensor& like) {
    const TensorOptions options = {.dtype = f64, .device = like.device()};
    const InferredOptions same = {.dtype = f64, .device = like.device()};
    const Tensor outputs =
        unsqueeze(arange(tile.count, same), 1) + full({}, static_cast<double>(tile.first), options);
    const Tensor inputs = unsqueeze(arange(tile.length, same), 0) +
                          full({}, static_cast<double>(tile.begin), options);
    return (r.antialias ? filter_weights(r, outputs, inputs) : cubic_weights(r, outputs, inputs))
        .to(like.dtype());
}

// Returns the product of weights and x along dim.
Tensor weights_times(const Tensor& weights, const Tensor& x, int dim) {
    return dim == -1 ? matmul(x, transpose(weights, 0, 1)) : matmul(weights, x);
}

Tensor transposed_resample(const Tensor& dy, int dim, const Resampling& r);

Tensor resampled(const Tensor& x, int dim, const Resampling& r) {
    std::vector<Tensor> parts;
    for (const Tile& tile : tiles_of(r))
        parts.push_back(weights_times(weights_of(r, tile, x),
                                      narrow(x.detach(), dim, tile.begin, tile.length), dim));
    const Tensor y = parts.size() == 1 ? parts[0] : cat(parts, dim);
    return record("interpolate", y, {x}, [dim, r](const Grads& dy, Needs) -> Grads {
        return {transposed_resample(dy[0], dim, r)};
    });
}

Tensor transposed_resample(const Tensor& dy, int dim, const Resampling& r) {
    Shape shape = dy.shape();
    shape[static_cast<int>(shape.size()) + dim] = r.in;
    const Tensor dx = zeros(shape, {.dtype = dy.dtype(), .device = dy.device()});
    for (const Tile& tile : tiles_of(r)) {
        Tensor part = narrow(dx, dim, tile.begin, tile.length);
        part.add_(weights_times(transpose(weights_of(r, tile, dy), 0, 1),
                                narrow(dy.detach(), dim, tile.first, tile.count), dim));
    }
    return record("interpolate", dx, {dy}, [dim, r](const Grads& ddx, Needs) -> Grads {
        return {resample(ddx[0], dim, r)};
    });
}

}  // namespace

Tensor near_cubic(const Tensor& x, double a) { return ((x * (a + 2) - (a + 3)) * x) * x + 1.0; }
Tensor far_cubic(const Tensor& x, double a) { return ((x * a - 5 * a) * x + 8 * a) * x - 4 * a; }

Tensor resample(const Tensor& x, int dim, const Resampling& resampling) {
    const AutocastGuard off(std::nullopt);
    return resampled(x, dim, resampling);
}

}  // namespace axle
