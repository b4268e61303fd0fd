// Pooling goes an output row at a time: the input rows of its windows are brought to lanes (where
// they are not lanes already) and stay in L1. Every plane is computed by one task.
//
// The maximum of f32 windows one or two elements apart is taken a pack of outputs at a time, tap by
// tap, with the place of the largest tap in integer lanes; windows that reach into the padding, and
// everything else, go element by element.
//
// A mean first adds the rows, then the columns of each window; its backward pass spreads a row of
// dy over the columns, then adds that to the rows. Windows that lie apart so cost one read of the
// input, and overlapping ones kernel_h / stride_h reads from L1.
#include "kernels/pool.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/pool.cpp"
#include "kernels/cpu/targets.h"
//
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include <hwy/foreach_target.h>
//
#include "kernels/cpu/simd-inl.h"

#ifndef AXLE_KERNELS_CPU_POOL_MAX_RUN_
#define AXLE_KERNELS_CPU_POOL_MAX_RUN_
namespace axle::inline v0::kernels {
namespace {

// Outputs of one row whose windows lie within the input: output i sees the columns
// column + [i * stride, i * stride + width) of each row.
struct MaxRun {
    const float* const* rows;
    std::int64_t height, width, stride;  // stride is 1, or 2 with a width of at least 2
    std::int64_t column;
    std::int32_t place, row_step;  // of the first tap; from one row to the next
    std::int64_t count;
    float* best;
    std::int32_t* index;
};

}  // namespace
}  // namespace axle::inline v0::kernels
#endif

HWY_BEFORE_NAMESPACE();
namespace axle::inline v0::kernels::HWY_NAMESPACE {
namespace {

struct Largest {
    Pack value;
    hn::Vec<IntTag> place;

    HWY_INLINE void meet(Pack x, hn::Vec<IntTag> at) {
        const auto better = hn::Or(x > value, is_nan(x));
        value = select(better, x, value);
        place = hn::IfThenElse(hn::RebindMask(IntTag(), better), at, place);
    }
};

// The even and the odd ones of 2 kLanes elements; where not kWhole, of the first 2 n.
template <bool kWhole>
HWY_INLINE void load_pairs(const float* p, std::int64_t n, Pack& even, Pack& odd) {
    if (kWhole) return hn::LoadInterleaved2(FloatTag(), p, even.v, odd.v);
    float both[2 * Pack::kLanes] = {};
    const std::int64_t first = std::min(2 * n, Pack::kLanes);
    Pack::load(p, first).store(both);
    Pack::load(p + first, 2 * n - first).store(both + Pack::kLanes);
    hn::LoadInterleaved2(FloatTag(), both, even.v, odd.v);
}

// Outputs [i, i + kLanes), or where not kWhole [i, i + left).
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
        // Looks back instead of beyond the end of the row.
        load_pairs<kWhole>(row + run.width - 2, left, even, odd);
        largest.meet(odd, place);
    }
    if (kWhole) {
        largest.value.store(run.best + i);
        hn::StoreU(largest.place, di, run.index + i);
    } else {
        largest.value.store(run.best + i, left);
        hn::BlendedStore(largest.place, hn::FirstN(di, static_cast<std::size_t>(left)), di,
                         run.index + i);
    }
}

template <int kStride>
HWY_INLINE void max_outputs(const MaxRun& run) {
    std::int64_t i = 0;
    for (; i + Pack::kLanes <= run.count; i += Pack::kLanes) max_outputs<true, kStride>(run, i, 0);
    if (i < run.count) max_outputs<false, kStride>(run, i, run.count - i);
}

void max_run(const MaxRun& run) {
    const MaxRun own = run;  // so that stores can't change it
    if (own.stride == 1)
        max_outputs<1>(own);
    else
        max_outputs<2>(own);
}

// sum += x
void add_row(const float* x, float* sum, std::int64_t n) {
    std::int64_t i = 0;
    for (; i + Pack::kLanes <= n; i += Pack::kLanes)
        (Pack::load(sum + i) + Pack::load(x + i)).store(sum + i);
    if (i < n) (Pack::load(sum + i, n - i) + Pack::load(x + i, n - i)).store(sum + i, n - i);
}

}  // namespace
}  // namespace axle::inline v0::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

