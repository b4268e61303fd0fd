// Private to kernels: the function that launches a kernel.
#pragma once

#include <algorithm>
#include <cstdint>
#include <source_location>
#include <utility>

#include "kernels/cuda/check.h"
#include "kernels/exec.h"

namespace axle::kernels {

// The number of blocks in up to three dimensions. Each dimension is at least 1.
struct Grid {
    std::int64_t x = 1, y = 1, z = 1;
};

// Returns a grid for n independent elements, with `each` elements per thread and step. It has at
// most 32 blocks per multiprocessor, so the kernel must iterate in steps of threads_in_grid().
inline Grid grid_for(const Cuda& on, std::int64_t n, int threads, int each = 1) {
    const std::int64_t per_block = std::int64_t{threads} * each;
    const std::int64_t most = std::int64_t{32} * on.multiprocessors();
    return {std::clamp<std::int64_t>((n + per_block - 1) / per_block, 1, most)};
}

// The parameters of a launch. start() queues kernel<<<grid, threads, shared>>>(arguments...) on the
// context's stream. `shared` is the number of bytes of dynamic shared memory and can exceed 48 KiB.
// Throws CudaError with the caller's source line if the launch fails.
struct Launch {
    Grid grid;
    int threads;
    std::size_t shared = 0;
    std::source_location at = std::source_location::current();

    Launch(Grid grid_, int threads_, std::size_t shared_ = 0,
           std::source_location at_ = std::source_location::current())
        : grid(grid_), threads(threads_), shared(shared_), at(at_) {}
};

#if defined(__CUDACC__)

template <class... Parameters, class... Arguments>
void start(Cuda& on, const Launch& launch, void (*kernel)(Parameters...),
           Arguments&&... arguments) {
    if (launch.shared > 48 * 1024)
        check_cuda(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                                        cudaFuncAttributeMaxDynamicSharedMemorySize,
                                        static_cast<int>(launch.shared)),
                   "cudaFuncSetAttribute", launch.at);
    cudaLaunchConfig_t config = {};
    config.gridDim =
        dim3(static_cast<unsigned>(launch.grid.x), static_cast<unsigned>(launch.grid.y),
             static_cast<unsigned>(launch.grid.z));
    config.blockDim = dim3(static_cast<unsigned>(launch.threads));
    config.dynamicSmemBytes = launch.shared;
    config.stream = on.stream();
    check_cuda(
        cudaLaunchKernelEx(&config, kernel, Parameters(std::forward<Arguments>(arguments))...),
        "cudaLaunchKernelEx", launch.at);
}

#else

template <class... Parameters, class... Arguments>
void start(Cuda& on, const Launch& launch, void (*kernel)(Parameters...),
           Arguments&&... arguments) {
    simulator::start(on.stream(), {launch.grid.x, launch.grid.y, launch.grid.z}, launch.threads,
                     launch.shared, launch.at,
                     [kernel, ... values = Parameters(std::forward<Arguments>(arguments))] {
                         kernel(values...);
                     });
}

#endif

}  // namespace axle::kernels
