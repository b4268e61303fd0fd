// Tensor operations by family. The file in core/ops/ that implements a family is named in
// parentheses. The headers of the other families are listed at the end of this file.
//
// The following rules apply to all ops unless a comment states otherwise. Operands must be on one
// device. Dtypes are promoted as in PyTorch. Under autocast (core/autograd/autocast.h), the rules
// for dtypes apply after its casts. A negative dimension counts from the end. Results are new
// tensors, except for the ops under "views".
//
// Ops throw UsageError for an undefined operand, DeviceError for operands on different devices, and
// DTypeError for an unsupported dtype. They throw ShapeError for shapes that do not match, and
// IndexError for a dimension or an index out of range. The messages name the op and the operands.
// On a GPU, an index or target out of range is a reported error: the next call that waits for the
// GPU throws it. Comments of ops mention other errors.
#pragma once

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "core/creation.h"
#include "core/elementwise.h"
#include "core/functional.h"
#include "core/indexing.h"
#include "core/losses.h"
#include "core/products.h"
#include "core/reductions.h"
#include "core/selection.h"
#include "core/shaping.h"
#include "core/tensor.h"

namespace axle {

// --- creation (create.cpp); throws ShapeError for a negative size, DeviceError for a device that
// does not exist, and OutOfMemory
Tensor empty(const Shape& shape, TensorOptions options = {});  // elements are not initialized
Tensor empty_like(const Tensor& x);                            // returns a contiguous tensor
Tensor zeros(const Shape& shape, TensorOptions options = {});
Tensor ones(const Shape& shape, TensorOptions options = {});
// Returns a tensor filled with the value. The default dtype is f32 for a floating number, i64 for
// an integer and bool for a boolean.
Tensor full(const Shape& shape, Scalar value, InferredOptions options = {});
Tensor zeros_like(const Tensor& x);
Tensor ones_like(const Tensor& x);
Tensor full_like(const Tensor& x, Scalar value);  // has x's dtype
// Return the 1-d tensor of start, start + step, ... up to but not including end. The default start
// is 0 and the default step is 1. The default dtype is f32 if any argument is a floating number,
// and i64 otherwise. With an integer dtype, fractions of start and step are removed after the
// number of elements is computed, as in PyTorch. Throw ValueError if the step is 0, leads away from
// the end, or needs more than 2^53 elements, and if floating numbers give integers outside int64.
Tensor arange(Scalar end, InferredOptions options = {});
Tensor arange(Scalar start, Scalar end, InferredOptions options = {});
Tensor arange(Scalar start, Scalar end, Scalar step, InferredOptions options = {});
// Return a tensor with the values in row-major order. The default dtype is f32 for floating values,
// i64 for integers and bool for booleans. For example, tensor({1, 2}, {2}) is i64 and tensor({1.5,
// 2}, {2}) is f32. Throw ShapeError unless there are numel(shape) values.
Tensor tensor(std::span<const double> values, const Shape& shape, InferredOptions options = {});
Tensor tensor(std::span<const float> values, const Shape& shape, InferredOptions options = {});
Tensor tensor(std::span<const std::int64_t> values, const Shape& shape,
              InferredOptions options = {});
Tensor tensor(std::span<const int> values, const Shape& shape, InferredOptions options = {});
Tensor tensor(std::span<const bool> values, const Shape& shape, InferredOptions options = {});
Tensor tensor(std::span<const Scalar> values, const Shape& shape, InferredOptions options = {});
// The shape is a template argument, so that braces with options, such as {.requires_grad = true},
// select the overload without a shape. Otherwise GCC would also convert such braces to a shape.
template <TensorElement T, std::convertible_to<Shape> S = Shape>
Tensor tensor(std::initializer_list<T> values, const S& shape, InferredOptions options = {}) {
    return tensor(std::span<const T>(values.begin(), values.size()), Shape(shape), options);
}
template <std::convertible_to<Shape> S = Shape>
Tensor tensor(std::initializer_list<Scalar> values, const S& shape, InferredOptions options = {}) {
    return tensor(std::span<const Scalar>(values.begin(), values.size()), Shape(shape), options);
}
Tensor tensor(Scalar value, InferredOptions options = {});  // 0-d
template <TensorElement T>
Tensor tensor(T value, InferredOptions options = {}) {
    return tensor(std::span<const T>(&value, 1), Shape(), options);
}
// Return a 1-d tensor: tensor({1, 2, 3}) or tensor({1, 2, 3}, {.dtype = f32}).
template <TensorElement T>
Tensor tensor(std::initializer_list<T> values, InferredOptions options = {}) {
    return tensor(values, static_cast<std::int64_t>(values.size()), options);
}
Tensor tensor(std::initializer_list<Scalar> values, InferredOptions options = {});
template <TensorElement T>
Tensor tensor(const std::vector<T>& values, InferredOptions options = {}) {
    return tensor(values, static_cast<std::int64_t>(values.size()), options);
}

// --- random, from the default generator (random.cpp)
Tensor rand(const Shape& shape, TensorOptions options = {});   // uniform in [0, 1)
Tensor randn(const Shape& shape, TensorOptions options = {});  // mean 0, standard deviation 1
// Returns uniformly distributed integers in [low, high). Throws ValueError unless the range
// contains 1 to 2^32 numbers that the dtype represents exactly.
Tensor randint(std::int64_t low, std::int64_t high, const Shape& shape,
               TensorOptions options = {i64});
// Returns a copy of x in which each element is zero with probability p and otherwise multiplied by
// 1 / (1 - p). Returns x itself if training is false or p is 0. Throws ValueError unless p is in
// [0, 1].
Tensor dropout(const Tensor& x, double p, bool training = true);
// Draws indices (i64) [..., samples] from weights [..., n], with probabilities proportional to the
// weights. Throws ValueError if samples is not positive, or, without replacement, if samples
// exceeds n or (on a GPU) n exceeds kernels::kMaxSortedElements. Throws ValueError for weights that
// are negative or not finite, or if too few weights are positive (on a GPU: reported errors).
Tensor multinomial(const Tensor& weights, std::int64_t samples, bool replacement = false);

// --- dtype, device, layout (convert.cpp)
Tensor to(const Tensor& x, DType dtype);  // returns x itself if it has this dtype
// Returns a copy of x on `device`, or x itself if it is already there. A copy to a GPU is queued on
// the current stream. If x is in pinned memory and non_blocking is true, the call does not wait for
// this copy; do not write to x before the copy is done. A copy to the CPU always waits. Throws
// DeviceError if x is on the meta device and `device` is not.
Tensor to(const Tensor& x, Device device, bool non_blocking = false);
Tensor contiguous(const Tensor& x);  // returns x itself if it is contiguous
Tensor clone(const Tensor& x);       // returns a contiguous copy

// --- views, which share memory with x unless stated (view.cpp; split, chunk, cat, stack: cat.cpp;
// sum_to: reduce.cpp)
Tensor view(const Tensor& x,
            const Shape& shape);  // one size can be -1; throws ShapeError if a copy is needed
Tensor reshape(const Tensor& x, const Shape& shape);  // like view, but copies if needed
// Merges the dimensions `from` to `to` (inclusive); copies if needed. Throws ValueError if `from`
// is after `to`.
Tensor flatten(const Tensor& x, std::int64_t from = 0, std::int64_t to = -1);
Tensor transpose(const Tensor& x, std::int64_t a, std::int64_t b);
// Returns x with its dimensions in the order `order`. Throws ShapeError unless there are x.dim() of
// them, and ValueError if a dimension occurs twice.
Tensor permute(const Tensor& x, const Dims& order);
// Returns x broadcast to the shape, in which -1 does not change a size. Broadcast elements share
// memory.
Tensor expand(const Tensor& x, const Shape& shape);
Tensor squeeze(const Tensor& x);                      // removes all dimensions of size 1
Tensor squeeze(const Tensor& x, std::int64_t dim);    // removes dim if its size is 1
Tensor unsqueeze(const Tensor& x, std::int64_t dim);  // inserts a dimension of size 1
// narrow(), slice(), split() and chunk() throw ShapeError if x is 0-d, and select() throws
// IndexError.

// Returns the elements [start, start + length) along dim. A negative start counts from the end.
// Throws IndexError if the elements are out of range.
Tensor narrow(const Tensor& x, std::int64_t dim, std::int64_t start, std::int64_t length);
// Returns every step-th element of [start, end) along dim. Negative bounds count from the end, and
// bounds are clamped, as in Python. Throws ValueError unless the step is positive.
Tensor slice(const Tensor& x, std::int64_t dim, std::int64_t start, std::int64_t end,
             std::int64_t step = 1);
// Returns the elements at an index along dim, without this dimension. A negative index counts from
// the end.
Tensor select(const Tensor& x, std::int64_t dim, std::int64_t index);
// Return the parts of x along dim: parts of `size` elements, parts with the given sizes, or at most
// `chunks` parts of equal size. Without given sizes, the last part can be smaller. Throw ValueError
// unless size or chunks is positive, and ShapeError if one of the sizes is negative or the sizes do
// not add up to the size of dim.
std::vector<Tensor> split(const Tensor& x, std::int64_t size, std::int64_t dim = 0);
std::vector<Tensor> split(const Tensor& x, const Dims& sizes, std::int64_t dim = 0);
std::vector<Tensor> chunk(const Tensor& x, std::int64_t chunks, std::int64_t dim = 0);
// Copy the tensors into one tensor, along the existing dimension dim (cat) or along a new dimension
// dim (stack). cat() leaves out tensors of shape [0] unless all tensors are 1-d, and throws
// ShapeError for 0-d tensors. Throw ValueError if the list is empty.
Tensor cat(const std::vector<Tensor>& tensors, std::int64_t dim = 0);
Tensor stack(const std::vector<Tensor>& tensors, std::int64_t dim = 0);
// Reverses the broadcasting of `shape` to x's shape: returns x summed over the repeated dimensions,
// or x itself if the shapes are equal. Sums of bool and integers are i64.
Tensor sum_to(const Tensor& x, const Shape& shape);

// --- arithmetic (arithmetic.cpp)
Tensor add(const Tensor& a, const Tensor& b);
Tensor sub(const Tensor& a, const Tensor& b);
Tensor mul(const Tensor& a, const Tensor& b);
Tensor div(const Tensor& a, const Tensor& b);  // true division, also for integers
Tensor add(const Tensor& a, Scalar b);
Tensor sub(const Tensor& a, Scalar b);
Tensor mul(const Tensor& a, Scalar b);
Tensor div(const Tensor& a, Scalar b);
Tensor sub(Scalar a, const Tensor& b);
Tensor div(Scalar a, const Tensor& b);
// A negative power of an integer is truncated to an integer, and is 0 for the integer 0.
Tensor pow(const Tensor& a, const Tensor& b);
// Throws ValueError for an integer tensor with a negative integer exponent.
Tensor pow(const Tensor& a, Scalar exponent);
Tensor pow(Scalar base, const Tensor& b);
Tensor maximum(const Tensor& a, const Tensor& b);  // equal elements share the gradient
Tensor minimum(const Tensor& a, const Tensor& b);

inline Tensor operator+(const Tensor& a, const Tensor& b) { return add(a, b); }
inline Tensor operator-(const Tensor& a, const Tensor& b) { return sub(a, b); }
inline Tensor operator*(const Tensor& a, const Tensor& b) { return mul(a, b); }
inline Tensor operator/(const Tensor& a, const Tensor& b) { return div(a, b); }
inline Tensor operator+(const Tensor& a, Scalar b) { return add(a, b); }
inline Tensor operator-(const Tensor& a, Scalar b) { return sub(a, b); }
inline Tensor operator*(const Tensor& a, Scalar b) { return mul(a, b); }
inline Tensor operator/(const Tensor& a, Scalar b) { return div(a, b); }
inline Tensor operator+(Scalar a, const Tensor& b) { return add(b, a); }
inline Tensor operator-(Scalar a, const Tensor& b) { return sub(a, b); }
inline Tensor operator*(Scalar a, const Tensor& b) { return mul(b, a); }
inline Tensor operator/(Scalar a, const Tensor& b) { return div(a, b); }

// --- comparison to boolean (compare.cpp)
Tensor eq(const Tensor& a, const Tensor& b);
Tensor ne(const Tensor& a, const Tensor& b);
Tensor lt(const Tensor& a, const Tensor& b);
Tensor le(const Tensor& a, const Tensor& b);
Tensor gt(const Tensor& a, const Tensor& b);
Tensor ge(const Tensor& a, const Tensor& b);
Tensor eq(const Tensor& a, Scalar b);
Tensor ne(const Tensor& a, Scalar b);
Tensor lt(const Tensor& a, Scalar b);
Tensor le(const Tensor& a, Scalar b);
Tensor gt(const Tensor& a, Scalar b);
Tensor ge(const Tensor& a, Scalar b);
inline Tensor operator==(const Tensor& a, const Tensor& b) { return eq(a, b); }
inline Tensor operator!=(const Tensor& a, const Tensor& b) { return ne(a, b); }
inline Tensor operator<(const Tensor& a, const Tensor& b) { return lt(a, b); }
inline Tensor operator<=(const Tensor& a, const Tensor& b) { return le(a, b); }
inline Tensor operator>(const Tensor& a, const Tensor& b) { return gt(a, b); }
inline Tensor operator>=(const Tensor& a, const Tensor& b) { return ge(a, b); }
inline Tensor operator==(const Tensor& a, Scalar b) { return eq(a, b); }
inline Tensor operator!=(const Tensor& a, Scalar b) { return ne(a, b); }
inline Tensor operator<(const Tensor& a, Scalar b) { return lt(a, b); }
inline Tensor operator<=(const Tensor& a, Scalar b) { return le(a, b); }
inline Tensor operator>(const Tensor& a, Scalar b) { return gt(a, b); }
inline Tensor operator>=(const Tensor& a, Scalar b) { return ge(a, b); }
inline Tensor operator==(Scalar a, const Tensor& b) { return eq(b, a); }
inline Tensor operator!=(Scalar a, const Tensor& b) { return ne(b, a); }
inline Tensor operator<(Scalar a, const Tensor& b) { return gt(b, a); }
inline Tensor operator<=(Scalar a, const Tensor& b) { return ge(b, a); }
inline Tensor operator>(Scalar a, const Tensor& b) { return lt(b, a); }
inline Tensor operator>=(Scalar a, const Tensor& b) { return le(b, a); }

// Return a where the condition (bool) is true, and b elsewhere. A number does not change the dtype
// of a tensor of the same category (floating, integer); two numbers give f32, i64 or bool.
Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b);
Tensor where(const Tensor& condition, const Tensor& a, Scalar b);
Tensor where(const Tensor& condition, Scalar a, const Tensor& b);
Tensor where(const Tensor& condition, Scalar a, Scalar b);
// Returns a copy of x in which `value` replaces the elements for which the mask (bool) is true. x
// and mask broadcast.
Tensor masked_fill(const Tensor& x, const Tensor& mask, Scalar value);

