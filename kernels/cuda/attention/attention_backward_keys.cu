// The gradients of keys and values, used by attention_backward.cu.
//
// A block processes 64 keys of a key-value head, with dk and dv in registers, and iterates over the
// queries that attend to these keys. Tiles of scores are transposed: their rows are keys.
#include "kernels/cuda/attention/attention.cuh"

namespace axle::kernels::attend {
namespace {

// Computes dk and dv. The data of either one can be null.
template <class T, int kDepth>
__global__ void __launch_bounds__(kThreads, kBlocks<Compute<T>, kDepth>)
    attention_dk_dv(Call call, Operand<const T> dout, Operand<const T> q, Operand<const T> k,
                    Operand<const T> v, Operand<const Compute<T>> lse, const Compute<T>* delta,
                    Operand<T> dk, Operand<T> dv) {
    using C = Compute<T>;
    constexpr int kOperand = kTile * kPitch<C, kDepth>;
    C* const k_tile = static_cast<C*>(dynamic_shared());
    C* const v_tile = k_tile + kOperand;
    C* const q_tile = v_tile + kOperand;
    C* const dout_tile = q_tile + kOperand;
    C* const weights = dout_tile + kOperand;

    const BlockTask task(blockIdx.x, call.groups, call.batch, call.depth, kDepth);
    const int first =
        task.tile * kTile;  // if causal, the first keys have the most queries, so they start first
    const int shared = call.heads / call.groups;
    const T* const k_head = k.head(task.b, task.h);
    const T* const v_head = v.head(task.b, task.h);
    const int window = width_at(call.depth, task.window, kDepth);
    const bool whole = call.depth <= kDepth;
    const auto scale = static_cast<C>(call.scale);
    Result<kDepth, C> dk_result, dv_result;

    if (whole) {
        load_tile<kDepth>(k, k_head, first, call.keys, 0, window, C(1), k_tile);
        load_tile<kDepth>(v, v_head, first, call.keys, 0, window, C(1), v_tile);
    }
    // The loop starts at the tile with the first query that attends to the first key.
    const int sees = first > call.offset ? first - call.offset : 0;
    for (int h = task.h * shared; h < (task.h + 1) * shared; ++h) {
        const T* const q_head = q.head(task.b, h);
        const T* const dout_head = dout.head(task.b, h);
        const Compute<T>* const lse_head = lse.head(task.b, h);
        const std::int64_t mask = task.b * call.mask.stride[0] + h * call.mask.stride[1];
        const std::int64_t head_row = (task.b * call.heads + h) * call.queries;
        for (int query = sees / kTile * kTile; query < call.queries; query += kTile) {
            C score[kEach][kEach] = {}, gradient[kEach][kEach] = {};
            for (int chunk = 0; chunk < call.depth; chunk += kDepth) {
                const int width = width_at(call.depth, chunk, kDepth);
                __syncthreads();
                if (!whole) {
                    load_tile<kDepth>(k, k_head, first, call.keys, chunk, width, C(1), k_tile);
                    load_tile<kDepth>(v, v_head, first, call.keys, chunk, width, C(1), v_tile);
                }
                load_tile<kDepth>(q, q_head, query, call.queries, chunk, width, scale, q_tile);
                load_tile<kDepth>(dout, dout_head, query, call.queries, chunk, width, C(1),
                                  dout_tile);
                __syncthreads();
                add_products<kDepth>(k_tile, q_tile, width, score);
                add_products<kDepth>(v_tile, dout_tile, width, gradient);
            }
            if (!whole) {
                __syncthreads();
                load_tile<kDepth>(q, q_head, query, call.queries, task.window, window, scale,
                                  q_tile);
                load_tile<kDepth>(dout, dout_head, query, call.queries, task.window, window, C(1),
                                  dout_tile);
                __syncthreads();
            }

            const unsigned kept = call.drops ? kept_in_columns(call, head_row + query, first) : 0;
            const bool plain = call.mask.data == nullptr && first + kTile <= call.keys &&
                               query + kTile <= call.queries &&
                               first + kTile - 1 <= query + call.offset;
#pragma unroll
            for (int c = 0; c < kEach; ++c) {
                const int i = query + lane_of_row() + c * kSide;
                const bool inside = i < call.queries;
                const C row_lse = inside ? finite_lse(lse_head[i * lse.stride[2]]) : C(0);
                const C row_delta = inside ? delta[head_row + i] : C(0);
#pragma unroll
                for (int r = 0; r < kEach; ++r) {
                    C s = score[r][c];
                    if (!plain) s = masked(call, mask, i, first + row_of_thread() + r, s);
                    const C weight = exponential<T>(s - row_lse);
                    C dp = gradient[r][c];
                    score[r][c] = weight;
                    if (call.drops) {
                        const bool keep = (kept >> (kEach * r + c) & 1u) != 0;
                        dp = keep ? dp * static_cast<C>(call.kept) : C(0);
                        score[r][c] = keep ? weight * static_cast<C>(call.kept) : C(0);
                    }
                    gradient[r][c] = weight * (dp - row_delta);
                }
            }
            if (dv.data != nullptr) {
                store_weights(score, weights);
                dv_result.add(weights, dout_tile, window);
            }
            if (dk.data != nullptr) {
                store_weights(gradient, weights);
                dk_result.add(weights, q_tile, window);
            }
        }
    }
    if (dk.data != nullptr)
        dk_result.store(dk, dk.head(task.b, task.h), first, call.keys, task.window, window);
    if (dv.data != nullptr)
        dv_result.store(dv, dv.head(task.b, task.h), first, call.keys, task.window, window);
}

}  // namespace

void keys_backward(Cuda& on, const Call& call, const ConstView& dout, const ConstView& q,
                   const ConstView& k, const ConstView& v, const ConstView& lse, const void* delta,
                   const View& dk, const View& dv) {
    visit_depth(q.dtype, q.shape[3], [&]<class T, int kDepth>() {
        using C = Compute<T>;
        start(on,
              {{block_count(call.key_tiles(), call.groups, call.batch, call.depth, kDepth)},
               kThreads,
               tile_bytes<C, kDepth>(4)},
              &attention_dk_dv<T, kDepth>, call, operand<const T>(dout), operand<const T>(q),
              operand<const T>(k), operand<const T>(v), lse_operand<const C>(lse),
              static_cast<const C*>(delta), operand<T>(dk), operand<T>(dv));
    });
}

}  // namespace axle::kernels::attend
