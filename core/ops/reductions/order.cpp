// Order statistics, by sorting or, for some values of k in kthvalue(), by selection.
#include <limits>

#include "core/autograd/autocast.h"
#include "core/autograd/autograd.h"
#include "core/check.h"
#include "core/ops.h"
#include "core/ops/reductions/reduced.h"
#include "core/profiler/profiler.h"

namespace axle {
namespace {

// Returns the elements of x at `index`, and `index`, both in the shape of the reduction. `index`
// has size 1 along dim.
std::pair<Tensor, Tensor> selected(const Tensor& x, int d, const Tensor& index, const Reduced& r) {
    return {reshape(gather(x, d, index), r.result), reshape(index, r.result)};
}

// Returns the positions in x of the medians along d, which has size 1 in the result. `order` is the
// result of argsort(), in which NaN is last. Unless ignore_nan is true, the median of elements that
// include NaN is NaN.
Tensor median_index(const Tensor& x, const Tensor& order, int d, bool ignore_nan) {
    const std::int64_t n = x.shape()[d];
    if (!is_floating(x.dtype())) return narrow(order, d, (n - 1) / 2, 1);
    const Tensor numbers = sum(logical_not(isnan(x)), d, true);
    if (!ignore_nan) {
        const Tensor middle = full({}, (n - 1) / 2, {.dtype = i64, .device = x.device()});
        return gather(order, d, where(lt(numbers, n), numbers, middle));
    }
    const Tensor two = full({}, 2, {.dtype = i64, .device = x.device()});
    return gather(order, d, floor_divide(clamp(sub(numbers, 1), 0, {}), two));
}

std::pair<Tensor, Tensor> median_along(const char* op, const Tensor& input, std::int64_t dim,
                                       bool keepdim, bool ignore_nan) {
    const profiler::OpScope scope(op);
    const Reduced r = reduced(op, input, dim, keepdim);
    check_not_empty(op, input, r);
    const int d = wrap_dim(op, dim, input.dim());
    const Tensor x = with_a_dimension(input);
    if (x.numel() == 0) {
        const AutocastGuard off(std::nullopt);
        const Tensor none = to(sum(x, d, true), x.dtype());
        return {reshape(none, r.result), zeros(r.result, {.dtype = i64, .device = x.device()})};
    }
    const Tensor values = x.detach();
    return selected(x, d, median_index(values, argsort(values, d), d, ignore_nan), r);
}

Tensor median_of_all(const char* op, const Tensor& x, bool ignore_nan) {
    const profiler::OpScope scope(op);
    reduced(op, x, {}, false);
    Tensor y;
    if (x.numel() > 0) {
        y = median_along(op, reshape(x.detach(), -1), 0, false, ignore_nan).first;
    } else {
        if (!is_floating(x.dtype()))
            throw ValueError(str(op, ": x must not be empty: x is ", x.shape(), " ", x.dtype()));
        y = full({}, std::numeric_limits<double>::quiet_NaN(),
                 {.dtype = x.dtype(), .device = x.device()});
    }
    return record(op, y, {x}, [x = saved(x), y = saved(y)](const Grads& dy, Needs) -> Grads {
        const Tensor at = x.get().detach(), median = y.get().detach();
        const Tensor hit =
            to(logical_or(eq(at, median), logical_and(isnan(at), isnan(median))), dy[0].dtype());
        return {mul(hit, div(dy[0], sum(hit)))};
    });
}

double rank_limit(const Tensor& sorted) { return static_cast<double>(sorted.size(-1) - 1); }

// Returns the ranks [..., number of quantiles] in the sorted rows: fractional positions, counted
// from 0.
Tensor ranks_of(const Tensor& rows, const Tensor& q, bool ignore_nan) {
    if (ignore_nan) {
        const Tensor last = sub(sum(logical_not(isnan(rows)), -1, true), 1);
        return mul(q, to(clamp(last, 0, {}), q.dtype()));
    }
    // The rank of a row with NaN is the rank of its last element, which is NaN after sorting.
    return where(any(isnan(rows), -1, true), rank_limit(rows), mul(q, rank_limit(rows)));
}

Tensor at_rank(const Tensor& sorted, const Tensor& rank) {
    return gather(sorted, -1, to(rank.detach(), i64));
}

Tensor interpolated(const Tensor& sorted, const Tensor& ranks, QuantileInterpolation how) {
    using enum QuantileInterpolation;
    if (how == lower) return at_rank(sorted, floor(ranks));
    if (how == higher) return at_rank(sorted, ceil(ranks));
    if (how == nearest) return at_rank(sorted, round(ranks));
    const Tensor below = widened(at_rank(sorted, floor(ranks)));
    const Tensor above = widened(at_rank(sorted, ceil(ranks)));
    const Tensor y = how == midpoint
                         ? lerp(below, above, 0.5)
                         : lerp(below, above, to(sub(ranks, floor(ranks)), below.dtype()));
    return to(y, sorted.dtype());
}

void check_probabilities(const char* op, const Tensor& q) {
    if (q.dim() > 1) throw ShapeError(str(op, ": q must be a number or 1-d: q ", q.shape()));
    if (!q.device().is_cpu()) return;
    for (const double p : q.detach().to_vector())
        if (!(p >= 0 && p <= 1)) throw ValueError(str(op, ": q must be in [0, 1]: ", p));
}

Tensor quantile_of(const char* op, const Tensor& x, const Tensor& probabilities,
                   std::optional<std::int64_t> dim, bool keepdim, QuantileInterpolation how,
                   bool ignore_nan) {
    const Reduced r = reduced(op, x, dim ? Dims(*dim) : Dims(), keepdim);
    check_device(op, {&x, &probabilities});
    check_floating(op, x);
    check_floating(op, probabilities, "q");
    check_probabilities(op, probabilities);
    if (x.numel() == 0) throw ValueError(str(op, ": x must not be empty: x is ", x.shape()));
    const int d = dim ? wrap_dim(op, *dim, x.dim()) : 0;
    const Tensor q = widened(reshape(probabilities, -1));
    const Tensor rows = transpose(dim ? with_a_dimension(x) : reshape(x, -1), d, -1);
    const Tensor sorted = sort(rows, -1).first;
    Shape shape = rows.shape();
    shape[shape.size() - 1] = q.numel();
    const Tensor ranks = expand(ranks_of(rows.detach(), q, ignore_nan), shape);
    const Tensor y = transpose(interpolated(sorted, ranks, how), d, -1);
    if (probabilities.dim() == 0) return reshape(y, r.result);
    Shape result = r.result;
    result.insert(0, q.numel());
    return reshape(transpose(unsqueeze(y, 0), 0, d + 1), result);
}

Tensor quantile_of(const char* op, const Tensor& x, double q, std::optional<std::int64_t> dim,
                   bool keepdim, QuantileInterpolation how, bool ignore_nan) {
    check_device(op, {&x});
    if (!(q >= 0 && q <= 1)) throw ValueError(str(op, ": q must be in [0, 1]: ", q));
    // The rank is computed in f64 on all devices, because f64 ranks are exact for common quantiles.
    const Tensor number = full({}, q, {.dtype = f64, .device = x.device()});
    return quantile_of(op, x, number, dim, keepdim, how, ignore_nan);
}

}  // namespace

Tensor median(const Tensor& x) { return median_of_all("median", x, false); }
Tensor nanmedian(const Tensor& x) { return median_of_all("nanmedian", x, true); }
std::pair<Tensor, Tensor> median(const Tensor& x, std::int64_t dim, bool keepdim) {
    return median_along("median", x, dim, keepdim, false);
}
std::pair<Tensor, Tensor> nanmedian(const Tensor& x, std::int64_t dim, bool keepdim) {
    return median_along("nanmedian", x, dim, keepdim, true);
}

std::pair<Tensor, Tensor> kthvalue(const Tensor& input, std::int64_t k, std::int64_t dim,
                                   bool keepdim) {
    const profiler::OpScope scope("kthvalue");
    const Reduced r = reduced("kthvalue", input, dim, keepdim);
    if (r.n == 0)
        throw ValueError(
            str("kthvalue: dimension ", dim, " must not have the size 0: x is ", input.shape()));
    if (k < 1 || k > r.n)
        throw ValueError(str("kthvalue: k must be in [1, ", r.n, "]: ", k, " along dimension ", dim,
                             " of ", input.shape()));
    const int d = wrap_dim("kthvalue", dim, input.dim());
    const Tensor x = with_a_dimension(input), values = x.detach();
    // A full sort is faster than a selection of more than 1 / kFewer of the elements.
    constexpr std::int64_t kFewer = 8;
    Tensor index;
    if (k <= r.n / kFewer)
        index = narrow(topk(values, k, d, false).second, d, k - 1, 1);
    else if (r.n - k < r.n / kFewer)
        index = narrow(topk(values, r.n - k + 1, d, true).second, d, r.n - k, 1);
    else
        index = narrow(argsort(values, d), d, k - 1, 1);
    return selected(x, d, index, r);
}

// In a sorted row, the element that is farthest from the start of its run of equal elements is the
// end of the longest run. Of several such elements, the first (and smallest) is selected.
std::pair<Tensor, Tensor> mode(const Tensor& input, std::int64_t dim, bool keepdim) {
    const profiler::OpScope scope("mode");
    const Reduced r = reduced("mode", input, dim, keepdim);
    check_not_empty("mode", input, r);
    const int d = wrap_dim("mode", dim, input.dim());
    const Tensor x = with_a_dimension(input);
    if (r.n == 0)
        throw ValueError(
            str("mode: dimension ", d, " must not have the size 0: x is ", input.shape()));
    const auto [sorted, order] = sort(x.detach(), d);
    Shape aligned;
    for (int i = 0; i < x.dim(); ++i) aligned.push_back(i == d ? r.n : 1);
    const Tensor position = reshape(arange(r.n, {.dtype = i64, .device = x.device()}), aligned);
    const Tensor repeats = eq(narrow(sorted, d, 1, r.n - 1), narrow(sorted, d, 0, r.n - 1));
    const Tensor first = cat({zeros_like(narrow(sorted, d, 0, 1)).to(boolean), repeats}, d);
    const Tensor start = cummax(where(first, 0, position), d).first;
    return selected(x, d, gather(order, d, argmax(sub(position, start), d, true)), r);
}

Tensor quantile(const Tensor& x, double q, std::optional<std::int64_t> dim, bool keepdim,
                QuantileInterpolation interpolation) {
    const profiler::OpScope scope("quantile");
    return quantile_of("quantile", x, q, dim, keepdim, interpolation, false);
}
Tensor quantile(const Tensor& x, const Tensor& q, std::optional<std::int64_t> dim, bool keepdim,
                QuantileInterpolation interpolation) {
    const profiler::OpScope scope("quantile");
    return quantile_of("quantile", x, q, dim, keepdim, interpolation, false);
}
Tensor nanquantile(const Tensor& x, double q, std::optional<std::int64_t> dim, bool keepdim,
                   QuantileInterpolation interpolation) {
    const profiler::OpScope scope("nanquantile");
    return quantile_of("nanquantile", x, q, dim, keepdim, interpolation, true);
}
Tensor nanquantile(const Tensor& x, const Tensor& q, std::optional<std::int64_t> dim, bool keepdim,
                   QuantileInterpolation interpolation) {
    const profiler::OpScope scope("nanquantile");
    return quantile_of("nanquantile", x, q, dim, keepdim, interpolation, true);
}

}  // namespace axle