// --- one operand (unary.cpp). These functions, and arithmetic with a number, can be differentiated
// twice. Piecewise linear functions, such as neg(), relu() and x * 2, can be differentiated any
// number of times; the others throw UsageError if the second pass is recorded (create_graph).
Tensor neg(const Tensor& x);
Tensor abs(const Tensor& x);
Tensor exp(const Tensor& x);
Tensor log(const Tensor& x);
Tensor sqrt(const Tensor& x);
Tensor rsqrt(const Tensor& x);
Tensor tanh(const Tensor& x);
Tensor sigmoid(const Tensor& x);
Tensor relu(const Tensor& x);
enum class Gelu : std::uint8_t { erf, tanh };  // exact formula, or GPT-2's approximation
Tensor gelu(const Tensor& x, Gelu form = Gelu::erf);
Tensor silu(const Tensor& x);
Tensor softsign(const Tensor& x);  // computes x / (1 + |x|)
// Returns x limited to [low, high], or high where low is above high. If a bound has a fraction,
// integers become f32. Throws ValueError if neither bound is given.
Tensor clamp(const Tensor& x, std::optional<double> low, std::optional<double> high);
inline Tensor operator-(const Tensor& x) { return neg(x); }

// --- reductions; an empty list of dims means all (reduce.cpp; cumsum, cumprod: scan.cpp). Throw
// ValueError if a dimension is listed twice, and max, min, argmax and argmin also if an element of
// the result would be computed from no elements. The max and min of elements that include NaN are
// NaN.
Tensor sum(const Tensor& x, const Dims& dims = {},
           bool keepdim = false);  // bool and integers give i64, which wraps around on overflow
