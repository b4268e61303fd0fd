// Private to dist: the asynchronous mean of a tensor over all ranks.
#pragma once

#include "dist/parallel/data_parallel.h"

namespace axle::dist {

// Averages x in place. If `wire` is f16 or bf16, x is sent in that dtype and divided before it is
// rounded, so that the sum stays in range.
CommHook::Pending start_mean(const Tensor& x, ProcessGroup& group, DType wire);

}  // namespace axle::dist
