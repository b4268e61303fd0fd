// The backward pass of flash attention. Weights are recomputed from q, k and the log-sum-exp.
//
// A task processes one or more key-value heads. It takes the queries that share a head, 64 at a
// time, and iterates over the keys as the forward pass does. It computes up to five products per
// tile: the scores and the gradients of the weights as [key][query], then those of dv, dk and dq
// that are requested, with the depth along the lanes. dk and dv of the head and dq of the 64
// queries are accumulated in scratch memory. So every element is computed by one task in a fixed
// order. If there are few key-value heads, the blocks of queries are distributed over several
// tasks. The dk and dv of these tasks are added in a fixed order. Between memory and the caches, q,
// dout, out and dq are transferred once, and k, v, dk and dv once per 64 queries.
#include "kernels/ops/attention.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention/attention_backward.cpp"
#include "kernels/cpu/targets.h"
//
#include <hwy/foreach_target.h>
//
#include "kernels/cpu/attention/attention_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace axle::kernels::HWY_NAMESPACE {

// The scratch memory of a task.
template <class Lane>
struct BackwardMemory {
    BackwardMemory(const Job& job, void* memory) {
        Pieces<Lane> pieces{static_cast<Lane*>(memory)};
        for (Lane** block : {&q, &q_columns, &dout, &dout_columns, &dq, &k, &v})
            *block = pieces.take(job.pitch * kRowBlock);
        for (Lane** block : {&weights, &gradients, &tile, &mask_rows})
            *block = pieces.take(kKeyBlock * kRowBlock);
        lse = pieces.take(kRowBlock);
        delta = pieces.take(kRowBlock);
    }
    Lane *q, *dout;                  // layout [query][depth]; q is scaled
    Lane *q_columns, *dout_columns;  // transposed layout [depth][query]
    Lane *dq, *k, *v;                // layout [query or key][depth]
    Lane *weights, *gradients;       // layout [key][query]
    Lane *tile, *mask_rows;
    Lane *lse, *delta;  // one value per query; delta = dout . out
};

template <class Lane>
void load_queries(const Job& job, const Rows& rows, const BackwardMemory<Lane>& m) {
    using V = PackOf<Lane>;
    const std::int64_t used = rows.count * job.pitch, padded = rows.padded * job.pitch;
    load_rows(job.q, rows.b, rows.h, rows.first, rows.count, job.pitch, m.q);
    load_rows(job.dout, rows.b, rows.h, rows.first, rows.count, job.pitch, m.dout);
    const auto out = rows_of(job.out, rows.b, rows.h, rows.first, rows.count, job.pitch, m.dq);
    std::fill(m.q + used, m.q + padded, Lane(0));
    std::fill(m.dout + used, m.dout + padded, Lane(0));
    scale_block(m.q, used, static_cast<Lane>(job.params.scale));
    transpose(m.q, job.pitch, rows.padded, job.pitch, m.q_columns, kRowBlock);
    transpose(m.dout, job.pitch, rows.padded, job.pitch, m.dout_columns, kRowBlock);
    std::fill(m.delta, m.delta + kRowBlock, Lane(0));
    for (std::int64_t r = 0; r < rows.count; ++r) {
        V dot(Lane(0));
        for (std::int64_t d = 0; d < job.pitch; d += V::kLanes)
            dot =
                fma(V::load(out.data + r * out.step + d), V::load(m.dout + r * job.pitch + d), dot);
        m.delta[r] = sum_of(dot);
    }
    std::fill(m.dq, m.dq + used, Lane(0));

    const ConstView& lse = job.lse;
    const std::int64_t first =
        rows.b * lse.stride[0] + rows.h * lse.stride[1] + rows.first * lse.stride[2];
    const Lane* from = load_lanes<Lane>(at(lse.data, lse.dtype, first), lse.dtype, lse.stride[2],
                                        rows.count, m.lse);
    // The lse of a row without keys becomes +infinity, so that its weights exp(score - lse) are 0.
    for (std::int64_t r = 0; r < rows.count; ++r)
        m.lse[r] = from[r] == kMinusInfinity<Lane> ? -kMinusInfinity<Lane> : from[r];
    std::fill(m.lse + rows.count, m.lse + kRowBlock, Lane(0));
}

