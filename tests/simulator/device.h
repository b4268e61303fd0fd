// CUDA's device language for a host compiler. This header is included before every .cu file, so
// that tests can run the same kernels on a machine without a GPU, thread by thread.
//
// The threads of a block are fibers of one host thread. A fiber runs until it reaches a barrier or
// a shuffle, and resumes when all threads that take part have arrived. Blocks run one after
// another. AXLE_SIMULATOR_ORDER (forward, backward, shuffled) sets the order in which blocks and
// threads run, so that a missing barrier causes different results. A barrier or shuffle that can
// never open, because other threads wait elsewhere, is an error. So is a 16-byte access (by
// load_pack or store_pack) to a misaligned address. The simulator cannot detect races within one
// memory access, or properties of a particular GPU's memory.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <source_location>
#include <type_traits>

#include <cuda_runtime_api.h>
#include <vector_functions.h>

#undef __global__
#undef __device__
#undef __host__
#undef __constant__
#undef __shared__
#undef __launch_bounds__
#undef __forceinline__
#undef __grid_constant__
#define __global__
#define __device__
#define __host__
#define __constant__
#define __shared__ static
#define __launch_bounds__(...)
#define __forceinline__ inline
#define __grid_constant__

namespace axle::kernels::simulator {

struct Index3 {
    unsigned x = 0, y = 0, z = 0;
};
// Return the index of the running thread in its block, the index of this block in the grid, and the
// sizes of both.
const Index3& thread_index();
const Index3& block_index();
const Index3& block_size();
const Index3& grid_size();

void* dynamic_shared();

struct Extent {
    std::int64_t x, y, z;
};
// Queues run() for every thread of every block. `at` is the source line of the launch.
void start(cudaStream_t stream, Extent grid, int threads, std::size_t shared_bytes,
           std::source_location at, std::function<void()> run);

// Wait until all threads of the block, or of the warp, have reached the barrier or have returned.
void block_barrier();
void warp_barrier();
// Passes `bytes` bytes at `mine` to the warp, and copies the bytes of `lane` to `result`. Must be
// called by all threads of the warp that have not returned. If the block has no thread for `lane`,
// the caller gets its own data.
void exchange(const void* mine, std::size_t bytes, int lane, void* result);
int lane();
// Returns a mask in which bit i is the predicate of lane i.
unsigned ballot(bool predicate);

template <class T>
T shuffle(T x, int from) {
    static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= 16);
    T result;
    exchange(&x, sizeof x, from, &result);
    return result;
}

}  // namespace axle::kernels::simulator

#define threadIdx (::axle::kernels::simulator::thread_index())
#define blockIdx (::axle::kernels::simulator::block_index())
#define blockDim (::axle::kernels::simulator::block_size())
#define gridDim (::axle::kernels::simulator::grid_size())

inline void __syncthreads() { axle::kernels::simulator::block_barrier(); }
inline int __syncthreads_or(int predicate) {
    // Threads run one at a time, so all votes have been written when a thread passes the second
    // barrier.
    static int any[2], round;
    axle::kernels::simulator::block_barrier();
    if (predicate) any[round & 1] = 1;
    axle::kernels::simulator::block_barrier();
    const int result = any[round & 1];
    axle::kernels::simulator::block_barrier();
    if (axle::kernels::simulator::thread_index().x == 0) any[round & 1] = 0;
    axle::kernels::simulator::block_barrier();
    return result;
}
inline void __syncwarp(unsigned = 0xffffffffu) { axle::kernels::simulator::warp_barrier(); }
inline void __threadfence() {}
inline void __threadfence_block() {}
inline void __threadfence_system() {}

