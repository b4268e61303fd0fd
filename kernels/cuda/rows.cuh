// Private to kernels: rows of a tensor, and teams of threads that process them.
//
// A team consists of lanes of one warp (their number is a power of two), or of a full block. After
// load_row(), it holds a row in registers: pack p of the thread with number `rank` is pack p * size
// + rank of the row. The assignment of elements to threads depends only on the row's length, not on
// its strides; so a sum has the same bits for all strides.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>

#include "kernels/cuda/device.cuh"
#include "kernels/view.h"

namespace axle::kernels {

// Returns the x of the lane whose number is the number of this lane XOR `offset`. Unlike
// __shfl_xor_sync, supports any type that consists of 32-bit words.
template <class T>
__device__ inline T shuffle_xor(const T& x, int offset) {
    constexpr int kWords = static_cast<int>(sizeof(T) / sizeof(unsigned));
    static_assert(sizeof(T) % sizeof(unsigned) == 0);
    unsigned words[kWords];
    memcpy(words, &x, sizeof x);
#pragma unroll
    for (int w = 0; w < kWords; ++w) words[w] = __shfl_xor_sync(kAllLanes, words[w], offset);
    T result;
    memcpy(static_cast<void*>(&result), words, sizeof result);
    return result;
}

template <class T>
struct PairOf {
    T a, b;
    __device__ PairOf operator+(const PairOf& other) const { return {a + other.a, b + other.b}; }
};

// The threads that process a row. The size is a power of two. A team of more than 32 threads is a
// full block.
struct Team {
    int size, rank;

    __device__ explicit Team(int size_)
        : size(size_), rank(static_cast<int>(threadIdx.x) & (size_ - 1)) {}
    // Combines the values of all threads of the team in a fixed order and returns the result to
    // each thread. op(a, b) and op(b, a) must have the same bits. All threads of the block must
    // call it together.
    template <class T, class Op>
    __device__ T combine(T x, Op op) const {
        for (int offset = (size < kWarp ? size : kWarp) / 2; offset > 0; offset /= 2)
            x = op(x, shuffle_xor(x, offset));
        if (size <= kWarp) return x;
        __shared__ T parts[kWarp];
        const int lane = rank % kWarp, warps = size / kWarp;
        __syncthreads();  // wait until the parts of the previous call have been read
        if (lane == 0) parts[rank / kWarp] = x;
        __syncthreads();
        x = parts[lane & (warps - 1)];
        for (int offset = warps / 2; offset > 0; offset /= 2) x = op(x, shuffle_xor(x, offset));
        return x;
    }
    template <class T>
    __device__ T sum(T x) const {
        return combine(x, SumOf{});
    }
};

// Returns the size of a team that processes `units` with at most `each` units per thread, or `most`
// if that is smaller.
inline int team_for(std::int64_t units, int each, int most) {
    const std::int64_t wanted = std::max<std::int64_t>(1, (units + each - 1) / each);
    if (wanted >= most) return most;
    return static_cast<int>(std::bit_ceil(static_cast<std::uint64_t>(wanted)));
}

// The layout of a grid with one team per row: how teams are grouped into blocks.
struct TeamLayout {
    int team, threads;

    // Teams of at most one warp share blocks of `together` threads; a larger team has its own
    // block.
    TeamLayout(int team_, int together) : team(team_), threads(team_ > kWarp ? team_ : together) {}
    int teams() const { return threads / team; }
    std::int64_t blocks(std::int64_t rows) const { return (rows + teams() - 1) / teams(); }
};

// The rows of several views. A row is the last dimension. All other dimensions have the same sizes
// in all views; rows are numbered in the row-major order of these dimensions.
template <int kViews>
struct DeviceRows {
    int ndim = 0;
    std::int64_t count = 1;
    std::int64_t size[kMaxDims] = {};
    std::int64_t stride[kViews][kMaxDims] = {};

