// A stable least-significant-digit radix sort, 8 bits a pass. A pass counts the digits of every
// chunk of a row, turns the counts into the places where each chunk's elements of a digit begin,
// and moves the elements: two reads and one write of all of them. Within a chunk the order comes
// from votes of the warps, never from atomics, so that the result is unique.
#include <algorithm>

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/radix.h"
#include "kernels/cuda/start.cuh"

namespace axle::inline v0::kernels {
namespace {

constexpr int kThreads = 256;
constexpr int kDigits = 256;  // one for each thread
constexpr int kWarps = kThreads / kWarp;
constexpr std::int64_t kMostChunks = 256;  // of a row

struct Cut {
    std::int64_t n, chunk;
    std::int64_t chunks;  // of a row

    explicit Cut(std::int64_t n_) : n(n_) {
        const std::int64_t least = 8 * kThreads;
        const std::int64_t even = (n + kMostChunks - 1) / kMostChunks;
        chunk = std::max(least, (even + kThreads - 1) / kThreads * kThreads);
        chunks = (n + chunk - 1) / chunk;
    }
};

__device__ inline int digit_of(std::uint64_t key, int shift) {
    return static_cast<int>(key >> shift & (kDigits - 1));
}

// counts [rows][chunks][kDigits].
__global__ void __launch_bounds__(kThreads)
    count_digits(Cut cut, int shift, const Ranked* x, std::uint32_t* counts) {
    __shared__ std::uint32_t count[kDigits];
    count[threadIdx.x] = 0;
    __syncthreads();
    const std::int64_t row = blockIdx.x / cut.chunks, begin = blockIdx.x % cut.chunks * cut.chunk;
    const std::int64_t end = begin + cut.chunk < cut.n ? begin + cut.chunk : cut.n;
    const Ranked* from = x + row * cut.n;
    for (std::int64_t i = begin + threadIdx.x; i < end; i += kThreads)
        atomicAdd(&count[digit_of(from[i].key, shift)], 1u);
    __syncthreads();
    counts[std::int64_t{blockIdx.x} * kDigits + threadIdx.x] = count[threadIdx.x];
}

// Counts become the number of elements that go before the chunk's first of the digit.
__global__ void __launch_bounds__(kThreads) place_digits(Cut cut, std::uint32_t* counts) {
    const int digit = static_cast<int>(threadIdx.x);
    std::uint32_t* const mine = counts + blockIdx.x * cut.chunks * kDigits + digit;
    std::uint32_t total = 0;
    for (std::int64_t c = 0; c < cut.chunks; ++c) total += mine[c * kDigits];
    __shared__ std::uint32_t sums[2][kDigits];
    int from = 0;
    sums[from][digit] = total;
    __syncthreads();
    for (int offset = 1; offset < kDigits; offset *= 2, from ^= 1) {
        const std::uint32_t before = digit >= offset ? sums[from][digit - offset] : 0;
        sums[from ^ 1][digit] = sums[from][digit] + before;
        __syncthreads();
    }
    std::uint32_t place = sums[from][digit] - total;
    for (std::int64_t c = 0; c < cut.chunks; ++c) {
        const std::uint32_t count = mine[c * kDigits];
        mine[c * kDigits] = place;
        place += count;
    }
}

__global__ void __launch_bounds__(kThreads)
    move_elements(Cut cut, int shift, const Ranked* x, const std::uint32_t* places, Ranked* y) {
    __shared__ std::uint32_t next[kDigits];            // the place of the chunk's next element
    __shared__ std::uint32_t starts[kWarps][kDigits];  // and of each warp's, in turn its count
    const int thread = static_cast<int>(threadIdx.x), lane = thread % kWarp;
    const int warp = thread / kWarp;
    next[thread] = places[std::int64_t{blockIdx.x} * kDigits + thread];
    const std::int64_t row = blockIdx.x / cut.chunks, begin = blockIdx.x % cut.chunks * cut.chunk;
    const std::int64_t end = begin + cut.chunk < cut.n ? begin + cut.chunk : cut.n;
    const Ranked* const from = x + row * cut.n;
    Ranked* const to = y + row * cut.n;
    for (std::int64_t first = begin; first < end; first += kThreads) {
        for (int w = 0; w < kWarps; ++w) starts[w][thread] = 0;
        __syncthreads();
        const std::int64_t i = first + thread;
        const bool exists = i < end;
        const Ranked element = exists ? from[i] : Ranked{0, 0};
        const int digit = digit_of(element.key, shift);
        unsigned peers = __ballot_sync(kAllLanes, exists);  // lanes with the same digit
#pragma unroll
        for (int bit = 0; bit < 8; ++bit) {
            const bool set = (digit >> bit & 1) != 0;
            const unsigned votes = __ballot_sync(kAllLanes, set);
            peers &= set ? votes : ~votes;
        }
        const int before = __popc(peers & ((1u << lane) - 1));
        if (exists && before == 0) starts[warp][digit] = static_cast<std::uint32_t>(__popc(peers));
        __syncthreads();
        std::uint32_t place = next[thread];
        for (int w = 0; w < kWarps; ++w) {
            const std::uint32_t count = starts[w][thread];
            starts[w][thread] = place;
            place += count;
        }
        next[thread] = place;
        __syncthreads();
        if (exists) to[starts[warp][digit] + static_cast<std::uint32_t>(before)] = element;
        __syncthreads();
    }
}

}  // namespace

Ranked* radix_sort(Cuda& on, DeviceScratch& scratch, Ranked* a, std::int64_t rows, std::int64_t n,
                   int bits) {
    if (rows == 0 || n <= 1) return a;
    const Cut cut(n);
    const std::int64_t blocks = rows * cut.chunks;
    Ranked* b = scratch.take<Ranked>(rows * n);
    std::uint32_t* const counts = scratch.take<std::uint32_t>(blocks * kDigits);
    for (int shift = 0; shift < bits; shift += 8) {
        start(on, {{blocks}, kThreads}, &count_digits, cut, shift, a, counts);
        start(on, {{rows}, kThreads}, &place_digits, cut, counts);
        start(on, {{blocks}, kThreads}, &move_elements, cut, shift, a, counts, b);
        std::swap(a, b);
    }
    return a;
}

}  // namespace axle::inline v0::kernels
