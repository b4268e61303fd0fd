// Attention to pages of keys and values (Kwon et al., "PagedAttention", 2023), with an online
// softmax over the pages.
//
// A unit of work is up to kUnitTokens tokens of one key-value head of a sequence, for all query
// heads of its group, so each key and value is read once. Keys are stored by depth, so both
// products of a page, q k^T and the weights with v, multiply broadcast scalars by adjacent
// elements of the page. The results of the units of a head are then combined in order. Units
// depend only on the lengths of the sequences, so the bits of the result do not depend on the
// number of threads.
#include "kernels/ops/attention.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention/paged_attention.cpp"
#include "kernels/cpu/targets.h"
//
#include <hwy/foreach_target.h>
//
#include "kernels/cpu/attention/attention_tile-inl.h"
#include "kernels/cpu/attention/paged_job.h"

HWY_BEFORE_NAMESPACE();
namespace axle::kernels::HWY_NAMESPACE {

// Returns the values [count, job.pitch] of `count` tokens, in the page's memory or in `buffer`.
template <class Lane>
const Lane* load_values(const PagedJob& job, const void* page, std::int64_t group,
                        std::int64_t count, Lane* buffer) {
    const DType dtype = job.q.dtype;
    const std::int64_t depth = job.value_depth, start = group * job.page_size * depth;
    if (depth == job.pitch)
        return load_lanes<Lane>(at(page, dtype, start), dtype, 1, count * depth, buffer);
    for (std::int64_t j = 0; j < count; ++j) {
        Lane* const row = buffer + j * job.pitch;
        const Lane* lanes =
            load_lanes<Lane>(at(page, dtype, start + j * depth), dtype, 1, depth, row);
        if (lanes != row) std::copy(lanes, lanes + depth, row);
        std::fill(row + depth, row + job.pitch, Lane(0));
    }
    return buffer;
}

// Converts `count` scores, a multiple of the number of lanes, to exp(score - maximum), and updates
// the running maximum and sum. Returns the factor by which weights of earlier pages must be
// multiplied.
template <class Lane>
Lane online_softmax_row(Lane* scores, std::int64_t count, Lane& maximum, Lane& sum) {
    using V = PackOf<Lane>;
    V highest(kMinusInfinity<Lane>);
    for (std::int64_t j = 0; j < count; j += V::kLanes) highest = max(highest, V::load(scores + j));
    Lane lanes[V::kLanes];
    highest.store(lanes);
    const Lane before = maximum;
    for (const Lane lane : lanes) maximum = std::max(maximum, lane);
    const Lane base = maximum == kMinusInfinity<Lane> ? Lane(0) : maximum;
    V total(Lane(0));
    for (std::int64_t j = 0; j < count; j += V::kLanes) {
        const V weight = exp(V::load(scores + j) - V(base));
        weight.store(scores + j);
        total = total + weight;
    }
    const Lane factor = std::exp(before - base);
    sum = sum * factor + sum_of(total);
    return factor;
}

// Computes the attention of the query heads of a group to the tokens of a unit. `memory` is scratch
// memory of job.scratch_lanes() elements.
template <class Lane>
void attend_unit(const PagedJob& job, const PagedUnit& unit, Lane* memory, Lane* results) {
    const std::int64_t rows = job.heads_per_group, depth = job.depth, size = job.page_size;
    const DType dtype = job.q.dtype;
    Pieces<Lane> pieces{memory};
    Lane* const q = pieces.take(rows * depth);
    Lane* const k_buffer = pieces.take(depth * size);
    Lane* const v_buffer = pieces.take(size * job.pitch);
    Lane* const scores = pieces.take(rows * size);
    const PagedResult<Lane> result(job, results);

    for (std::int64_t r = 0; r < rows; ++r) {
        const std::int64_t head = unit.group * rows + r;
        const void* row =
            at(job.q.data, dtype, unit.sequence * job.q.stride[0] + head * job.q.stride[1]);
        const Lane* lanes = load_lanes<Lane>(row, dtype, job.q.stride[3], depth, q + r * depth);
        for (std::int64_t d = 0; d < depth; ++d)
            q[r * depth + d] = lanes[d] * static_cast<Lane>(job.scale);
    }
    std::fill(result.out, result.out + rows * job.pitch, Lane(0));
    std::fill(result.maximum, result.maximum + rows, kMinusInfinity<Lane>);
    std::fill(result.sum, result.sum + rows, Lane(0));

    const PagedSequence& sequence = job.sequences[unit.sequence];
    for (std::int64_t begin = unit.begin; begin < unit.end; begin += size) {
        const std::int64_t count = std::min(size, unit.end - begin);
        const std::int64_t padded = (count + kStep - 1) / kStep * kStep;
        const void* page = at(sequence.keys[begin / size], dtype, unit.group * depth * size);
        const Lane* k = load_lanes<Lane>(page, dtype, 1, depth * size, k_buffer);
        product(rows, padded, depth, q, depth, std::int64_t{1}, k, size, scores, size, false);
        for (std::int64_t r = 0; r < rows; ++r) {
            Lane* const row = scores + r * size;
            std::fill(row + count, row + padded, kMinusInfinity<Lane>);
            const Lane factor = online_softmax_row(row, padded, result.maximum[r], result.sum[r]);
            if (begin > unit.begin) scale_block(result.out + r * job.pitch, job.pitch, factor);
        }
        const Lane* v =
            load_values(job, sequence.values[begin / size], unit.group, count, v_buffer);
        product(rows, job.pitch, count, scores, size, std::int64_t{1}, v, job.pitch, result.out,
                job.pitch, true);
    }
}

void attend_unit_f32(const PagedJob& job, const PagedUnit& unit, void* memory, void* result) {
    attend_unit(job, unit, static_cast<float*>(memory), static_cast<float*>(result));
}
void attend_unit_f64(const PagedJob& job, const PagedUnit& unit, void* memory, void* result) {
    attend_unit(job, unit, static_cast<double*>(memory), static_cast<double*>(result));
}

}  // namespace axle::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace axle::kernels {
namespace {

AXLE_DISPATCH(attend_unit_f32);
AXLE_DISPATCH(attend_unit_f64);

// Combines the results of `count` consecutive units, which are the tokens of one key-value head,
// in the first result, and stores the rows of out.
template <class Lane>
void combine(const PagedJob& job, const PagedUnit& first, std::int64_t count, Lane* results) {
    const PagedResult<Lane> total(job, results);
    for (std::int64_t r = 0; r < job.heads_per_group; ++r) {
        Lane maximum = total.maximum[r];
        for (std::int64_t i = 1; i < count; ++i)
            maximum = std::max(maximum,
                               PagedResult<Lane>(job, results + i * job.result_lanes()).maximum[r]);
        const Lane base = maximum == -std::numeric_limits<Lane>::infinity() ? Lane(0) : maximum;
        Lane* const row = total.out + r * job.pitch;
        Lane sum = 0;
        for (std::int64_t i = 0; i < count; ++i) {
            const PagedResult<Lane> part(job, results + i * job.result_lanes());
            const Lane factor = std::exp(part.maximum[r] - base);
            const Lane* const from = part.out + r * job.pitch;
            sum += part.sum[r] * factor;
            for (std::int64_t d = 0; d < job.value_depth; ++d)
                row[d] = (i == 0 ? Lane(0) : row[d]) + from[d] * factor;
        }
        const Lane inverse = sum == Lane(0) ? Lane(0) : Lane(1) / sum;
        for (std::int64_t d = 0; d < job.value_depth; ++d) row[d] *= inverse;
        const std::int64_t head = first.group * job.heads_per_group + r;
        void* const to = at(job.out.data, job.out.dtype,
                            first.sequence * job.out.stride[0] + head * job.out.stride[1]);
        store_lanes<Lane>(row, to, job.out.dtype, job.out.stride[3], job.value_depth);
    }
}

template <class Lane>
void run(Cpu& on, const PagedJob& job,
         void (*attend)(const PagedJob&, const PagedUnit&, void*, void*)) {
    Scratch scratch(on);
    // The units of a head are consecutive, and so are their results. The units of sequence b begin
    // at first[b].
    const auto sequences = static_cast<std::int64_t>(job.sequences.size());
    auto* const first = scratch.take<std::int64_t>(sequences + 1);
    first[0] = 0;
    for (std::int64_t b = 0; b < sequences; ++b)
        first[b + 1] = first[b] + job.groups * job.units_per_head(b);
    const std::int64_t count = first[sequences];
    auto* const units = scratch.take<PagedUnit>(count);
    for (std::int64_t b = 0, i = 0; b < sequences; ++b)
        for (std::int64_t g = 0; g < job.groups; ++g)
            for (std::int64_t u = 0; u < job.units_per_head(b); ++u) units[i++] = job.unit(b, g, u);
    auto* const results = scratch.take<Lane>(count * job.result_lanes());

    constexpr std::int64_t kMinTaskWork = 1 << 16;  // minimum number of multiplications per task
    const std::int64_t work =
        job.heads_per_group * (job.depth + job.value_depth) * std::min(kUnitTokens, job.longest());
    const std::int64_t grain = (kMinTaskWork + work - 1) / work;
    ScratchSlots slots(scratch, job.scratch_lanes() * static_cast<std::int64_t>(sizeof(Lane)),
                       (count + grain - 1) / grain);
    parallel_ranges(count, grain, [&](std::int64_t begin, std::int64_t end) {
        const ScratchSlots::Hold slot(slots);
        for (std::int64_t i = begin; i < end; ++i)
            attend(job, units[i], slot.memory(), results + i * job.result_lanes());
    });
    const std::int64_t heads_per_task =
        std::max<std::int64_t>(1, kMinTaskWork / (job.heads_per_group * job.pitch));
    parallel_ranges(sequences * job.groups, heads_per_task,
                    [&](std::int64_t begin, std::int64_t end) {
                        for (std::int64_t head = begin; head < end; ++head) {
                            const std::int64_t b = head / job.groups, parts = job.units_per_head(b);
                            const std::int64_t i = first[b] + head % job.groups * parts;
                            combine(job, units[i], parts, results + i * job.result_lanes());
                        }
                    });
}

}  // namespace

void paged_attention(Cpu& on, ConstView q, std::span<const PagedSequence> sequences,
                     std::int64_t groups, std::int64_t page_size, double scale, View out) {
    if (out.numel() == 0) return;
    const PagedJob job(q, sequences, groups, page_size, scale, out);
    if (q.dtype == DType::f64) return run<double>(on, job, AXLE_CALL(attend_unit_f64));
    run<float>(on, job, AXLE_CALL(attend_unit_f32));
}

}  // namespace axle::kernels

#endif  // HWY_ONCE
