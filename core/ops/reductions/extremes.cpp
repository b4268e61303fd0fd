// Extremes with indices, cumulative extremes, logcumsumexp(), and clamp() with tensors.
#include <limits>
#include <type_traits>

#include "core/autograd/autograd.h"
#include "core/check.h"
#include "core/launch.h"
#include "core/ops.h"
#include "core/ops/reductions/reduced.h"
#include "core/profiler/profiler.h"
#include "kernels/ops/scan.h"

namespace axle {
namespace {

using FindExtreme = Tensor (*)(const Tensor& x, std::int64_t dim, bool keepdim);

std::pair<Tensor, Tensor> extreme_with_index(const char* op, const Tensor& x, std::int64_t dim,
                                             bool keepdim, FindExtreme find) {
    const profiler::OpScope scope(op);
    const Reduced r = reduced(op, x, dim, keepdim);
    check_not_empty(op, x, r);
    const Tensor index = find(x.detach(), dim, true);
    return {reshape(gather(x, dim, index), r.result), reshape(index, r.result)};
}

// Returns the elements before `offset` and the combined elements after it as one tensor.
Tensor after_offset(const Tensor& x, int d, std::int64_t offset, const Tensor& combined) {
    return cat({narrow(x, d, 0, offset), combined}, d);
}

// Combines each element with the element 1, 2, 4, ... positions before it. After log2(n) passes
// each element has been combined with all elements before it.
Tensor extreme_positions_by_doubling(const Tensor& x, int d, bool largest) {
    const std::int64_t n = x.shape()[d];
    Shape aligned;
    for (int i = 0; i < x.dim(); ++i) aligned.push_back(i == d ? n : 1);
    Tensor indices =
        expand(reshape(arange(n, {.dtype = i64, .device = x.device()}), aligned), x.shape());
    Tensor values = x;
    for (std::int64_t offset = 1; offset < n; offset *= 2) {
        const Tensor here = narrow(values, d, offset, n - offset);
        const Tensor before = narrow(values, d, 0, n - offset);
        Tensor keeps = largest ? ge(here, before) : le(here, before);
        if (is_floating(x.dtype())) keeps = logical_or(keeps, isnan(here));
        const Tensor chosen =
            where(keeps, narrow(indices, d, offset, n - offset), narrow(indices, d, 0, n - offset));
        values = after_offset(values, d, offset, where(keeps, here, before));
        indices = after_offset(indices, d, offset, chosen);
    }
    return contiguous(indices);
}

// Returns the cumulative extremes along d and their positions.
std::pair<Tensor, Tensor> extremes_along(const Tensor& x, int d, bool largest) {
    if (!x.device().is_cpu()) {
        const Tensor positions = extreme_positions_by_doubling(x, d, largest);
        return {gather(x, d, positions), positions};
    }
    Tensor y = empty(x.shape(), {.dtype = x.dtype()}), positions = empty(x.shape(), {.dtype = i64});
    const Tensor rows = transpose(x, d, -1);
    Tensor rows_of_y = transpose(y, d, -1), rows_of_positions = transpose(positions, d, -1);
    launch(x.device(), [&]<class On>(On& on) {
        if constexpr (std::is_same_v<On, kernels::Cpu>)
            kernels::cumulative_extreme(on, largest, rows.view(), rows_of_y.view(),
                                        rows_of_positions.view());
    });
    return {y, positions};
}

std::pair<Tensor, Tensor> cumulative_extreme(const char* op, const Tensor& x, std::int64_t dim,
                                             bool largest) {
    const profiler::OpScope scope(op);
    check_device(op, {&x});
    check_compute(op, x);
    const int d = wrap_dim(op, dim, x.dim());
    if (x.dim() == 0) return {clone(x), zeros({}, {.dtype = i64, .device = x.device()})};
    const auto [y, positions] = extremes_along(x.detach(), d, largest);
    return {record(op, y, {x},
                   [positions = saved(positions), shape = x.shape(), d](const Grads& dy,
                                                                        Needs) -> Grads {
                       const Tensor zero = zeros(shape, {dy[0].dtype(), dy[0].device()});
                       return {scatter_add(zero, d, positions, dy[0])};
                   }),
            positions};
}

Tensor log_cumulative_sum(Tensor x, int d) {
    const std::int64_t n = x.shape()[d];
    for (std::int64_t offset = 1; offset < n; offset *= 2)
        x = after_offset(x, d, offset,
                         logaddexp(narrow(x, d, offset, n - offset), narrow(x, d, 0, n - offset)));
    return x;
}

// Returns the gradient of logcumsumexp, dx[j] = sum of dy[i] e^(x[j] - y[i]) for i >= j. The sums
// of the positive and of the negative dy are computed as logarithms, because e^-y[i] can overflow.
Tensor log_cumulative_gradient(const Tensor& dy, const Tensor& x, const Tensor& y, int d) {
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    const Tensor finite = masked_fill(y, eq(y, -kInfinity), 0);
    const auto part = [&](const Tensor& g) {
        const Tensor terms = sub(log(relu(g)), finite);
        return exp(add(flip(log_cumulative_sum(flip(terms, d), d), d), x));
    };
    return sub(part(dy), part(neg(dy)));
}

}  // namespace

std::pair<Tensor, Tensor> aminmax(const Tensor& x, std::optional<std::int64_t> dim, bool keepdim) {
    const profiler::OpScope scope("aminmax");
    const Dims dims = dim ? Dims(*dim) : Dims();
    const Reduced r = reduced("aminmax", x, dims, keepdim);
    check_not_empty("aminmax", x, r);
    return {amin(x, dims, keepdim), amax(x, dims, keepdim)};
}

std::pair<Tensor, Tensor> max_with_indices(const Tensor& x, std::int64_t dim, bool keepdim) {
    return extreme_with_index("max_with_indices", x, dim, keepdim, argmax);
}
std::pair<Tensor, Tensor> min_with_indices(const Tensor& x, std::int64_t dim, bool keepdim) {
    return extreme_with_index("min_with_indices", x, dim, keepdim, argmin);
}

std::pair<Tensor, Tensor> cummax(const Tensor& x, std::int64_t dim) {
    return cumulative_extreme("cummax", x, dim, true);
}
std::pair<Tensor, Tensor> cummin(const Tensor& x, std::int64_t dim) {
    return cumulative_extreme("cummin", x, dim, false);
}

Tensor logcumsumexp(const Tensor& x, std::int64_t dim) {
    const profiler::OpScope scope("logcumsumexp");
    check_device("logcumsumexp", {&x});
    check_floating("logcumsumexp", x);
    const int d = wrap_dim("logcumsumexp", dim, x.dim());
    if (x.dim() == 0) return clone(x);
    Tensor y;
    {
        const NoGrad no_grad;
        y = to(log_cumulative_sum(widened(x), d), x.dtype());
        if (y.is_same(x)) y = clone(x);
    }
    return record("logcumsumexp", y, {x},
                  [x = saved(x), y = saved(y), d](const Grads& dy, Needs) -> Grads {
                      if (grad_enabled()) refuse_double_backward("logcumsumexp");
                      return {log_cumulative_gradient(widened(dy[0]), widened(x), widened(y), d)};
                  });
}

// At a bound, x and the bound share the gradient, unless both bounds are equal. Then x gets it, as
// in PyTorch.
Tensor clamp(const Tensor& x, const Tensor& low, const Tensor& high) {
    const profiler::OpScope scope("clamp");
    check_device("clamp", {&x});
    if (!low.defined() && !high.defined())
        throw ValueError("clamp: at least one of low and high must be given: neither is given");
    if (low.defined()) broadcast_shapes("clamp", x.shape(), low.shape());
    if (high.defined()) broadcast_shapes("clamp", x.shape(), high.shape());
    if (!high.defined()) return maximum(x, low);
    if (!low.defined()) return minimum(x, high);
    Tensor y;
    {
        const NoGrad no_grad;
        y = minimum(maximum(x, low), high);
    }
    return record(
        "clamp", y, {x, low, high},
        [x = saved(x), low = saved(low), high = saved(high)](const Grads& dy, Needs) -> Grads {
            const Tensor at = x.get().detach(), l = low.get().detach(), h = high.get().detach();
            const auto share = [&](const Tensor& whole, const Tensor& half) {
                return add(to(whole, dy[0].dtype()), mul(to(half, dy[0].dtype()), 0.5));
            };
            const Tensor is_range = lt(l, h), is_crossed = gt(l, h);
            const Tensor of_low = share(logical_and(lt(at, l), logical_not(is_crossed)),
                                        logical_and(eq(at, l), is_range));
            const Tensor of_high =
                share(logical_or(gt(at, h), is_crossed), logical_and(eq(at, h), is_range));
            return {mul(dy[0], sub(sub(1, of_low), of_high)), mul(dy[0], of_low),
                    mul(dy[0], of_high)};
        });
}

}  // namespace axle
