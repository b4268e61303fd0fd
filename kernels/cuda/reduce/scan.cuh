// Private to kernels: running totals of what the threads of a block hold.
#pragma once

#include "kernels/cuda/device.cuh"

namespace axle::inline v0::kernels {

// The sum of x of all threads before this one; `total` becomes that of all. The order of additions
// never varies. All threads of a block of kThreads call it together.
template <int kThreads, class T>
__device__ inline T block_scan(T x, T& total) {
    static_assert(kThreads % kWarp == 0);
    constexpr int kWarps = kThreads / kWarp;
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    const int warp = static_cast<int>(threadIdx.x) / kWarp;
    T upto = x;  // this lane's and those of the lanes before
    for (int offset = 1; offset < kWarp; offset *= 2) {
        const T before = __shfl_up_sync(kAllLanes, upto, offset);
        if (lane >= offset) upto += before;
    }
    __shared__ T sums[kWarps];
    __syncthreads();  // the last call's sums have been read
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

}  // namespace axle::inline v0::kernels
