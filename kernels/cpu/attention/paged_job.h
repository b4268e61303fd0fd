// The units of work of paged attention, and the memory of their results.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "kernels/cpu/attention/attention_job.h"

namespace axle::kernels {

inline constexpr std::int64_t kUnitTokens = 512;  // the maximum number of tokens of a unit

// The tokens [begin, end) of one key-value head. Both are multiples of the page size, except for
// the end of the last unit of a sequence.
struct PagedUnit {
    std::int64_t sequence, group, begin, end;
};

// The arguments of a call, and the sizes computed from them.
struct PagedJob {
    ConstView q;
    std::span<const PagedSequence> sequences;
    std::int64_t groups, page_size;
    double scale;
    View out;
    std::int64_t heads_per_group, depth, value_depth;
    std::int64_t pitch;  // value_depth rounded up to kPad
    std::int64_t unit_tokens;

    PagedJob(const ConstView& query, std::span<const PagedSequence> all, std::int64_t key_heads,
             std::int64_t size, double factor, const View& result)
        : q(query), sequences(all), groups(key_heads), page_size(size), scale(factor), out(result) {
        heads_per_group = q.shape[1] / groups;
        depth = q.shape[3], value_depth = out.shape[3];
        pitch = (value_depth + kPad - 1) / kPad * kPad;
        unit_tokens = std::max(page_size, kUnitTokens / page_size * page_size);
    }

    std::int64_t longest() const {
        std::int64_t length = 1;
        for (const PagedSequence& sequence : sequences) length = std::max(length, sequence.length);
        return length;
    }
    std::int64_t length(std::int64_t sequence) const {
        return sequences[static_cast<std::size_t>(sequence)].length;
    }
    std::int64_t units_per_head(std::int64_t sequence) const {
        return (length(sequence) + unit_tokens - 1) / unit_tokens;
    }
    PagedUnit unit(std::int64_t sequence, std::int64_t group, std::int64_t index) const {
        const std::int64_t begin = index * unit_tokens;
        return {sequence, group, begin, std::min(begin + unit_tokens, length(sequence))};
    }
    // Returns the number of elements of a unit's scratch memory: the four arrays of attend_unit().
    std::int64_t scratch_lanes() const {
        return heads_per_group * depth + page_size * (depth + pitch + heads_per_group) + 4 * kPad;
    }
    // Returns the number of elements of a PagedResult.
    std::int64_t result_lanes() const { return heads_per_group * (pitch + 2) + 3 * kPad; }
};

// The attention to some of the tokens of a key-value head, for the query heads of its group.
template <class Lane>
struct PagedResult {
    Lane* out;      // [heads_per_group][pitch], not yet divided by the sum
    Lane* maximum;  // the largest score of each query head
    Lane* sum;      // the sum of exp(score - maximum) of each query head

    PagedResult(const PagedJob& job, Lane* memory) {
        Pieces<Lane> pieces{memory};
        out = pieces.take(job.heads_per_group * job.pitch);
        maximum = pieces.take(job.heads_per_group);
        sum = pieces.take(job.heads_per_group);
    }
};

}  // namespace axle::kernels
