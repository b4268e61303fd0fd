// Private to kernels: the words that CUDA kernels are written in.
//
// Device code is C++ that nvcc compiles for a GPU and, in tests/simulator/, a host compiler for a
// machine without one. So that both can: __syncthreads, the warp's shuffles and the atomics are
// called through what stands here or by their CUDA names, kernels are started with start()
// (kernels/cuda/start.cuh), shared memory is declared with __shared__ or taken from
// dynamic_shared(), and an instruction that C++ cannot say is wrapped in a function with a twin in
// plain C++.
#pragma once

#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "kernels/dtype.h"
#include "kernels/half.h"

namespace axle::inline v0::kernels {

inline constexpr int kWarp = 32;
inline constexpr unsigned kAllLanes = 0xffffffffu;

// --- numbers

// What arithmetic on T happens in.
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

// Converted as copy() does: through float for the 16-bit types, towards zero to an integer, x != 0
// to a boolean.
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

// As many elements as one 16-byte access moves.
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

// One access. p is aligned to the pack's size, 1 to 16 bytes.
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

// Whether packs of T may be loaded at p, whole rows of `row` elements after each other too (0:
// there is one row).
template <class T>
bool packs(const void* p, std::int64_t row = 0) {
    return reinterpret_cast<std::uintptr_t>(p) % 16 == 0 && row % kPack<T> == 0;
}

// --- warps and blocks; all threads of the warp or block call these together

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

// Every lane gets the combination of all 32 (of a group of `width` lanes, a power of two), in an
// order that never varies.
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

// Every thread of a block of kThreads (a multiple of 32) gets the combination of all. `identity`
// changes nothing. May be called again at once.
template <int kThreads, class T, class Op>
__device__ inline T block_combine(T x, Op op, T identity) {
    static_assert(kThreads % kWarp == 0 && kThreads <= 1024);
    constexpr int kWarps = kThreads / kWarp;
    x = warp_combine(x, op);
    if constexpr (kWarps == 1) return x;
    __shared__ T parts[kWarps];
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    const int warp = static_cast<int>(threadIdx.x) / kWarp;
    __syncthreads();  // the last call's parts have been read
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

// The shared memory that a launch asked for, aligned to 16 bytes.
__device__ inline void* dynamic_shared() {
#if defined(__CUDACC__)
    extern __shared__ __align__(16) unsigned char axle_dynamic_shared[];
    return axle_dynamic_shared;
#else
    return simulator::dynamic_shared();
#endif
}

// --- grids

// This thread's number in a one-dimensional grid, and the number of threads.
__device__ inline std::int64_t thread_in_grid() {
    return static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}
__device__ inline std::int64_t threads_in_grid() {
    return static_cast<std::int64_t>(gridDim.x) * blockDim.x;
}

}  // namespace axle::inline v0::kernels
