#include "core/system/fork.h"

#include "kernels/workers.h"

#if AXLE_CUDA
#include "core/cuda/context.h"
#endif

namespace axle {

std::string fork_unsafe_state() {
    if (kernels::has_workers()) return "a thread pool";
#if AXLE_CUDA
    if (cuda::driver_was_used()) return "a CUDA context";
#endif
    return "";
}

}  // namespace axle
