#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/check.h"
#include "core/ops.h"
#include "core/profiler/profiler.h"

namespace axle {
namespace {

void check_vectors(const char* op, const std::vector<Tensor>& tensors, int least) {
    if (tensors.empty()) throw ValueError(str(op, ": needs at least 1 tensor: the list is empty"));
    for (const Tensor& x : tensors) {
        check_device(op, {&tensors[0], &x});
        if (x.dim() < least || x.dim() > 1)
            throw ShapeError(str(op, ": tensors must have ",
                                 least == 1 ? "1 dimension"
                                            : "0 or 1 "
                                              "dimensions",
                                 ": shape ", x.shape()));
    }
}

// Returns integers as a tensor. On the meta device, they are not copied.
Tensor integers(const std::vector<std::int64_t>& values, const Shape& shape,
                TensorOptions options) {
    Tensor y = Tensor::empty(shape, options);
    if (!y.device().is_meta())
        y.copy_(to(tensor(std::span<const std::int64_t>(values), shape), y.device()));
    return y;
}

// Returns the positions on and below a diagonal, or on and above it, as [2, count]. Throws
// ShapeError if a size is negative, and DTypeError unless the dtype is i64 or i32.
Tensor triangle_indices(const char* op, bool lower, std::int64_t rows, std::int64_t columns,
                        std::int64_t diagonal, TensorOptions options) {
    const profiler::OpScope scope(op);
    if (rows < 0 || columns < 0)
        throw ShapeError(
            str(op, ": sizes must not be negative: rows ", rows, ", columns ", columns));
    if (options.dtype != i64 && options.dtype != i32)
        throw DTypeError(str(op, ": the dtype must be int64 or int32: ", options.dtype));
    const std::int64_t shift = std::clamp(diagonal, -rows, columns);
    std::vector<std::int64_t> values, columns_of;
    for (std::int64_t r = 0; r < rows; ++r) {
        const std::int64_t first = lower ? 0 : std::max<std::int64_t>(0, r + shift);
        const std::int64_t end = lower ? std::min(columns, r + shift + 1) : columns;
        for (std::int64_t c = first; c < end; ++c) {
            values.push_back(r);
            columns_of.push_back(c);
        }
    }
    const auto count = static_cast<std::int64_t>(values.size());
    values.insert(values.end(), columns_of.begin(), columns_of.end());
    return integers(values, {2, count}, options);
}

// Appends `chosen` followed by each combination of `left` positions in [from, n) to `all`. If
// `repeats` is true, a position can occur several times.
void append_combinations(std::int64_t n, std::int64_t left, std::int64_t from, bool repeats,
                         std::vector<std::int64_t>& chosen, std::vector<std::int64_t>& all) {
    if (left == 0) {
        all.insert(all.end(), chosen.begin(), chosen.end());
        return;
    }
    for (std::int64_t i = from; i < n; ++i) {
        chosen.push_back(i);
        append_combinations(n, left - 1, repeats ? i : i + 1, repeats, chosen, all);
        chosen.pop_back();
    }
}

}  // namespace

std::vector<Tensor> meshgrid(const std::vector<Tensor>& tensors, GridIndexing indexing) {
    const profiler::OpScope scope("meshgrid");
    check_vectors("meshgrid", tensors, 0);
    const bool swapped = indexing == GridIndexing::xy && tensors.size() > 1;
    Shape grid;
    for (const Tensor& x : tensors) grid.push_back(x.numel());
    std::vector<Tensor> result;
    for (int i = 0; i < grid.size(); ++i) {
        Shape alone = grid;
        for (int d = 0; d < grid.size(); ++d)
            if (d != i) alone[d] = 1;
        const Tensor expanded = expand(reshape(tensors[static_cast<std::size_t>(i)], alone), grid);
        result.push_back(swapped ? transpose(expanded, 0, 1) : expanded);
    }
    return result;
}

Tensor cartesian_prod(const std::vector<Tensor>& tensors) {
    const profiler::OpScope scope("cartesian_prod");
    check_vectors("cartesian_prod", tensors, 1);
    if (tensors.size() == 1) return tensors[0];
    std::vector<Tensor> columns;
    for (const Tensor& grid : meshgrid(tensors)) columns.push_back(reshape(grid, -1));
    return stack(columns, 1);
}

Tensor combinations(const Tensor& x, std::int64_t r, bool with_replacement) {
    const profiler::OpScope scope("combinations");
    check_device("combinations", {&x});
    if (x.dim() != 1) throw ShapeError(str("combinations: x must be a vector: x ", x.shape()));
    if (r < 0) throw ValueError(str("combinations: r must not be negative: ", r));
    if (r == 0) return empty(0, {.dtype = x.dtype(), .device = x.device()});
    std::vector<std::int64_t> chosen, all;
    append_combinations(x.numel(), r, 0, with_replacement, chosen, all);
    const auto count = static_cast<std::int64_t>(all.size());
    const Tensor index = integers(all, count, {.dtype = i64, .device = x.device()});
    return reshape(index_select(x, 0, index), {count / r, r});
}

Tensor tril_indices(std::int64_t rows, std::int64_t columns, std::int64_t diagonal,
                    TensorOptions options) {
    return triangle_indices("tril_indices", true, rows, columns, diagonal, options);
}
Tensor triu_indices(std::int64_t rows, std::int64_t columns, std::int64_t diagonal,
                    TensorOptions options) {
    return triangle_indices("triu_indices", false, rows, columns, diagonal, options);
}

}  // namespace axle