#include "kernels/cpu/planes.h"
#include "kernels/cpu/reduce_spans.h"
#include "kernels/thread_pool.h"

namespace axle::inline v0::kernels {
namespace {

AXLE_DISPATCH(max_run);
AXLE_DISPATCH(add_row);

void add_to(const float* x, float* sum, std::int64_t n) {
    if (n > 8) return AXLE_CALL(add_row)(x, sum, n);
    for (std::int64_t i = 0; i < n; ++i) sum[i] += x[i];  // less than the call
}
void add_to(const double* x, double* sum, std::int64_t n) {
    for (std::int64_t i = 0; i < n; ++i) sum[i] += x[i];
}

// The inputs begin, begin + dilation, ... below end; none where end <= begin, which still lies
// inside.
struct Window {
    std::int64_t begin, end;
    std::int64_t padded;  // elements, with those of the padding
};

struct Axis {
    std::int64_t in, out;
    PoolAxis pool;
    Window* windows;
    std::int64_t whole_begin, whole_end;  // the outputs whose windows have kernel elements

    const Window& operator[](std::int64_t o) const { return windows[o]; }
};

Axis make_axis(Scratch& scratch, PoolAxis pool, bool adaptive, std::int64_t in, std::int64_t out) {
    const bool even = adaptive && in % out == 0;
    if (even) pool = {.kernel = in / out, .stride = in / out};
    Axis axis = {in, out, pool, scratch.take<Window>(out), 0, 0};
    for (std::int64_t o = 0; o < out; ++o) {
        Window& window = axis.windows[o];
        if (adaptive && !even) {
            window.begin = o * in / out;
            window.end = ((o + 1) * in + out - 1) / out;
            window.padded = window.end - window.begin;
            continue;
        }
        const std::int64_t begin = o * pool.stride - pool.padding;
        const std::int64_t end = begin + (pool.kernel - 1) * pool.dilation + 1;
        window.padded = std::min(end, in + pool.padding) - begin;
        const std::int64_t missing = begin < 0 ? (-begin + pool.dilation - 1) / pool.dilation : 0;
        window.begin = std::min(begin + missing * pool.dilation, in - 1);
        window.end = std::min(end, in);
        if (begin < 0) axis.whole_begin = o + 1;
        if (end <= in) axis.whole_end = o + 1;
    }
    axis.whole_end = std::max(axis.whole_end, axis.whole_begin);
    return axis;
}

// The row of an output of max_pool2d that is being computed.
template <class L>
struct MaxRow {
    const Axis &h, &w;
    Window window;         // of h
    const L* const* rows;  // the input rows of the window
    L* best;
    std::int64_t* index;  // or null

