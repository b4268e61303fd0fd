// Ops that select and change elements by masks and indices and are not in core/ops.h. core/ops.h
// includes this header and states the rules of all ops. All ops return new tensors.
//
// Indices are i64 or i32. take(), put(), take_along_dim() with dim, index_fill() and index_put()
// count negative indices from the end; the other ops with index tensors throw IndexError for them.
// Elements are replaced or reduced in order, but sums are computed as in scatter_add(). If several
// elements replace the same element, the last one remains. As in PyTorch, each of them gets the
// gradient of its target in the backward pass.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/tensor.h"

namespace axle {

// --- masks (selection/masks.cpp). The shapes of the results of nonzero(), argwhere() and
// masked_select() depend on values. So these ops wait for a GPU, and throw DeviceError on the meta
// device. Masks must be boolean (DTypeError).
// Return the positions of the elements other than 0 in row-major order, as i64 [n, dimensions].
Tensor nonzero(const Tensor& x);
Tensor argwhere(const Tensor& x);
// Returns the elements of x for which the mask is true, as [n]; x and mask broadcast.
Tensor masked_select(const Tensor& x, const Tensor& mask);
// Returns a copy of x in which the elements of source, in row-major order, replace the elements for
// which the mask is true; x and mask broadcast. source has the dtype of x (DTypeError). Throws
// IndexError if source has too few elements (on a GPU, a reported error).
Tensor masked_scatter(const Tensor& x, const Tensor& mask, const Tensor& source);
// Returns whether each element equals at least one of the test elements (bool). With invert,
// returns the opposite.
Tensor isin(const Tensor& elements, const Tensor& test_elements, bool invert = false);
Tensor isin(const Tensor& elements, Scalar test_element, bool invert = false);

// --- elements at the indices of a tensor (selection/scatter.cpp). For dim 0, the element src[i][j]
// belongs to x[index[i][j]][j]. index must not be larger than src in any dimension, or than x in
// any dimension except dim (ShapeError). src has the dtype of x (DTypeError).
// Return a copy of x with elements replaced by elements of src or by a number.
Tensor scatter(const Tensor& x, std::int64_t dim, const Tensor& index, const Tensor& src);
Tensor scatter(const Tensor& x, std::int64_t dim, const Tensor& index, Scalar value);
enum class IndexReduction : std::uint8_t { sum, prod, mean, amax, amin };
// Returns a copy of x in which each element is reduced with all elements of src that belong to it.
// If include_self is false, the values of x at these positions are ignored. The mean of integers is
// rounded down. Equal maxima and minima share the gradient. `prod` cannot be differentiated twice.
// `mean` throws DTypeError for booleans.
Tensor scatter_reduce(const Tensor& x, std::int64_t dim, const Tensor& index, const Tensor& src,
                      IndexReduction reduce, bool include_self = true);
// Returns the elements of x at positions in its row-major order, in the shape of index.
Tensor take(const Tensor& x, const Tensor& index);
// Returns a copy of x in which element i of source replaces the element at position index[i] of x
// in row-major order. If accumulate is true, it is added instead. source has the dtype of x
// (DTypeError), and as many elements as index (ShapeError).
Tensor put(const Tensor& x, const Tensor& index, const Tensor& source, bool accumulate = false);
// Returns gather(x, dim, index) after broadcasting all dimensions except dim. Throws ShapeError
// unless x and index have the same number of dimensions. Without dim, x and index are flattened.
Tensor take_along_dim(const Tensor& x, const Tensor& index, std::optional<std::int64_t> dim = {});

// --- slices at indices along dim (selection/slices.cpp). index is [n], and source has n slices
// with the shape of the slices of x (ShapeError). source has the dtype of x (DTypeError); under
// autocast, the floating dtypes of index_copy() can differ.
// Returns a copy of x with alpha times the slices of source added.
Tensor index_add(const Tensor& x, std::int64_t dim, const Tensor& index, const Tensor& source,
                 Scalar alpha = 1);
// Returns a copy of x with slices replaced by slices of source.
Tensor index_copy(const Tensor& x, std::int64_t dim, const Tensor& index, const Tensor& source);
// Return a copy of x with slices filled with a number, or with a 0-d tensor (ShapeError), which is
// converted to the dtype of x.
Tensor index_fill(const Tensor& x, std::int64_t dim, const Tensor& index, Scalar value);
Tensor index_fill(const Tensor& x, std::int64_t dim, const Tensor& index, const Tensor& value);
// Returns the result of scatter_reduce() for slices.
Tensor index_reduce(const Tensor& x, std::int64_t dim, const Tensor& index, const Tensor& source,
                    IndexReduction reduce, bool include_self = true);
// Returns the result of index_put_() on a copy of x (see core/tensor.h and core/indexing.h).
Tensor index_put(const Tensor& x, const std::vector<TensorIndex>& indices, const Tensor& value,
                 bool accumulate = false);

// --- parts (selection/slices.cpp)
// Return a copy of x in which src replaces the view select(x, dim, index), slice(x, dim, start,
// end, step) or diagonal(x, offset, dim1, dim2). Throw ShapeError unless src has the shape of this
// view; src is converted to the dtype of x.
Tensor select_scatter(const Tensor& x, const Tensor& src, std::int64_t dim, std::int64_t index);
Tensor slice_scatter(const Tensor& x, const Tensor& src, std::int64_t dim = 0,
                     std::int64_t start = 0, std::int64_t end = INT64_MAX, std::int64_t step = 1);
Tensor diagonal_scatter(const Tensor& x, const Tensor& src, std::int64_t offset = 0,
                        std::int64_t dim1 = 0, std::int64_t dim2 = 1);

}  // namespace axle
