// The gradient of an embedding. Positions are sorted by row of the weight (a stable counting sort).
// Then each row of the weight's gradient is written once, as the sum of the rows of dy at its
// positions; the padding row has no positions. Each row of dy is read at most once. Work is split
// by rows and blocks of columns, never by positions, so the sums need no atomics and have a fixed
// order.
#include "kernels/ops/index.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/index/embedding.cpp"
#include "kernels/cpu/targets.h"
//
#include <hwy/foreach_target.h>
//
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace axle::kernels::HWY_NAMESPACE {

void add_floats(const float* x, float* y, std::int64_t n) {
    std::int64_t i = 0;
    for (; i + Pack::kLanes <= n; i += Pack::kLanes)
        (Pack::load(y + i) + Pack::load(x + i)).store(y + i);
    for (; i < n; ++i) y[i] += x[i];
}

}  // namespace axle::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

#include <algorithm>

#include "kernels/cpu/lanes.h"
#include "kernels/walk.h"

namespace axle::kernels {
namespace {

AXLE_DISPATCH(add_floats);

constexpr std::int64_t kTask = 32768;

// Sorts the positions of ids by row into `order`. The positions of row r are order[start[r]] to
// order[start[r + 1] - 1], in ascending order. Positions of the padding row are omitted. start has
// rows + 2 elements.
template <class Index>
void sort_by_row(ConstView ids, std::int64_t rows, std::int64_t padding, std::int64_t* start,
                 std::int64_t* order) {
    const std::int64_t n = ids.shape[0], stride = ids.stride[0];
    const Index* id = ids.as<Index>();
    std::fill_n(start, rows + 2, 0);
    for (std::int64_t i = 0; i < n; ++i)
        if (id[i * stride] != padding) ++start[id[i * stride] + 2];
    for (std::int64_t r = 2; r < rows + 2; ++r) start[r] += start[r - 1];
    // This loop moves start[r + 1] from the beginning to the end of row r.
    for (std::int64_t i = 0; i < n; ++i)
        if (id[i * stride] != padding) order[start[id[i * stride] + 1]++] = i;
}

void add(const float* x, float* y, std::int64_t n) { AXLE_CALL(add_floats)(x, y, n); }
void add(const double* x, double* y, std::int64_t n) {
    for (std::int64_t i = 0; i < n; ++i) y[i] += x[i];
}

// Writes the sum of the rows of dy at `positions` to `to`, for columns [begin, begin + n), where n
// <= kBlock.
template <class Lane>
void sum_rows(ConstView dy, const std::int64_t* positions, std::int64_t count, std::int64_t begin,
              std::int64_t n, Lane* to) {
    alignas(64) Lane buffer[kBlock];
    std::fill_n(to, n, Lane(0));
    for (std::int64_t k = 0; k < count; ++k) {
        const std::int64_t from = positions[k] * dy.stride[0] + begin * dy.stride[1];
        add(load_lanes(at(dy.data, dy.dtype, from), dy.dtype, dy.stride[1], n, buffer), to, n);
    }
}

template <class Lane>
void sum_by_row(ConstView dy, const std::int64_t* start, const std::int64_t* order, View dweight,
                bool accumulate) {
    const std::int64_t rows = dweight.shape[0], width = dweight.shape[1];
    const std::int64_t parts = (width + kBlock - 1) / kBlock;
    const std::int64_t grain = std::max<std::int64_t>(1, kTask / std::min(width, kBlock));
    parallel_ranges(rows * parts, grain, [&](std::int64_t first, std::int64_t last) {
        alignas(64) Lane buffer[kBlock], before[kBlock];
        for (std::int64_t piece = first; piece < last; ++piece) {
            // The blocks of one row are `rows` pieces apart, so that a row with many positions is
            // split between several tasks.
            const std::int64_t r = piece % rows, begin = piece / rows * kBlock;
            if (accumulate && start[r] == start[r + 1]) continue;
            const std::int64_t n = std::min(kBlock, width - begin);
            const std::int64_t step = dweight.stride[1];
            Lane* out = dweight.as<Lane>() + r * dweight.stride[0] + begin * step;
            Lane* to = step == 1 && !accumulate ? out : buffer;
            sum_rows(dy, order + start[r], start[r + 1] - start[r], begin, n, to);
            if (accumulate) add(load_lanes<Lane>(out, dweight.dtype, step, n, before), to, n);
            store_lanes(to, out, dweight.dtype, step, n);
        }
    });
}

}  // namespace

void embedding_backward(Cpu& on, ConstView dy, ConstView ids, std::int64_t padding, View dweight,
                        bool accumulate) {
    const std::int64_t rows = dweight.shape[0];
    if (rows == 0 || dweight.shape[1] == 0) return;
    Scratch scratch(on);
    std::int64_t* start = scratch.take<std::int64_t>(rows + 2);
    std::int64_t* order = scratch.take<std::int64_t>(ids.shape[0]);
    visit_index(ids.dtype,
                [&]<class Index>() { sort_by_row<Index>(ids, rows, padding, start, order); });
    visit_f32_f64(dweight.dtype,
                  [&]<class Lane>() { sum_by_row<Lane>(dy, start, order, dweight, accumulate); });
}

}  // namespace axle::kernels

#endif  // HWY_ONCE
