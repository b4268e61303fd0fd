// Diagonals of matrices. diagonal() is a view, and also the gradient rule of diag_embed().
#include <algorithm>
#include <cstdint>
#include <cstdlib>

#include "core/autograd/autograd.h"
#include "core/check.h"
#include "core/ops.h"
#include "core/ops/shaping/views.h"
#include "core/profiler/profiler.h"

namespace axle {
namespace {

void check_different(const char* op, int a, int b, const Shape& shape) {
    if (a == b)
        throw ValueError(
            str(op, ": dim1 and dim2 must be different: both are ", a, ", x is ", shape));
}

// Returns a matrix unchanged, and a vector or a 0-d tensor as a matrix with one row. Throws
// ShapeError if x has more than 2 dimensions.
Tensor as_matrix(const Tensor& x) {
    if (x.dim() > 2)
        throw ShapeError(
            str("block_diag: each tensor must have at most 2 dimensions: one is ", x.shape()));
    return x.dim() == 2 ? x : reshape(x, {1, x.numel()});
}

}  // namespace

Tensor diagonal(const Tensor& x, std::int64_t offset, std::int64_t dim1, std::int64_t dim2) {
    return diagonal_of("diagonal", x, offset, dim1, dim2);
}

Tensor diagonal_of(const char* op, const Tensor& x, std::int64_t offset, std::int64_t dim1,
                   std::int64_t dim2) {
    const profiler::OpScope scope("diagonal");
    check_device("diagonal", {&x});
    if (x.dim() < 2) throw ShapeError(str(op, ": needs at least 2 dimensions: x ", x.shape()));
    const int row = wrap_dim(op, dim1, x.dim());
    const int column = wrap_dim(op, dim2, x.dim());
    check_different(op, row, column, x.shape());
    const std::int64_t height = x.shape()[row], width = x.shape()[column];
    const std::int64_t size = std::max<std::int64_t>(
        offset < 0 ? std::min(height + offset, width) : std::min(height, width - offset), 0);
    std::int64_t start = x.impl()->offset;
    if (size > 0) start += offset < 0 ? -offset * x.strides()[row] : offset * x.strides()[column];
    Shape shape = x.shape();
    Strides strides = x.strides();
    const std::int64_t step = strides[row] + strides[column];
    for (const int d : {std::max(row, column), std::min(row, column)}) {
        shape.erase(d);
        strides.erase(d);
    }
    shape.push_back(size);
    strides.push_back(step);
    return record_slice(
        "diagonal", make_view(x, shape, strides, start), x,
        [offset, row, column](const Tensor& of) { return diagonal(of, offset, row, column); });
}

Tensor diag_embed(const Tensor& x, std::int64_t offset, std::int64_t dim1, std::int64_t dim2) {
    const profiler::OpScope scope("diag_embed");
    check_device("diag_embed", {&x});
    if (x.dim() == 0) throw ShapeError("diag_embed: needs at least 1 dimension: x is 0-d");
    const int row = wrap_dim("diag_embed", dim1, x.dim() + 1);
    const int column = wrap_dim("diag_embed", dim2, x.dim() + 1);
    check_different("diag_embed", row, column, x.shape());
    const std::int64_t size = x.size(-1) + std::abs(offset);
    Shape shape = x.shape();
    shape.erase(x.dim() - 1);
    for (const int d : {std::min(row, column), std::max(row, column)}) shape.insert(d, size);
    const auto part = [offset, row, column](const Tensor& of) {
        return diagonal(of, offset, row, column);
    };
    return record("diag_embed", embed(x.detach(), shape, part), {x},
                  [part](const Grads& dy, Needs) -> Grads { return {part(dy[0])}; });
}

Tensor diag(const Tensor& x, std::int64_t offset) {
    const profiler::OpScope scope("diag");
    check_device("diag", {&x});
    if (x.dim() < 1 || x.dim() > 2)
        throw ShapeError(str("diag: needs a vector or a matrix: x ", x.shape()));
    return x.dim() == 1 ? diag_embed(x, offset) : clone(diagonal(x, offset));
}

Tensor diagflat(const Tensor& x, std::int64_t offset) {
    const profiler::OpScope scope("diagflat");
    check_device("diagflat", {&x});
    return diag_embed(reshape(x, -1), offset);
}

Tensor trace(const Tensor& x) {
    const profiler::OpScope scope("trace");
    check_device("trace", {&x});
    if (x.dim() != 2) throw ShapeError(str("trace: needs a matrix: x ", x.shape()));
    return sum(diagonal(x));
}

Tensor block_diag(const std::vector<Tensor>& tensors) {
    const profiler::OpScope scope("block_diag");
    if (tensors.empty()) throw ValueError("block_diag: needs at least 1 tensor: the list is empty");
    std::vector<Tensor> rows;
    std::int64_t width = 0, before = 0;
    for (const Tensor& x : tensors) {
        check_device("block_diag", {&tensors[0], &x});
        rows.push_back(as_matrix(x));
        width += rows.back().size(1);
    }
    for (Tensor& row : rows) {
        const std::int64_t own = row.size(1);
        row = pad(row, {before, width - before - own});
        before += own;
    }
    return cat(rows);
}

}  // namespace axle
