// Ops that return a copy of a tensor in which slices or other parts are changed.
#include <cstdint>
#include <vector>

#include "core/autograd/autocast.h"
#include "core/autograd/autograd.h"
#include "core/check.h"
#include "core/ops.h"
#include "core/ops/index_checks.h"
#include "core/ops/selection/indices.h"
#include "core/ops/shaping/views.h"
#include "core/profiler/profiler.h"

namespace axle {
namespace {

// Checks the index of slices and returns it expanded to the shape of these slices of x. x has at
// least one dimension.
Tensor index_of_slices(const char* op, const Tensor& x, int d, const Tensor& index) {
    check_index_dtype(op, index);
    if (index.dim() > 1) throw ShapeError(str(op, ": needs a 1-d index: shape ", index.shape()));
    Shape shape = x.shape();
    shape[d] = index.numel();
    return broadcast_index(index, d, shape);
}

// Returns the same as the overload without source. Throws ShapeError unless source has the shape of
// the slices.
Tensor index_of_slices(const char* op, const Tensor& x, int d, const Tensor& index,
                       const Tensor& source) {
    const Tensor slices = index_of_slices(op, x, d, index);
    if (source.shape() != slices.shape())
        throw ShapeError(str(op, ": source must have a slice of x for each index: x ", x.shape(),
                             ", index ", index.shape(), ", source ", source.shape()));
    // On a GPU, the op that is called next reports an index out of range.
    if (index.device().is_cpu()) check_index_range(op, index, x.shape()[d]);
    return slices;
}

// Calls f(x, d, source) with at least 1-d tensors, and returns the result in the shape of x.
template <class F>
Tensor with_dims(const char* op, const Tensor& x, std::int64_t dim, const Tensor& source, F f) {
    const int d = wrap_dim(op, dim, x.dim());
    if (x.dim() > 0) return f(x, d, source);
    return reshape(f(at_least_1d(x), d, at_least_1d(source)), {});
}

// Returns a copy of x in which src replaces part(x). Throws ShapeError if the shapes of src and
// part(x) differ.
template <class F>
Tensor with_part(const char* op, const Tensor& x, const Tensor& src, F part) {
    Tensor y = clone(x.detach());
    {
        const NoGrad no_grad;
        Tensor target = part(y);
        if (target.shape() != src.shape())
            throw ShapeError(str(op, ": src must have the shape of the part of x: src ",
                                 src.shape(), ", part ", target.shape()));
        target.copy_(src);
    }
    return record(op, y, {x, src},
                  [op, part, shape = src.shape()](const Grads& dy, Needs needs) -> Grads {
                      const Tensor& g = dy[0];
                      const TensorOptions options{.dtype = g.dtype(), .device = g.device()};
                      return {needs[0] ? with_part(op, g, zeros(shape, options), part) : Tensor(),
                              needs[1] ? part(g) : Tensor()};
                  });
}

}  // namespace

Tensor index_add(const Tensor& x, std::int64_t dim, const Tensor& index, const Tensor& source,
                 Scalar alpha) {
    const profiler::OpScope scope("index_add");
    check_device("index_add", {&x, &index, &source});
    check_same_dtype("index_add", x, source, "x", "source");
    return with_dims("index_add", x, dim, source, [&](const Tensor& y, int d, const Tensor& from) {
        const Tensor slices = index_of_slices("index_add", y, d, index, from);
        return scatter_add(y, d, slices, alpha.to_double() == 1 ? from : mul(from, alpha));
    });
}

Tensor index_copy(const Tensor& input, std::int64_t dim, const Tensor& index,
                  const Tensor& copied) {
    const profiler::OpScope scope("index_copy");
    check_device("index_copy", {&input, &index, &copied});
    // Under autocast, x and source can have different floating dtypes.
    const bool differ = autocast_dtype() && input.dtype() != copied.dtype();
    const Tensor x = differ ? autocast_to_f32(input) : input,
                 source = differ ? autocast_to_f32(copied) : copied;
    check_same_dtype("index_copy", x, source, "x", "source");
    return with_dims("index_copy", x, dim, source, [&](const Tensor& y, int d, const Tensor& from) {
        return scatter(y, d, index_of_slices("index_copy", y, d, index, from), from);
    });
}

Tensor index_fill(const Tensor& x, std::int64_t dim, const Tensor& index, const Tensor& value) {
    const profiler::OpScope scope("index_fill");
    check_device("index_fill", {&x, &index, &value});
    check_index_dtype("index_fill", index);
    if (value.dim() != 0)
        throw ShapeError(str("index_fill: the value must be 0-d: shape ", value.shape()));
    return with_dims("index_fill", x, dim, x, [&](const Tensor& y, int d, const Tensor&) {
        const Tensor at = wrapped_index("index_fill", index, y.shape(), d);
        const Tensor slices = index_of_slices("index_fill", y, d, at);
        // With where(), an index that occurs twice gets one gradient.
        const Tensor none = zeros(y.shape(), {.dtype = boolean, .device = y.device()});
        return where(scatter(none, d, slices, true), to(value, y.dtype()), y);
    });
}

Tensor index_fill(const Tensor& x, std::int64_t dim, const Tensor& index, Scalar value) {
    const profiler::OpScope scope("index_fill");
    check_device("index_fill", {&x, &index});
    return index_fill(x, dim, index, full({}, value, {.dtype = x.dtype(), .device = x.device()}));
}

Tensor index_reduce(const Tensor& x, std::int64_t dim, const Tensor& index, const Tensor& source,
                    IndexReduction reduce, bool include_self) {
    const profiler::OpScope scope("index_reduce");
    check_device("index_reduce", {&x, &index, &source});
    check_same_dtype("index_reduce", x, source, "x", "source");
    return with_dims("index_reduce", x, dim, source,
                     [&](const Tensor& y, int d, const Tensor& from) {
                         const Tensor slices = index_of_slices("index_reduce", y, d, index, from);
                         check_compute("index_reduce", y);
                         if (reduce == IndexReduction::mean && y.dtype() == boolean)
                             throw DTypeError(
                                 "index_reduce: the mean of booleans is not defined; convert x and "
                                 "source to a floating dtype");
                         return scatter_reduce(y, d, slices, from, reduce, include_self);
                     });
}

Tensor index_put(const Tensor& x, const std::vector<TensorIndex>& indices, const Tensor& value,
                 bool accumulate) {
    const profiler::OpScope scope("index_put");
    check_device("index_put", {&x});
    check_device("index_put", {&value});
    // Under autocast, x and the value can have different floating dtypes.
    const bool differ = autocast_dtype() && x.dtype() != value.dtype();
    const Tensor y = clone(differ ? autocast_to_f32(x) : x);
    put_values("index_put", y, indices, value, accumulate);
    return y;
}

Tensor slice_scatter(const Tensor& x, const Tensor& src, std::int64_t dim, std::int64_t start,
                     std::int64_t end, std::int64_t step) {
    const profiler::OpScope scope("slice_scatter");
    check_device("slice_scatter", {&x, &src});
    return with_part("slice_scatter", x, src, [=](const Tensor& of) {
        return sliced("slice_scatter", of, dim, start, end, step);
    });
}

Tensor select_scatter(const Tensor& x, const Tensor& src, std::int64_t dim, std::int64_t index) {
    const profiler::OpScope scope("select_scatter");
    check_device("select_scatter", {&x, &src});
    return with_part("select_scatter", x, src,
                     [=](const Tensor& of) { return selected("select_scatter", of, dim, index); });
}

Tensor diagonal_scatter(const Tensor& x, const Tensor& src, std::int64_t offset, std::int64_t dim1,
                        std::int64_t dim2) {
    const profiler::OpScope scope("diagonal_scatter");
    check_device("diagonal_scatter", {&x, &src});
    return with_part("diagonal_scatter", x, src, [=](const Tensor& of) {
        return diagonal_of("diagonal_scatter", of, offset, dim1, dim2);
    });
}

}  // namespace axle