Tensor mean(const Tensor& x, const Dims& dims = {}, bool keepdim = false);
Tensor max(const Tensor& x, const Dims& dims = {},
           bool keepdim = false);  // equal elements share the gradient
Tensor min(const Tensor& x, const Dims& dims = {}, bool keepdim = false);
// Return the index (i64) of the first NaN along dim, or else of the first maximum or minimum.
Tensor argmax(const Tensor& x, std::int64_t dim, bool keepdim = false);
Tensor argmin(const Tensor& x, std::int64_t dim, bool keepdim = false);
// Returns the variance over dims. The sum of squared differences from the mean is divided by n -
// correction (at least 0), where n is the number of elements; the default of 1 is PyTorch's.
Tensor var(const Tensor& x, const Dims& dims = {}, double correction = 1, bool keepdim = false);
// Returns the cumulative sum along dim; bool and integers give i64.
Tensor cumsum(const Tensor& x, std::int64_t dim);
// Returns the cumulative product along dim; bool and integers give i64. The gradient is exact even
// if x contains zeros. Cannot be differentiated twice.
Tensor cumprod(const Tensor& x, std::int64_t dim);

// --- indexing; indices are i64 or i32 (index.cpp; index: indexing.cpp)
// Returns the elements that the indices select, as x[...] in PyTorch (see core/indexing.h). The
// result is a copy if an index is a tensor, otherwise a view.
Tensor index(const Tensor& x, const std::vector<TensorIndex>& indices);
// Returns a tensor of the shape of index: for dim 0, y[i][j] = x[index[i][j]][j], as in PyTorch.
// The indices of gather() to one_hot() must not be negative.
Tensor gather(const Tensor& x, std::int64_t dim, const Tensor& index);
// Returns the elements of x at the positions index [n] along dim.
Tensor index_select(const Tensor& x, std::int64_t dim, const Tensor& index);
// Returns a copy of x to which src is added at index along dim: for dim 0, y[index[i][j]][j] +=
// src[i][j], as in PyTorch. Repeated indices accumulate, in order on a CPU and with deterministic
// algorithms (core/system/numerics.h). Throws DTypeError unless x and src have one dtype (under
// autocast, their floating dtypes can differ), and ShapeError if index is larger than src, or
// outside dim larger than x.
Tensor scatter_add(const Tensor& x, std::int64_t dim, const Tensor& index, const Tensor& src);
// Returns the rows of weight [n, width] selected by ids [...], as [..., width]. The gradient of row
// padding_idx (negative: from the end) is zero. Throws ValueError if padding_idx is out of range,
// and on a GPU in the backward pass for more than kernels::kMaxSortedElements ids.
Tensor embedding(const Tensor& ids, const Tensor& weight,
                 std::optional<std::int64_t> padding_idx = {});
