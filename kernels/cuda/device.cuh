// Private to kernels: basic building blocks of CUDA kernels.
//
// Device code is C++ that is compiled by nvcc for a GPU and by a host compiler for the simulated
// GPU in tests/simulator/. To make both possible, all device code follows these rules.
// __syncthreads, warp shuffles and atomics are called by their CUDA names or through functions in
// this file. Kernels are launched with start() (kernels/cuda/start.cuh). Shared memory is declared
// with __shared__ or obtained from dynamic_shared(). Every function that wraps a GPU instruction
// has an equivalent implementation in plain C++.
#pragma once

#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "kernels/dtype.h"
#include "kernels/half.h"

namespace axle::kernels {

inline constexpr int kWarp = 32;
inline constexpr unsigned kAllLanes = 0xffffffffu;

// --- numbers

// The type in which arithmetic on T is computed.
template <class T>
struct ComputeOf {
    using Type = T;
};
template <>
struct ComputeOf<Half> {
    using Type = float;
};
template <>
struct ComputeOf<BFloat16> {
    using Type = float;
};
template <class T>
using Compute = typename ComputeOf<T>::Type;

// Converts x. 16-bit types are converted through float. Numbers are truncated towards zero for
// integers, which must be able to represent them. The result for booleans is x != 0.
template <class To, class From>
AXLE_HOST_DEVICE constexpr To convert(From x) {
    if constexpr (std::is_same_v<To, From>)
        return x;
    else if constexpr (std::is_same_v<To, bool>)
        return static_cast<Compute<From>>(x) != Compute<From>(0);
    else if constexpr (std::is_same_v<To, Half> || std::is_same_v<To, BFloat16>)
        return To(static_cast<float>(x));
    else
        return static_cast<To>(static_cast<Compute<From>>(x));
}

// --- memory, 16 bytes at a time

// The number of elements of T in one 16-byte access.
template <class T>
inline constexpr int kPack = 16 / static_cast<int>(sizeof(T));

template <class T, int N = kPack<T>>
struct alignas(sizeof(T) * N) Pack {
    static constexpr int kSize = N;
    T at[N];
};

template <int kBytes>
struct Word;
template <>
struct Word<16> {
    using Type = uint4;
};
template <>
struct Word<8> {
    using Type = uint2;
};
template <>
struct Word<4> {
    using Type = unsigned;
};
template <>
struct Word<2> {
    using Type = unsigned short;
};
template <>
struct Word<1> {
    using Type = unsigned char;
};

// load_pack and store_pack access a pack with one instruction. p must be aligned to the pack's size
// (1 to 16 bytes).
template <class T, int N = kPack<T>>
__device__ inline Pack<T, N> load_pack(const T* p) {
    using Bits = typename Word<sizeof(Pack<T, N>)>::Type;
    const Bits bits = *reinterpret_cast<const Bits*>(p);
    Pack<T, N> pack;
    memcpy(static_cast<void*>(&pack), &bits, sizeof pack);
    return pack;
}
template <class T, int N>
__device__ inline void store_pack(T* p, const Pack<T, N>& pack) {
    using Bits = typename Word<sizeof(Pack<T, N>)>::Type;
    Bits bits;
    memcpy(&bits, &pack, sizeof pack);
    *reinterpret_cast<Bits*>(p) = bits;
}

// Returns whether packs of T can be loaded at p and in consecutive rows of `row` elements. row = 0
// means a single row.
template <class T>
bool packs(const void* p, std::int64_t row = 0) {
    return reinterpret_cast<std::uintptr_t>(p) % 16 == 0 && row % kPack<T> == 0;
}

// --- warps and blocks; all threads of the warp or block must call these functions together

struct SumOf {
    template <class T>
    __device__ T operator()(T a, T b) const {
        return a + b;
    }
};
struct MaxOf {
    template <class T>
    __device__ T operator()(T a, T b) const {
        return a > b ? a : b;
    }
};

// Combines the values of all 32 lanes, or of each group of `width` lanes (a power of two). The
// order is fixed, and every lane gets the result.
template <class T, class Op>
__device__ inline T warp_combine(T x, Op op, int width = kWarp) {
    for (int offset = width / 2; offset > 0; offset /= 2)
        x = op(x, __shfl_xor_sync(kAllLanes, x, offset));
    return x;
}
template <class T>
__device__ inline T warp_sum(T x, int width = kWarp) {
    return warp_combine(x, SumOf{}, width);
}
template <class T>
__device__ inline T warp_max(T x, int width = kWarp) {
    return warp_combine(x, MaxOf{}, width);
}

// Combines the values of all threads of a block of kThreads (a multiple of 32) and returns the
// result to every thread. `identity` is the neutral element of op. Consecutive calls need no
// synchronization.
template <int kThreads, class T, class Op>
__device__ inline T block_combine(T x, Op op, T identity) {
    static_assert(kThreads % kWarp == 0 && kThreads <= 1024);
    constexpr int kWarps = kThreads / kWarp;
    x = warp_combine(x, op);
    if constexpr (kWarps == 1) return x;
    __shared__ T parts[kWarps];
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    const int warp = static_cast<int>(threadIdx.x) / kWarp;
    __syncthreads();  // wait until the parts of the previous call have been read
    if (lane == 0) parts[warp] = x;
    __syncthreads();
    return warp_combine(lane < kWarps ? parts[lane] : identity, op);
}
template <int kThreads, class T>
__device__ inline T block_sum(T x) {
    return block_combine<kThreads>(x, SumOf{}, T(0));
}
template <int kThreads, class T>
__device__ inline T block_max(T x) {
    return block_combine<kThreads>(x, MaxOf{}, std::numeric_limits<T>::lowest());
}

// --- shared memory

// Returns the dynamic shared memory of the launch, which is aligned to 16 bytes.
__device__ inline void* dynamic_shared() {
#if defined(__CUDACC__)
    extern __shared__ __align__(16) unsigned char axle_dynamic_shared[];
    return axle_dynamic_shared;
#else
    return simulator::dynamic_shared();
#endif
}

// --- grids

// Return the index of this thread in a one-dimensional grid, and the number of threads in it.
__device__ inline std::int64_t thread_in_grid() {
    return static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}
__device__ inline std::int64_t threads_in_grid() {
    return static_cast<std::int64_t>(gridDim.x) * blockDim.x;
}

}  // namespace axle::kernels
