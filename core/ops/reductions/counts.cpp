// Histograms, sets, and positions in sorted tensors.
#include <algorithm>
#include <cmath>

#include "core/autograd/autograd.h"
#include "core/check.h"
#include "core/ops.h"
#include "core/ops/index_checks.h"
#include "core/ops/reductions/reduced.h"
#include "core/profiler/profiler.h"

namespace axle {
namespace {

// Throws DeviceError if x is on the meta device, for ops whose result has a size that depends on
// the values of x.
void check_has_values(const char* op, const Tensor& x) {
    if (x.device().is_meta())
        throw DeviceError(str(op, ": a tensor on the meta device has no values: x ", x.shape()));
}

Tensor integers(const Shape& shape, Scalar value, Device device) {
    return full(shape, value, {.dtype = i64, .device = device});
}

template <class T>
void add_at(const Tensor& index, const Tensor& values, Tensor& sums) {
    const auto* position = index.data<std::int64_t>();
    const T* value = values.data<T>();
    T* sum = sums.data<T>();
    for (std::int64_t i = 0; i < index.numel(); ++i) sum[position[i]] += value[i];
}

// Adds values (i64, f32 or f64) at the positions `index` (1-d, i64) to zeros [size]. The positions
// must be valid. On a CPU, a loop is faster than scatter_add, whose strides are general.
Tensor sums_at(const Tensor& index, const Tensor& values, std::int64_t size) {
    Tensor sums = zeros({size}, {.dtype = values.dtype(), .device = values.device()});
    if (!index.device().is_cpu()) return scatter_add(sums, 0, index, values);
    const Tensor at = contiguous(index), added = contiguous(values);
    if (values.dtype() == i64)
        add_at<std::int64_t>(at, added, sums);
    else if (values.dtype() == f32)
        add_at<float>(at, added, sums);
    else
        add_at<double>(at, added, sums);
    return sums;
}

// Returns whether each slice of `rows` [n] or [n, m] differs from the slice before it, and true for
// the first slice.
Tensor starts_run(const Tensor& rows) {
    const std::int64_t n = rows.shape()[0];
    Tensor differs = ne(narrow(rows, 0, 1, n - 1), narrow(rows, 0, 0, n - 1));
    if (rows.dim() == 2) differs = any(differs, 1);
    return cat({ones({1}, {.dtype = boolean, .device = rows.device()}), differs}, 0);
}

// Merges equal adjacent slices of `rows` [n] or [n, m], n > 0. `order` is undefined, or the
// positions that the rows had before they were sorted.
UniqueElements merge_runs(const Tensor& rows, const Tensor& order) {
    const std::int64_t n = rows.shape()[0];
    const Tensor first = starts_run(rows);
    const Tensor run = sub(cumsum(first, 0), 1);
    const std::int64_t count = select(run, 0, n - 1).item_int() + 1;
    const Tensor position = arange(n, {.dtype = i64, .device = rows.device()});
    const Tensor start = sums_at(run, where(first, position, 0), count);
    const Tensor end = cat({narrow(start, 0, 1, count - 1), integers({1}, n, rows.device())}, 0);
    return {index_select(rows, 0, start), order.defined() ? sums_at(order, run, n) : run,
            sub(end, start)};
}

// Returns the order in which the rows [n, m] are sorted. Sorts stably by one column at a time, from
// the last column to the first.
Tensor lexicographic_order(const Tensor& rows) {
    Tensor order = arange(rows.shape()[0], {.dtype = i64, .device = rows.device()});
    for (std::int64_t c = rows.shape()[1] - 1; c >= 0; --c) {
        const Tensor column = index_select(select(rows, 1, c), 0, order);
        order = index_select(order, 0, argsort(column));
    }
    return order;
}

UniqueElements unique_elements(const Tensor& x, bool sorted) {
    const Tensor flat = reshape(x, -1);
    if (flat.numel() == 0)
        return {flat, zeros(x.shape(), {.dtype = i64, .device = x.device()}),
                zeros({0}, {.dtype = i64, .device = x.device()})};
    UniqueElements result;
    if (sorted) {
        const auto [values, order] = sort(flat, 0);
        result = merge_runs(values, order);
    } else {
        result = merge_runs(flat, {});
    }
    result.inverse = reshape(result.inverse, x.shape());
    return result;
}

UniqueElements unique_slices(const char* op, const Tensor& x, std::int64_t dim, bool sorted) {
    const int d = wrap_dim(op, dim, x.dim());
    const Tensor slices = transpose(with_a_dimension(x), 0, d);
    const std::int64_t n = slices.shape()[0];
    if (n == 0)
        return {x, zeros({0}, {.dtype = i64, .device = x.device()}),
                zeros({0}, {.dtype = i64, .device = x.device()})};
    if (x.numel() == 0)
        throw ShapeError(str(op, ": only dimension ", d, " may be empty: x ", x.shape()));
    const Tensor rows = reshape(slices, {n, x.numel() / n});
    UniqueElements result;
    if (sorted) {
        const Tensor order = lexicographic_order(rows);
        result = merge_runs(index_select(rows, 0, order), order);
    } else {
        result = merge_runs(rows, {});
    }
    Shape shape = slices.shape();
    shape[0] = result.values.shape()[0];
    result.values = contiguous(transpose(reshape(result.values, shape), 0, d));
    return result;
}

UniqueElements unique_of(const char* op, const Tensor& input, std::optional<std::int64_t> dim,
                         bool sorted) {
    const profiler::OpScope scope(op);
    check_device(op, {&input});
    check_compute(op, input);
    check_has_values(op, input);
    const Tensor x = input.detach();
    return dim ? unique_slices(op, x, *dim, sorted) : unique_elements(x, sorted);
}

// Returns the elements of `sorted` [..., n] at `index` [..., m]. A 1-d `sorted` applies to all
// rows.
Tensor elements_at(const Tensor& sorted, const Tensor& index) {
    if (sorted.dim() > 1) return gather(sorted, -1, index);
    return reshape(gather(sorted, 0, reshape(index, -1)), index.shape());
}

// Searches for all values together by bisection. Compares the same elements as PyTorch, and also
// continues after an element that is NaN, so that the results are equal even if `sorted` contains
// NaN.
Tensor insertion_points(const Tensor& sorted, const Tensor& values, bool right) {
    const std::int64_t n = sorted.size(-1);
    Tensor low = zeros(values.shape(), {.dtype = i64, .device = values.device()});
    Tensor high = integers(values.shape(), n, values.device());
    for (std::int64_t longest = n; longest > 0; longest /= 2) {
        const Tensor middle = floor_divide(add(low, high), 2);
        const Tensor element = elements_at(sorted, clamp(middle, {}, static_cast<double>(n - 1)));
        const Tensor stops = right ? gt(element, values) : ge(element, values);
        const Tensor continues = logical_and(lt(middle, high), logical_not(stops));
        high = where(continues, high, middle);
        low = where(continues, add(middle, 1), low);
    }
    return low;
}

}  // namespace

Tensor histc(const Tensor& x, std::int64_t bins, double low, double high) {
    const profiler::OpScope scope("histc");
    check_device("histc", {&x});
    check_floating("histc", x);
    if (bins < 1) throw ValueError(str("histc: bins must be positive: ", bins));
    if (!(low <= high) || std::isinf(low) || std::isinf(high))
        throw ValueError(str("histc: low must not be above high, and both must be finite: low ",
                             low, ", high ", high));
    const Tensor flat = widened(reshape(x.detach(), -1));
    if (flat.numel() == 0) return zeros({bins}, {.dtype = x.dtype(), .device = x.device()});
    Tensor from = full({}, low, {.dtype = flat.dtype(), .device = x.device()});
    Tensor to_end = full({}, high, {.dtype = flat.dtype(), .device = x.device()});
    if (low == high) {
        from = min(flat), to_end = max(flat);
        const Tensor same = eq(from, to_end);
        from = where(same, sub(from, 1), from), to_end = where(same, add(to_end, 1), to_end);
    }
    const Tensor inside = logical_and(ge(flat, from), le(flat, to_end));
    const Tensor distance = masked_fill(sub(flat, from), logical_not(inside), 0);
    const Tensor bin = div(mul(distance, static_cast<double>(bins)), sub(to_end, from));
    const Tensor position = clamp(to(bin, i64), 0, static_cast<double>(bins - 1));
    return to(sums_at(position, to(inside, i64), bins), x.dtype());
}

Tensor bincount(const Tensor& x, const Tensor& weights, std::int64_t min_length) {
    const profiler::OpScope scope("bincount");
    check_device("bincount", {&x});
    if (!is_integral(x.dtype()) || x.dtype() == boolean)
        throw DTypeError(str("bincount: x must be integers: ", x.dtype()));
    if (x.dim() != 1) throw ShapeError(str("bincount: x must be 1-d: x ", x.shape()));
    if (min_length < 0)
        throw ValueError(str("bincount: min_length must not be negative: ", min_length));
    if (weights.defined()) {
        check_device("bincount", {&x, &weights});
        check_compute("bincount", weights, "weights");
        if (weights.shape() != x.shape())
            throw ShapeError(str("bincount: weights must have the shape of x: weights ",
                                 weights.shape(), ", x ", x.shape()));
    }
    check_has_values("bincount", x);
    std::int64_t size = min_length;
    if (x.numel() > 0) {
        const std::int64_t least = min(x).item_int();
        if (least < 0) throw ValueError(str("bincount: x must not be negative: ", least));
        size = std::max(size, max(x).item_int() + 1);
    }
    const NoGrad no_grad;
    const Tensor added = !weights.defined() ? ones(x.shape(), {.dtype = i64, .device = x.device()})
                         : weights.dtype() == f32 ? weights
                                                  : to(weights, f64);
    return sums_at(to(x, i64), added, size);
}

UniqueElements unique(const Tensor& x, std::optional<std::int64_t> dim) {
    return unique_of("unique", x, dim, true);
}
UniqueElements unique_consecutive(const Tensor& x, std::optional<std::int64_t> dim) {
    return unique_of("unique_consecutive", x, dim, false);
}

namespace {

Tensor search(const char* op, const Tensor& sorted, const Tensor& values, bool right,
              const Tensor& sorter) {
    const profiler::OpScope scope(op);
    check_device(op, {&sorted, &values});
    bool fits = sorted.dim() == 1 || (sorted.dim() > 1 && sorted.dim() == values.dim());
    for (int d = 0; fits && sorted.dim() > 1 && d + 1 < sorted.dim(); ++d)
        fits = sorted.shape()[d] == values.shape()[d];
    if (!fits)
        throw ShapeError(str(op,
                             ": the sorted tensor must be 1-d, or have the sizes of the values "
                             "in all dimensions but the last: sorted ",
                             sorted.shape(), ", values ", values.shape()));
    if (sorter.defined()) {
        check_device(op, {&sorted, &sorter});
        if (sorter.shape() != sorted.shape())
            throw ShapeError(str(op,
                                 ": the sorter must have the shape of the sorted tensor: sorter ",
                                 sorter.shape(), ", sorted ", sorted.shape()));
        check_index_dtype(op, sorter, "the sorter");
        // On a GPU, gather() reports an index out of range.
        if (sorter.device().is_cpu()) check_index_range(op, sorter, sorted.size(-1));
    }
    const Tensor from = sorted.detach();
    return insertion_points(sorter.defined() ? gather(from, -1, sorter) : from, values.detach(),
                            right);
}

}  // namespace

Tensor searchsorted(const Tensor& sorted, const Tensor& values, bool right, const Tensor& sorter) {
    return search("searchsorted", sorted, values, right, sorter);
}
Tensor searchsorted(const Tensor& sorted, Scalar value, bool right) {
    check_device("searchsorted", {&sorted});
    const DType dtype = promote(sorted.dtype(), value);
    return search("searchsorted", sorted,
                  full({}, value, {.dtype = dtype, .device = sorted.device()}), right, {});
}
Tensor bucketize(const Tensor& x, const Tensor& boundaries, bool right) {
    check_device("bucketize", {&x, &boundaries});
    if (boundaries.dim() != 1)
        throw ShapeError(str("bucketize: the boundaries must be 1-d: ", boundaries.shape()));
    return search("bucketize", boundaries, x, right, {});
}

}  // namespace axle
