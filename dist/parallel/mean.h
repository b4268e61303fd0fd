// Private to dist: the mean of a tensor over the ranks, on the way.
#pragma once

#include "dist/parallel/data_parallel.h"

namespace axle::inline v0::dist {

// In place. It travels as `wire` where that is half precision, divided before it is rounded so that
// the sum stays in range; else as it is.
CommHook::Pending start_mean(const Tensor& x, ProcessGroup& group, DType wire);

}  // namespace axle::inline v0::dist
