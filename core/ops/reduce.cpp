#include "kernels/ops/reduce.h"

#include <algorithm>
#include <array>

#include "core/autograd/autocast.h"
#include "core/autograd/autograd.h"
#include "core/check.h"
#include "core/launch.h"
#include "core/ops.h"
#include "core/ops/reductions/reduced.h"
#include "core/profiler/profiler.h"

namespace axle {

Reduced reduced(const char* op, const Tensor& x, const Dims& dims, bool keepdim) {
    check_device(op, {&x});
    check_compute(op, x);
    std::array<bool, kMaxDims> is_reduced = {};
    if (dims.empty()) is_reduced.fill(true);
    for (const std::int64_t dim : dims) {
        bool& flag = is_reduced[wrap_dim(op, dim, x.dim())];
        if (flag) throw ValueError(str(op, ": duplicate dimension: dims is ", dims));
        flag = true;
    }
    Reduced r;
    for (int d = 0; d < x.dim(); ++d) {
        r.kept.push_back(is_reduced[d] ? 1 : x.shape()[d]);
        if (is_reduced[d]) {
            r.dims.push_back(d);
            r.n *= x.shape()[d];
        }
        if (!is_reduced[d] || keepdim) r.result.push_back(r.kept[d]);
    }
    return r;
}

void check_not_empty(const char* op, const Tensor& x, const Reduced& r) {
    if (r.n == 0 && numel(r.result) > 0)
        throw ValueError(
            str(op, ": the reduced dimensions must not have size 0: x is ", x.shape()));
}

namespace {

Tensor empty_result(const Tensor& x, const Reduced& r, DType dtype) {
    return empty(r.result, {dtype, x.device()});
}

// Returns a view of y with the shape `kept`, which differs from y's shape only in sizes of 1.
View view_as(Tensor& y, const Shape& kept) {
    View v = y.view();
    const Strides strides = contiguous_strides(kept);
    v.ndim = kept.size();
    for (int d = 0; d < v.ndim; ++d) v.shape[d] = kept[d], v.stride[d] = strides[d];
    return v;
}

// Expands a result, or the gradient of a result, to the shape of x.
Tensor expand_to_input(const Tensor& dy, const Shape& kept, const Shape& x) {
    return expand(reshape(dy, kept), x);
}

// Returns the maximum or minimum over dims. Equal elements share the gradient.
template <class Kernel>
Tensor extreme(const char* op, const Tensor& x, const Dims& dims, bool keepdim, Kernel kernel) {
    const profiler::OpScope scope(op);
    const Reduced r = reduced(op, x, dims, keepdim);
    check_not_empty(op, x, r);
    Tensor y = empty_result(x, r, x.dtype());
    launch(x.device(), [&](auto& on) { kernel(on, x.view(), view_as(y, r.kept)); });
    return record(op, y, {x},
                  [x = saved(x), y = saved(y), kept = r.kept](const Grads& dy, Needs) -> Grads {
                      const Tensor input = x;
                      const Tensor hit = to(eq(input, reshape(y, kept)), input.dtype());
                      Dims is_reduced;
                      for (int d = 0; d < kept.size(); ++d)
                          if (kept[d] == 1) is_reduced.push_back(d);
                      const Tensor ties = is_reduced.empty() ? hit : sum(hit, is_reduced, true);
                      return {mul(hit, div(reshape(dy[0], kept), ties))};
                  });
}

template <class Kernel>
Tensor arg_extreme(const char* op, const Tensor& x, std::int64_t dim, bool keepdim, Kernel kernel) {
    const profiler::OpScope scope(op);
    const Reduced r = reduced(op, x, {dim}, keepdim);
    check_not_empty(op, x, r);
    Tensor y = empty_result(x, r, i64);
    launch(x.device(), [&](auto& on) { kernel(on, x.view(), view_as(y, r.kept)); });
    return y;
}

}  // namespace

Tensor sum(const Tensor& input, const Dims& dims, bool keepdim) {
    const profiler::OpScope scope("sum");
    const Tensor x = autocast_to_f32(input);
    const Reduced r = reduced("sum", x, dims, keepdim);
    Tensor y = empty_result(x, r, is_floating(x.dtype()) ? x.dtype() : i64);
    launch(x.device(), [&](auto& on) { kernels::sum(on, x.view(), view_as(y, r.kept)); });
    return record("sum", y, {x},
                  [kept = r.kept, shape = x.shape()](const Grads& dy, Needs) -> Grads {
                      return {expand_to_input(dy[0], kept, shape)};
                  });
}

Tensor mean(const Tensor& x, const Dims& dims, bool keepdim) {
    const profiler::OpScope scope("mean");
    const Reduced r = reduced("mean", x, dims, keepdim);
    check_floating("mean", x);
    Tensor y = empty_result(x, r, x.dtype());
    launch(x.device(), [&](auto& on) { kernels::mean(on, x.view(), view_as(y, r.kept)); });
    return record("mean", y, {x}, [r, shape = x.shape()](const Grads& dy, Needs) -> Grads {
        const auto n = static_cast<double>(std::max<std::int64_t>(1, r.n));
        return {expand_to_input(div(dy[0], n), r.kept, shape)};
    });
}

Tensor max(const Tensor& x, const Dims& dims, bool keepdim) {
    return extreme("max", x, dims, keepdim,
                   [](auto& on, ConstView from, View to) { kernels::max(on, from, to); });
}

Tensor min(const Tensor& x, const Dims& dims, bool keepdim) {
    return extreme("min", x, dims, keepdim,
                   [](auto& on, ConstView from, View to) { kernels::min(on, from, to); });
}

Tensor amax(const Tensor& x, const Dims& dims, bool keepdim) {
    return extreme("amax", x, dims, keepdim,
                   [](auto& on, ConstView from, View to) { kernels::max(on, from, to); });
}

Tensor amin(const Tensor& x, const Dims& dims, bool keepdim) {
    return extreme("amin", x, dims, keepdim,
                   [](auto& on, ConstView from, View to) { kernels::min(on, from, to); });
}

Tensor argmax(const Tensor& x, std::int64_t dim, bool keepdim) {
    return arg_extreme("argmax", x, dim, keepdim,
                       [](auto& on, ConstView from, View to) { kernels::argmax(on, from, to); });
}

Tensor argmin(const Tensor& x, std::int64_t dim, bool keepdim) {
    return arg_extreme("argmin", x, dim, keepdim,
                       [](auto& on, ConstView from, View to) { kernels::argmin(on, from, to); });
}

Tensor var(const Tensor& x, const Dims& dims, double correction, bool keepdim) {
    const profiler::OpScope scope("var");
    const Reduced r = reduced("var", x, dims, keepdim);
    check_floating("var", x);
    Tensor y = empty_result(x, r, x.dtype());
    launch(x.device(),
           [&](auto& on) { kernels::var(on, x.view(), correction, view_as(y, r.kept)); });
    return record("var", y, {x},
                  [x = saved(x), r, dims, correction](const Grads& dy, Needs) -> Grads {
                      const Tensor input = x;
                      const double divisor = std::max(0.0, static_cast<double>(r.n) - correction);
                      const Tensor scale = mul(reshape(dy[0], r.kept), 2 / divisor);
                      return {mul(sub(input, mean(input, dims, true)), scale)};
                  });
}

Tensor sum_to(const Tensor& x, const Shape& shape) {
    const profiler::OpScope scope("sum_to");
    check_device("sum_to", {&x});
    if (x.shape() == shape) return x;
    Shape kept;
    for (int d = shape.size(); d < x.dim(); ++d) kept.push_back(1);
    for (const std::int64_t size : shape) kept.push_back(size);
    bool possible = kept.size() == x.dim();
    for (int d = 0; possible && d < kept.size(); ++d)
        possible = kept[d] == 1 || kept[d] == x.shape()[d];
    if (!possible)
        throw ShapeError(str("sum_to: the shape cannot be broadcast to the operand: shape ", shape,
                             ", operand ", x.shape()));
    Tensor y = empty(shape, {is_floating(x.dtype()) ? x.dtype() : i64, x.device()});
    launch(x.device(), [&](auto& on) { kernels::sum(on, x.view(), view_as(y, kept)); });
    return record("sum_to", y, {x}, [to = x.shape()](const Grads& dy, Needs) -> Grads {
        return {expand(dy[0], to)};
    });
}

}  // namespace axle
