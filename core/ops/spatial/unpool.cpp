// The inverse of max pooling, a scatter to the positions of the maxima.
#include <optional>

#include "core/check.h"
#include "core/ops.h"
#include "core/ops/index_checks.h"
#include "core/ops/spatial/pool_checks.h"
#include "core/profiler/profiler.h"
#include "core/spatial.h"

namespace axle {
namespace {

// Checks the arguments and returns the spatial sizes of the result.
Dims unpooled_size(const char* op, const Tensor& x, const Dims& kernel, const Dims& stride,
                   const Dims& padding, const std::optional<Dims>& given) {
    const int spatial = kernel.size();
    Dims size = kernel;
    for (int d = 0; d < spatial; ++d) {
        if (padding[d] < 0 || padding[d] > INT32_MAX)
            throw ValueError(str(op, ": the padding must be in [0, 2^31): ", padding));
        size[d] = (x.size(d - spatial) - 1) * stride[d] + kernel[d] - 2 * padding[d];
    }
    for (int d = 0; given && d < spatial; ++d)
        if ((*given)[d] <= size[d] - stride[d] || (*given)[d] >= size[d] + stride[d])
            throw ValueError(str(op, ": output_size must differ from ", size,
                                 " by less than the stride: output_size ", *given, ", stride ",
                                 stride));
    if (given) size = *given;
    check_pool_size(op, "the size of the result", size);
    return size;
}

Tensor unpooled(const char* op, const Tensor& x, const Tensor& indices, const Dims& kernel,
                const Dims& stride, const Dims& padding, const std::optional<Dims>& given) {
    check_device(op, {&x, &indices});
    const int spatial = kernel.size();
    check_pool_input(op, x, spatial);
    if (indices.dtype() != i64)
        throw DTypeError(str(op, ": indices must be int64: ", indices.dtype()));
    if (indices.shape() != x.shape())
        throw ShapeError(str(op, ": x and indices must have the same shape: x ", x.shape(),
                             ", indices ", indices.shape()));
    check_pool_size(op, "the kernel", kernel);
    check_pool_size(op, "the stride", stride);
    const Dims size = unpooled_size(op, x, kernel, stride, padding, given);
    Shape flat, shape;
    for (int d = 0; d < x.dim() - spatial; ++d) {
        flat.push_back(x.shape()[d]);
        shape.push_back(x.shape()[d]);
    }
    for (const std::int64_t n : size) shape.push_back(n);
    flat.push_back(numel(size));
    check_index_range(op, indices, flat.back());
    const Tensor empty_planes = zeros(flat, {.dtype = x.dtype(), .device = x.device()});
    const Tensor y = scatter(empty_planes, -1, flatten(indices, -spatial), flatten(x, -spatial));
    return reshape(y, shape);
}

template <class Size>
std::optional<Dims> maybe_dims(const std::optional<Size>& size) {
    if (!size) return {};
    return dims_of(*size);
}

}  // namespace

Tensor max_unpool1d(const Tensor& x, const Tensor& indices, std::int64_t kernel,
                    const MaxUnpool1dOptions& options) {
    const profiler::OpScope scope("max_unpool1d");
    std::optional<Dims> size;
    if (options.output_size) size = Dims(*options.output_size);
    return unpooled("max_unpool1d", x, indices, kernel, options.stride.value_or(kernel),
                    options.padding, size);
}

Tensor max_unpool2d(const Tensor& x, const Tensor& indices, Size2 kernel,
                    const MaxUnpool2dOptions& options) {
    const profiler::OpScope scope("max_unpool2d");
    return unpooled("max_unpool2d", x, indices, dims_of(kernel),
                    dims_of(options.stride.value_or(kernel)), dims_of(options.padding),
                    maybe_dims(options.output_size));
}

Tensor max_unpool3d(const Tensor& x, const Tensor& indices, Size3 kernel,
                    const MaxUnpool3dOptions& options) {
    const profiler::OpScope scope("max_unpool3d");
    return unpooled("max_unpool3d", x, indices, dims_of(kernel),
                    dims_of(options.stride.value_or(kernel)), dims_of(options.padding),
                    maybe_dims(options.output_size));
}

}  // namespace axle
