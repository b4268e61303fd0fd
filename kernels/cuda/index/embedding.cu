// The gradient of an embedding. The positions in the index are sorted, with a stable sort, by the
// row of the weight that they refer to. Then each row of the weight's gradient is written once, as
// the sum of the rows of dy at its positions. Positions that refer to the padding row or to no row
// are ignored. Each other row of dy is read once, in packs of 16 bytes if it is dense. Work is
// split by rows and columns, never by positions, so the sums need no atomics and have a fixed
// order.
#include <algorithm>
#include <bit>

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/index/cub.h"
#include "kernels/cuda/start.cuh"
#include "kernels/ops/index.h"

namespace axle::kernels {
namespace {

constexpr int kThreads = 256;
constexpr int kSumThreads = 128;
constexpr int kAhead = 8;  // rows of dy that a thread loads ahead

// The range of the sorted positions that refer to one row of the weight. The range is initially
// empty.
struct Bounds {
    std::int64_t begin, end;
};

template <class Index>
__global__ void rank_positions(const Index* ids, std::int64_t stride, std::int64_t n,
                               std::int64_t rows, std::int64_t padding, Ranks<std::uint64_t> ranked,
                               Bounds* bounds) {
    for (std::int64_t i = thread_in_grid(); i < n; i += threads_in_grid()) {
        const std::int64_t id = ids[i * stride];
        const bool counts = id >= 0 && id < rows && id != padding;
        ranked.keys[i] = static_cast<std::uint64_t>(counts ? id : rows);
        ranked.indices[i] = static_cast<std::uint32_t>(i);
    }
    for (std::int64_t r = thread_in_grid(); r < rows; r += threads_in_grid()) bounds[r] = {0, 0};
}

__global__ void find_bounds(const std::uint64_t* sorted, std::int64_t n, std::int64_t rows,
                            Bounds* bounds) {
    for (std::int64_t i = thread_in_grid(); i < n; i += threads_in_grid()) {
        const auto row = static_cast<std::int64_t>(sorted[i]);
        if (row == rows) continue;
        if (i == 0 || sorted[i - 1] != sorted[i]) bounds[row].begin = i;
        if (i == n - 1 || sorted[i + 1] != sorted[i]) bounds[row].end = i + 1;
    }
}

struct Matrix {
    std::int64_t row_stride, column_stride;
};

// Sums the rows of dy that have the same id. Each thread computes kN adjacent elements of a row of
// dweight.
template <class T, int kN>
__global__ void __launch_bounds__(kSumThreads)
    sum_rows(const std::uint32_t* sorted, const Bounds* bounds, std::int64_t rows,
             std::int64_t width, Matrix from, const T* dy, Matrix to, Compute<T>* dweight,
             bool accumulate) {
    using C = Compute<T>;
    const std::int64_t packs = width / kN;
    for (std::int64_t t = thread_in_grid(); t < rows * packs; t += threads_in_grid()) {
        const std::int64_t row = t / packs, column = (t - row * packs) * kN;
        const Bounds all = bounds[row];
        if (accumulate && all.begin == all.end) continue;
        const T* const x = dy + column * from.column_stride;
        C sum[kN] = {};
        for (std::int64_t i = all.begin; i < all.end; i += kAhead) {
            Pack<T, kN> pack[kAhead];
#pragma unroll
            for (int a = 0; a < kAhead; ++a)
                if (i + a < all.end)
                    pack[a] = load_pack<T, kN>(x + sorted[i + a] * from.row_stride);
#pragma unroll
            for (int a = 0; a < kAhead; ++a)
                if (i + a < all.end)
#pragma unroll
                    for (int j = 0; j < kN; ++j) sum[j] += static_cast<C>(pack[a].at[j]);
        }
        C* const y = dweight + row * to.row_stride + column * to.column_stride;
        constexpr int kOut = kN < kPack<C> ? kN : kPack<C>;
#pragma unroll
        for (int j = 0; j < kN; j += kOut) {
            Pack<C, kOut> pack = {};
            if (accumulate) pack = load_pack<C, kOut>(y + j);
#pragma unroll
            for (int k = 0; k < kOut; ++k) pack.at[k] += sum[j + k];
            store_pack(y + j, pack);
        }
    }
}

}  // namespace

void embedding_backward(Cuda& on, ConstView dy, ConstView ids, std::int64_t padding, View dweight,
                        bool accumulate) {
    const std::int64_t rows = dweight.shape[0], width = dweight.shape[1], n = ids.shape[0];
    if (rows == 0 || width == 0) return;
    DeviceScratch scratch(on);
    const auto ranked = take_ranks<std::uint64_t>(scratch, n);
    Bounds* const bounds = scratch.take<Bounds>(rows);
    visit_index(ids.dtype, [&]<class Index>() {
        start(on, {grid_for(on, std::max(n, rows), kThreads), kThreads}, &rank_positions<Index>,
              ids.as<Index>(), ids.stride[0], n, rows, padding, ranked, bounds);
    });
    const int bits = std::bit_width(static_cast<std::uint64_t>(rows));
    const auto sorted = sort_by_keys(on, scratch, ranked, 1, n, bits);
    if (n > 0)
        start(on, {grid_for(on, n, kThreads), kThreads}, &find_bounds, sorted.keys, n, rows,
              bounds);

    const Matrix from{dy.stride[0], dy.stride[1]}, to{dweight.stride[0], dweight.stride[1]};
    visit_float(dy.dtype, [&]<class T>() {
        using C = Compute<T>;
        const auto sum = [&]<int kN>() {
            // Each thread sums one pack of dweight, so that the GPU can balance rows with different
            // numbers of positions.
            const std::int64_t blocks = (rows * (width / kN) + kSumThreads - 1) / kSumThreads;
            start(on, {{std::min<std::int64_t>(blocks, 0x7fffffff)}, kSumThreads}, &sum_rows<T, kN>,
                  sorted.indices, bounds, rows, width, from, dy.as<T>(), to, dweight.as<C>(),
                  accumulate);
        };
        const bool dense = from.column_stride == 1 && to.column_stride == 1 &&
                           width % kPack<T> == 0 && packs<T>(dy.data, from.row_stride) &&
                           packs<C>(dweight.data, to.row_stride);
        if (dense)
            sum.template operator()<kPack<T>>();
        else
            sum.template operator()<1>();
    });
}

}  // namespace axle::kernels
