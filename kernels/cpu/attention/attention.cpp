// Forward pass of flash attention (Dao et al., 2022), with queries along the SIMD lanes.
//
// A task processes one or more blocks; a block is up to 64 queries of one head. For each block, the
// task iterates over the keys in blocks of up to 64; a block of queries and a block of keys form a
// tile. q is transposed, and the scores of a tile are stored as [key][query]. So the maximum, the
// sum and the rescaling of each query are computed lane by lane. Both products read k and v row by
// row as broadcast scalars. q and the output are transposed once per block of queries, and a mask
// that differs between queries once per tile. On the causal diagonal, blocks shrink to 16 keys and
// skip packs of queries that attend to none of these keys. A tile, its operands and the running
// output stay in L1 and L2; k and v are read from memory once per block of queries, q is read once,
// and out is written once.
#include "kernels/ops/attention.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention/attention.cpp"
#include "kernels/cpu/targets.h"
//
#include <hwy/foreach_target.h>
//
#include "kernels/cpu/attention/attention_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace axle::kernels::HWY_NAMESPACE {

// Converts scores[j][i] to exp(score - maximum) and updates the running maximum and sum of each
// query. Sets rescale[i] to the factor by which weights of earlier blocks must be multiplied.
template <class Lane>
void online_softmax(const Rows& rows, const Keys& keys, Lane* scores, Lane* maximum, Lane* sum,
                    Lane* rescale) {
    using V = PackOf<Lane>;
    const V none(kMinusInfinity<Lane>);
    const std::int64_t count = keys.end - keys.begin;
    for (std::int64_t i = keys.first_row; i < rows.padded; i += V::kLanes) {
        const V before = V::load(maximum + i);
        V highest = before;
        for (std::int64_t j = 0; j < count; ++j)
            highest = max(highest, V::load(scores + j * kRowBlock + i));
        const V base = select(highest == none, V(Lane(0)), highest);
        const V factor = exp(before - base);
        V total = V::load(sum + i) * factor;
        for (std::int64_t j = 0; j < count; ++j) {
            Lane* const score = scores + j * kRowBlock + i;
            const V weight = exp(V::load(score) - base);
            total = total + weight;
            weight.store(score);
        }
        highest.store(maximum + i), total.store(sum + i), factor.store(rescale + i);
    }
}

// Multiplies the columns i in [first, end) of x[d][i] by factor[i].
template <class Lane>
void scale_columns(std::int64_t depth, std::int64_t first, std::int64_t end, const Lane* factor,
                   Lane* x) {
    using V = PackOf<Lane>;
    for (std::int64_t d = 0; d < depth; ++d)
        for (std::int64_t i = first; i < end; i += V::kLanes)
            (V::load(x + d * kRowBlock + i) * V::load(factor + i)).store(x + d * kRowBlock + i);
}

// Computes the final results of a block of queries: 1 / sum in `inverse`, and the log-sum-exp in
// `maximum`. For a query without keys, these are 0 and -infinity.
template <class Lane>
void finish_softmax(Lane* maximum, Lane* sum, Lane* inverse) {
    for (std::int64_t i = 0; i < kRowBlock; ++i) {
        const bool nothing = sum[i] == Lane(0);
        inverse[i] = nothing ? Lane(0) : Lane(1) / sum[i];
        maximum[i] = nothing ? kMinusInfinity<Lane> : maximum[i] + std::log(sum[i]);
    }
}