template <class T>
T __shfl_sync(unsigned, T x, int from, int width = 32) {
    const int lane = axle::kernels::simulator::lane();
    return axle::kernels::simulator::shuffle(x, lane / width * width + from % width);
}
template <class T>
T __shfl_xor_sync(unsigned, T x, int mask, int width = 32) {
    const int lane = axle::kernels::simulator::lane(), from = lane ^ mask;
    return axle::kernels::simulator::shuffle(x, from / width == lane / width ? from : lane);
}
template <class T>
T __shfl_down_sync(unsigned, T x, int delta, int width = 32) {
    const int lane = axle::kernels::simulator::lane(), from = lane + delta;
    return axle::kernels::simulator::shuffle(x, from / width == lane / width ? from : lane);
}
template <class T>
T __shfl_up_sync(unsigned, T x, int delta, int width = 32) {
    const int lane = axle::kernels::simulator::lane(), from = lane - delta;
    const bool inside = from >= 0 && from / width == lane / width;
    return axle::kernels::simulator::shuffle(x, inside ? from : lane);
}
inline unsigned __ballot_sync(unsigned, int predicate) {
    return axle::kernels::simulator::ballot(predicate != 0);
}
inline int __any_sync(unsigned, int predicate) {
    return axle::kernels::simulator::ballot(predicate != 0) != 0;
}
inline int __all_sync(unsigned, int predicate) {
    return axle::kernels::simulator::ballot(predicate == 0) == 0;
}
inline int __popc(unsigned x) { return std::popcount(x); }
inline int __popcll(unsigned long long x) { return std::popcount(x); }
inline int __clz(int x) { return std::countl_zero(static_cast<unsigned>(x)); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline unsigned __umulhi(unsigned a, unsigned b) {
    return static_cast<unsigned>((std::uint64_t{a} * b) >> 32);
}

// Threads run one at a time, so atomics need no synchronization.
template <class T>
T atomicAdd(T* at, std::type_identity_t<T> x) {
    const T before = *at;
    *at = before + x;
    return before;
}
template <class T>
T atomicMax(T* at, std::type_identity_t<T> x) {
    const T before = *at;
    if (x > before) *at = x;
    return before;
}
template <class T>
T atomicMin(T* at, std::type_identity_t<T> x) {
    const T before = *at;
    if (x < before) *at = x;
    return before;
}
template <class T>
T atomicOr(T* at, std::type_identity_t<T> x) {
    const T before = *at;
    *at = before | x;
    return before;
}
template <class T>
T atomicExch(T* at, std::type_identity_t<T> x) {
    const T before = *at;
    *at = x;
    return before;
}
template <class T>
T atomicCAS(T* at, std::type_identity_t<T> expected, std::type_identity_t<T> x) {
    const T before = *at;
    if (before == expected) *at = x;
    return before;
}

template <class T>
T __ldg(const T* p) {
    return *p;
}
template <class T>
T __ldcs(const T* p) {
    return *p;
}
template <class T>
void __stcs(T* p, T x) {
    *p = x;
}

inline float rsqrtf(float x) { return 1 / std::sqrt(x); }
inline double rsqrt(double x) { return 1 / std::sqrt(x); }
inline float rsqrt(float x) { return 1 / std::sqrt(x); }
inline float __expf(float x) { return std::exp(x); }
inline float __logf(float x) { return std::log(x); }
inline float __fdividef(float a, float b) { return a / b; }
inline unsigned __float_as_uint(float x) { return std::bit_cast<unsigned>(x); }
inline float __uint_as_float(unsigned x) { return std::bit_cast<float>(x); }
// The functions with the suffix _rn round their results, so that a product and a sum are never
// fused.
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline double __dadd_rn(double a, double b) { return a + b; }
inline double __dmul_rn(double a, double b) { return a * b; }
inline void sincospif(float x, float* sine, float* cosine) {
    *sine = static_cast<float>(std::sin(3.14159265358979323846 * x));
    *cosine = static_cast<float>(std::cos(3.14159265358979323846 * x));
}
inline void sincospi(double x, double* sine, double* cosine) {
    *sine = std::sin(3.14159265358979323846 * x);
    *cosine = std::cos(3.14159265358979323846 * x);
}
