// Order along the last dimension.
#pragma once

#include "kernels/exec.h"
#include "kernels/view.h"

namespace axle::inline v0::kernels {

// The k = values.back(1) largest (or smallest) of each row of x [..., n], k <= n, best first; the
// lower index first among equals. NaN counts as larger than every number. values [..., k] has x's
// dtype (a compute dtype), indices [..., k] is i64.
void topk(Cpu& on, bool largest, ConstView x, View values, View indices);
void topk(Cuda& on, bool largest, ConstView x, View values, View indices);

}  // namespace axle::inline v0::kernels