// Returns i64 [..., classes], which is 1 at ids [...] and 0 elsewhere. Throws ValueError unless
// classes is positive.
Tensor one_hot(const Tensor& ids, std::int64_t classes);
// Return a copy of x with zeros above (tril) or below (triu) a diagonal of the last two dimensions:
// the main diagonal, or for a `diagonal` above 0 one above it. Throw ShapeError if x has fewer than
// two dimensions.
Tensor tril(const Tensor& x, std::int64_t diagonal = 0);
Tensor triu(const Tensor& x, std::int64_t diagonal = 0);
// Returns the k largest (or smallest) elements along dim, sorted, and their i64 indices. If
// elements are equal, the lower index is first. Throws ValueError unless 0 <= k <= size of dim. On
// a GPU, topk, sort and argsort throw ValueError if dim has more than kernels::kMaxSortedElements
// elements.
std::pair<Tensor, Tensor> topk(const Tensor& x, std::int64_t k, std::int64_t dim = -1,
                               bool largest = true);
// Returns all elements along dim, sorted, and their i64 indices. NaN is larger than every number.
// The sort is stable in both directions. argsort() returns only the indices.
std::pair<Tensor, Tensor> sort(const Tensor& x, std::int64_t dim = -1, bool descending = false);
Tensor argsort(const Tensor& x, std::int64_t dim = -1, bool descending = false);

