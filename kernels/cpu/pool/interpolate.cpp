// Resizing. For each output row, two input rows are read in order and blended (with SIMD for f32),
// or one row is read if both are the same. Then pairs of elements of the result are blended in L1.
// The backward pass performs these steps in reverse order. Coordinates and weights are computed
// once per axis. Every plane is computed by one task.
#include "kernels/ops/interpolate.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/pool/interpolate.cpp"
#include "kernels/cpu/targets.h"
//
#include <algorithm>
#include <cmath>
#include <cstdint>

#include <hwy/foreach_target.h>
//
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace axle::kernels::HWY_NAMESPACE {
namespace {

// Computes y = (1 - weight) a + weight b for n elements.
void blend_rows(const float* a, const float* b, float weight, float* y, std::int64_t n) {
    const Pack u(1 - weight), v(weight);
    std::int64_t i = 0;
    for (; i + Pack::kLanes <= n; i += Pack::kLanes)
        (u * Pack::load(a + i) + v * Pack::load(b + i)).store(y + i);
    if (i < n) (u * Pack::load(a + i, n - i) + v * Pack::load(b + i, n - i)).store(y + i, n - i);
}

// Adds weight * x to sum for n elements.
void add_weighted_row(const float* x, float weight, float* sum, std::int64_t n) {
    const Pack w(weight);
    std::int64_t i = 0;
    for (; i + Pack::kLanes <= n; i += Pack::kLanes)
        fma(w, Pack::load(x + i), Pack::load(sum + i)).store(sum + i);
    if (i < n) fma(w, Pack::load(x + i, n - i), Pack::load(sum + i, n - i)).store(sum + i, n - i);
}

}  // namespace
}  // namespace axle::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

#include "kernels/cpu/conv/planes.h"
#include "kernels/thread_pool.h"

namespace axle::kernels {
namespace {

AXLE_DISPATCH(blend_rows);
AXLE_DISPATCH(add_weighted_row);

void blend(const float* a, const float* b, float weight, float* y, std::int64_t n) {
    AXLE_CALL(blend_rows)(a, b, weight, y, n);
}
void blend(const double* a, const double* b, double weight, double* y, std::int64_t n) {
    for (std::int64_t i = 0; i < n; ++i) y[i] = (1 - weight) * a[i] + weight * b[i];
}
void add_weighted(const float* x, float weight, float* sum, std::int64_t n) {
    AXLE_CALL(add_weighted_row)(x, weight, sum, n);
}
void add_weighted(const double* x, double weight, double* sum, std::int64_t n) {
    for (std::int64_t i = 0; i < n; ++i) sum[i] += weight * x[i];
}

// The two inputs of one output and their weight. The output is
// (1 - weight) * x[low] + weight * x[high], or x[low] if low equals high.
struct Tap {
    std::int64_t low, high;
    double weight;
};

struct Axis {
    std::int64_t in, out;
    const Tap* taps;

