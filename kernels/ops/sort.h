// Sorting along the last dimension, and the largest or smallest elements. NaN counts as larger than
// every number, and -0 equals +0. If elements are equal, the element with the lower index is first.
#pragma once

#include <cstdint>

#include "kernels/exec.h"
#include "kernels/view.h"

namespace axle::kernels {

// The maximum number of elements in a row on a GPU.
inline constexpr std::int64_t kMaxSortedElements = UINT32_MAX;

// Writes the k = values.back(1) largest (or smallest) elements of each row of x [..., n] in
// descending (or ascending) order; k <= n. values [..., k] has x's dtype (a compute dtype), and
// indices [..., k] is i64.
void topk(Cpu& on, bool largest, ConstView x, View values, View indices);
void topk(Cuda& on, bool largest, ConstView x, View values, View indices);

// Sorts each row of x. values and indices have x's shape and the dtypes described for topk.
void sort(Cpu& on, bool descending, ConstView x, View values, View indices);
void sort(Cuda& on, bool descending, ConstView x, View values, View indices);

}  // namespace axle::kernels
