// Scatter ops, in which each element of an index tensor selects an element of x along a dimension
// to change, and take(), put() and take_along_dim().
#include <cstdint>
#include <limits>

#include "core/autograd/autograd.h"
#include "core/check.h"
#include "core/launch.h"
#include "core/ops.h"
#include "core/ops/index_checks.h"
#include "core/ops/selection/indices.h"
#include "core/profiler/profiler.h"
#include "kernels/ops/index.h"

namespace axle {
namespace {

using How = kernels::Scatter;

// Returns the part of src with the shape of the index, which can be smaller.
Tensor part_for(const Tensor& index, const Tensor& src) {
    Tensor part = src;
    for (int d = 0; d < src.dim(); ++d)
        if (src.shape()[d] > index.shape()[d]) part = narrow(part, d, 0, index.shape()[d]);
    return part;
}

// Checks the operands of scatter, which have at least one dimension, and returns dim counted from
// 0.
int check_scatter(const char* op, const Tensor& x, std::int64_t dim, const Tensor& index,
                  const Tensor& src) {
    check_same_dtype(op, x, src, "x", "src");
    const int d = wrap_dim(op, dim, x.dim());
    check_fits(op, d, index, x);
    check_fits(op, -1, index, src);
    check_index_range(op, index, x.shape()[d]);
    return d;
}

// Returns x after the kernel, without history. src has the shape of the index.
Tensor scattered(How how, const Tensor& x, int d, const Tensor& index, const Tensor& src) {
    Tensor y = clone(x.detach());
    launch(x.device(),
           [&](auto& on) { kernels::scatter(on, how, d, index.view(), src.view(), y.view()); });
    return y;
}

// Returns a number as elements of x for all positions of the index.
Tensor elements(Scalar value, const Tensor& x, const Tensor& index) {
    return expand(full({}, value, {.dtype = x.dtype(), .device = x.device()}), index.shape());
}

// Returns x with the elements at the index replaced.
Tensor replaced(const char* op, const Tensor& x, int d, const Tensor& index, const Tensor& src) {
    return record(op, scattered(How::replace, x, d, index, src), {x, src},
                  [op, d, index = saved(index)](const Grads& dy, Needs needs) -> Grads {
                      const Tensor at = index;
                      return {
                          needs[0] ? replaced(op, dy[0], d, at, elements(0, dy[0], at)) : Tensor(),
                          needs[1] ? gather(dy[0], d, at) : Tensor()};
                  });
}

DType sum_dtype(const Tensor& x) { return is_half(x.dtype()) ? f32 : x.dtype(); }

// The values that the gradient rule of a reduction needs.
struct Reduced {
    Tensor x, index, src, y;
    int d;
};

// Divides the gradients of maxima or minima among the elements that are equal to them.
Grads extreme_gradient(const Tensor& gradient, const Reduced& r) {
    const Tensor dy = to(gradient, sum_dtype(gradient));
    const Tensor in_x = to(eq(r.x, r.y), dy.dtype());
    const Tensor in_src = to(eq(r.src, gather(r.y.detach(), r.d, r.index)), dy.dtype());
    const Tensor share = div(dy, scatter_add(in_x, r.d, r.index, in_src));
    return {mul(in_x, share), mul(in_src, gather(share, r.d, r.index))};
}

// The derivative of a product with respect to a factor is the product of the other factors. For
// factors in src, it is computed from the product of the factors other than 0, and the number of
// zeros.
Grads product_gradient(const Tensor& gradient, const Reduced& r) {
    const Tensor dy = to(gradient, sum_dtype(gradient));
    const Tensor x = to(r.x, dy.dtype()), src = to(r.src, dy.dtype());
    const Tensor dx = mul(dy, scattered(How::multiply, ones_like(x), r.d, r.index, src));
    const Tensor is_zero = eq(src, 0);
    const Tensor product =
        scattered(How::multiply, where(eq(x, 0), 1, x), r.d, r.index, where(is_zero, 1, src));
    const Tensor zeros = scatter_add(to(eq(x, 0), i64), r.d, r.index, to(is_zero, i64));
    const Tensor other_zeros = sub(gather(zeros, r.d, r.index), to(is_zero, i64));
    const Tensor others = div(gather(product, r.d, r.index), where(is_zero, 1, src));
    return {dx, mul(gather(dy, r.d, r.index), where(eq(other_zeros, 0), others, 0))};
}

// Returns the products, maxima or minima of the elements of x and src.
Tensor reduced(const char* op, How how, const Tensor& x, int d, const Tensor& index,
               const Tensor& src) {
    const Tensor y = scattered(how, x, d, index, src);
    return record(op, y, {x, src},
                  [op, how, d, x = saved(x), index = saved(index), src = saved(src), y = saved(y)](
                      const Grads& dy, Needs) -> Grads {
                      const Reduced r{x, index, src, y, d};
                      if (how != How::multiply) return extreme_gradient(dy[0], r);
                      if (grad_enabled()) refuse_double_backward(op);
                      return product_gradient(dy[0], r);
                  });
}

// Returns the neutral element of a reduction.
Scalar identity(IndexReduction reduce, DType dtype) {
    if (reduce == IndexReduction::prod) return 1;
    if (reduce != IndexReduction::amax && reduce != IndexReduction::amin) return 0;
    const bool lowest = reduce == IndexReduction::amax;
    constexpr double kLargest = std::numeric_limits<double>::infinity();
    if (is_floating(dtype)) return lowest ? -kLargest : kLargest;
    if (dtype == i64) return lowest ? INT64_MIN : INT64_MAX;
    if (dtype == i32) return lowest ? INT32_MIN : INT32_MAX;
    if (dtype == u8) return lowest ? 0 : 255;
    return !lowest;
}

// Returns the number of terms of each of the sums.
Tensor count_of(const Tensor& sum, int d, const Tensor& index, bool include_self) {
    const NoGrad no_grad;
    const Tensor one = ones_like(sum);
    const Tensor before =
        include_self ? one : scattered(How::replace, one, d, index, elements(0, sum, index));
    return scatter_add(before, d, index, elements(1, sum, index));
}

}  // namespace

Tensor scatter(const Tensor& x, std::int64_t dim, const Tensor& index, const Tensor& src) {
    const profiler::OpScope scope("scatter");
    check_device("scatter", {&x, &index, &src});
    check_index_dtype("scatter", index);
    if (x.dim() == 0)
        return reshape(scatter(at_least_1d(x), dim, at_least_1d(index), at_least_1d(src)), {});
    const int d = check_scatter("scatter", x, dim, index, src);
    return replaced("scatter", x, d, index, part_for(index, src));
}

Tensor scatter(const Tensor& x, std::int64_t dim, const Tensor& index, Scalar value) {
    const profiler::OpScope scope("scatter");
    check_device("scatter", {&x, &index});
    return scatter(x, dim, index, elements(value, x, index));
}

Tensor scatter_reduce(const Tensor& x, std::int64_t dim, const Tensor& index, const Tensor& src,
                      IndexReduction reduce, bool include_self) {
    const profiler::OpScope scope("scatter_reduce");
    check_device("scatter_reduce", {&x, &index, &src});
    check_index_dtype("scatter_reduce", index);
    check_compute("scatter_reduce", x);
    if (x.dim() == 0)
        return reshape(scatter_reduce(at_least_1d(x), dim, at_least_1d(index), at_least_1d(src),
                                      reduce, include_self),
                       {});
    const int d = check_scatter("scatter_reduce", x, dim, index, src);
    const bool is_mean = reduce == IndexReduction::mean;
    if (is_mean && x.dtype() == boolean)
        throw DTypeError(
            "scatter_reduce: the mean of booleans is not defined; convert x and src to a floating "
            "dtype");
    const Tensor part = to(part_for(index, src), sum_dtype(x));
    Tensor base = to(x, part.dtype());
    if (!include_self)
        base = replaced("scatter_reduce", base, d, index,
                        elements(identity(reduce, base.dtype()), base, index));
    switch (reduce) {
        case IndexReduction::prod:
            return to(reduced("scatter_reduce", How::multiply, base, d, index, part), x.dtype());
        case IndexReduction::amax:
            return to(reduced("scatter_reduce", How::maximum, base, d, index, part), x.dtype());
        case IndexReduction::amin:
            return to(reduced("scatter_reduce", How::minimum, base, d, index, part), x.dtype());
        default:
            break;
    }
    const Tensor sums = scatter_add(base, d, index, part);
    if (!is_mean) return to(sums, x.dtype());
    const Tensor counts = count_of(sums, d, index, include_self);
    return to(is_floating(x.dtype()) ? div(sums, counts) : floor_divide(sums, counts), x.dtype());
}

Tensor take(const Tensor& x, const Tensor& index) {
    const profiler::OpScope scope("take");
    check_device("take", {&x, &index});
    check_index_dtype("take", index);
    const Tensor flat = reshape(x, -1);
    const Tensor at = wrapped_index("take", reshape(index, -1), flat.shape(), 0);
    return reshape(index_select(flat, 0, at), index.shape());
}

Tensor put(const Tensor& x, const Tensor& index, const Tensor& source, bool accumulate) {
    const profiler::OpScope scope("put");
    check_device("put", {&x, &index, &source});
    check_index_dtype("put", index);
    check_same_dtype("put", x, source, "x", "source");
    if (index.numel() != source.numel())
        throw ShapeError(str("put: index and source must have the same number of elements: index ",
                             index.shape(), ", source ", source.shape()));
    const Tensor flat = reshape(x, -1), values = reshape(source, -1);
    const Tensor at = wrapped_index("put", reshape(index, -1), flat.shape(), 0);
    return reshape(accumulate ? scatter_add(flat, 0, at, values) : scatter(flat, 0, at, values),
                   x.shape());
}

Tensor take_along_dim(const Tensor& x, const Tensor& index, std::optional<std::int64_t> dim) {
    const profiler::OpScope scope("take_along_dim");
    check_device("take_along_dim", {&x, &index});
    check_index_dtype("take_along_dim", index);
    if (!dim) {
        // On a GPU, gather() reports an index out of range.
        if (index.device().is_cpu()) check_index_range("take_along_dim", index, x.numel());
        return gather(reshape(x, -1), 0, reshape(index, -1));
    }
    if (x.dim() != index.dim())
        throw ShapeError(
            str("take_along_dim: the index must have as many dimensions as the tensor: "
                "index ",
                index.shape(), ", tensor ", x.shape()));
    if (x.dim() == 0) return gather(x, *dim, index);
    const int d = wrap_dim("take_along_dim", *dim, x.dim());
    Shape from = x.shape(), at = index.shape();
    from[d] = at[d] = 1;
    from = at = broadcast_shapes("take_along_dim", from, at);
    from[d] = x.shape()[d];
    at[d] = index.shape()[d];
    const Tensor places = wrapped_index("take_along_dim", index, x.shape(), d);
    return gather(expand(x, from), d, expand(places, at));
}

}  // namespace axle
