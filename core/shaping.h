// Ops that view, rearrange, repeat, join and split tensors and are not in core/ops.h. core/ops.h
// includes this header and states the rules of all ops. Results that are not called copies can
// share memory with x.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/size2.h"
#include "core/tensor.h"

namespace axle {

// --- diagonals (shaping/diagonals.cpp). An offset above 0 selects a diagonal above the main
// diagonal. diagonal() and diag_embed() throw ValueError if dim1 equals dim2. All throw ShapeError
// for other numbers of dimensions than stated.
// Returns a view of a diagonal of the matrices in dim1 and dim2 of x, which has two dimensions or
// more. The diagonal becomes the last dimension.
Tensor diagonal(const Tensor& x, std::int64_t offset = 0, std::int64_t dim1 = 0,
                std::int64_t dim2 = 1);
// Returns square matrices of zeros, in dim1 and dim2, whose diagonals are the last dimension of x
// [..., n]. Their size is n + |offset|.
Tensor diag_embed(const Tensor& x, std::int64_t offset = 0, std::int64_t dim1 = -2,
                  std::int64_t dim2 = -1);
// For a matrix x, returns a copy of a diagonal. For a vector x, returns diag_embed(x, diagonal).
Tensor diag(const Tensor& x, std::int64_t diagonal = 0);
Tensor diagflat(const Tensor& x, std::int64_t offset = 0);  // diag of the elements of x
Tensor trace(const Tensor& x);  // the sum of the main diagonal of x [n, m]
// Returns a matrix of zeros with the matrices on its diagonal. A vector is a matrix with one row,
// and a 0-d tensor has one element. Throws ValueError if the list is empty.
Tensor block_diag(const std::vector<Tensor>& tensors);

// --- windows (shaping/windows.cpp)
// Returns a view of all windows of `size` elements along dim that are `step` elements apart:
// [..., windows, ..., size], or [size] if x is 0-d. Throws ValueError unless the step is positive
// and the size is in [0, size of dim].
Tensor unfold(const Tensor& x, std::int64_t dim, std::int64_t size, std::int64_t step);
struct UnfoldOptions {
    Size2 dilation = 1;
    Size2 padding = 0;  // zeros added on both sides
    Size2 stride = 1;
};
// Returns the windows of images [N, C, H, W] or [C, H, W] as columns: [N, C * kernel.h * kernel.w,
// windows] (F.unfold in PyTorch, im2col). Throws ValueError unless the kernel, dilation and stride
// are positive and the padding is not negative (all below 2^31), and ShapeError if no window fits.
Tensor unfold(const Tensor& x, Size2 kernel, const UnfoldOptions& options = {});
// Returns images [N, C, size.h, size.w] whose pixels are the sums of their values in the columns x
// [N, C * kernel.h * kernel.w, windows] (F.fold in PyTorch, col2im). N can be missing. This is the
// gradient of unfold(). Throws the errors of unfold(), and ShapeError if unfold() would not return
// the shape of x for these images.
Tensor fold(const Tensor& x, Size2 size, Size2 kernel, const UnfoldOptions& options = {});

// --- order of dimensions and elements (shaping/order.cpp)
// Returns a view in which the dimensions `from` are at the positions `to`. Throws ShapeError unless
// both lists have the same length, and ValueError if a dimension occurs twice in one of them.
Tensor movedim(const Tensor& x, const Dims& from, const Dims& to);
Tensor swapaxes(const Tensor& x, std::int64_t a, std::int64_t b);  // transpose(x, a, b)
// Returns a transposed view of a matrix, or x if it has fewer dimensions. Throws ShapeError if it
// has more.
Tensor t(const Tensor& x);
// Returns a copy of x whose elements are moved by `shifts` along dims. Elements that leave the end
// of a dimension appear at its beginning. Without dims, moves the elements in row-major order by
// one shift. Throws ShapeError unless there is one shift for each of dims.
Tensor roll(const Tensor& x, const Dims& shifts, const Dims& dims = {});
// Returns a copy of x rotated k times by 90 degrees in the plane of two dimensions, from the first
// dimension towards the second. Throws ShapeError unless there are two dims and x has at least two
// dimensions, and ValueError if the dims are equal.
Tensor rot90(const Tensor& x, std::int64_t k = 1, const Dims& dims = {0, 1});
Tensor fliplr(const Tensor& x);  // flip(x, 1); throws ShapeError if x has fewer than 2 dimensions
Tensor flipud(const Tensor& x);  // flip(x, 0); throws ShapeError if x is 0-d
// Returns [..., C, H * r, W * r] for x [..., C * r * r, H, W]: the channels become the pixels of
// blocks of r by r. pixel_unshuffle() is the inverse. Throw ValueError unless r is in [1, 2^31),
// and ShapeError if x has fewer than three dimensions, or sizes that are not divisible.
Tensor pixel_shuffle(const Tensor& x, std::int64_t upscale_factor);
Tensor pixel_unshuffle(const Tensor& x, std::int64_t downscale_factor);
// Returns x [N, C, ...] with the channels of all groups interleaved. Throws ShapeError unless x has
// three dimensions or more and groups is positive and divides C.
Tensor channel_shuffle(const Tensor& x, std::int64_t groups);

// --- repetition (shaping/repetition.cpp). Throw ValueError for a negative number of copies.
// Returns a copy of x, repeated along all dimensions. repeat() needs at least one number per
// dimension (ShapeError), and tile() repeats dimensions without a number once. Additional numbers
// add dimensions before the dimensions of x.
Tensor repeat(const Tensor& x, const Dims& repeats);
Tensor tile(const Tensor& x, const Dims& repeats);
// Returns a copy of x in which each element along dim is repeated. Without dim, x is flattened. The
// repeats are one number, or a tensor (i64 or i32) with one number or with a number for each
// element along dim. The shape of the result depends on a tensor of repeats, so the call waits for
// a GPU, and throws DeviceError on the meta device.
Tensor repeat_interleave(const Tensor& x, std::int64_t repeats,
                         std::optional<std::int64_t> dim = {});
Tensor repeat_interleave(const Tensor& x, const Tensor& repeats,
                         std::optional<std::int64_t> dim = {});

// --- joining and splitting (shaping/joining.cpp). hstack() to column_stack() copy, and throw
// ValueError if the list is empty.
Tensor hstack(const std::vector<Tensor>& tensors);        // cat along dim 1 (vectors: along dim 0)
Tensor vstack(const std::vector<Tensor>& tensors);        // cat along dim 0; vectors are rows
Tensor dstack(const std::vector<Tensor>& tensors);        // cat along dim 2
Tensor column_stack(const std::vector<Tensor>& tensors);  // hstack; vectors are columns
// Returns views of the slices of x at all indices along dim, without this dimension. Throws
// ShapeError if x is 0-d.
std::vector<Tensor> unbind(const Tensor& x, std::int64_t dim = 0);
// Return views of parts of x along dim. There are `sections` parts whose sizes differ by at most 1,
// or the parts between the given indices. The indices are bounds of slices, as in Python. hsplit()
// splits dim 1 (of a vector dim 0), vsplit() dim 0 and dsplit() dim 2; with sections, these three
// need a size that is divisible (ShapeError). Throw ValueError unless sections is positive, and
// ShapeError if x has too few dimensions (vsplit() needs 2, dsplit() 3, and the others 1).
std::vector<Tensor> tensor_split(const Tensor& x, std::int64_t sections, std::int64_t dim = 0);
std::vector<Tensor> tensor_split(const Tensor& x, const std::vector<std::int64_t>& indices,
                                 std::int64_t dim = 0);
std::vector<Tensor> hsplit(const Tensor& x, std::int64_t sections);
std::vector<Tensor> hsplit(const Tensor& x, const std::vector<std::int64_t>& indices);
std::vector<Tensor> vsplit(const Tensor& x, std::int64_t sections);
std::vector<Tensor> vsplit(const Tensor& x, const std::vector<std::int64_t>& indices);
std::vector<Tensor> dsplit(const Tensor& x, std::int64_t sections);
std::vector<Tensor> dsplit(const Tensor& x, const std::vector<std::int64_t>& indices);

// --- other shapes (shaping/reshaping.cpp)
// Returns a view in which dim is replaced by dimensions of the given sizes; one size can be -1.
Tensor unflatten(const Tensor& x, std::int64_t dim, const Dims& sizes);
Tensor view_as(const Tensor& x, const Tensor& other);      // view(x, other.shape())
Tensor reshape_as(const Tensor& x, const Tensor& other);   // reshape(x, other.shape())
Tensor expand_as(const Tensor& x, const Tensor& other);    // expand(x, other.shape())
Tensor broadcast_to(const Tensor& x, const Shape& shape);  // expand(x, shape)
std::vector<Tensor> broadcast_tensors(const std::vector<Tensor>& tensors);  // views of one shape
Tensor ravel(const Tensor& x);                                              // reshape(x, -1)
// Return a view with at least 1, 2 or 3 dimensions. A vector becomes [1, n] and [1, n, 1], and a
// matrix [n, m, 1].
Tensor atleast_1d(const Tensor& x);
Tensor atleast_2d(const Tensor& x);
Tensor atleast_3d(const Tensor& x);

}  // namespace axle
