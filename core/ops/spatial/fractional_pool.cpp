// Fractional max pooling (Graham, arXiv:1412.6071): the maxima of windows at random distances. The
// windows of a plane are products of windows of its rows and windows of its columns. So they are
// gathered one dimension after the other, and then pooled without overlap.
#include <optional>
#include <utility>

#include "core/check.h"
#include "core/ops.h"
#include "core/ops/spatial/pool_checks.h"
#include "core/profiler/profiler.h"
#include "core/spatial.h"

namespace axle {
namespace {

using FractionalMaxima = std::pair<Tensor, Tensor>;

// Returns the output sizes for the given ratios. Throws ValueError unless the ratios are in (0, 1).
Dims scaled_sizes(const char* op, const Tensor& x, std::initializer_list<double> ratios) {
    Dims size;
    int d = -static_cast<int>(ratios.size());
    for (const double ratio : ratios) {
        if (!(ratio > 0 && ratio < 1))
            throw ValueError(str(op, ": output_ratio must be in (0, 1): ", ratio));
        size.push_back(static_cast<std::int64_t>(static_cast<double>(x.size(d++)) * ratio));
    }
    return size;
}

void check_one_size(const char* op, bool has_size, bool has_ratio) {
    if (has_size == has_ratio)
        throw ValueError(str(op, ": exactly one of output_size and output_ratio must be set: ",
                             has_size ? "both are" : "neither is", " set"));
}

// Returns the random numbers of x's planes [N, C, H, W] or volumes, one per dimension.
Tensor samples_of(const char* op, const Tensor& x, int spatial, const Tensor& given) {
    const Shape shape = {x.size(0), x.size(1), spatial};
    const DType dtype = x.dtype() == f64 ? f64 : f32;
    if (!given.defined()) return rand(shape, {dtype, x.device()});
    check_device(op, {&x, &given});
    check_floating(op, given, "random_samples");
    if (given.shape() != shape)
        throw ShapeError(
            str(op, ": random_samples must be ", shape, ": random_samples ", given.shape()));
    return to(given, dtype);
}

// Returns the positions [N, C, out * kernel] of the elements of the windows along a dimension of
// `in` elements. u [N, C] are the random numbers.
Tensor window_positions(const Tensor& u, std::int64_t in, std::int64_t out, std::int64_t kernel) {
    const Device device = u.device();
    Tensor starts = full({u.size(0), u.size(1), 1}, in - kernel, {.dtype = i64, .device = device});
    if (out > 1) {
        const double alpha = static_cast<double>(in - kernel) / static_cast<double>(out - 1);
        const Tensor first = unsqueeze(u, -1);
        const Tensor steps = arange(out - 1, {.dtype = u.dtype(), .device = device});
        const Tensor others =
            sub(to(mul(add(first, steps), alpha), i64), to(mul(first, alpha), i64));
        starts = cat({others, starts}, -1);
    }
    const Tensor offsets = arange(kernel, {.dtype = i64, .device = device});
    return flatten(add(unsqueeze(starts, -1), offsets), -2);
}

// Returns the maxima and, if wants_indices is true, their positions. x has a batch dimension.
FractionalMaxima pool_fractions(const Tensor& x, const Dims& kernel, const Dims& size,
                                const Tensor& samples, bool wants_indices) {
    const int spatial = kernel.size();
    std::vector<Tensor> positions;
    Tensor windows = x;
    Dims from;
    for (int d = 0; d < spatial; ++d) {
        from.push_back(x.size(2 + d));
        // PyTorch uses the first number for the width of a plane, but for the depth of a volume.
        const int sample = spatial == 2 ? 1 - d : d;
        positions.push_back(
            window_positions(select(samples, -1, sample), from[d], size[d], kernel[d]));
        Shape view_shape = {x.size(0), x.size(1)}, shape = windows.shape();
        for (int i = 0; i < spatial; ++i) view_shape.push_back(i == d ? size[d] * kernel[d] : 1);
        shape[2 + d] = size[d] * kernel[d];
        windows = gather(windows, 2 + d, expand(reshape(positions.back(), view_shape), shape));
    }
    const auto pool = [&](auto of_planes, auto of_volumes) {
        if (spatial == 2) return of_planes(windows, Size2(kernel[0], kernel[1]));
        return of_volumes(windows, Size3(kernel[0], kernel[1], kernel[2]));
    };
    if (!wants_indices)
        return {pool([](const Tensor& t, Size2 k) { return max_pool2d(t, k); },
                     [](const Tensor& t, Size3 k) { return max_pool3d(t, k); }),
                Tensor()};
    const auto [y, at] =
        pool([](const Tensor& t, Size2 k) { return max_pool2d_with_indices(t, k); },
             [](const Tensor& t, Size3 k) { return max_pool3d_with_indices(t, k); });
    // Converts the position of each maximum among the gathered elements to its position in x.
    Tensor rest = flatten(at, 2), indices;
    std::int64_t stride = 1;
    for (int d = spatial - 1; d >= 0; --d) {
        const Tensor count = full({}, size[d] * kernel[d], {.dtype = i64, .device = x.device()});
        const Tensor along =
            mul(gather(positions[static_cast<std::size_t>(d)], -1, remainder(rest, count)),
                Scalar(stride));
        indices = indices.defined() ? add(indices, along) : along;
        rest = floor_divide(rest, count);
        stride *= from[d];
    }
    return {y, reshape(indices, at.shape())};
}

FractionalMaxima fractional_max_pool(const char* op, const Tensor& x, const Dims& kernel,
                                     const Dims& size, const Tensor& samples, bool wants_indices) {
    const int spatial = kernel.size();
    check_pool_size(op, "the kernel", kernel);
    check_pool_size(op, "the size", size);
    for (int d = 0; d < spatial; ++d)
        if (kernel[d] + size[d] - 1 > x.size(d - spatial))
            throw ShapeError(str(op, ": the kernel ", kernel, " is too large for the size ", size,
                                 ": x ", x.shape()));
    if (x.dim() == spatial + 2)
        return pool_fractions(x, kernel, size, samples_of(op, x, spatial, samples), wants_indices);
    const Tensor batch = unsqueeze(x, 0);
    const auto [y, indices] =
        pool_fractions(batch, kernel, size, samples_of(op, batch, spatial, samples), wants_indices);
    return {squeeze(y, 0), wants_indices ? squeeze(indices, 0) : Tensor()};
}

FractionalMaxima fractional_planes(const char* op, const Tensor& x, Size2 kernel,
                                   const FractionalMaxPool2dOptions& options, bool wants_indices) {
    check_pool_input(op, x, 2);
    check_one_size(op, options.output_size.has_value(), options.output_ratio.has_value());
    const Dims size = options.output_size
                          ? dims_of(*options.output_size)
                          : scaled_sizes(op, x, {options.output_ratio->h, options.output_ratio->w});
    return fractional_max_pool(op, x, dims_of(kernel), size, options.random_samples, wants_indices);
}

FractionalMaxima fractional_volumes(const char* op, const Tensor& x, Size3 kernel,
                                    const FractionalMaxPool3dOptions& options, bool wants_indices) {
    check_pool_input(op, x, 3);
    check_one_size(op, options.output_size.has_value(), options.output_ratio.has_value());
    const Dims size = options.output_size
                          ? dims_of(*options.output_size)
                          : scaled_sizes(op, x,
                                         {options.output_ratio->d, options.output_ratio->h,
                                          options.output_ratio->w});
    return fractional_max_pool(op, x, dims_of(kernel), size, options.random_samples, wants_indices);
}

}  // namespace

Tensor fractional_max_pool2d(const Tensor& x, Size2 kernel,
                             const FractionalMaxPool2dOptions& options) {
    const profiler::OpScope scope("fractional_max_pool2d");
    return fractional_planes("fractional_max_pool2d", x, kernel, options, false).first;
}

FractionalMaxima fractional_max_pool2d_with_indices(const Tensor& x, Size2 kernel,
                                                    const FractionalMaxPool2dOptions& options) {
    const profiler::OpScope scope("fractional_max_pool2d_with_indices");
    return fractional_planes("fractional_max_pool2d_with_indices", x, kernel, options, true);
}

Tensor fractional_max_pool3d(const Tensor& x, Size3 kernel,
                             const FractionalMaxPool3dOptions& options) {
    const profiler::OpScope scope("fractional_max_pool3d");
    return fractional_volumes("fractional_max_pool3d", x, kernel, options, false).first;
}

FractionalMaxima fractional_max_pool3d_with_indices(const Tensor& x, Size3 kernel,
                                                    const FractionalMaxPool3dOptions& options) {
    const profiler::OpScope scope("fractional_max_pool3d_with_indices");
    return fractional_volumes("fractional_max_pool3d_with_indices", x, kernel, options, true);
}

}  // namespace axle
