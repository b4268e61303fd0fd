// Average pooling, one output row at a time. The forward pass first adds the rows and then the
// columns of each window. The backward pass distributes a row of dy over the columns and then adds
// it to the rows. If windows are disjoint, the input is read once; if they overlap, it is read
// kernel_h / stride_h times from L1. In adaptive pooling to 1 x 1, each output is the mean of a
// complete plane, which is computed with sum_span instead of windows. Every plane is computed by
// one task.
#include "kernels/ops/pool.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/pool/avg_pool.cpp"
#include "kernels/cpu/targets.h"
//
#include <algorithm>
#include <cstdint>

#include <hwy/foreach_target.h>
//
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace axle::kernels::HWY_NAMESPACE {
namespace {

// Computes sum[i] += x[i] for n elements.
void add_row(const float* x, float* sum, std::int64_t n) {
    std::int64_t i = 0;
    for (; i + Pack::kLanes <= n; i += Pack::kLanes)
        (Pack::load(sum + i) + Pack::load(x + i)).store(sum + i);
    if (i < n) (Pack::load(sum + i, n - i) + Pack::load(x + i, n - i)).store(sum + i, n - i);
}

}  // namespace
}  // namespace axle::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

#include "kernels/cpu/conv/planes.h"
#include "kernels/cpu/pool/pool_windows.h"
#include "kernels/cpu/reduce/reduce_spans.h"
#include "kernels/thread_pool.h"

namespace axle::kernels {
namespace {

AXLE_DISPATCH(add_row);

void add_to(const float* x, float* sum, std::int64_t n) {
    if (n > 8) return AXLE_CALL(add_row)(x, sum, n);
    for (std::int64_t i = 0; i < n; ++i) sum[i] += x[i];  // faster than a function call
}
void add_to(const double* x, double* sum, std::int64_t n) {
    for (std::int64_t i = 0; i < n; ++i) sum[i] += x[i];
}

// Returns the divisor of the mean over a window.
template <class L>
L divisor_of(const Pool& pool, const PoolWindow& h, const PoolWindow& w) {
    if (pool.divisor != 0) return static_cast<L>(pool.divisor);
    return static_cast<L>(pool.count_padding ? h.padded * w.padded
                                             : (h.end - h.begin) * (w.end - w.begin));
}

template <class L>
void mean_planes(Cpu& on, const Pool& pool, const ConstView& x, const View& y) {
    Scratch scratch(on);
    const PoolWindows h = pool_windows(scratch, pool.h, pool.adaptive, x.back(2), y.back(2));
    const PoolWindows w = pool_windows(scratch, pool.w, pool.adaptive, x.back(1), y.back(1));
    const Planes planes(x);
    const std::int64_t size = h.out * w.out;
    const std::int64_t grain =
        planes_per_task(planes.count(), h.in * w.in + size * max_window_rows(h));
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

// Returns whether the outputs (y or dy) are means of complete planes.
bool is_global(const Pool& pool, const ConstView& y) {
    return pool.adaptive && y.back(1) == 1 && y.back(2) == 1;
}

// The block size of sum_span for f32. Summing an f32 plane in blocks of this size does not change
// its sum.
constexpr std::int64_t kSumBlock = 2048;

// Returns the sum of the plane at `offset`. buffer must have kSumBlock elements.
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

// Computes the means of complete planes.
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

// Computes the backward pass of mean_of_planes.
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
    const PoolWindows h = pool_windows(scratch, pool.h, pool.adaptive, dx.back(2), dy.back(2));
    const PoolWindows w = pool_windows(scratch, pool.w, pool.adaptive, dx.back(1), dy.back(1));
    const Planes planes(dy);
    const std::int64_t grain =
        planes_per_task(planes.count(), h.in * w.in + h.out * w.out * max_window_rows(h));
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

}  // namespace axle::kernels

#endif  // HWY_ONCE
