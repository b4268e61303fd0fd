// Reductions, cumulative extremes, clamp() with tensors, order statistics, counts, sets, searches
// in sorted tensors, differences and integrals that are not in core/ops.h. core/ops.h includes this
// header and states the rules of all ops.
//
// An empty list of dims means all dimensions. Functions with dims throw ValueError if a dimension
// is listed twice. With keepdim, the reduced dimensions have size 1 in the result; otherwise they
// are removed.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "core/tensor.h"

namespace axle {

// --- any, all, sums and products (reductions/sums.cpp)
// Return whether any element, or every element, is not 0; NaN is not 0. The result is bool, but u8
// for u8.
Tensor any(const Tensor& x, const Dims& dims = {}, bool keepdim = false);
Tensor all(const Tensor& x, const Dims& dims = {}, bool keepdim = false);
Tensor count_nonzero(const Tensor& x, const Dims& dims = {});  // i64
// Return the sum or the mean of the elements that are not NaN. nansum of bool and integers gives
// i64; the mean of no elements is NaN. nanmean throws DTypeError unless x is floating.
Tensor nansum(const Tensor& x, const Dims& dims = {}, bool keepdim = false);
Tensor nanmean(const Tensor& x, const Dims& dims = {}, bool keepdim = false);
// Return the product of all elements, or of the elements along dim; bool and integers give i64. The
// gradient is exact even if x contains zeros.
Tensor prod(const Tensor& x);
Tensor prod(const Tensor& x, std::int64_t dim, bool keepdim = false);
// Returns ln(sum of e^x) without overflow. Integers give f32. The result of no elements is -inf.
Tensor logsumexp(const Tensor& x, const Dims& dims = {}, bool keepdim = false);

// --- norms and variances (reductions/norms.cpp). Throw DTypeError unless x is floating.
// Return (sum of |x|^p)^(1/p). If p is 0, this is the number of elements that are not 0; if p is
// inf or -inf, the largest or the smallest |x|. The gradient is 0 where the norm is 0. Throw
// ValueError if p is NaN, or if p is negative or infinite and a norm would be of no elements.
Tensor vector_norm(const Tensor& x, double p = 2, const Dims& dims = {}, bool keepdim = false);
Tensor norm(const Tensor& x, double p = 2, const Dims& dims = {}, bool keepdim = false);
// Returns x with each slice along dim multiplied by a number, so that its p-norm is at most
// max_norm. Throws ShapeError unless x has two dimensions or more, and ValueError unless p is
// positive and max_norm is not negative.
Tensor renorm(const Tensor& x, double p, std::int64_t dim, double max_norm);
// Returns the square root of var(x, dims, correction, keepdim); its gradient is 0 where the result
// is 0.
Tensor std(const Tensor& x, const Dims& dims = {}, double correction = 1, bool keepdim = false);
// Return (variance, mean) and (standard deviation, mean).
std::pair<Tensor, Tensor> var_mean(const Tensor& x, const Dims& dims = {}, double correction = 1,
                                   bool keepdim = false);
std::pair<Tensor, Tensor> std_mean(const Tensor& x, const Dims& dims = {}, double correction = 1,
                                   bool keepdim = false);

// --- extremes (reductions/extremes.cpp; amax and amin: reduce.cpp). amax() to min_with_indices()
// throw ValueError if an element of the result would be computed from no elements.
// Return the largest or smallest elements; equal elements share the gradient, as in max() and
// min().
Tensor amax(const Tensor& x, const Dims& dims = {}, bool keepdim = false);
Tensor amin(const Tensor& x, const Dims& dims = {}, bool keepdim = false);
// Returns (minimum, maximum) along dim, or of all elements.
std::pair<Tensor, Tensor> aminmax(const Tensor& x, std::optional<std::int64_t> dim = {},
                                  bool keepdim = false);
// Return the extreme elements along dim and their indices (i64), as torch.max(x, dim) does. If
// elements are equal, the first one is selected (NaN before all numbers), and only this element
// gets a gradient.
std::pair<Tensor, Tensor> max_with_indices(const Tensor& x, std::int64_t dim, bool keepdim = false);
std::pair<Tensor, Tensor> min_with_indices(const Tensor& x, std::int64_t dim, bool keepdim = false);
// Return, for each element, the largest or smallest element up to it along dim, and its index
// (i64). The last of equal elements is selected. NaN counts as larger than every number in cummax()
// and as smaller in cummin().
std::pair<Tensor, Tensor> cummax(const Tensor& x, std::int64_t dim);
std::pair<Tensor, Tensor> cummin(const Tensor& x, std::int64_t dim);
// Returns ln(e^x[0] + ... + e^x[i]) along dim without overflow. Throws DTypeError unless x is
// floating. Cannot be differentiated twice.
Tensor logcumsumexp(const Tensor& x, std::int64_t dim);
// Returns x limited to [low, high], which are broadcast with x; an undefined bound does not limit.
// Returns high where low is above high. Throws ValueError if both bounds are undefined.
Tensor clamp(const Tensor& x, const Tensor& low, const Tensor& high);

// --- order statistics (reductions/order.cpp). On a GPU, they have the limits of sort().
// Return the median of all elements, or (values, indices) along dim. If the number of elements is
// even, the median is the lower of the two middle elements. The median of elements that include NaN
// is NaN; nanmedian ignores NaN. Equal elements share the gradient of the median of all elements.
// The median of no elements is NaN. For integers, and along an empty dim, the functions throw
// ValueError instead.
Tensor median(const Tensor& x);
Tensor nanmedian(const Tensor& x);
std::pair<Tensor, Tensor> median(const Tensor& x, std::int64_t dim, bool keepdim = false);
std::pair<Tensor, Tensor> nanmedian(const Tensor& x, std::int64_t dim, bool keepdim = false);
// Returns the k-th smallest elements along dim and their indices. k counts from 1. NaN is larger
// than every number. Throws ValueError unless k is in [1, size of dim].
std::pair<Tensor, Tensor> kthvalue(const Tensor& x, std::int64_t k, std::int64_t dim = -1,
                                   bool keepdim = false);
// Returns the most frequent elements along dim, the smallest of them if there are several, and the
// index of their last occurrence. Throws ValueError if dim is empty.
std::pair<Tensor, Tensor> mode(const Tensor& x, std::int64_t dim = -1, bool keepdim = false);

// The method by which quantile() computes a quantile between the sorted elements i and i + 1.
enum class QuantileInterpolation : std::uint8_t { linear, lower, higher, midpoint, nearest };
// Return the quantiles q of x along dim, or of all elements. q is a number, or a 0-d or 1-d tensor,
// whose dimension becomes the first dimension of the result. The quantiles of elements that include
// NaN are NaN; nanquantile ignores NaN. Throw DTypeError unless x and q are floating, and
// ValueError if x has no elements or if q is outside of [0, 1]. The elements of a tensor q are
// checked only on the CPU.
Tensor quantile(const Tensor& x, double q, std::optional<std::int64_t> dim = {},
                bool keepdim = false,
                QuantileInterpolation interpolation = QuantileInterpolation::linear);
Tensor quantile(const Tensor& x, const Tensor& q, std::optional<std::int64_t> dim = {},
                bool keepdim = false,
                QuantileInterpolation interpolation = QuantileInterpolation::linear);
Tensor nanquantile(const Tensor& x, double q, std::optional<std::int64_t> dim = {},
                   bool keepdim = false,
                   QuantileInterpolation interpolation = QuantileInterpolation::linear);
Tensor nanquantile(const Tensor& x, const Tensor& q, std::optional<std::int64_t> dim = {},
                   bool keepdim = false,
                   QuantileInterpolation interpolation = QuantileInterpolation::linear);

// --- counts and sets (reductions/counts.cpp). They have no gradient.
// Returns how many elements are in each of `bins` intervals of equal width between low and high, in
// x's dtype. If low equals high, the range is from the minimum to the maximum of x, or if they are
// equal from the minimum - 1 to the maximum + 1. Elements outside of the range and NaN are not
// counted. Throws DTypeError unless x is floating, and ValueError unless bins is positive, low <=
// high and both bounds are finite.
Tensor histc(const Tensor& x, std::int64_t bins = 100, double low = 0, double high = 0);
// Returns how often each of the numbers 0, 1, ... occurs in x, a 1-d tensor of integers, as i64
// [max(largest + 1, min_length)]. With weights of x's shape, returns the sums of weights, in f32 if
// the weights are f32, else f64. Waits for a GPU, and throws DeviceError on the meta device,
// because the size of the result depends on values. Throws DTypeError for bool and floating x,
// ShapeError for other shapes, and ValueError for a negative element or min_length.
Tensor bincount(const Tensor& x, const Tensor& weights = {}, std::int64_t min_length = 0);
// The result of unique() and unique_consecutive().
struct UniqueElements {
    Tensor values;   // 1-d; with dim, the selected slices of x along dim
    Tensor inverse;  // i64, the position in `values` of each element of x (or of each slice)
    Tensor counts;   // i64, how often each of the values occurs
};
// Returns the distinct elements of x in ascending order. With dim, returns the distinct slices
// along dim in lexicographic order. Each NaN is a value of its own. unique_consecutive() merges
// only equal elements that are adjacent, and does not sort. Wait for a GPU, and throw DeviceError
// on the meta device, because the size of the result depends on values. Throw ShapeError if a given
// dim is not empty, but another dimension is. On a GPU, unique() has the limits of sort().
UniqueElements unique(const Tensor& x, std::optional<std::int64_t> dim = {});
UniqueElements unique_consecutive(const Tensor& x, std::optional<std::int64_t> dim = {});
// Return the positions (i64) at which the values must be inserted so that `sorted` remains in
// ascending order. The position is the first possible position, or the last if `right` is true. NaN
// is inserted after all elements. If `sorted` ends with NaNs, numbers can be inserted after some of
// these NaNs, as in PyTorch. `sorted` is 1-d, or has the same sizes as `values` in all dimensions
// except the last. `sorter` (undefined, or indices of the shape of `sorted`) is the order in which
// `sorted` is in ascending order. Throw ShapeError for other shapes. bucketize() is
// searchsorted(boundaries, x, right) for 1-d boundaries.
Tensor searchsorted(const Tensor& sorted, const Tensor& values, bool right = false,
                    const Tensor& sorter = {});
Tensor searchsorted(const Tensor& sorted, Scalar value, bool right = false);
Tensor bucketize(const Tensor& x, const Tensor& boundaries, bool right = false);

// --- differences (reductions/differences.cpp)
// Returns the n-th differences x[i + 1] - x[i] along dim, after cat({prepend, x, append}, dim). The
// difference of two booleans is their exclusive or. Returns a copy of x if n is 0. Throws
// ShapeError if x is 0-d, and ValueError if n is negative.
Tensor diff(const Tensor& x, std::int64_t n = 1, std::int64_t dim = -1, const Tensor& prepend = {},
            const Tensor& append = {});
// Return the integral of y along dim by the trapezoidal rule. The points have the distance dx or
// the coordinates x. x is 1-d along dim, or broadcasts with y and has the size of y along dim.
// Integers give f32. Throw ShapeError for another x, and if y is 0-d.
Tensor trapezoid(const Tensor& y, double dx = 1, std::int64_t dim = -1);
Tensor trapezoid(const Tensor& y, const Tensor& x, std::int64_t dim = -1);

}  // namespace axle