    // Outputs [first, last), element by element.
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

// places has room for a row.
void max_row(const MaxRow<float>& row, std::int32_t* places) {
    const Axis& w = row.w;
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

// Rows of the largest window.
std::int64_t tallest(const Axis& axis) {
    std::int64_t rows = 1;
    for (std::int64_t o = 0; o < axis.out; ++o)
        rows = std::max(rows, (axis[o].end - axis[o].begin) / axis.pool.dilation + 1);
    return rows;
}

template <class L>
void max_planes(Cpu& on, const Pool& pool, const ConstView& x, const View& y, const View& indices) {
    Scratch scratch(on);
    const Axis h = make_axis(scratch, pool.h, pool.adaptive, x.back(2), y.back(2));
    const Axis w = make_axis(scratch, pool.w, pool.adaptive, x.back(1), y.back(1));
    const Planes planes(x);
    const std::int64_t height = tallest(h), size = h.out * w.out;
    const std::int64_t grain = planes_per_task(planes.count(), h.in * w.in + size * height);
    const std::int64_t tasks = (planes.count() + grain - 1) / grain;
    const bool direct = is_lanes<L>(y.dtype, 1, w.out);
    const L** rows = scratch.take<const L*>(tasks * height);
    L* buffers = scratch.take<L>(tasks * (height * w.in + w.out));
    std::int32_t* places = scratch.take<std::int32_t>(tasks * w.out);
    parallel_ranges(planes.count(), grain, [&](std::int64_t first, std::int64_t last) {
        const std::int64_t task = first / grain;
        const L** seen = rows + task * height;
        L* buffer = buffers + task * (height * w.in + w.out);
        for (std::int64_t plane = first; plane < last; ++plane) {
            const std::int64_t offset = planes.offset(plane);
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

// What a mean over two windows divides by.
template <class L>
L divisor_of(const Pool& pool, const Window& h, const Window& w) {
    if (pool.divisor != 0) return static_cast<L>(pool.divisor);
    return static_cast<L>(pool.count_padding ? h.padded * w.padded
                                             : (h.end - h.begin) * (w.end - w.begin));
}

template <class L>
void mean_planes(Cpu& on, const Pool& pool, const ConstView& x, const View& y) {
    Scratch scratch(on);
    const Axis h = make_axis(scratch, pool.h, pool.adaptive, x.back(2), y.back(2));
    const Axis w = make_axis(scratch, pool.w, pool.adaptive, x.back(1), y.back(1));
    const Planes planes(x);
    const std::int64_t size = h.out * w.out;
    const std::int64_t grain = planes_per_task(planes.count(), h.in * w.in + size * tallest(h));
    const std::int64_t room = 2 * w.in + w.out;
    const bool direct = is_lanes<L>(y.dtype, 1, w.out);
    L* buffers = scratch.take<L>((planes.count() + grain - 1) / grain * room);
    parallel_ranges(planes.count(), grain, [&](std::int64_t first, std::int64_t last) {
        L* sums = buffers + first / grain * room;
        for (std::int64_t plane = first; plane < last; ++plane) {
            const std::int64_t offset = planes.offset(plane);
            for (std::int64_t o = 0; o < h.out; ++o) {
                const L* row = load_plane_row(x, offset, h[o].begin, sums);
                if (row != sums) std::copy(row, row + w.in, sums);
                for (std::int64_t i = h[o].begin + 1; i < h[o].end; ++i)
                    add_to(load_plane_row(x, offset, i, sums + w.in), sums, w.in);
                void* to = at(y.data, y.dtype, plane * size + o * w.out);
                L* means = direct ? static_cast<L*>(to) : sums + 2 * w.in;
                for (std::int64_t p = 0; p < w.out; ++p) {
                    L sum = 0;
                    for (std::int64_t j = w[p].begin; j < w[p].end; ++j) sum += sums[j];
                    means[p] = sum / divisor_of<L>(pool, h[o], w[p]);
                }
                store_lanes(means, to, y.dtype, 1, w.out);
            }
        }
    });
}

// Whether the outputs, y or dy, are means of whole planes.
bool is_global(const Pool& pool, const ConstView& y) {
    return pool.adaptive && y.back(1) == 1 && y.back(2) == 1;
}

// sum_span adds up blocks of this size: a plane that comes in such pieces has the same sum.
constexpr std::int64_t kSumBlock = 2048;

// The sum of the plane at `offset`, through a buffer of kSumBlock elements.
template <class L>
double sum_of_plane(const ConstView& x, std::int64_t offset, L* buffer) {
    const std::int64_t height = x.back(2), width = x.back(1);
    double sum = 0;
    std::int64_t filled = 0;
    for (std::int64_t i = 0; i < height; ++i)
        for (std::int64_t j = 0, n = 0; j < width; j += n) {
            n = std::min(width - j, kSumBlock - filled);
            const std::int64_t place = offset + i * x.back_stride(2) + j * x.back_stride(1);
            L* to = buffer + filled;
            const L* from =
                load_lanes(at(x.data, x.dtype, place), x.dtype, x.back_stride(1), n, to);
            if (from != to) std::copy(from, from + n, to);
            filled += n;
            if (filled < kSumBlock) continue;
            sum += sum_span(buffer, filled);
            filled = 0;
        }
    return sum + sum_span(buffer, filled);
}

// The mean of whole planes.
template <class L>
void mean_of_planes(Cpu& on, const ConstView& x, const View& y) {
    const Planes planes(x);
    const std::int64_t n = x.back(2) * x.back(1);
    const bool direct = x.dtype == dtype_of<L> && x.back_stride(1) == 1 &&
                        (x.back_stride(2) == x.back(1) || x.back(2) == 1);
    const std::int64_t grain = planes_per_task(planes.count(), n);
    Scratch scratch(on);
    L* buffers = scratch.take<L>((planes.count() + grain - 1) / grain * kSumBlock);
    parallel_ranges(planes.count(), grain, [&](std::int64_t first, std::int64_t last) {
        for (std::int64_t plane = first; plane < last; ++plane) {
            const std::int64_t offset = planes.offset(plane);
            const double sum = direct
                                   ? sum_span(x.as<L>() + offset, n)
                                   : sum_of_plane(x, offset, buffers + first / grain * kSumBlock);
            const L mean = static_cast<L>(sum / static_cast<double>(n));
            store_lanes(&mean, at(y.data, y.dtype, plane), y.dtype, 1, 1);
        }
    });
}

// The way back from means of whole planes.
template <class L>
void fill_planes(const ConstView& dy, const View& dx) {
    const Planes planes(dy);
    const std::int64_t n = dx.back(2) * dx.back(1);
    parallel_ranges(planes.count(), planes_per_task(planes.count(), n),
                    [&](std::int64_t first, std::int64_t last) {
                        for (std::int64_t plane = first; plane < last; ++plane) {
                            L g;
                            const L* sum = load_plane_row(dy, planes.offset(plane), 0, &g);
                            std::fill_n(dx.as<L>() + plane * n, n, *sum / static_cast<L>(n));
                        }
                    });
}

template <class L>
void spread_means(Cpu& on, const Pool& pool, const ConstView& dy, const View& dx) {
    Scratch scratch(on);
    const Axis h = make_axis(scratch, pool.h, pool.adaptive, dx.back(2), dy.back(2));
    const Axis w = make_axis(scratch, pool.w, pool.adaptive, dx.back(1), dy.back(1));
    const Planes planes(dy);
    const std::int64_t grain =
        planes_per_task(planes.count(), h.in * w.in + h.out * w.out * tallest(h));
    const std::int64_t room = w.in + w.out;
    L* buffers = scratch.take<L>((planes.count() + grain - 1) / grain * room);
    parallel_ranges(planes.count(), grain, [&](std::int64_t first, std::int64_t last) {
        L* spread = buffers + first / grain * room;
        for (std::int64_t plane = first; plane < last; ++plane) {
            const std::int64_t offset = planes.offset(plane);
            L* to = dx.as<L>() + plane * h.in * w.in;
            std::fill(to, to + h.in * w.in, L(0));
            for (std::int64_t o = 0; o < h.out; ++o) {
                const L* from = load_plane_row(dy, offset, o, spread + w.in);
                std::fill(spread, spread + w.in, L(0));
                for (std::int64_t p = 0; p < w.out; ++p) {
                    const L share = from[p] / divisor_of<L>(pool, h[o], w[p]);
                    for (std::int64_t j = w[p].begin; j < w[p].end; ++j) spread[j] += share;
                }
                for (std::int64_t i = h[o].begin; i < h[o].end; ++i)
                    add_to(spread, to + i * w.in, w.in);
            }
        }
    });
}

}  // namespace

void max_pool2d(Cpu& on, const Pool& pool, ConstView x, View y, View indices) {
    if (y.numel() == 0) return;
    visit_f32_f64(lane_dtype(x.dtype), [&]<class L>() { max_planes<L>(on, pool, x, y, indices); });
}

void avg_pool2d(Cpu& on, const Pool& pool, ConstView x, View y) {
    if (y.numel() == 0) return;
    visit_f32_f64(lane_dtype(x.dtype), [&]<class L>() {
        if (is_global(pool, y)) return mean_of_planes<L>(on, x, y);
        mean_planes<L>(on, pool, x, y);
    });
}

void avg_pool2d_backward(Cpu& on, const Pool& pool, ConstView dy, View dx) {
    if (dx.numel() == 0) return;
    visit_f32_f64(dx.dtype, [&]<class L>() {
        if (is_global(pool, dy)) return fill_planes<L>(dy, dx);
        spread_means<L>(on, pool, dy, dx);
    });
}

}  // namespace axle::inline v0::kernels

#endif  // HWY_ONCE
