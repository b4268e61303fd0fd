// Reading and writing by index. Indices are i64 or i32 of any stride, and lie within the dimension:
// the caller has asked find_bad_index or check_index. Where indices repeat, sums are taken in the
// order of their positions.
#pragma once

#include "kernels/exec.h"
#include "kernels/view.h"

namespace axle::inline v0::kernels {

// The first index, in row-major order, outside of [0, size).
struct BadIndex {
    std::int64_t position = -1;  // -1: all lie inside
    std::int64_t value = 0;
};
BadIndex find_bad_index(Cpu& on, ConstView index, std::int64_t size);
// On a GPU nobody waits for the answer: it is reported as trouble (Cuda::take_trouble), and the
// kernels below read 0 at, and write nothing to, a place that does not exist.
void check_index(Cuda& on, ConstView index, std::int64_t size);

// y[.., i, ..] = x[.., index[.., i, ..], ..] along dim. y and index have one shape, x has y's
// dimensions and is at least as large beside dim; an index of stride 0 beside dim selects whole
// slices. Any dtype.
void gather(Cpu& on, int dim, ConstView x, ConstView index, View y);
void gather(Cuda& on, int dim, ConstView x, ConstView index, View y);

// y[.., index[.., i, ..], ..] += src[.., i, ..] along dim. src and index have one shape, y is at
// least as large beside dim and has src's dtype (a compute dtype; boolean sums are or). f16 and
// bf16 round after each sum. On a GPU that need not be deterministic, long lines of which there are
// few are added atomically, in any order (f64, f32, i64 and i32).
void scatter_add(Cpu& on, int dim, ConstView index, ConstView src, View y);
void scatter_add(Cuda& on, int dim, ConstView index, ConstView src, View y);

// dweight[r] = sum of dy[i] over the positions i with ids[i] == r, for every row r; padding (-1 for
// none) is a row that stays 0. ids [n], dy [n, width] floating, dweight [rows, width] in the dtype
// that dy is computed in (f32, or f64 for f64).
void embedding_backward(Cpu& on, ConstView dy, ConstView ids, std::int64_t padding, View dweight);
void embedding_backward(Cuda& on, ConstView dy, ConstView ids, std::int64_t padding, View dweight);

}  // namespace axle::inline v0::kernels
