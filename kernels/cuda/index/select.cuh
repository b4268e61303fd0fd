// Private to kernels: the best k of a stream of elements, by a block of threads.
//
// What is better than the k-th best so far is gathered in shared memory; when that is full it is
// sorted (bitonic) and cut to k. Most elements of a long row cost one comparison. The result does
// not depend on the order in which threads write, because no two elements have one rank.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "kernels/cuda/device.cuh"

namespace axle::inline v0::kernels {

// An element and its rank among others: the lower key first, then the lower index.
struct Ranked {
    std::uint64_t key;
    std::int64_t index;
};

// Bits that the keys of T have.
template <class T>
inline constexpr int kKeyBits = 8 * static_cast<int>(sizeof(T));
template <class T>
using KeyOf = std::conditional_t<sizeof(T) == 8, std::uint64_t, std::uint32_t>;

// Numbers to keys of which the lower is the better: the larger number (the smaller one, if not
// `largest`). NaN counts as larger than every number, and both zeros are one.
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

// Comes after all others.
__device__ inline Ranked nobody() {
    return {~std::uint64_t{0}, std::numeric_limits<std::int64_t>::max()};
}
__device__ inline bool goes_before(const Ranked& a, const Ranked& b) {
    return a.key != b.key ? a.key < b.key : a.index < b.index;
}

inline constexpr int kSelectThreads = 512;
inline constexpr int kSelectRoom = 2048;               // elements in shared memory
inline constexpr int kMostSelected = kSelectRoom / 2;  // the largest k
inline constexpr int kSelectTurn = 2;                  // elements of a thread at a time
static_assert(kMostSelected + kSelectThreads * kSelectTurn <= kSelectRoom);

// Sorts each of the pieces of `size` elements, a power of two, that `count` elements have.
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

// Sorts the first `count` elements; what follows up to a power of two is overwritten.
__device__ inline void sort_shared(Ranked* x, int count) {
    int size = 1;
    while (size < count) size *= 2;
    for (int i = count + static_cast<int>(threadIdx.x); i < size; i += kSelectThreads)
        x[i] = nobody();
    __syncthreads();
    sort_pieces(x, size, size);
}

// source(i) is element i of n, or nobody(), who does not take part. Returns, to all threads, the
// best k <= kMostSelected in shared memory, in order, and in `found` how many there are. Blocks
// have kSelectThreads.
template <class Source>
__device__ inline const Ranked* select_best(const Source& source, std::int64_t n, int k,
                                            int& found) {
    __shared__ Ranked best[kSelectRoom];
    __shared__ int count;
    __syncthreads();  // the last call's result has been read
    if (threadIdx.x == 0) count = 0;
    Ranked limit = nobody();  // who goes before takes part
    __syncthreads();
    Ranked next[kSelectTurn];
    const auto load = [&](std::int64_t first) {
#pragma unroll
        for (int j = 0; j < kSelectTurn; ++j) {
            const std::int64_t i = first + j * kSelectThreads + threadIdx.x;
            next[j] = i < n ? source(i) : nobody();
        }
    };
    load(0);
    constexpr std::int64_t kStep = kSelectThreads * kSelectTurn;
    for (std::int64_t first = 0; first < n; first += kStep) {
        Ranked now[kSelectTurn];
#pragma unroll
        for (int j = 0; j < kSelectTurn; ++j) now[j] = next[j];
        load(first + kStep);
#pragma unroll
        for (int j = 0; j < kSelectTurn; ++j)
            if (goes_before(now[j], limit)) best[atomicAdd(&count, 1)] = now[j];
        __syncthreads();
        const int gathered = count;
        __syncthreads();  // all have read it
        if (gathered <= kMostSelected) continue;
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

}  // namespace axle::inline v0::kernels