// --- sequences, grids and other random tensors: core/creation.h
// --- diagonals, windows, order, repetition, joining and splitting: core/shaping.h
// --- masks, scatter and other changes of selected elements: core/selection.h
// --- rounding, logic, special functions, activations: core/elementwise.h
// --- other sums and products, norms, extremes, order statistics, counts: core/reductions.h
// --- products named as in PyTorch, einsum, distances: core/products.h
// --- products, convolution, normalization, pooling, resizing, padding, attention:
//     core/functional.h
// --- losses: core/losses.h
//
// Programs include the following headers where they use them.
// --- linear algebra: core/linalg.h
// --- images and volumes at given positions: core/sampling.h
// --- convolution and pooling of signals and volumes: core/spatial.h

// --- recomputation (core/autograd/checkpoint.cpp)
// Returns f(inputs), but saves only the inputs: the backward pass runs f again to compute the
// tensors that its ops would have saved. Random state, autocast and grad mode are restored, so
// result and gradients are bit-identical. f runs twice, so it must depend only on its inputs and on
// parameters, and must have no side effects. For example, running statistics are updated twice, as
// in PyTorch. Backward throws UsageError if the second run saves a different number of tensors, or
// if the pass is recorded (create_graph).
Tensor checkpoint(const std::function<Tensor(const std::vector<Tensor>&)>& f,
                  const std::vector<Tensor>& inputs);

}  // namespace axle