// Converts scores to the weights by which v was multiplied, and gradients of these weights to the
// gradients of the scores. The gradient of a score is p (factor dweight - delta), where p is the
// softmax. factor is 0 for a dropped weight, otherwise 1 / (1 - dropout_p).
template <class Lane>
void score_gradients(const Job& job, const Rows& rows, const Keys& keys,
                     const BackwardMemory<Lane>& m) {
    using V = PackOf<Lane>;
    const bool drops = job.params.dropout_p > 0;
    if (drops) dropout_factors(job, rows, keys, m.tile);
    for (std::int64_t j = 0; j < keys.end - keys.begin; ++j)
        for (std::int64_t i = keys.first_row; i < rows.padded; i += V::kLanes) {
            const std::int64_t element = j * kRowBlock + i;
            const V weight = exp(V::load(m.weights + element) - V::load(m.lse + i));
            const V factor = drops ? V::load(m.tile + element) : V(Lane(1));
            const V gradient = V::load(m.gradients + element) * factor - V::load(m.delta + i);
            (weight * factor).store(m.weights + element);
            (weight * gradient).store(m.gradients + element);
        }
}

template <class Lane>
void backward_rows(const Job& job, const Rows& rows, const BackwardMemory<Lane>& m, Lane* dk,
                   Lane* dv) {
    constexpr std::int64_t kOne = 1;
    const std::int64_t group = rows.h / job.heads_per_group(), pitch = job.pitch;
    load_queries(job, rows, m);
    for (Keys keys = keys_from(job, rows, 0); keys.begin < keys.end;
         keys = keys_from(job, rows, keys.end)) {
        const std::int64_t count = keys.end - keys.begin, from = keys.first_row;
        const std::int64_t seen = rows.count - from;
        load_rows(job.k, rows.b, group, keys.begin, count, pitch, m.k);
        const auto v = rows_of(job.v, rows.b, group, keys.begin, count, pitch, m.v);
        score_tile(job, rows, keys, {m.k, pitch}, m.q_columns, m.mask_rows, m.tile, m.weights);
        product(count, rows.padded - from, job.depth, v.data, v.step, kOne, m.dout_columns + from,
                kRowBlock, m.gradients + from, kRowBlock, false);
        score_gradients(job, rows, keys, m);
        if (job.dv.data != nullptr)
            product(count, pitch, seen, m.weights + from, kRowBlock, kOne, m.dout + from * pitch,
                    pitch, dv + keys.begin * pitch, pitch, true);
        if (job.dk.data != nullptr)
            product(count, pitch, seen, m.gradients + from, kRowBlock, kOne, m.q + from * pitch,
                    pitch, dk + keys.begin * pitch, pitch, true);
        if (job.dq.data != nullptr)
            product(seen, pitch, count, m.gradients + from, kOne, kRowBlock, m.k, pitch,
                    m.dq + from * pitch, pitch, true);
    }
    if (job.dq.data == nullptr) return;
    scale_block(m.dq, rows.count * pitch, static_cast<Lane>(job.params.scale));
    store_rows(m.dq, pitch, rows.count, job.dq, rows.b, rows.h, rows.first);
}

// Runs task `part` of key-value head (b, group). Sets dk and dv [keys][pitch] to the sums over this
// task's blocks of queries, and writes dq of these queries.
template <class Lane>
void backward_group(const Job& job, std::int64_t b, std::int64_t group, std::int64_t part,
                    void* memory, void* dk, void* dv) {
    const BackwardMemory<Lane> m(job, memory);
    const auto sums = static_cast<std::size_t>(job.keys * job.pitch) * sizeof(Lane);
    std::memset(dk, 0, sums);
    std::memset(dv, 0, sums);
    const std::int64_t shared = job.heads_per_group();
    for (std::int64_t unit = part; unit < shared * job.row_blocks; unit += job.parts)
        backward_rows(job,
                      Rows(job, b, group * shared + unit / job.row_blocks, unit % job.row_blocks),
                      m, static_cast<Lane*>(dk), static_cast<Lane*>(dv));
}

// Adds the sums of the other parts to the sums of the first part, which begin at `sums`, and writes
// the totals to `to`. Does nothing if `to` has no data.
template <class Lane>
void store_sums(const Job& job, std::int64_t b, std::int64_t group, void* sums, const View& to) {
    using V = PackOf<Lane>;
    if (to.data == nullptr) return;
    Lane* const total = static_cast<Lane*>(sums);
    const std::int64_t size = job.keys * job.pitch;
    for (std::int64_t part = 1; part < job.parts; ++part)
        for (std::int64_t i = 0; i < size; i += V::kLanes)
            (V::load(total + i) + V::load(total + 2 * part * size + i)).store(total + i);
    store_rows(total, job.pitch, job.keys, to, b, group, 0);
}

