// Pooling of signals and volumes. A signal is an image with a height of 1. A window of a volume is
// a product of a window of its planes and a window of its depth. So maxima and means are computed
// first over planes and then over the depth. Both passes select the first of equal maxima and the
// last NaN, and so does their composition.
#include <cstdint>
#include <utility>

#include "core/check.h"
#include "core/ops.h"
#include "core/ops/spatial/pool_checks.h"
#include "core/profiler/profiler.h"
#include "core/spatial.h"

namespace axle {
namespace {

using MaximaAndIndices = std::pair<Tensor, Tensor>;

// --- signals

Tensor as_image(const Tensor& signal) { return unsqueeze(signal, -2); }
Tensor as_signal(const Tensor& image) { return squeeze(image, -2); }
MaximaAndIndices as_signals(const MaximaAndIndices& images) {
    return {as_signal(images.first), as_signal(images.second)};
}

// Checks the operands and returns the options of the pool of images.
MaxPoolOptions checked_options(const char* op, const Tensor& x, std::int64_t kernel,
                               const MaxPool1dOptions& options) {
    const std::int64_t stride = options.stride.value_or(kernel);
    pooled_size(op, x,
                {.kernel = kernel,
                 .stride = stride,
                 .padding = options.padding,
                 .dilation = options.dilation,
                 .ceil_mode = options.ceil_mode,
                 .integers = true});
    return {.stride = Size2(1, stride),
            .padding = {0, options.padding},
            .dilation = {1, options.dilation},
            .ceil_mode = options.ceil_mode};
}

void check_adaptive(const char* op, const Tensor& x, const Dims& size) {
    check_pool_input(op, x, size.size());
    check_pool_size(op, "the size", size);
}

// --- volumes

// Returns volumes [.., C, D, H, W] as planes [.., C * D, H, W].
Tensor planes_of(const Tensor& x) { return flatten(x, -4, -3); }
// Returns planes [.., C * D, H, W] as [.., C, D, H * W], in which the depth is the height.
Tensor columns_of_planes(const Tensor& planes, std::int64_t depth) {
    return flatten(unflatten(planes, -3, {-1, depth}), -2);
}
// Returns [.., C, D, H * W] as volumes [.., C, D, H, W].
Tensor volumes_of_columns(const Tensor& columns, Size3 size) {
    return unflatten(columns, -1, {size.h, size.w});
}

// Returns the positions of maxima in volumes of the size `from`. `planes` are the positions in the
// first pass. `columns` are the positions in the second pass, in [from.d, size.h * size.w].
Tensor volume_indices(const Tensor& planes, const Tensor& columns, const Size3& from,
                      const Size3& size) {
    const Tensor all = flatten(columns_of_planes(planes, from.d), -2), at = flatten(columns, -2);
    const Tensor plane = full({}, size.h * size.w, {.dtype = i64, .device = at.device()});
    const Tensor depth = floor_divide(at, plane);
    const Tensor positions = add(mul(depth, Scalar(from.h * from.w)), gather(all, -1, at));
    return volumes_of_columns(reshape(positions, columns.shape()), size);
}

Size3 size_of_volume(const Tensor& x) { return {x.size(-3), x.size(-2), x.size(-1)}; }
Size3 size_of_axes(const Dims& size) { return {size[0], size[1], size[2]}; }

// The sizes and options of the two passes of max_pool3d.
struct MaxPasses {
    Size3 size;
    MaxPoolOptions planes, depth;

