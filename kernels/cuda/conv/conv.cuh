// Private to kernels: helpers of the convolution kernels, which compute a tile of a matrix product
// and map its indices to images.
#pragma once

#include <cstdint>

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/pool/planes.cuh"

namespace axle::kernels {

// --- tile: a block of kConvThreads computes kConvTile x kConvTile sums, kConvDepth terms at a time

inline constexpr int kConvTile = 64, kConvDepth = 16, kConvThreads = 256;
inline constexpr int kConvEach = 4;  // rows and columns of the tile per thread
// The number of elements of each factor that a thread loads per step.
inline constexpr int kConvLoads = kConvTile * kConvDepth / kConvThreads;
// The length of a line in shared memory. Four extra elements put the elements of a column into
// different banks.
inline constexpr int kConvLine = kConvTile + 4;

template <class C>
struct ConvFactors {
    alignas(16) C a[kConvDepth][kConvLine], b[kConvDepth][kConvLine];
};

// Adds the product of a (transposed) and b to the sums of the thread's rows and columns.
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

// The strides of an image tensor [N, C, H, W].
struct ImageSteps {
    std::int64_t n, c, h, w;

    explicit ImageSteps(const ConstView& v)
        : n(v.stride[0]), c(v.stride[1]), h(v.stride[2]), w(v.stride[3]) {}
};

// Splits a number into the three indices of a pixel [N, H, W] or of a tap [C, KH, KW].
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

}  // namespace axle::kernels