void backward_f32(const Job& job, std::int64_t b, std::int64_t group, std::int64_t part,
                  void* memory, void* dk, void* dv) {
    backward_group<float>(job, b, group, part, memory, dk, dv);
}
void backward_f64(const Job& job, std::int64_t b, std::int64_t group, std::int64_t part,
                  void* memory, void* dk, void* dv) {
    backward_group<double>(job, b, group, part, memory, dk, dv);
}
void store_sums_f32(const Job& job, std::int64_t b, std::int64_t group, void* sums,
                    const View& to) {
    store_sums<float>(job, b, group, sums, to);
}
void store_sums_f64(const Job& job, std::int64_t b, std::int64_t group, void* sums,
                    const View& to) {
    store_sums<double>(job, b, group, sums, to);
}

}  // namespace axle::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace axle::kernels {
namespace {

AXLE_DISPATCH(backward_f32);
AXLE_DISPATCH(backward_f64);
AXLE_DISPATCH(store_sums_f32);
AXLE_DISPATCH(store_sums_f64);

// The target number of tasks. With fewer tasks, cores would be idle; with more tasks, more memory
// would be needed, because each task has its own dk and dv.
constexpr std::int64_t kTargetTasks = 16;
constexpr std::int64_t kMinTaskWork = 1 << 17;  // minimum number of multiplications per task

std::int64_t parts_of(const Job& job, std::int64_t pairs) {
    const std::int64_t units = job.heads_per_group() * job.row_blocks;
    const std::int64_t work = 5 * kRowBlock * job.keys * job.depth;
    const std::int64_t worthwhile = std::max<std::int64_t>(1, units * work / kMinTaskWork);
    return std::min({(kTargetTasks + pairs - 1) / pairs, units, worthwhile});
}

}  // namespace

void attention_backward(Cpu& on, ConstView dout, ConstView q, ConstView k, ConstView v,
                        ConstView mask, ConstView out, ConstView lse, const AttentionParams& params,
                        View dq, View dk, View dv) {
    Job job(q, k, v, mask, params);
    job.dout = dout, job.out = out, job.lse = lse, job.dq = dq, job.dk = dk, job.dv = dv;
    const std::int64_t pairs = q.shape[0] * job.groups;  // number of (batch, key-value head) pairs
    if (pairs == 0) return;
    job.parts = std::max<std::int64_t>(1, parts_of(job, pairs));

    const bool wide = q.dtype == DType::f64;
    const std::int64_t lane = wide ? 8 : 4;
    const std::int64_t block_bytes =
        lane * (7 * job.pitch * kRowBlock + 4 * kKeyBlock * kRowBlock + 2 * kRowBlock);
    const std::int64_t sum_bytes = lane * job.keys * job.pitch;
    const auto backward = wide ? AXLE_CALL(backward_f64) : AXLE_CALL(backward_f32);
    const auto store = wide ? AXLE_CALL(store_sums_f64) : AXLE_CALL(store_sums_f32);
    Scratch scratch(on);

    if (job.parts == 1) {
        const std::int64_t work = 5 * job.heads_per_group() * job.queries * job.keys *
                                  std::max<std::int64_t>(1, job.depth);
        const std::int64_t grain = kMinTaskWork / std::max<std::int64_t>(1, work) + 1;
        ScratchSlots slots(scratch, block_bytes + 2 * sum_bytes, (pairs + grain - 1) / grain);
        return parallel_ranges(pairs, grain, [&](std::int64_t begin, std::int64_t end) {
            const ScratchSlots::Hold slot(slots);
            char* const sums = static_cast<char*>(slot.memory()) + block_bytes;
            for (std::int64_t pair = begin; pair < end; ++pair) {
                const std::int64_t b = pair / job.groups, group = pair % job.groups;
                backward(job, b, group, 0, slot.memory(), sums, sums + sum_bytes);
                store(job, b, group, sums, job.dk);
                store(job, b, group, sums + sum_bytes, job.dv);
            }
        });
    }

    // The sums of part p of pair i (first dk, then dv) start at byte (i parts + p) 2 sum_bytes.
    char* const sums = scratch.take<char>(pairs * job.parts * 2 * sum_bytes);
    ScratchSlots slots(scratch, block_bytes, pairs * job.parts);
    parallel(pairs * job.parts, [&](std::int64_t task) {
        const ScratchSlots::Hold slot(slots);
        const std::int64_t pair = task / job.parts;
        char* const mine = sums + task * 2 * sum_bytes;
        backward(job, pair / job.groups, pair % job.groups, task % job.parts, slot.memory(), mine,
                 mine + sum_bytes);
    });
    parallel(pairs * 2, [&](std::int64_t task) {
        const std::int64_t pair = task / 2;
        char* const first = sums + (pair * job.parts * 2 + task % 2) * sum_bytes;
        store(job, pair / job.groups, pair % job.groups, first, task % 2 == 0 ? job.dk : job.dv);
    });
}

}  // namespace axle::kernels

#endif  // HWY_ONCE
