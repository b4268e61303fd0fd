// The two walks of a reduction; kernels/cpu/reduce/reduce.cpp describes when each walk is used.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include "kernels/cpu/lanes.h"
#include "kernels/exec.h"
#include "kernels/rules/reduce_plan.h"
#include "kernels/thread_pool.h"
#include "kernels/walk.h"

namespace axle::kernels {

inline constexpr int kRows = 8;                   // rows that reduce_columns() reads together
inline constexpr std::int64_t kColumns = kBlock;  // results that reduce_columns() computes together
inline constexpr std::int64_t kPiece = std::int64_t{1} << 16;  // target of elements per task

// A reduction (Op below) is a struct with these members:
//     Lane, Acc      the type to which elements are converted, and the type of the accumulator
//     start()        returns the result of no elements
//     row            adds n elements of result number `result`, beginning at `position`
//     columns        adds up to kRows elements to each of `width` adjacent results
//     kFolds         true if columns ignores position and result
//     join           combines two partial results; unless kFolds, the second is from later elements
//     finish         converts an accumulator to the stored result

template <class Op>
using Finished = decltype(std::declval<Op>().finish(std::declval<typename Op::Acc>()));

// Writes `count` adjacent results to y, beginning with result number `result`.
struct ToView {
    const ReducePlan& plan;
    const View& y;
    template <class T>
    void operator()(std::int64_t result, const T* values, std::int64_t count) const {
        const int inner = plan.kept.count - 1;
        const std::int64_t stride = inner < 0 ? 1 : plan.kept.y_stride[inner];
        store_lanes(values, at(y.data, y.dtype, plan.kept.offsets(result).y), y.dtype, stride,
                    count);
    }
};
template <class L>
struct ToArray {
    L* results;
    template <class T>
    void operator()(std::int64_t result, const T* values, std::int64_t count) const {
        for (std::int64_t i = 0; i < count; ++i) results[result + i] = static_cast<L>(values[i]);
    }
};

// Adds the elements [begin, end) that belong to one result to `total`.
template <class Op>
void reduce_row(const ReducePlan& plan, const Op& op, const ConstView& x, std::int64_t result,
                std::int64_t begin, std::int64_t end, typename Op::Acc& total) {
    using Lane = typename Op::Lane;
    const std::int64_t width = plan.reduced.inner_size(), stride = plan.reduced.inner_stride();
    const std::int64_t base = plan.kept.offsets(result).x;
    Lane buffer[kBlock];
    while (begin < end) {
        std::int64_t length = std::min(end - begin, width - begin % width);
        if (!is_lanes<Lane>(x.dtype, stride, length)) length = std::min(length, kBlock);
        const void* run = at(x.data, x.dtype, base + plan.reduced.offsets(begin).x);
        op.row(load_lanes<Lane>(run, x.dtype, stride, length, buffer), length, begin, result,
               total);
        begin += length;
    }
}

template <class Op, class Store>
void reduce_rows(Cpu& on, const ReducePlan& plan, const Op& op, const ConstView& x,
                 const Store& store) {
    using Acc = typename Op::Acc;
    const std::int64_t pieces = (plan.n + kPiece - 1) / kPiece;
    Scratch scratch(on);
    Acc* partial = pieces > 1 ? scratch.take<Acc>(plan.outputs * pieces) : nullptr;
    const std::int64_t grain = std::max<std::int64_t>(1, kPiece / std::min(plan.n, kPiece));
    parallel_ranges(plan.outputs * pieces, grain, [&](std::int64_t first, std::int64_t last) {
        for (std::int64_t item = first; item < last; ++item) {
            const std::int64_t result = item / pieces, begin = item % pieces * kPiece;
            Acc total = op.start();
            reduce_row(plan, op, x, result, begin, std::min(plan.n, begin + kPiece), total);
            if (partial != nullptr) {
                partial[item] = total;
            } else {
                const auto value = op.finish(total);
                store(result, &value, 1);
            }
        }
    });
    if (partial == nullptr) return;
    for (std::int64_t result = 0; result < plan.outputs; ++result) {
        Acc total = partial[result * pieces];
        for (std::int64_t k = 1; k < pieces; ++k)
            total = op.join(total, partial[result * pieces + k]);
        const auto value = op.finish(total);
        store(result, &value, 1);
    }
}

// Adds the rows of a narrow matrix, starting at row `begin`, to the totals of its `width` results.
// Groups of `fold` rows are processed as one wide row. Returns the first row that was not added;
// fewer than `fold` rows remain.
template <class Op>
std::int64_t reduce_folded(const Op& op, const ConstView& x, std::int64_t fold, std::int64_t width,
                           std::int64_t begin, std::int64_t end, typename Op::Acc* total) {
    using Lane = typename Op::Lane;
    const std::int64_t wide = fold * width;
    typename Op::Acc wide_total[kColumns];
    for (std::int64_t c = 0; c < wide; ++c) wide_total[c] = op.start();
    Lane buffer[kRows][kColumns];
    while (end - begin >= fold) {
        const int count = static_cast<int>(std::min<std::int64_t>(kRows, (end - begin) / fold));
        const Lane* rows[kRows];
        for (int r = 0; r < count; ++r) {
            const void* row = at(x.data, x.dtype, (begin + r * fold) * width);
            rows[r] = load_lanes<Lane>(row, x.dtype, 1, wide, buffer[r]);
        }
        op.columns(rows, count, wide, 0, 0, wide_total);
        begin += count * fold;
    }
    for (std::int64_t c = 0; c < wide; ++c)
        total[c % width] = op.join(total[c % width], wide_total[c]);
    return begin;
}

// Sets the totals of `width` results, beginning with result number `result`, to the reduction of
// their elements [begin, end).
template <class Op>
void reduce_columns(const ReducePlan& plan, const Op& op, const ConstView& x, std::int64_t result,
                    std::int64_t width, std::int64_t begin, std::int64_t end,
                    typename Op::Acc* total) {
    using Lane = typename Op::Lane;
    const std::int64_t stride = plan.kept.inner_stride();
    const std::int64_t base = plan.kept.offsets(result).x;
    Lane buffer[kRows][kColumns];
    for (std::int64_t c = 0; c < width; ++c) total[c] = op.start();
    if constexpr (Op::kFolds) {
        const std::int64_t fold = plan.fold(kColumns);
        if (fold > 1) begin = reduce_folded(op, x, fold, width, begin, end, total);
    }
    for (; begin < end; begin += kRows) {
        const int count = static_cast<int>(std::min<std::int64_t>(kRows, end - begin));
        const Lane* rows[kRows];
        for (int r = 0; r < count; ++r) {
            const std::int64_t offset = base + plan.reduced.offsets(begin + r).x;
            rows[r] =
                load_lanes<Lane>(at(x.data, x.dtype, offset), x.dtype, stride, width, buffer[r]);
        }
        op.columns(rows, count, width, begin, result, total);
    }
}

template <class Op, class Store>
void finish_columns(const Op& op, const typename Op::Acc* total, std::int64_t result,
                    std::int64_t width, const Store& store) {
    Finished<Op> values[kColumns];
    for (std::int64_t c = 0; c < width; ++c) values[c] = op.finish(total[c]);
    store(result, values, width);
}

template <class Op, class Store>
void reduce_by_columns(Cpu& on, const ReducePlan& plan, const Op& op, const ConstView& x,
                       const Store& store) {
    using Acc = typename Op::Acc;
    const std::int64_t all = plan.kept.inner_size(), width = std::min(all, kColumns);
    const std::int64_t blocks = (all + width - 1) / width, tiles = plan.outputs / all * blocks;
    // A tile is divided into pieces of about kPiece elements or more, but only while there are at
    // most about 64 pieces, which keep a large machine busy.
    const std::int64_t n = std::max<std::int64_t>(1, plan.n);
    const std::int64_t wanted =
        std::clamp<std::int64_t>(n * width / kPiece, 1, std::max<std::int64_t>(1, 64 / tiles));
    const std::int64_t height = ((n + wanted - 1) / wanted + kRows - 1) / kRows * kRows;
    const std::int64_t pieces = (n + height - 1) / height;
    Scratch scratch(on);
    Acc* partial = pieces > 1 ? scratch.take<Acc>(tiles * pieces * width) : nullptr;
    const auto result_of = [&](std::int64_t tile) {
        return tile / blocks * all + tile % blocks * width;
    };
    const auto width_of = [&](std::int64_t tile) {
        return std::min(width, all - tile % blocks * width);
    };
    const std::int64_t grain = std::max<std::int64_t>(1, kPiece / (height * width));
    parallel_ranges(tiles * pieces, grain, [&](std::int64_t first, std::int64_t last) {
        Acc own[kColumns];
        for (std::int64_t item = first; item < last; ++item) {
            const std::int64_t tile = item / pieces, begin = item % pieces * height;
            Acc* total = partial == nullptr ? own : partial + item * width;
            reduce_columns(plan, op, x, result_of(tile), width_of(tile), begin,
                           std::min(plan.n, begin + height), total);
            if (partial == nullptr)
                finish_columns(op, total, result_of(tile), width_of(tile), store);
        }
    });
    if (partial == nullptr) return;
    for (std::int64_t tile = 0; tile < tiles; ++tile) {
        Acc* total = partial + tile * pieces * width;
        for (std::int64_t k = 1; k < pieces; ++k)
            for (std::int64_t c = 0; c < width_of(tile); ++c)
                total[c] = op.join(total[c], total[k * width + c]);
        finish_columns(op, total, result_of(tile), width_of(tile), store);
    }
}

template <class Op, class Store>
void reduce(Cpu& on, const ReducePlan& plan, const Op& op, const ConstView& x, const Store& store) {
    if (plan.outputs == 0) return;
    if (plan.by_columns())
        reduce_by_columns(on, plan, op, x, store);
    else
        reduce_rows(on, plan, op, x, store);
}

}  // namespace axle::kernels