    explicit DeviceRows(const std::array<ConstView, kViews>& views) {
        for (int d = 0; d + 1 < views[0].ndim; ++d) {
            const std::int64_t here = views[0].shape[d];
            count *= here;
            if (here == 1) continue;
            bool together = ndim > 0;
            for (int k = 0; together && k < kViews; ++k)
                together = stride[k][ndim - 1] == views[k].stride[d] * here;
            if (!together) size[ndim++] = 1;
            size[ndim - 1] *= here;
            for (int k = 0; k < kViews; ++k) stride[k][ndim - 1] = views[k].stride[d];
        }
        if (ndim == 0) size[ndim++] = 1;
    }
    // Returns whether packs of T can be loaded from every row of a view whose last stride is 1.
    template <class T>
    bool packs_in(int view, const void* data) const {
        bool all = packs<T>(data);
        for (int d = 0; d < ndim; ++d) all &= stride[view][d] % kPack<T> == 0;
        return all;
    }
    struct Place {
        std::int64_t at[kViews];
    };
    __device__ Place place(std::int64_t row) const {
        Place p = {};
        for (int d = ndim - 1; d >= 0; --d) {
            const std::int64_t rest = d == 0 ? 0 : row / size[d];
            const std::int64_t here = row - rest * size[d];
            for (int k = 0; k < kViews; ++k) p.at[k] += here * stride[k][d];
            row = rest;
        }
        return p;
    }
};

// Loads elements [i, i + kPack<T>) of a row of n elements. Elements beyond the end get the value
// `fill`. A dense row consists of full, aligned packs.
template <class T>
__device__ inline Pack<T> load_part(const T* row, std::int64_t stride, bool dense, std::int64_t i,
                                    std::int64_t n, T fill) {
    Pack<T> pack;
    if (dense && i < n) return load_pack(row + i);
#pragma unroll
    for (int j = 0; j < kPack<T>; ++j)
        pack.at[j] = !dense && i + j < n ? row[(i + j) * stride] : fill;
    return pack;
}
template <class T>
__device__ inline void store_part(const Pack<T>& pack, T* row, std::int64_t stride, bool dense,
                                  std::int64_t i, std::int64_t n) {
    if (dense) {
        if (i < n) store_pack(row + i, pack);
        return;
    }
#pragma unroll
    for (int j = 0; j < kPack<T>; ++j)
        if (i + j < n) row[(i + j) * stride] = pack.at[j];
}

// Loads the packs of a row that this thread holds.
template <class T, int kPacks>
__device__ inline void load_row(Pack<T> (&packs)[kPacks], const T* row, std::int64_t stride,
                                bool dense, int n, const Team& team, T fill) {
    if (dense) {
#pragma unroll
        for (int p = 0; p < kPacks; ++p)
            packs[p] = load_part(row, 1, true, (p * team.size + team.rank) * kPack<T>, n, fill);
        return;
    }
#pragma unroll
    for (int p = 0; p < kPacks; ++p)
        packs[p] = load_part(row, stride, false, (p * team.size + team.rank) * kPack<T>, n, fill);
}

// Returns element i of an array of any floating dtype, converted to C.
template <class C>
__device__ inline C load_as(const void* data, DType dtype, std::int64_t i) {
    switch (dtype) {
        case DType::f64:
            return static_cast<C>(static_cast<const double*>(data)[i]);
        case DType::f16:
            return static_cast<C>(static_cast<float>(static_cast<const Half*>(data)[i]));
        case DType::bf16:
            return static_cast<C>(static_cast<float>(static_cast<const BFloat16*>(data)[i]));
        default:
            return static_cast<C>(static_cast<const float*>(data)[i]);
    }
}
template <class V>
__device__ inline void store_as(void* data, DType dtype, std::int64_t i, V value) {
    switch (dtype) {
        case DType::f64:
            static_cast<double*>(data)[i] = convert<double>(value);
            break;
        case DType::f16:
            static_cast<Half*>(data)[i] = convert<Half>(value);
            break;
        case DType::bf16:
            static_cast<BFloat16*>(data)[i] = convert<BFloat16>(value);
            break;
        default:
            static_cast<float*>(data)[i] = convert<float>(value);
    }
}

}  // namespace axle::kernels