template <class Lane>
void forward_rows(const Job& job, const Rows& rows, Lane* memory) {
    using V = PackOf<Lane>;
    Pieces<Lane> pieces{memory};
    Lane* const q = pieces.take(job.pitch * kRowBlock);
    Lane* const out = pieces.take(job.pitch * kRowBlock);
    Lane* const k_memory = pieces.take(job.pitch * kKeyBlock);
    Lane* const v_memory = pieces.take(job.pitch * kKeyBlock);
    Lane* const scores = pieces.take(kKeyBlock * kRowBlock);
    Lane* const mask_rows = pieces.take(kKeyBlock * kRowBlock);
    Lane* const tile = pieces.take(kKeyBlock * kRowBlock);
    Lane* const maximum = pieces.take(kRowBlock);
    Lane* const sum = pieces.take(kRowBlock);
    Lane* const rescale = pieces.take(kRowBlock);
    const std::int64_t group = rows.h / job.heads_per_group();

    load_rows(job.q, rows.b, rows.h, rows.first, rows.count, job.pitch, k_memory);
    std::fill(k_memory + rows.count * job.pitch, k_memory + rows.padded * job.pitch, Lane(0));
    scale_block(k_memory, rows.count * job.pitch, static_cast<Lane>(job.params.scale));
    transpose(k_memory, job.pitch, rows.padded, job.pitch, q, kRowBlock);
    std::fill(out, out + job.pitch * kRowBlock, Lane(0));
    std::fill(maximum, maximum + kRowBlock, kMinusInfinity<Lane>);
    std::fill(sum, sum + kRowBlock, Lane(0));

    for (Keys keys = keys_from(job, rows, 0); keys.begin < keys.end;
         keys = keys_from(job, rows, keys.end)) {
        const std::int64_t count = keys.end - keys.begin;
        const auto k = rows_of(job.k, rows.b, group, keys.begin, count, job.pitch, k_memory);
        const auto v = rows_of(job.v, rows.b, group, keys.begin, count, job.pitch, v_memory);
        score_tile(job, rows, keys, k, q, mask_rows, tile, scores);
        online_softmax(rows, keys, scores, maximum, sum, rescale);
        if (job.params.dropout_p > 0) {
            dropout_factors(job, rows, keys, tile);
            for (std::int64_t i = 0; i < count * kRowBlock; i += V::kLanes)
                (V::load(scores + i) * V::load(tile + i)).store(scores + i);
        }
        scale_columns(job.depth, keys.first_row, rows.padded, rescale, out);
        product(job.depth, rows.padded - keys.first_row, count, v.data, std::int64_t{1}, v.step,
                scores + keys.first_row, kRowBlock, out + keys.first_row, kRowBlock, true);
    }

    finish_softmax(maximum, sum, rescale);
    scale_columns(job.depth, 0, rows.padded, rescale, out);
    transpose(out, kRowBlock, job.pitch, rows.padded, k_memory, job.pitch);
    store_rows(k_memory, job.pitch, rows.count, job.out_to, rows.b, rows.h, rows.first);
    const std::int64_t first = rows.b * job.lse_to.stride[0] + rows.h * job.lse_to.stride[1] +
                               rows.first * job.lse_to.stride[2];
    store_lanes<Lane>(maximum, at(job.lse_to.data, job.lse_to.dtype, first), job.lse_to.dtype,
                      job.lse_to.stride[2], rows.count);
}

void forward_f32(const Job& job, const Rows& rows, void* memory) {
    forward_rows(job, rows, static_cast<float*>(memory));
}
void forward_f64(const Job& job, const Rows& rows, void* memory) {
    forward_rows(job, rows, static_cast<double*>(memory));
}

}  // namespace axle::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace axle::kernels {

AXLE_DISPATCH(forward_f32);
AXLE_DISPATCH(forward_f64);

DropoutGenerator attention(Cpu& on, ConstView q, ConstView k, ConstView v, ConstView mask,
                           const AttentionParams& params, View out, View lse) {
    Job job(q, k, v, mask, params);
    job.out_to = out, job.lse_to = lse;
    const std::int64_t units = q.shape[0] * job.heads * job.row_blocks;
    if (units == 0) return DropoutGenerator::own;
    constexpr std::int64_t kMinTaskWork = 1 << 17;  // minimum number of multiplications per task
    const std::int64_t work =
        std::max<std::int64_t>(1, 2 * std::min(kRowBlock, job.queries) * job.keys * job.depth);
    const std::int64_t grain = (kMinTaskWork + work - 1) / work;

    const bool wide = q.dtype == DType::f64;
    Scratch scratch(on);
    const std::int64_t lanes =
        job.pitch * (2 * kRowBlock + 2 * kKeyBlock) + 3 * kKeyBlock * kRowBlock + 3 * kRowBlock;
    ScratchSlots slots(scratch, lanes * (wide ? 8 : 4), (units + grain - 1) / grain);
    const auto forward = wide ? AXLE_CALL(forward_f64) : AXLE_CALL(forward_f32);
    parallel_ranges(units, grain, [&](std::int64_t begin, std::int64_t end) {
        const ScratchSlots::Hold slot(slots);
        for (std::int64_t unit = begin; unit < end; ++unit) {
            const std::int64_t head = unit / job.row_blocks;
            // The queries of a causal head that attend to the most keys are processed first, so
            // that no long task remains at the end.
            const std::int64_t block = job.row_blocks - 1 - unit % job.row_blocks;
            forward(job, Rows(job, head / job.heads, head % job.heads, block), slot.memory());
        }
    });
    return DropoutGenerator::own;
}

}  // namespace axle::kernels

#endif  // HWY_ONCE
