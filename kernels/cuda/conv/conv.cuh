// Private to kernels: what the convolution kernels share, a tile of a matrix product and the way
// from its indices into images.
#pragma once

#include <cstdint>

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/pool/planes.cuh"

namespace axle::inline v0::kernels {

// --- a tile: a block of kConvThreads adds to kConvTile x kConvTile sums, kConvDepth terms at a
// time

inline constexpr int kConvTile = 64, kConvDepth = 16, kConvThreads = 256;
inline constexpr int kConvEach = 4;  // each thread has as many rows and columns of the tile
// Elements of each factor that a thread brings to a step.
inline constexpr int kConvLoads = kConvTile * kConvDepth / kConvThreads;
// Lines of shared memory: four more, so that a column's elements lie in different banks.
inline constexpr int kConvLine = kConvTile + 4;

template <class C>
struct ConvFactors {
    alignas(16) C a[kConvDepth][kConvLine], b[kConvDepth][kConvLine];
};

// sums += a' b for the thread's rows and columns.
template <class C>
__device__ inline void conv_multiply(const ConvFactors<C>& factors,
                                     C (&sums)[kConvEach][kConvEach]) {
    const int row = static_cast<int>(threadIdx.x) / (kConvTile / kConvEach) * kConvEach;
    const int column = static_cast<int>(threadIdx.x) % (kConvTile / kConvEach) * kConvEach;
#pragma unroll
    for (int k = 0; k < kConvDepth; ++k) {
        C a[kConvEach], b[kConvEach];
#pragma unroll
        for (int i = 0; i < kConvEach; ++i) a[i] = factors.a[k][row + i];
#pragma unroll
        for (int j = 0; j < kConvEach; ++j) b[j] = factors.b[k][column + j];
#pragma unroll
        for (int i = 0; i < kConvEach; ++i)
#pragma unroll
            for (int j = 0; j < kConvEach; ++j) sums[i][j] += a[i] * b[j];
    }
}

// --- images

// Strides of [N, C, H, W].
struct ImageSteps {
    std::int64_t n, c, h, w;

    explicit ImageSteps(const ConstView& v)
        : n(v.stride[0]), c(v.stride[1]), h(v.stride[2]), w(v.stride[3]) {}
};

// The pixels of N images [H, W], and their kernels' taps [C, KH, KW], from one number.
struct TripleIndex {
    Split by_two, by_last;

    TripleIndex(std::int64_t second, std::int64_t last) : by_two(second * last), by_last(last) {}
    struct Place {
        std::int64_t first, second, last;
    };
    AXLE_HOST_DEVICE Place operator()(std::int64_t i) const {
        const std::int64_t first = by_two.quotient(i), rest = i - first * by_two.divisor;
        const std::int64_t second = by_last.quotient(rest);
        return {first, second, rest - second * by_last.divisor};
    }
};

}  // namespace axle::inline v0::kernels
