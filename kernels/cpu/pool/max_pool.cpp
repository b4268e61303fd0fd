// Max pooling, one output row at a time. The input rows of its windows are converted to lanes (if
// needed) and stay in L1. Every plane is computed by one task.
//
// Windows of 2 x 2 f32 elements that do not overlap have a function of their own, for a whole
// plane.
//
// If windows have a horizontal stride of 1 or 2 and no horizontal dilation, a pack of f32 outputs
// is usually computed together, tap by tap. Integer lanes keep the position of the largest tap.
// Windows that overlap the left or right padding, and all other cases, are processed element by
// element.
#include "kernels/ops/pool.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/pool/max_pool.cpp"
#include "kernels/cpu/targets.h"
//
#include <algorithm>
#include <cstdint>
#include <limits>
#include <type_traits>

#include <hwy/foreach_target.h>
//
#include "kernels/cpu/simd-inl.h"

#ifndef AXLE_KERNELS_CPU_MAX_POOL_RUN_
#define AXLE_KERNELS_CPU_MAX_POOL_RUN_
namespace axle::kernels {
namespace {

// Consecutive outputs of one row whose windows overlap neither the left nor the right padding.
// Output i reads `width` columns of each of the `height` rows, starting at column + i * stride.
struct MaxRun {
    const float* const* rows;
    std::int64_t height, width, stride;  // stride is 1, or it is 2 and width is at least 2
    std::int64_t column;
    std::int32_t place, row_step;  // position of the first tap; difference between rows
    std::int64_t count;
    float* best;
    std::int32_t* index;
};

// A plane of windows of 2 x 2 elements with stride 2 and without padding.
struct MaxPairs {
    const float* x;
    std::int64_t row_step;     // distance between rows of x
    std::int64_t rows, count;  // size of the output
    std::int64_t in_w;         // width of the input
    float* best;
    std::int64_t* index;  // can be null
};

}  // namespace
}  // namespace axle::kernels
#endif

HWY_BEFORE_NAMESPACE();
namespace axle::kernels::HWY_NAMESPACE {
namespace {

struct Largest {
    Pack value;
    StoredVec<IntTag> place;

