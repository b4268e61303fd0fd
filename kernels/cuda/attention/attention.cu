// Forward pass of flash attention (Dao et al., 2022), for every shape, floating dtype, mask and
// stride. Calls that cuDNN supports use cuDNN instead of this kernel.
//
// A block processes 64 queries of a head. It iterates, in tiles of 64, over the keys to which these
// queries attend. For each row, the maximum, the sum and a part of the output stay in registers.
// For heads with at most kDepth columns, q is read once and out is written once. k and v are read
// once per 64 queries, mostly from L2. The scores are never stored as a full matrix. Arithmetic is
// in f32 (f64 for f64) and does not use the tensor cores.
#include "kernels/cuda/attention/attention.cuh"
#include "kernels/cuda/attention/cudnn_attention.h"
#include "kernels/ops/attention.h"

namespace axle::kernels {

using namespace attend;

namespace {

template <class T, int kDepth>
__global__ void __launch_bounds__(kThreads, kBlocks<Compute<T>, kDepth>)
    attention_rows(Call call, Operand<const T> q, Operand<const T> k, Operand<const T> v,
                   Operand<T> out, Operand<Compute<T>> lse) {
    using C = Compute<T>;
    constexpr int kOperand = kTile * kPitch<C, kDepth>;
    C* const q_tile = static_cast<C*>(dynamic_shared());
    C* const k_tile = q_tile + kOperand;
    C* const v_tile = k_tile + kOperand;
    C* const weights = v_tile + kOperand;

    const BlockTask task(blockIdx.x, call.heads, call.batch, call.depth, kDepth);
    const int last_tile = (call.queries + kTile - 1) / kTile - 1;
    const int first = (last_tile - task.tile) * kTile;  // tiles with the most keys start first
    const int group = task.h / (call.heads / call.groups);
    const T* const q_head = q.head(task.b, task.h);
    const T* const k_head = k.head(task.b, group);
    const T* const v_head = v.head(task.b, group);
    const std::int64_t mask = task.b * call.mask.stride[0] + task.h * call.mask.stride[1];
    const std::int64_t number = (task.b * call.heads + task.h) * call.queries + first;
    const int window = width_at(call.depth, task.window, kDepth);
    const bool whole = call.depth <= kDepth;
    const auto scale = static_cast<C>(call.scale);

    Result<kDepth, C> result;
    C maximum[kEach], sum[kEach];
#pragma unroll
    for (int r = 0; r < kEach; ++r) maximum[r] = kMinusInfinity<C>, sum[r] = 0;

    if (whole) load_tile<kDepth>(q, q_head, first, call.queries, 0, window, scale, q_tile);
    const int seen =
        first + kTile + call.offset;  // the last row attends only to keys before this position
    const int end = seen < call.keys ? seen : call.keys;
    for (int key = 0; key < end; key += kTile) {
        C score[kEach][kEach] = {};
        for (int chunk = 0; chunk < call.depth; chunk += kDepth) {
            const int width = width_at(call.depth, chunk, kDepth);
            __syncthreads();
            if (!whole)
                load_tile<kDepth>(q, q_head, first, call.queries, chunk, width, scale, q_tile);
            load_tile<kDepth>(k, k_head, key, call.keys, chunk, width, C(1), k_tile);
            if (chunk == 0)
                load_tile<kDepth>(v, v_head, key, call.keys, task.window, window, C(1), v_tile);
            __syncthreads();
            add_products<kDepth>(q_tile, k_tile, width, score);
        }

        const unsigned kept = call.drops ? kept_in_rows(call, number, key) : 0;
        const bool plain = call.mask.data == nullptr && key + kTile <= call.keys &&
                           key + kTile - 1 <= first + call.offset;
#pragma unroll
        for (int r = 0; r < kEach; ++r) {
            const int i = first + row_of_thread() + r;
            C highest = maximum[r];
#pragma unroll
            for (int c = 0; c < kEach; ++c) {
                if (!plain)
                    score[r][c] =
                        masked(call, mask, i, key + lane_of_row() + c * kSide, score[r][c]);
                highest = score[r][c] > highest ? score[r][c] : highest;
            }
            highest = warp_max(highest, kSide);
            const C base = highest == kMinusInfinity<C> ? C(0) : highest;
            const C factor = exponential<T>(maximum[r] - base);
            C total = 0;
#pragma unroll
            for (int c = 0; c < kEach; ++c) {
                score[r][c] = exponential<T>(score[r][c] - base);
                total += score[r][c];
                if (call.drops)
                    score[r][c] = (kept >> (kEach * r + c) & 1u) != 0
                                      ? score[r][c] * static_cast<C>(call.kept)
                                      : C(0);
            }
            sum[r] = sum[r] * factor + warp_sum(total, kSide);
            maximum[r] = highest;
            result.scale_row(r, factor);
        }
        store_weights(score, weights);
        result.add(weights, v_tile, window);
    }

#pragma unroll
    for (int r = 0; r < kEach; ++r) {
        const int i = first + row_of_thread() + r;
        const bool nothing = sum[r] == C(0);
        result.scale_row(r, nothing ? C(0) : C(1) / sum[r]);
        if (task.window == 0 && lane_of_row() == 0 && i < call.queries)
            lse.head(task.b, task.h)[i * lse.stride[2]] =
                nothing ? kMinusInfinity<C> : maximum[r] + log(sum[r]);
    }
    result.store(out, out.head(task.b, task.h), first, call.queries, task.window, window);
}

}  // namespace

DropoutGenerator attention(Cuda& on, ConstView q, ConstView k, ConstView v, ConstView mask,
                           const AttentionParams& params, View out, View lse) {
    const Call call = call_of(q, k, mask, params);
    if (call.batch * call.heads * call.queries == 0) return DropoutGenerator::own;
    if (cudnn::attention(on, q, k, v, mask, params, out, lse)) return DropoutGenerator::library;
    visit_depth(q.dtype, q.shape[3], [&]<class T, int kDepth>() {
        using C = Compute<T>;
        start(on,
              {{block_count(call.query_tiles(), call.heads, call.batch, call.depth, kDepth)},
               kThreads,
               tile_bytes<C, kDepth>(3)},
              &attention_rows<T, kDepth>, call, operand<const T>(q), operand<const T>(k),
              operand<const T>(v), operand<T>(out), lse_operand<C>(lse));
    });
    return DropoutGenerator::own;
}

}  // namespace axle::kernels
