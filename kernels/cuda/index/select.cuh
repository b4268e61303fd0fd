// Private to kernels: selection of the best k elements of a sequence by a block of threads.
//
// Elements that are better than the current k-th best are gathered in shared memory. When this
// memory is more than half full, it is sorted (bitonic sort) and reduced to k elements. Most
// elements of a long row need one comparison. The result does not depend on the order in which
// threads write, because no two elements have the same rank.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "kernels/cuda/device.cuh"

namespace axle::kernels {

// An element with its rank. Elements are ordered by key, then by index.
struct Ranked {
    std::uint64_t key;
    std::int64_t index;
};

// The number of bits in the keys of T.
template <class T>
inline constexpr int kKeyBits = 8 * static_cast<int>(sizeof(T));
template <class T>
using KeyOf = std::conditional_t<sizeof(T) == 8, std::uint64_t, std::uint32_t>;

// Converts a number to an unsigned key; lower keys are better. If `largest` is true, larger numbers
// are better, otherwise smaller numbers. NaN counts as larger than every number; -0 and +0 have the
// same key.
template <class T>
__device__ inline KeyOf<T> key_of(T x, bool largest) {
    using Key = KeyOf<T>;
    using Bits = std::conditional_t<sizeof(T) == 1, std::uint8_t,
                                    std::conditional_t<sizeof(T) == 2, std::uint16_t, KeyOf<T>>>;
    constexpr Key kSign = Key{1} << (kKeyBits<T> - 1), kAll = kSign | (kSign - 1);
    const Key bits = std::bit_cast<Bits>(x);
    Key rising = bits;
    if constexpr (std::is_floating_point_v<Compute<T>>) {
        const auto value = static_cast<Compute<T>>(x);
        rising = (bits & kSign) != 0 ? kAll & ~bits : bits | kSign;
        if (value == 0) rising = kSign;
        if (value != value) rising = kAll;
    } else if constexpr (std::is_signed_v<T>) {
        rising = bits ^ kSign;
    }
    return largest ? kAll & ~rising : rising;
}

// Returns a placeholder that is worse than all elements.
__device__ inline Ranked no_element() {
    return {~std::uint64_t{0}, std::numeric_limits<std::int64_t>::max()};
}
__device__ inline bool goes_before(const Ranked& a, const Ranked& b) {
    return a.key != b.key ? a.key < b.key : a.index < b.index;
}

inline constexpr int kSelectThreads = 512;
inline constexpr int kSelectCapacity = 2048;              // elements in shared memory
inline constexpr int kMaxSelected = kSelectCapacity / 2;  // maximum of k
inline constexpr int kSelectPerThread = 2;                // elements per thread and step
static_assert(kMaxSelected + kSelectThreads * kSelectPerThread <= kSelectCapacity);

// Sorts each group of `size` consecutive elements (a power of two) among the first `count`
// elements.
__device__ inline void sort_pieces(Ranked* x, int count, int size) {
    for (int run = 2; run <= size; run *= 2)
        for (int gap = run / 2; gap > 0; gap /= 2) {
            for (int t = static_cast<int>(threadIdx.x); t < count / 2; t += kSelectThreads) {
                const int i = 2 * t - (t & (gap - 1)), j = i + gap;
                const Ranked a = x[i], b = x[j];
                const bool rising = run == size || (i & run) == 0;
                if (goes_before(b, a) == rising) x[i] = b, x[j] = a;
            }
            __syncthreads();
        }
}

// Sorts the first `count` elements. Overwrites the elements after them, up to the next power of
// two.
__device__ inline void sort_shared(Ranked* x, int count) {
    int size = 1;
    while (size < count) size *= 2;
    for (int i = count + static_cast<int>(threadIdx.x); i < size; i += kSelectThreads)
        x[i] = no_element();
    __syncthreads();
    sort_pieces(x, size, size);
}

// Selects the best k <= kMaxSelected of n elements. source(i) returns element i, or no_element() to
// skip it. Returns the sorted result, in shared memory, to all threads, and sets `found` to its
// size. The block must have kSelectThreads threads.
template <class Source>
__device__ inline const Ranked* select_best(const Source& source, std::int64_t n, int k,
                                            int& found) {
    __shared__ Ranked best[kSelectCapacity];
    __shared__ int count;
    __syncthreads();  // wait until the result of the previous call has been read
    if (threadIdx.x == 0) count = 0;
    Ranked limit = no_element();  // only elements better than this are gathered
    __syncthreads();
    Ranked next[kSelectPerThread];
    const auto load = [&](std::int64_t first) {
#pragma unroll
        for (int j = 0; j < kSelectPerThread; ++j) {
            const std::int64_t i = first + j * kSelectThreads + threadIdx.x;
            next[j] = i < n ? source(i) : no_element();
        }
    };
    load(0);
    constexpr std::int64_t kStep = kSelectThreads * kSelectPerThread;
    for (std::int64_t first = 0; first < n; first += kStep) {
        Ranked now[kSelectPerThread];
#pragma unroll
        for (int j = 0; j < kSelectPerThread; ++j) now[j] = next[j];
        load(first + kStep);
#pragma unroll
        for (int j = 0; j < kSelectPerThread; ++j)
            if (goes_before(now[j], limit)) best[atomicAdd(&count, 1)] = now[j];
        __syncthreads();
        const int gathered = count;
        __syncthreads();  // wait until all threads have read the count
        if (gathered <= kMaxSelected) continue;
        sort_shared(best, gathered);
        if (threadIdx.x == 0) count = k;
        limit = best[k - 1];
        __syncthreads();
    }
    const int gathered = count;
    sort_shared(best, gathered);
    found = gathered < k ? gathered : k;
    return best;
}

}  // namespace axle::kernels