    HWY_INLINE void meet(Pack x, hn::Vec<IntTag> at) {
        const auto better = hn::Or(x > value, is_nan(x));
        value = select(better, x, value);
        place = hn::IfThenElse(hn::RebindMask(IntTag(), better), at, place);
    }
};

// Loads the even and the odd elements of 2 kLanes elements, or of the first 2 n elements unless
// kWhole.
template <bool kWhole>
HWY_INLINE void load_pairs(const float* p, std::int64_t n, Pack& even, Pack& odd) {
    if (kWhole) return load_interleaved(FloatTag(), p, even.v, odd.v);
    float both[2 * Pack::kLanes] = {};
    const std::int64_t first = std::min(2 * n, Pack::kLanes);
    Pack::load(p, first).store(both);
    Pack::load(p + first, 2 * n - first).store(both + Pack::kLanes);
    load_interleaved(FloatTag(), both, even.v, odd.v);
}

// Computes outputs [i, i + kLanes), or outputs [i, i + left) unless kWhole.
template <bool kWhole, int kStride>
HWY_INLINE void max_outputs(const MaxRun& run, std::int64_t i, std::int64_t left) {
    const IntTag di;
    const auto one = hn::Set(di, 1);
    auto row_place = hn::Add(hn::Mul(hn::Iota(di, 0), hn::Set(di, kStride)),
                             hn::Set(di, run.place + static_cast<std::int32_t>(i * kStride)));
    Largest largest = {Pack(-std::numeric_limits<float>::infinity()), row_place};
    for (std::int64_t h = 0; h < run.height; ++h) {
        const float* row = run.rows[h] + run.column + i * kStride;
        auto place = row_place;
        row_place = hn::Add(row_place, hn::Set(di, run.row_step));
        if (kStride == 1) {
            for (std::int64_t w = 0; w < run.width; ++w) {
                largest.meet(kWhole ? Pack::load(row + w) : Pack::load(row + w, left), place);
                place = hn::Add(place, one);
            }
            continue;
        }
        Pack even, odd;
        for (std::int64_t w = 0; w + 1 < run.width; w += 2) {
            load_pairs<kWhole>(row + w, left, even, odd);
            largest.meet(even, place);
            place = hn::Add(place, one);
            largest.meet(odd, place);
            place = hn::Add(place, one);
        }
        if (run.width % 2 == 0) continue;
        // This load ends at the last column of the last window, so that no memory after the row is
        // read.
        load_pairs<kWhole>(row + run.width - 2, left, even, odd);
        largest.meet(odd, place);
    }
    if (kWhole) {
        largest.value.store(run.best + i);
        hn::StoreU(largest.place, di, run.index + i);
    } else {
        largest.value.store(run.best + i, left);
        store_first(largest.place, di, run.index + i, left);
    }
}

template <int kStride>
HWY_INLINE void max_outputs(const MaxRun& run) {
    std::int64_t i = 0;
    for (; i + Pack::kLanes <= run.count; i += Pack::kLanes) max_outputs<true, kStride>(run, i, 0);
    if (i < run.count) max_outputs<false, kStride>(run, i, run.count - i);
}

void max_run(const MaxRun& run) {
    const MaxRun own = run;  // a copy, so that stores cannot change its pointers
    if (own.stride == 1)
        max_outputs<1>(own);
    else
        max_outputs<2>(own);
}

// Stores the first n lanes as int64.
template <bool kWhole>
HWY_INLINE void store_places(hn::Vec<IntTag> places, [[maybe_unused]] std::int64_t n,
                             std::int64_t* to) {
#if HWY_TARGET == HWY_SCALAR
    *to = hn::GetLane(places);
#else
    const hn::RepartitionToWide<IntTag> wide;
    constexpr std::int64_t kHalf = hn::MaxLanes(wide);
    const hn::Half<IntTag> half;
    const auto low = hn::PromoteTo(wide, hn::LowerHalf(half, places));
    const auto high = hn::PromoteTo(wide, hn::UpperHalf(half, places));
    if (kWhole) {
        hn::StoreU(low, wide, to);
        hn::StoreU(high, wide, to + kHalf);
        return;
    }
    store_first(low, wide, to, std::min(n, kHalf));
    if (n > kHalf) store_first(high, wide, to + kHalf, n - kHalf);
#endif
}

// Loads the even and the odd elements of the first n pairs, or of all pairs if kWhole.
template <bool kWhole>
HWY_INLINE void split_pairs(const float* p, [[maybe_unused]] std::int64_t n, Pack& even,
                            Pack& odd) {
#if HWY_TARGET == HWY_SCALAR
    even = Pack(p[0]), odd = Pack(p[1]);
#else
    const std::int64_t first = std::min(2 * n, Pack::kLanes);
    const Pack low = kWhole ? Pack::load(p) : Pack::load(p, first);
    const Pack high = kWhole ? Pack::load(p + Pack::kLanes) : Pack::load(p + first, 2 * n - first);
    even = hn::ConcatEven(FloatTag(), high.v, low.v);
    odd = hn::ConcatOdd(FloatTag(), high.v, low.v);
#endif
}

// Computes outputs [o, o + kLanes) of row r, or the first n of them unless kWhole.
template <bool kWhole>
HWY_INLINE void max_pairs(const MaxPairs& plane, std::int64_t r, std::int64_t o, std::int64_t n) {
    const IntTag di;
    const float* row = plane.x + 2 * r * plane.row_step + 2 * o;
    const auto first = static_cast<std::int32_t>(2 * (r * plane.in_w + o));
    const auto width = static_cast<std::int32_t>(plane.in_w);
    const auto place = hn::Add(hn::Add(hn::Iota(di, 0), hn::Iota(di, 0)), hn::Set(di, first));
    Pack even, odd;
    split_pairs<kWhole>(row, n, even, odd);
    Largest largest = {even, place};
    largest.meet(odd, hn::Add(place, hn::Set(di, 1)));
    split_pairs<kWhole>(row + plane.row_step, n, even, odd);
    largest.meet(even, hn::Add(place, hn::Set(di, width)));
    largest.meet(odd, hn::Add(place, hn::Set(di, width + 1)));
    const std::int64_t to = r * plane.count + o;
    if (kWhole)
        largest.value.store(plane.best + to);
    else
        largest.value.store(plane.best + to, n);
    if (plane.index != nullptr) store_places<kWhole>(largest.place, n, plane.index + to);
}

void max_plane_of_pairs(const MaxPairs& given) {
    const MaxPairs plane = given;  // a copy, so that stores cannot change its pointers
    for (std::int64_t r = 0; r < plane.rows; ++r) {
        std::int64_t o = 0;
        for (; o + Pack::kLanes <= plane.count; o += Pack::kLanes)
            max_pairs<true>(plane, r, o, Pack::kLanes);
        if (o < plane.count) max_pairs<false>(plane, r, o, plane.count - o);
    }
}

}  // namespace
}  // namespace axle::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

#include "kernels/cpu/conv/planes.h"
#include "kernels/cpu/pool/pool_windows.h"
#include "kernels/thread_pool.h"

namespace axle::kernels {
namespace {

AXLE_DISPATCH(max_run);
AXLE_DISPATCH(max_plane_of_pairs);

// Returns whether max_plane_of_pairs() supports windows.
bool are_pairs(const PoolWindows& windows) {
    const PoolAxis& pool = windows.pool;
    return pool.kernel == 2 && pool.stride == 2 && pool.dilation == 1 && pool.padding == 0 &&
           windows.whole_begin == 0 && windows.whole_end == windows.out;
}

// The row of outputs of max_pool2d that is being computed.
template <class L>
struct MaxRow {
    const PoolWindows &h, &w;
    PoolWindow window;     // the window along h
    const L* const* rows;  // the input rows of the window
    L* best;
    std::int64_t* index;  // can be null

