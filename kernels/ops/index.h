// Reads and writes by index. Indices are i64 or i32 with any stride and must be within the
// dimension; callers check this with find_bad_index or check_index. Repeated indices are summed in
// the order of their positions.
#pragma once

#include "kernels/exec.h"
#include "kernels/view.h"

namespace axle::kernels {

// The first index, in row-major order, outside of [0, size).
struct BadIndex {
    std::int64_t position = -1;  // -1: all indices are valid
    std::int64_t value = 0;
};
BadIndex find_bad_index(Cpu& on, ConstView index, std::int64_t size);
// Checks indices on a GPU without waiting: an invalid index is reported to Cuda::take_error(). The
// kernels below read 0 from, and write nothing to, invalid positions.
void check_index(Cuda& on, ConstView index, std::int64_t size);

// Computes y[.., i, ..] = x[.., index[.., i, ..], ..] along dim. y and index have the same shape. x
// has the same number of dimensions, and except for dim, its sizes are at least the sizes of y. If
// index has stride 0 in all dimensions but dim, whole slices are selected. Any dtype.
void gather(Cpu& on, int dim, ConstView x, ConstView index, View y);
void gather(Cuda& on, int dim, ConstView x, ConstView index, View y);

// y[.., index[.., i, ..], ..] += src[.., i, ..] along dim. src and index have the same shape. y has
// src's dtype (a compute dtype; booleans are combined by "or"), and except for dim, its sizes are
// at least the sizes of src. f16 and bf16 round after each addition. On a GPU, if `on` is not
// deterministic, a small number of long rows is added atomically in any order (f64, f32, i64 and
// i32).
void scatter_add(Cpu& on, int dim, ConstView index, ConstView src, View y);
void scatter_add(Cuda& on, int dim, ConstView index, ConstView src, View y);

// Computes dweight[r] = sum of dy[i] over all positions i with ids[i] == r. The row `padding` (-1:
// none) of dweight is 0. ids is [n], dy is [n, width] and floating, dweight is [rows, width] in the
// dtype that dy is computed in (f64 for f64, else f32).
void embedding_backward(Cpu& on, ConstView dy, ConstView ids, std::int64_t padding, View dweight);
void embedding_backward(Cuda& on, ConstView dy, ConstView ids, std::int64_t padding, View dweight);

}  // namespace axle::kernels
