// Private to dist: averages a tensor over all ranks asynchronously.
#pragma once

#include "dist/parallel/data_parallel.h"

namespace axle::dist {

// Starts averaging x in place. If `wire` is f16 or bf16, messages have this dtype. x is then
// divided before it is rounded, so that the sum does not overflow. Otherwise messages have the
// dtype of x.
CommHook::Pending start_mean(const Tensor& x, ProcessGroup& group, DType wire);

}  // namespace axle::dist
