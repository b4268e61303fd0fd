// Pooling. The gradient of a mean is a linear map, and the gradient of that map is the mean again.
// The gradient of a maximum is scattered to the recorded positions of the maxima; the gradient of
// this scatter is gathered from these positions.
#include "kernels/ops/pool.h"

#include <cstdint>

#include "core/autograd/autograd.h"
#include "core/launch.h"
#include "core/ops.h"
#include "core/ops/spatial/integer_pool.h"
#include "core/ops/spatial/pool_checks.h"
#include "core/profiler/profiler.h"
#include "kernels/ops/index.h"

namespace axle {
namespace {

Size2 size_of_dims(const Dims& size) { return {size[0], size[1]}; }

Shape with_planes(Shape shape, Size2 size) {
    shape[shape.size() - 2] = size.h;
    shape[shape.size() - 1] = size.w;
    return shape;
}

// Returns the dtype in which a gradient is summed: f64 for f64, otherwise f32.
DType sum_dtype(const Tensor& dy) { return dy.dtype() == f64 ? f64 : f32; }

// Returns zeros of `shape` to which dy is added at the given positions of each plane.
Tensor max_gradient(const char* op, const Tensor& dy_given, const Tensor& indices,
                    const Shape& shape) {
    const Tensor dy = to(dy_given, sum_dtype(dy_given));
    Tensor dx = zeros(shape, {.dtype = dy.dtype(), .device = dy.device()});
    Tensor to_planes = flatten(dx, -2);
    const Tensor from = flatten(dy.detach(), -2), positions = flatten(indices, -2);
    launch(dx.device(), [&](auto& on) {
        kernels::scatter_add(on, positions.dim() - 1, positions.view(), from.view(),
                             to_planes.view());
    });
    return record(op, dx, {dy}, [indices = saved(indices)](const Grads& ddx, Needs) -> Grads {
        const Tensor at = indices;
        return {reshape(gather(flatten(ddx[0], -2), -1, flatten(at, -2)), at.shape())};
    });
}

// Returns the maxima and their indices. The tensor of indices is undefined unless wants_indices is
// true or a gradient needs the indices.
std::pair<Tensor, Tensor> max_pool(const char* op, const Tensor& x, const kernels::Pool& pool,
                                   Size2 size, bool wants_indices) {
    const Shape shape = with_planes(x.shape(), size);
    Tensor y = empty(shape, {.dtype = x.dtype(), .device = x.device()});
    Tensor indices;
    if (wants_indices || (grad_enabled() && x.requires_grad()))
        indices = empty(shape, {.dtype = i64, .device = x.device()});
    launch(x.device(), [&](auto& on) {
        kernels::max_pool2d(on, pool, x.view(), y.view(),
                            indices.defined() ? indices.view() : View());
    });
    y = record(op, y, {x},
               [op, indices = saved(indices), in = x.shape()](const Grads& dy, Needs) -> Grads {
                   return {max_gradient(op, dy[0], indices, in)};
               });
    return {y, indices};
}

std::pair<Tensor, Tensor> max_pool_windows(const char* op, const Tensor& x, Size2 kernel,
                                           const MaxPoolOptions& options, bool wants_indices) {
    const Size2 stride = options.stride.value_or(kernel), padding = options.padding,
                dilation = options.dilation;
    const PoolSizes sizes = {.kernel = dims_of(kernel),
                             .stride = dims_of(stride),
                             .padding = dims_of(padding),
                             .dilation = dims_of(dilation),
                             .ceil_mode = options.ceil_mode,
                             .integers = true};
    const Dims size = pooled_size(op, x, sizes);
    if (!is_floating(x.dtype())) return integer_max_pool2d(x, sizes, size);
    const kernels::Pool pool = {.h = {kernel.h, stride.h, padding.h, dilation.h},
                                .w = {kernel.w, stride.w, padding.w, dilation.w}};
    return max_pool(op, x, pool, size_of_dims(size), wants_indices);
}

std::pair<Tensor, Tensor> max_pool_parts(const char* op, const Tensor& x, Size2 size,
                                         bool wants_indices) {
    check_pool_input(op, x, 2);
    check_pool_size(op, "the size", dims_of(size));
    return max_pool(op, x, {.adaptive = true}, size, wants_indices);
}

Tensor mean_gradient(const char* op, const Tensor& dy, const kernels::Pool& pool,
                     const Shape& shape);

Tensor mean_pool(const char* op, const Tensor& x, const kernels::Pool& pool, Size2 size) {
    Tensor y = empty(with_planes(x.shape(), size), {.dtype = x.dtype(), .device = x.device()});
    launch(x.device(), [&](auto& on) { kernels::avg_pool2d(on, pool, x.view(), y.view()); });
    return record(op, y, {x}, [op, pool, shape = x.shape()](const Grads& dy, Needs) -> Grads {
        return {mean_gradient(op, dy[0], pool, shape)};
    });
}

Tensor mean_gradient(const char* op, const Tensor& dy, const kernels::Pool& pool,
                     const Shape& shape) {
    Tensor dx = empty(shape, {.dtype = sum_dtype(dy), .device = dy.device()});
    launch(dy.device(),
           [&](auto& on) { kernels::avg_pool2d_backward(on, pool, dy.view(), dx.view()); });
    const Size2 size = {dy.size(-2), dy.size(-1)};
    return record(op, dx, {dy}, [op, pool, size](const Grads& ddx, Needs) -> Grads {
        return {mean_pool(op, ddx[0], pool, size)};
    });
}

}  // namespace

Tensor max_pool2d(const Tensor& x, Size2 kernel, const MaxPoolOptions& options) {
    const profiler::OpScope scope("max_pool2d");
    return max_pool_windows("max_pool2d", x, kernel, options, false).first;
}

std::pair<Tensor, Tensor> max_pool2d_with_indices(const Tensor& x, Size2 kernel,
                                                  const MaxPoolOptions& options) {
    const profiler::OpScope scope("max_pool2d_with_indices");
    return max_pool_windows("max_pool2d_with_indices", x, kernel, options, true);
}

Tensor adaptive_max_pool2d(const Tensor& x, Size2 size) {
    const profiler::OpScope scope("adaptive_max_pool2d");
    return max_pool_parts("adaptive_max_pool2d", x, size, false).first;
}

std::pair<Tensor, Tensor> adaptive_max_pool2d_with_indices(const Tensor& x, Size2 size) {
    const profiler::OpScope scope("adaptive_max_pool2d_with_indices");
    return max_pool_parts("adaptive_max_pool2d_with_indices", x, size, true);
}

Tensor avg_pool2d(const Tensor& x, Size2 kernel, const AvgPoolOptions& options) {
    const profiler::OpScope scope("avg_pool2d");
    const char* op = "avg_pool2d";
    const Size2 stride = options.stride.value_or(kernel), padding = options.padding;
    const Dims size = pooled_size(op, x,
                                  {.kernel = dims_of(kernel),
                                   .stride = dims_of(stride),
                                   .padding = dims_of(padding),
                                   .dilation = {1, 1},
                                   .ceil_mode = options.ceil_mode});
    if (options.divisor_override == 0)
        throw ValueError("avg_pool2d: divisor_override must not be 0");
    const kernels::Pool pool = {.h = {kernel.h, stride.h, padding.h},
                                .w = {kernel.w, stride.w, padding.w},
                                .count_padding = options.count_include_pad,
                                .divisor = options.divisor_override.value_or(0)};
    return mean_pool(op, x, pool, size_of_dims(size));
}

Tensor adaptive_avg_pool2d(const Tensor& x, Size2 size) {
    const profiler::OpScope scope("adaptive_avg_pool2d");
    check_pool_input("adaptive_avg_pool2d", x, 2);
    check_pool_size("adaptive_avg_pool2d", "the size", dims_of(size));
    return mean_pool("adaptive_avg_pool2d", x, {.adaptive = true}, size);
}

}  // namespace axle
