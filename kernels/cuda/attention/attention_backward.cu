// Computes the gradients of flash attention. Weights are recomputed from q, k and the log-sum-exp.
// Calls that cuDNN supports use cuDNN instead of these kernels.
//
// There are three kernels. No kernel adds numbers of different blocks, so every run gives the same
// bits. The first kernel computes delta = rowsum(dout * out). In the second kernel, a block
// computes dq of 64 queries and iterates over their keys. In the third kernel, a block computes dk
// and dv of 64 keys of a key-value head. It iterates over the queries of all heads that share this
// head. The second kernel computes 3 products per pair of tiles and the third computes 4; a single
// kernel that adds dq atomically would need 5. For heads with at most kDepth columns, the operands
// of a block's own rows are read once; the operands that it iterates over are read once per 64
// rows.
#include "kernels/cuda/attention/attention.cuh"
#include "kernels/cuda/attention/cudnn_attention.h"
#include "kernels/ops/attention.h"

namespace axle::kernels {

using namespace attend;

namespace {

// Computes delta [B, H, Tq] with one warp per row.
template <class T>
__global__ void attention_delta(Call call, Operand<const T> dout, Operand<const T> out,
                                Compute<T>* delta) {
    using C = Compute<T>;
    const std::int64_t rows = call.batch * call.heads * call.queries;
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    for (std::int64_t row = thread_in_grid() / kWarp; row < rows;
         row += threads_in_grid() / kWarp) {
        const std::int64_t head = row / call.queries, i = row % call.queries;
        const std::int64_t b = head / call.heads, h = head % call.heads;
        const T* const left = dout.head(b, h) + i * dout.stride[2];
        const T* const right = out.head(b, h) + i * out.stride[2];
        C sum = 0;
        for (int d = lane; d < call.depth; d += kWarp)
            sum +=
                static_cast<C>(left[d * dout.stride[3]]) * static_cast<C>(right[d * out.stride[3]]);
        sum = warp_sum(sum);
        if (lane == 0) delta[row] = sum;
    }
}

template <class T, int kDepth>
__global__ void __launch_bounds__(kThreads, kBlocks<Compute<T>, kDepth>)
    attention_dq(Call call, Operand<const T> dout, Operand<const T> q, Operand<const T> k,
                 Operand<const T> v, Operand<const Compute<T>> lse, const Compute<T>* delta,
                 Operand<T> dq) {
    using C = Compute<T>;
    constexpr int kOperand = kTile * kPitch<C, kDepth>;
    C* const q_tile = static_cast<C*>(dynamic_shared());
    C* const dout_tile = q_tile + kOperand;
    C* const k_tile = dout_tile + kOperand;
    C* const v_tile = k_tile + kOperand;
    C* const gradients = v_tile + kOperand;

    const BlockTask task(blockIdx.x, call.heads, call.batch, call.depth, kDepth);
    const int last_tile = (call.queries + kTile - 1) / kTile - 1;
    const int first = (last_tile - task.tile) * kTile;  // tiles with the most keys start first
    const int group = task.h / (call.heads / call.groups);
    const T* const q_head = q.head(task.b, task.h);
    const T* const dout_head = dout.head(task.b, task.h);
    const T* const k_head = k.head(task.b, group);
    const T* const v_head = v.head(task.b, group);
    const std::int64_t mask = task.b * call.mask.stride[0] + task.h * call.mask.stride[1];
    const std::int64_t head_row = (task.b * call.heads + task.h) * call.queries;
    const int window = width_at(call.depth, task.window, kDepth);
    const bool whole = call.depth <= kDepth;
    const auto scale = static_cast<C>(call.scale);

    Result<kDepth, C> result;

    if (whole) {
        load_tile<kDepth>(q, q_head, first, call.queries, 0, window, scale, q_tile);
        load_tile<kDepth>(dout, dout_head, first, call.queries, 0, window, C(1), dout_tile);
    }
    const int seen = first + kTile + call.offset;
    const int end = seen < call.keys ? seen : call.keys;
    for (int key = 0; key < end; key += kTile) {
        C score[kEach][kEach] = {}, gradient[kEach][kEach] = {};
        for (int chunk = 0; chunk < call.depth; chunk += kDepth) {
            const int width = width_at(call.depth, chunk, kDepth);
            __syncthreads();
            if (!whole) {
                load_tile<kDepth>(q, q_head, first, call.queries, chunk, width, scale, q_tile);
                load_tile<kDepth>(dout, dout_head, first, call.queries, chunk, width, C(1),
                                  dout_tile);
            }
            load_tile<kDepth>(k, k_head, key, call.keys, chunk, width, C(1), k_tile);
            load_tile<kDepth>(v, v_head, key, call.keys, chunk, width, C(1), v_tile);
            __syncthreads();
            add_products<kDepth>(q_tile, k_tile, width, score);
            add_products<kDepth>(dout_tile, v_tile, width, gradient);
        }
        if (!whole) {
            __syncthreads();
            load_tile<kDepth>(k, k_head, key, call.keys, task.window, window, C(1), k_tile);
            __syncthreads();
        }

        const unsigned kept = call.drops ? kept_in_rows(call, head_row + first, key) : 0;
        const bool plain = call.mask.data == nullptr && key + kTile <= call.keys &&
                           key + kTile - 1 <= first + call.offset;
#pragma unroll
        for (int r = 0; r < kEach; ++r) {
            const int i = first + row_of_thread() + r;
            const bool inside = i < call.queries;
            const C row_lse =
                inside ? finite_lse(lse.head(task.b, task.h)[i * lse.stride[2]]) : C(0);
            const C row_delta = inside ? delta[head_row + i] : C(0);
#pragma unroll
            for (int c = 0; c < kEach; ++c) {
                C s = score[r][c];
                if (!plain) s = masked(call, mask, i, key + lane_of_row() + c * kSide, s);
                const C weight = exponential<T>(s - row_lse);
                C dp = gradient[r][c];
                if (call.drops)
                    dp =
                        (kept >> (kEach * r + c) & 1u) != 0 ? dp * static_cast<C>(call.kept) : C(0);
                gradient[r][c] = weight * (dp - row_delta);
            }
        }
        store_weights(gradient, gradients);
        result.add(gradients, k_tile, window);
    }
#pragma unroll
    for (int r = 0; r < kEach; ++r) result.scale_row(r, scale);
    result.store(dq, dq.head(task.b, task.h), first, call.queries, task.window, window);
}

}  // namespace

void attention_backward(Cuda& on, ConstView dout, ConstView q, ConstView k, ConstView v,
                        ConstView mask, ConstView out, ConstView lse, const AttentionParams& params,
                        View dq, View dk, View dv) {
    const Call call = call_of(q, k, mask, params);
    const bool nothing = dq.data == nullptr && dk.data == nullptr && dv.data == nullptr;
    if (call.batch * call.groups == 0 || call.depth == 0 || nothing) return;
    if (cudnn::attention_backward(on, dout, q, k, v, mask, out, lse, params, dq, dk, dv)) return;
    visit_depth(q.dtype, q.shape[3], [&]<class T, int kDepth>() {
        using C = Compute<T>;
        const auto dout_from = operand<const T>(dout);
        DeviceScratch scratch(on);
        const std::int64_t rows = call.batch * call.heads * call.queries;
        C* const delta = scratch.take<C>(rows);
        if (rows > 0)
            start(on, {grid_for(on, rows * kWarp, kThreads), kThreads}, &attention_delta<T>, call,
                  dout_from, operand<const T>(out), delta);
        if (rows > 0 && dq.data != nullptr)
            start(on,
                  {{block_count(call.query_tiles(), call.heads, call.batch, call.depth, kDepth)},
                   kThreads,
                   tile_bytes<C, kDepth>(4)},
                  &attention_dq<T, kDepth>, call, dout_from, operand<const T>(q),
                  operand<const T>(k), operand<const T>(v), lse_operand<const C>(lse), delta,
                  operand<T>(dq));
        if (call.keys > 0 && (dk.data != nullptr || dv.data != nullptr))
            keys_backward(on, call, dout, q, k, v, lse, delta, dk, dv);
    });
}

}  // namespace axle::kernels
