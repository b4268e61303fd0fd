// Kernels that read and write elements by index. Indices are i64 or i32 with any stride and must be
// within the dimension, which callers check with find_bad_index or check_index. The elements of
// repeated indices are summed in the order of their positions, with one exception that scatter_add
// documents.
#pragma once

#include <cstdint>

#include "kernels/exec.h"
#include "kernels/view.h"

namespace axle::kernels {

// The result of find_bad_index: the first index, in row-major order, outside of [0, size).
struct BadIndex {
    std::int64_t position = -1;  // -1 if all indices are valid
    std::int64_t value = 0;
};
BadIndex find_bad_index(Cpu& on, ConstView index, std::int64_t size);
// Checks indices on a GPU without waiting. Cuda::take_error() returns one of the invalid indices.
// The GPU kernels below read 0 from invalid positions and do not write to them.
void check_index(Cuda& on, ConstView index, std::int64_t size);

// Computes y[.., i, ..] = x[.., index[.., i, ..], ..] along dim. y has the shape of index. x has
// the same number of dimensions, and in each dimension except dim it has at least y's size. If
// index has stride 0 in all dimensions except dim, complete slices are selected. Supports any
// dtype.
void gather(Cpu& on, int dim, ConstView x, ConstView index, View y);
void gather(Cuda& on, int dim, ConstView x, ConstView index, View y);

// Computes y[.., index[.., i, ..], ..] += src[.., i, ..] along dim. index has the shape of src. y
// has src's dtype (a compute dtype; booleans are combined by "or"), and in each dimension except
// dim it has at least src's size. f16 and bf16 are rounded after each addition. If `on` is not
// deterministic, a GPU adds f64, f32, i64 and i32 elements of few but long lines atomically, in any
// order.
void scatter_add(Cpu& on, int dim, ConstView index, ConstView src, View y);
void scatter_add(Cuda& on, int dim, ConstView index, ConstView src, View y);

// The ways in which scatter() changes the target of an element.
enum class Scatter : std::uint8_t { replace, multiply, maximum, minimum };
// Like scatter_add(), but sets y[.., index[.., i, ..], ..] to the element of src, or to the
// product, maximum or minimum of its value and the element. The elements of a line along dim are
// always processed in order. If several elements have the same index, `replace` keeps the last
// element. If an element or its target is NaN, the product, maximum and minimum are NaN. For
// booleans, the product and the minimum are "and". `replace` supports any dtype.
void scatter(Cpu& on, Scatter how, int dim, ConstView index, ConstView src, View y);
void scatter(Cuda& on, Scatter how, int dim, ConstView index, ConstView src, View y);

// Computes dweight[r] = (accumulate ? dweight[r] : 0) + sum of dy[i] over all positions i with
// ids[i] == r. The sum of row `padding` is 0, unless padding is -1. ids is [n], where n is at most
// kMaxSortedElements (kernels/ops/sort.h) on a GPU. dy is [n, width] and floating. dweight is
// [rows, width], f64 for an f64 dy and f32 otherwise.
void embedding_backward(Cpu& on, ConstView dy, ConstView ids, std::int64_t padding, View dweight,
                        bool accumulate = false);
void embedding_backward(Cuda& on, ConstView dy, ConstView ids, std::int64_t padding, View dweight,
                        bool accumulate = false);

}  // namespace axle::kernels
