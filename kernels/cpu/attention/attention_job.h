// The blocks of queries and keys of attention, and scratch memory for its tasks.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <new>

#include "kernels/exec.h"
#include "kernels/ops/attention.h"
#include "kernels/thread_pool.h"

namespace axle::kernels {

inline constexpr std::int64_t kRowBlock = 64;  // queries per tile
inline constexpr std::int64_t kKeyBlock = 64;  // keys per tile
// On the causal diagonal, a tile has at most kStep keys, and skips a multiple of kStep queries.
// kStep is a multiple of the number of lanes of all targets.
inline constexpr std::int64_t kStep = 16;
inline constexpr std::int64_t kPad = 16;  // the row length in scratch memory is a multiple of kPad

// The arguments of a call, and the sizes computed from them. A group is a key-value head with its
// query heads.
struct Job {
    AttentionParams params;
    ConstView q, k, v, mask, out, lse, dout;
    View out_to, lse_to, dq, dk, dv;
    std::int64_t heads, groups, queries, keys, depth;
    std::int64_t pitch;       // depth rounded up to kPad
    std::int64_t row_blocks;  // blocks of queries per head
    std::int64_t parts = 1;   // number of tasks per (batch, group) in the backward pass

    Job(const ConstView& query, const ConstView& key, const ConstView& value,
        const ConstView& score_mask, const AttentionParams& with)
        : params(with), q(query), k(key), v(value), mask(score_mask) {
        heads = q.shape[1], groups = k.shape[1], queries = q.shape[2], keys = k.shape[2];
        depth = q.shape[3];
        pitch = (depth + kPad - 1) / kPad * kPad;
        row_blocks = (queries + kRowBlock - 1) / kRowBlock;
        if (params.grid.keys == 0) params.grid = {heads, queries, keys};
    }
    std::int64_t heads_per_group() const { return heads / groups; }
};

// A block of queries of one head.
struct Rows {
    std::int64_t b, h, first, count;
    std::int64_t padded;  // count rounded up to kStep

    Rows(const Job& job, std::int64_t batch, std::int64_t head, std::int64_t block)
        : b(batch), h(head), first(block * kRowBlock) {
        count = std::min(kRowBlock, job.queries - first);
        padded = (count + kStep - 1) / kStep * kStep;
    }
};

// A block of keys [begin, end). Rows before first_row, counted from the start of the block of
// queries, attend to none of these keys. If the block is on the causal diagonal, the kStep rows
// that start at first_row may attend to only some of the keys.
struct Keys {
    std::int64_t begin = 0, end = 0, first_row = 0;
    bool diagonal = false;
};

// Returns the block of keys that begins at `begin`. The block is empty if `begin` is after the last
// key that `rows` attends to.
inline Keys keys_from(const Job& job, const Rows& rows, std::int64_t begin) {
    if (!job.params.causal) return {begin, std::min(begin + kKeyBlock, job.keys)};
    const std::int64_t diagonal =
        rows.first + job.params.causal_offset;  // last key that the first row attends to
    const std::int64_t all_see = std::clamp(diagonal, std::int64_t{0}, job.keys);
    if (begin < all_see) return {begin, std::min(begin + kKeyBlock, all_see)};
    const std::int64_t visible = std::clamp(diagonal + rows.count, std::int64_t{0}, job.keys);
    if (begin >= visible) return {begin, begin};
    const std::int64_t first_row = (begin - diagonal) / kStep * kStep;
    return {begin, std::min(diagonal + first_row + kStep, visible), first_row, true};
}

// Scratch memory for all tasks that run concurrently, with one slot per task. The contents of a
// slot are undefined when a task acquires it.
class ScratchSlots {
  public:
    ScratchSlots(Scratch& scratch, std::int64_t bytes, std::int64_t tasks)
        : bytes_((bytes + 63) / 64 * 64), count_(std::min<std::int64_t>(num_threads(), tasks)) {
        memory_ = scratch.take<char>(bytes_ * count_);
        taken_ = scratch.take<std::atomic<bool>>(count_);
        for (std::int64_t i = 0; i < count_; ++i) new (taken_ + i) std::atomic<bool>(false);
    }

    // Acquires a slot, and releases it at the end of the scope.
    class Hold {
      public:
        explicit Hold(ScratchSlots& slots) : slots_(slots) {
            while (slots.taken_[index_].exchange(true, std::memory_order_acquire))
                index_ = (index_ + 1) % slots.count_;
        }
        ~Hold() { slots_.taken_[index_].store(false, std::memory_order_release); }
        Hold(const Hold&) = delete;
        Hold& operator=(const Hold&) = delete;
        void* memory() const { return slots_.memory_ + index_ * slots_.bytes_; }

      private:
        ScratchSlots& slots_;
        std::int64_t index_ = 0;
    };

  private:
    std::int64_t bytes_, count_;
    char* memory_;
    std::atomic<bool>* taken_;
};

// Splits a slot into consecutive arrays.
template <class Lane>
struct Pieces {
    Lane* next;
    Lane* take(std::int64_t count) {
        Lane* const piece = next;
        next += (count + kPad - 1) / kPad * kPad;
        return piece;
    }
};

}  // namespace axle::kernels