    // Computes outputs [first, last), element by element.
    void each(std::int64_t first, std::int64_t last) const {
        for (std::int64_t o = first; o < last; ++o) {
            L value = -std::numeric_limits<L>::infinity();
            std::int64_t place = window.begin * w.in + w[o].begin;
            std::int64_t k = 0;
            for (std::int64_t i = window.begin; i < window.end; i += h.pool.dilation, ++k)
                for (std::int64_t j = w[o].begin; j < w[o].end; j += w.pool.dilation) {
                    const L x = rows[k][j];
                    if (!(x > value || x != x)) continue;
                    value = x;
                    place = i * w.in + j;
                }
            best[o] = value;
            if (index != nullptr) index[o] = place;
        }
    }
};

void max_row(const MaxRow<double>& row, std::int32_t*) { row.each(0, row.w.out); }

// Computes one row of outputs. `places` is scratch memory for the indices of the maxima, with one
// element per output of the row.
void max_row(const MaxRow<float>& row, std::int32_t* places) {
    const PoolWindows& w = row.w;
    const PoolAxis& p = w.pool;
    const std::int64_t first = w.whole_begin, count = w.whole_end - first, length = w.in;
    const bool packs = count > 1 && p.dilation == 1 && row.window.end > row.window.begin &&
                       (p.stride == 1 || (p.stride == 2 && p.kernel > 1)) &&
                       row.h.in * length <= std::numeric_limits<std::int32_t>::max();
    if (!packs) return row.each(0, w.out);
    row.each(0, first);
    row.each(w.whole_end, w.out);
    const std::int64_t column = w[first].begin, step = row.h.pool.dilation;
    const MaxRun run = {
        .rows = row.rows,
        .height = (row.window.end - row.window.begin + step - 1) / step,
        .width = p.kernel,
        .stride = p.stride,
        .column = column,
        .place = static_cast<std::int32_t>(row.window.begin * length + column),
        .row_step = static_cast<std::int32_t>(std::min(step, row.h.in) * length),
        .count = count,
        .best = row.best + first,
        .index = places,
    };
    AXLE_CALL(max_run)(run);
    if (row.index != nullptr) std::copy(places, places + count, row.index + first);
}

template <class L>
void max_planes(Cpu& on, const Pool& pool, const ConstView& x, const View& y, const View& indices) {
    Scratch scratch(on);
    const PoolWindows h = pool_windows(scratch, pool.h, pool.adaptive, x.back(2), y.back(2));
    const PoolWindows w = pool_windows(scratch, pool.w, pool.adaptive, x.back(1), y.back(1));
    const Planes planes(x);
    const std::int64_t height = max_window_rows(h), size = h.out * w.out;
    const std::int64_t grain = planes_per_task(planes.count(), h.in * w.in + size * height);
    const std::int64_t tasks = (planes.count() + grain - 1) / grain;
    const bool direct = is_lanes<L>(y.dtype, 1, w.out);
    const bool pairs = std::is_same_v<L, float> && x.dtype == DType::f32 && direct &&
                       x.back_stride(1) == 1 && are_pairs(h) && are_pairs(w) &&
                       h.in * w.in <= std::numeric_limits<std::int32_t>::max();
    const L** rows = scratch.take<const L*>(tasks * height);
    L* buffers = scratch.take<L>(tasks * (height * w.in + w.out));
    std::int32_t* places = scratch.take<std::int32_t>(tasks * w.out);
    parallel_ranges(planes.count(), grain, [&](std::int64_t first, std::int64_t last) {
        const std::int64_t task = first / grain;
        const L** seen = rows + task * height;
        L* buffer = buffers + task * (height * w.in + w.out);
        for (std::int64_t plane = first; plane < last; ++plane) {
            const std::int64_t offset = planes.offset(plane);
            if (pairs) {
                const bool indexed = indices.data != nullptr;
                AXLE_CALL(max_plane_of_pairs)
                ({.x = x.as<float>() + offset,
                  .row_step = x.back_stride(2),
                  .rows = h.out,
                  .count = w.out,
                  .in_w = w.in,
                  .best = y.as<float>() + plane * size,
                  .index = indexed ? indices.as<std::int64_t>() + plane * size : nullptr});
                continue;
            }
            for (std::int64_t o = 0; o < h.out; ++o) {
                std::int64_t k = 0;
                for (std::int64_t i = h[o].begin; i < h[o].end; i += h.pool.dilation, ++k)
                    seen[k] = load_plane_row(x, offset, i, buffer + k * w.in);
                const std::int64_t start = plane * size + o * w.out;
                void* to = at(y.data, y.dtype, start);
                L* best = direct ? static_cast<L*>(to) : buffer + height * w.in;
                std::int64_t* index =
                    indices.data == nullptr ? nullptr : indices.as<std::int64_t>() + start;
                max_row({h, w, h[o], seen, best, index}, places + task * w.out);
                store_lanes(best, to, y.dtype, 1, w.out);
            }
        }
    });
}

}  // namespace

void max_pool2d(Cpu& on, const Pool& pool, ConstView x, View y, View indices) {
    if (y.numel() == 0) return;
    visit_f32_f64(lane_dtype(x.dtype), [&]<class L>() { max_planes<L>(on, pool, x, y, indices); });
}

}  // namespace axle::kernels

#endif  // HWY_ONCE
