// Private to kernels: the parameters of attention kernels, and how their work is split into blocks.
#pragma once

#include <algorithm>
#include <cassert>
#include <cstdint>
#include <limits>

#include "kernels/cuda/device.cuh"
#include "kernels/ops/attention.h"

namespace axle::kernels::attend {

inline constexpr int kTile = 64;  // rows of a tile (queries or keys)

template <class C>
inline constexpr C kMinusInfinity = -std::numeric_limits<C>::infinity();

// A 4-d operand. `packed` is true if its rows can be read in packs of 16 bytes.
template <class T>
struct Operand {
    T* data = nullptr;
    std::int64_t stride[4] = {};
    bool packed = false;

    __device__ T* head(std::int64_t b, std::int64_t h) const {
        return data + b * stride[0] + h * stride[1];
    }
};
template <class T, class V>
Operand<T> operand(const V& x) {
    Operand<T> y;
    y.data = static_cast<T*>(x.data);
    constexpr std::int64_t kAlign = kPack<std::remove_const_t<T>>;
    y.packed = x.data != nullptr && x.stride[3] == 1 && x.shape[3] % kAlign == 0 &&
               reinterpret_cast<std::uintptr_t>(x.data) % 16 == 0;
    for (int d = 0; d < 4; ++d) {
        y.stride[d] = x.stride[d];
        if (d < 3 && x.stride[d] % kAlign != 0 && x.shape[d] != 1) y.packed = false;
    }
    return y;
}

// Returns lse [B, H, Tq] as a 4-d operand, so that its heads are addressed in the same way as the
// heads of other operands.
template <class C, class V>
Operand<C> lse_operand(const V& lse) {
    Operand<C> y;
    y.data = static_cast<C*>(lse.data);
    for (int d = 0; d < 3; ++d) y.stride[d] = lse.stride[d];
    return y;
}

struct Mask {
    const void* data = nullptr;
    DType dtype = DType::boolean;
    std::int64_t stride[4] = {};

    // Returns the value that the mask adds to a score.
    template <class C>
    __device__ C at(std::int64_t place) const {
        switch (dtype) {
            case DType::boolean:
                return static_cast<const std::uint8_t*>(data)[place] != 0 ? C(0)
                                                                          : kMinusInfinity<C>;
            case DType::f64:
                return static_cast<C>(static_cast<const double*>(data)[place]);
            case DType::f32:
                return static_cast<C>(static_cast<const float*>(data)[place]);
            case DType::f16:
                return static_cast<C>(static_cast<float>(static_cast<const Half*>(data)[place]));
            default:
                return static_cast<C>(
                    static_cast<float>(static_cast<const BFloat16*>(data)[place]));
        }
    }
};

// The parameters of a call, as passed to kernels. Query i attends to keys j <= i + offset. Lengths
// are below 2^30.
struct Call {
    std::int64_t batch;
    int heads, groups, queries, keys, depth, offset;
    Mask mask;
    double scale;
    bool drops;
    float dropout_p;
    double kept;  // factor by which kept weights are multiplied
    Philox random;
    WeightGrid grid;

    std::int64_t query_tiles() const { return (queries + kTile - 1) / kTile; }
    std::int64_t key_tiles() const { return (keys + kTile - 1) / kTile; }
};
inline Call call_of(const ConstView& q, const ConstView& k, const ConstView& mask,
                    const AttentionParams& params) {
    Call call;
    const auto size = [](std::int64_t n) {
        assert(n < 1 << 30);
        return static_cast<int>(n);
    };
    call.batch = q.shape[0], call.heads = size(q.shape[1]), call.groups = size(k.shape[1]);
    call.queries = size(q.shape[2]), call.keys = size(k.shape[2]), call.depth = size(q.shape[3]);
    call.offset = params.causal ? static_cast<int>(std::clamp<std::int64_t>(
                                      params.causal_offset, -q.shape[2], k.shape[2]))
                                : call.keys;
    call.mask.data = mask.data, call.mask.dtype = mask.dtype;
    for (int d = 0; d < 4; ++d) call.mask.stride[d] = mask.stride[d];
    call.scale = params.scale;
    call.drops = params.dropout_p > 0;
    call.dropout_p = static_cast<float>(params.dropout_p);
    call.kept = 1 / (1 - params.dropout_p);
    call.random = params.random;
    call.grid = params.grid;
    if (call.grid.keys == 0) call.grid = {q.shape[1], q.shape[2], k.shape[2]};
    return call;
}

// The part of the result that a block computes. Consecutive block numbers differ first in the
// window, then in the head and the batch, then in the tile. So the longest tiles of a causal call
// start first.
struct BlockTask {
    std::int64_t b;
    int tile, h;
    int window;  // first column of the window

    __device__ BlockTask(std::int64_t block, int heads, std::int64_t batch, int depth, int width) {
        const std::int64_t windows = depth > width ? (depth + width - 1) / width : 1;
        window = static_cast<int>(block % windows) * width;
        block /= windows;
        h = static_cast<int>(block % heads), block /= heads;
        b = block % batch, tile = static_cast<int>(block / batch);
    }
};
inline std::int64_t block_count(std::int64_t tiles, std::int64_t heads, std::int64_t batch,
                                int depth, int width) {
    return tiles * heads * batch * std::max(1, (depth + width - 1) / width);
}

}  // namespace axle::kernels::attend
