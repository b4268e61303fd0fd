// Private to kernels: scans of values held by the threads of a block.
#pragma once

#include "kernels/cuda/device.cuh"

namespace axle::kernels {

struct Plus {
    static constexpr int kIdentity = 0;
    template <class T>
    __device__ T operator()(T a, T b) const {
        return a + b;
    }
};
struct Times {
    static constexpr int kIdentity = 1;
    template <class T>
    __device__ T operator()(T a, T b) const {
        return a * b;
    }
};

// Combines the values x of all threads before this thread with op, and returns the result
// (Op::kIdentity for the first thread). Sets `total` to the combination of the values of all
// threads. The order of operations is fixed. All threads of a block of kThreads must call it
// together.
template <int kThreads, class T, class Op>
__device__ inline T block_scan(T x, T& total, Op op) {
    static_assert(kThreads % kWarp == 0);
    constexpr int kWarps = kThreads / kWarp;
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    const int warp = static_cast<int>(threadIdx.x) / kWarp;
    T upto = x;  // combination of the lanes up to and including this lane
    for (int offset = 1; offset < kWarp; offset *= 2) {
        const T before = __shfl_up_sync(kAllLanes, upto, offset);
        if (lane >= offset) upto = op(before, upto);
    }
    __shared__ T sums[kWarps];
    __syncthreads();  // wait until the sums of the previous call have been read
    if (lane == kWarp - 1) sums[warp] = upto;
    __syncthreads();
    T before = Op::kIdentity;
    total = Op::kIdentity;
    for (int w = 0; w < kWarps; ++w) {
        if (w == warp) before = total;
        total = op(total, sums[w]);
    }
    const T in_warp = __shfl_up_sync(kAllLanes, upto, 1);
    return lane == 0 ? before : op(before, in_warp);
}

// Returns the exclusive sum of x over the threads of a block, and sets `total` to the sum of all x.
template <int kThreads, class T>
__device__ inline T block_scan(T x, T& total) {
    return block_scan<kThreads>(x, total, Plus());
}

}  // namespace axle::kernels