    const Tap& operator[](std::int64_t o) const { return taps[o]; }
};

Tap make_tap(const Resize& resize, double scale, std::int64_t in, std::int64_t out,
             std::int64_t o) {
    if (in == out && !(resize.exact && scale != 0)) return {o, o, 0};
    const auto size = static_cast<double>(in), place = static_cast<double>(o);
    if (!resize.bilinear) {
        const float step = scale != 0 ? static_cast<float>(1 / scale)
                                      : static_cast<float>(in) / static_cast<float>(out);
        const double exact = (place + 0.5) * static_cast<double>(step);
        const float at =
            std::floor(resize.exact ? static_cast<float>(exact) : static_cast<float>(o) * step);
        const std::int64_t nearest = std::min(static_cast<std::int64_t>(at), in - 1);
        return {nearest, nearest, 0};
    }
    double at = 0;
    if (!resize.align_corners) {
        const double step = scale != 0 ? 1 / scale : size / static_cast<double>(out);
        at = std::max(0.0, (place + 0.5) * step - 0.5);
    } else if (out > 1) {
        at = place * ((size - 1) / static_cast<double>(out - 1));
    }
    const std::int64_t low = std::min(static_cast<std::int64_t>(at), in - 1);
    const std::int64_t high = std::min(low + 1, in - 1);
    return {low, high, std::clamp(at - static_cast<double>(low), 0.0, 1.0)};
}

Axis make_axis(Scratch& scratch, const Resize& resize, double scale, std::int64_t in,
               std::int64_t out) {
    Tap* taps = scratch.take<Tap>(out);
    for (std::int64_t o = 0; o < out; ++o) taps[o] = make_tap(resize, scale, in, out, o);
    return {in, out, taps};
}

template <class L>
void forward(Cpu& on, const Resize& resize, const ConstView& x, const View& y) {
    Scratch scratch(on);
    const Axis h = make_axis(scratch, resize, resize.scale_h, x.back(2), y.back(2));
    const Axis w = make_axis(scratch, resize, resize.scale_w, x.back(1), y.back(1));
    const Planes planes(x);
    const std::int64_t room = 3 * w.in + w.out;
    const std::int64_t grain = planes_per_task(planes.count(), h.out * (w.in + w.out));
    const bool direct = is_lanes<L>(y.dtype, 1, w.out);
    L* buffers = scratch.take<L>((planes.count() + grain - 1) / grain * room);
    parallel_ranges(planes.count(), grain, [&](std::int64_t first, std::int64_t last) {
        L* buffer = buffers + first / grain * room;
        for (std::int64_t plane = first; plane < last; ++plane) {
            const std::int64_t offset = planes.offset(plane);
            for (std::int64_t o = 0; o < h.out; ++o) {
                const L* row = load_plane_row(x, offset, h[o].low, buffer);
                if (h[o].high != h[o].low) {
                    const L* next = load_plane_row(x, offset, h[o].high, buffer + w.in);
                    blend(row, next, static_cast<L>(h[o].weight), buffer + 2 * w.in, w.in);
                    row = buffer + 2 * w.in;
                }
                void* to = at(y.data, y.dtype, (plane * h.out + o) * w.out);
                L* out = direct ? static_cast<L*>(to) : buffer + 3 * w.in;
                for (std::int64_t p = 0; p < w.out; ++p) {
                    const auto [low, high, weight] = w[p];
                    const L v = static_cast<L>(weight);
                    out[p] = low == high ? row[low] : (1 - v) * row[low] + v * row[high];
                }
                store_lanes(out, to, y.dtype, 1, w.out);
            }
        }
    });
}

template <class L>
void backward(Cpu& on, const Resize& resize, const ConstView& dy, const View& dx) {
    Scratch scratch(on);
    const Axis h = make_axis(scratch, resize, resize.scale_h, dx.back(2), dy.back(2));
    const Axis w = make_axis(scratch, resize, resize.scale_w, dx.back(1), dy.back(1));
    const Planes planes(dy);
    const std::int64_t room = w.in + w.out;
    const std::int64_t grain = planes_per_task(planes.count(), h.out * (w.in + w.out));
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
                    const auto [low, high, weight] = w[p];
                    const L v = low == high ? L(0) : static_cast<L>(weight);
                    spread[low] += (1 - v) * from[p];
                    if (low != high) spread[high] += v * from[p];
                }
                const L v = h[o].low == h[o].high ? L(0) : static_cast<L>(h[o].weight);
                add_weighted(spread, 1 - v, to + h[o].low * w.in, w.in);
                if (h[o].low != h[o].high) add_weighted(spread, v, to + h[o].high * w.in, w.in);
            }
        }
    });
}

}  // namespace

void interpolate(Cpu& on, const Resize& resize, ConstView x, View y) {
    if (y.numel() == 0) return;
    visit_f32_f64(lane_dtype(x.dtype), [&]<class L>() { forward<L>(on, resize, x, y); });
}

void interpolate_backward(Cpu& on, const Resize& resize, ConstView dy, View dx) {
    if (dx.numel() == 0) return;
    visit_f32_f64(dx.dtype, [&]<class L>() { backward<L>(on, resize, dy, dx); });
}

}  // namespace axle::kernels

#endif  // HWY_ONCE
