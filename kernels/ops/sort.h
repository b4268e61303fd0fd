// Order along the last dimension. NaN counts as larger than every number, and both zeros are equal;
// the lower index goes first among equals.
#pragma once

#include <cstdint>

#include "kernels/exec.h"
#include "kernels/view.h"

namespace axle::inline v0::kernels {

// Elements that a row has at most on a GPU.
inline constexpr std::int64_t kMostSorted = UINT32_MAX;

// The k = values.back(1) largest (or smallest) of each row of x [..., n], k <= n, best first.
// values [..., k] has x's dtype (a compute dtype), indices [..., k] is i64.
void topk(Cpu& on, bool largest, ConstView x, View values, View indices);
void topk(Cuda& on, bool largest, ConstView x, View values, View indices);

// Each row of x in order, values and indices as those of topk with k = n.
void sort(Cpu& on, bool descending, ConstView x, View values, View indices);
void sort(Cuda& on, bool descending, ConstView x, View values, View indices);

}  // namespace axle::inline v0::kernels