    MaxPasses(const char* op, const Tensor& x, Size3 kernel, const MaxPool3dOptions& options) {
        const Size3 stride = options.stride.value_or(kernel), padding = options.padding;
        const Size3 dilation = options.dilation;
        size = size_of_axes(pooled_size(op, x,
                                        {.kernel = dims_of(kernel),
                                         .stride = dims_of(stride),
                                         .padding = dims_of(padding),
                                         .dilation = dims_of(dilation),
                                         .ceil_mode = options.ceil_mode,
                                         .integers = true}));
        planes = {.stride = Size2(stride.h, stride.w),
                  .padding = {padding.h, padding.w},
                  .dilation = {dilation.h, dilation.w},
                  .ceil_mode = options.ceil_mode};
        depth = {.stride = Size2(stride.d, 1),
                 .padding = {padding.d, 0},
                 .dilation = {dilation.d, 1},
                 .ceil_mode = options.ceil_mode};
    }
};

}  // namespace

// --- maxima

Tensor max_pool1d(const Tensor& x, std::int64_t kernel, const MaxPool1dOptions& options) {
    const profiler::OpScope scope("max_pool1d");
    const MaxPoolOptions pool = checked_options("max_pool1d", x, kernel, options);
    return as_signal(max_pool2d(as_image(x), {1, kernel}, pool));
}

MaximaAndIndices max_pool1d_with_indices(const Tensor& x, std::int64_t kernel,
                                         const MaxPool1dOptions& options) {
    const profiler::OpScope scope("max_pool1d_with_indices");
    const MaxPoolOptions pool = checked_options("max_pool1d_with_indices", x, kernel, options);
    return as_signals(max_pool2d_with_indices(as_image(x), {1, kernel}, pool));
}

Tensor max_pool3d(const Tensor& x, Size3 kernel, const MaxPool3dOptions& options) {
    const profiler::OpScope scope("max_pool3d");
    const MaxPasses pass("max_pool3d", x, kernel, options);
    const Tensor y = max_pool2d(planes_of(x), {kernel.h, kernel.w}, pass.planes);
    const Tensor columns = columns_of_planes(y, x.size(-3));
    return volumes_of_columns(max_pool2d(columns, {kernel.d, 1}, pass.depth), pass.size);
}

MaximaAndIndices max_pool3d_with_indices(const Tensor& x, Size3 kernel,
                                         const MaxPool3dOptions& options) {
    const profiler::OpScope scope("max_pool3d_with_indices");
    const MaxPasses pass("max_pool3d_with_indices", x, kernel, options);
    const auto [y, in_planes] =
        max_pool2d_with_indices(planes_of(x), {kernel.h, kernel.w}, pass.planes);
    const auto [maxima, in_columns] =
        max_pool2d_with_indices(columns_of_planes(y, x.size(-3)), {kernel.d, 1}, pass.depth);
    return {volumes_of_columns(maxima, pass.size),
            volume_indices(in_planes, in_columns, size_of_volume(x), pass.size)};
}

// --- means

Tensor avg_pool1d(const Tensor& x, std::int64_t kernel, const AvgPool1dOptions& options) {
    const profiler::OpScope scope("avg_pool1d");
    const std::int64_t stride = options.stride.value_or(kernel);
    pooled_size("avg_pool1d", x,
                {.kernel = kernel,
                 .stride = stride,
                 .padding = options.padding,
                 .dilation = 1,
                 .ceil_mode = options.ceil_mode});
    return as_signal(avg_pool2d(as_image(x), {1, kernel},
                                {.stride = Size2(1, stride),
                                 .padding = {0, options.padding},
                                 .ceil_mode = options.ceil_mode,
                                 .count_include_pad = options.count_include_pad}));
}

// The divisor of a window is the product of the divisors of both passes. In half precision, both
// passes compute in f32, so that the mean is rounded once.
Tensor avg_pool3d(const Tensor& x, Size3 kernel, const AvgPool3dOptions& options) {
    const profiler::OpScope scope("avg_pool3d");
    const Size3 stride = options.stride.value_or(kernel), padding = options.padding;
    const Dims size = pooled_size("avg_pool3d", x,
                                  {.kernel = dims_of(kernel),
                                   .stride = dims_of(stride),
                                   .padding = dims_of(padding),
                                   .dilation = {1, 1, 1},
                                   .ceil_mode = options.ceil_mode});
    if (options.divisor_override == 0)
        throw ValueError("avg_pool3d: divisor_override must not be 0");
    AvgPoolOptions planes = {.stride = Size2(stride.h, stride.w),
                             .padding = {padding.h, padding.w},
                             .ceil_mode = options.ceil_mode,
                             .count_include_pad = options.count_include_pad,
                             .divisor_override = options.divisor_override};
    AvgPoolOptions depth = {.stride = Size2(stride.d, 1),
                            .padding = {padding.d, 0},
                            .ceil_mode = options.ceil_mode,
                            .count_include_pad = options.count_include_pad};
    if (options.divisor_override) depth.divisor_override = 1;
    const Tensor wide = is_half(x.dtype()) ? to(x, f32) : x;
    const Tensor means = avg_pool2d(planes_of(wide), {kernel.h, kernel.w}, planes);
    const Tensor y = avg_pool2d(columns_of_planes(means, x.size(-3)), {kernel.d, 1}, depth);
    return to(volumes_of_columns(y, size_of_axes(size)), x.dtype());
}

// --- windows of almost equal size

Tensor adaptive_avg_pool1d(const Tensor& x, std::int64_t size) {
    const profiler::OpScope scope("adaptive_avg_pool1d");
    check_adaptive("adaptive_avg_pool1d", x, size);
    return as_signal(adaptive_avg_pool2d(as_image(x), {1, size}));
}

Tensor adaptive_avg_pool3d(const Tensor& x, Size3 size) {
    const profiler::OpScope scope("adaptive_avg_pool3d");
    check_adaptive("adaptive_avg_pool3d", x, dims_of(size));
    const Tensor wide = is_half(x.dtype()) ? to(x, f32) : x;
    const Tensor columns =
        columns_of_planes(adaptive_avg_pool2d(planes_of(wide), {size.h, size.w}), x.size(-3));
    const Tensor y = adaptive_avg_pool2d(columns, {size.d, size.h * size.w});
    return to(volumes_of_columns(y, size), x.dtype());
}

Tensor adaptive_max_pool1d(const Tensor& x, std::int64_t size) {
    const profiler::OpScope scope("adaptive_max_pool1d");
    check_adaptive("adaptive_max_pool1d", x, size);
    return as_signal(adaptive_max_pool2d(as_image(x), {1, size}));
}

MaximaAndIndices adaptive_max_pool1d_with_indices(const Tensor& x, std::int64_t size) {
    const profiler::OpScope scope("adaptive_max_pool1d_with_indices");
    check_adaptive("adaptive_max_pool1d_with_indices", x, size);
    return as_signals(adaptive_max_pool2d_with_indices(as_image(x), {1, size}));
}

Tensor adaptive_max_pool3d(const Tensor& x, Size3 size) {
    const profiler::OpScope scope("adaptive_max_pool3d");
    check_adaptive("adaptive_max_pool3d", x, dims_of(size));
    const Tensor columns =
        columns_of_planes(adaptive_max_pool2d(planes_of(x), {size.h, size.w}), x.size(-3));
    return volumes_of_columns(adaptive_max_pool2d(columns, {size.d, size.h * size.w}), size);
}

MaximaAndIndices adaptive_max_pool3d_with_indices(const Tensor& x, Size3 size) {
    const profiler::OpScope scope("adaptive_max_pool3d_with_indices");
    check_adaptive("adaptive_max_pool3d_with_indices", x, dims_of(size));
    const auto [y, in_planes] = adaptive_max_pool2d_with_indices(planes_of(x), {size.h, size.w});
    const auto [maxima, in_columns] = adaptive_max_pool2d_with_indices(
        columns_of_planes(y, x.size(-3)), {size.d, size.h * size.w});
    return {volumes_of_columns(maxima, size),
            volume_indices(in_planes, in_columns, size_of_volume(x), size)};
}

}  // namespace axle
