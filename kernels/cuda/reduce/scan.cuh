// Private to kernels: cumulative sums of values held by the threads of a block.
#pragma once

#include "kernels/cuda/device.cuh"

namespace axle::kernels {

// Returns the sum of x over all threads before this one; `total` becomes the sum over all threads.
// The order of additions is fixed. Must be called by all threads of a block of kThreads together.
template <int kThreads, class T>
__device__ inline T block_scan(T x, T& total) {
    static_assert(kThreads % kWarp == 0);
    constexpr int kWarps = kThreads / kWarp;
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    const int warp = static_cast<int>(threadIdx.x) / kWarp;
    T upto = x;  // sum over this lane and those before it
    for (int offset = 1; offset < kWarp; offset *= 2) {
        const T before = __shfl_up_sync(kAllLanes, upto, offset);
        if (lane >= offset) upto += before;
    }
    __shared__ T sums[kWarps];
    __syncthreads();  // the sums of the previous call have been read
    if (lane == kWarp - 1) sums[warp] = upto;
    __syncthreads();
    T before = 0;
    total = 0;
    for (int w = 0; w < kWarps; ++w) {
        if (w == warp) before = total;
        total += sums[w];
    }
    const T in_warp = __shfl_up_sync(kAllLanes, upto, 1);
    return lane == 0 ? before : before + in_warp;
}

}  // namespace axle::kernels
