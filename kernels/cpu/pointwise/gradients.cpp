// Norms, scaling, clamping and checks of many gradients in one call. The gradients are read at most
// once, and memory bandwidth limits the speed.
//
// Norms are summed in f64. The gradients are treated as one sequence of elements. Every chunk of
// the sequence has a partial sum, and the partial sums are combined in order. f32 lanes are
// converted to f64 in registers, so that squares of large (still scaled) gradients neither overflow
// nor lose digits.
#include "kernels/exec.h"
#include "kernels/ops/optimizer.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/pointwise/gradients.cpp"
#include "kernels/cpu/targets.h"
//
#include <hwy/foreach_target.h>
//
#include <hwy/cache_control.h>

#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace axle::kernels::HWY_NAMESPACE {

using DoubleTag = hn::ScalableTag<double>;

// Adds x^2 (if kSquares) or |x| of one float per lane to sum, and returns the result.
template <bool kSquares>
HWY_INLINE hn::Vec<DoubleTag> add_lanes(const float* x, hn::Vec<DoubleTag> sum) {
    const hn::Rebind<float, DoubleTag> narrow;
    const auto wide = hn::PromoteTo(DoubleTag(), hn::LoadU(narrow, x));
    if constexpr (kSquares) return hn::MulAdd(wide, wide, sum);
    return hn::Add(sum, hn::Abs(wide));
}

template <bool kSquares>
HWY_INLINE double sum_f32(const float* x, std::int64_t n) {
    const DoubleTag d;
    constexpr std::int64_t kLanes = hn::MaxLanes(d);
    auto even = hn::Zero(d), odd = hn::Zero(d);
    std::int64_t i = 0;
    for (; i + 2 * kLanes <= n; i += 2 * kLanes) {
        hwy::Prefetch(x + i + kPrefetch);
        even = add_lanes<kSquares>(x + i, even);
        odd = add_lanes<kSquares>(x + i + kLanes, odd);
    }
    double sum = hn::GetLane(hn::SumOfLanes(d, hn::Add(even, odd)));
    for (; i < n; ++i) {
        const double a = x[i];
        sum += kSquares ? a * a : a < 0 ? -a : a;
    }
    return sum;
}

double sum_squares(const float* x, std::int64_t n) { return sum_f32<true>(x, n); }
double sum_abs(const float* x, std::int64_t n) { return sum_f32<false>(x, n); }

double max_abs(const float* x, std::int64_t n) {
    Pack largest(0.0f), nan(0.0f);
    std::int64_t i = 0;
    const auto look = [&](Pack a) HWY_ATTR {
        largest = select(a > largest, a, largest);
        nan = select(is_nan(a), a, nan);
    };
    for (; i + Pack::kLanes <= n; i += Pack::kLanes) look(abs(Pack::load(x + i)));
    if (i < n) look(abs(Pack::load(x + i, n - i)));
    return sum_of(nan) == 0.0f ? max_of(largest) : NAN;
}

void multiply(float* x, std::int64_t n, float factor) {
    const Pack f(factor);
    std::int64_t i = 0;
    for (; i + Pack::kLanes <= n; i += Pack::kLanes) (Pack::load(x + i) * f).store(x + i);
    if (i < n) (Pack::load(x + i, n - i) * f).store(x + i, n - i);
}

HWY_INLINE Pack between(Pack x, Pack low, Pack high) {
    x = select(x < low, low, x);
    return select(x > high, high, x);
}

void limit(float* x, std::int64_t n, float low, float high) {
    const Pack l(low), h(high);
    std::int64_t i = 0;
    for (; i + Pack::kLanes <= n; i += Pack::kLanes) between(Pack::load(x + i), l, h).store(x + i);
    if (i < n) between(Pack::load(x + i, n - i), l, h).store(x + i, n - i);
}

}  // namespace axle::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/cpu/chunks.h"
#include "kernels/cpu/lanes.h"
#include "kernels/walk.h"

namespace axle::kernels {
namespace {

AXLE_DISPATCH(sum_squares);
AXLE_DISPATCH(sum_abs);
AXLE_DISPATCH(max_abs);
AXLE_DISPATCH(multiply);
AXLE_DISPATCH(limit);

// read_lanes() calls body(lanes, n) for a part of a row: once if no conversion is needed, otherwise
// block by block. change_lanes() does the same with lanes that body changes, and stores them.
template <class Lane, class Body>
void read_lanes(const Run& run, std::int64_t offset, std::int64_t n, Body&& body) {
    Lane buffer[kBlock];
    for (const std::int64_t end = offset + n; offset < end; offset += n) {
        n = end - offset;
        if (run.dtype != dtype_of<Lane>) n = std::min(kBlock, n);
        body(load_lanes<Lane>(at(run.data, run.dtype, offset), run.dtype, 1, n, buffer), n);
    }
}

template <class Lane, class Body>
void change_lanes(const Run& run, std::int64_t offset, std::int64_t n, Body&& body) {
    if (run.dtype == dtype_of<Lane>) return body(static_cast<Lane*>(run.data) + offset, n);
    Lane buffer[kBlock];
    for (const std::int64_t end = offset + n; offset < end; offset += n) {
        n = std::min(kBlock, end - offset);
        void* const x = at(run.data, run.dtype, offset);
        load_lanes<Lane>(x, run.dtype, 1, n, buffer);
        body(buffer, n);
        store_lanes<Lane>(buffer, x, run.dtype, 1, n);
    }
}

// Returns the larger number, or NaN if a or b is NaN.
double larger(double a, double b) { return a > b || std::isnan(a) ? a : b; }

// The operations that compute the p-norm. Elements and partial results are combined by addition, or
// by the maximum if p is infinite.
struct Power {
    double p;

    bool maximum() const { return std::isinf(p); }
    double join(double a, double b) const { return maximum() ? larger(a, b) : a + b; }

    template <class Lane>
    double each(const Lane* x, std::int64_t n) const {
        double result = 0;
        for (std::int64_t i = 0; i < n; ++i) {
            const double a = std::abs(static_cast<double>(x[i]));
            result = join(result, p == 2 ? a * a : p == 1 || maximum() ? a : std::pow(a, p));
        }
        return result;
    }
    double of(const double* x, std::int64_t n) const { return each(x, n); }
    double of(const float* x, std::int64_t n) const {
        if (p == 2) return AXLE_CALL(sum_squares)(x, n);
        if (p == 1) return AXLE_CALL(sum_abs)(x, n);
        if (maximum()) return AXLE_CALL(max_abs)(x, n);
        return each(x, n);
    }
    double root(double x) const {
        if (p == 2) return std::sqrt(x);
        return p == 1 || maximum() ? x : std::pow(x, 1 / p);
    }
};

}  // namespace

void norm(Cpu& on, std::span<const Run> runs, double p, double* result) {
    const Power power{p};
    *result = 0;
    if (total(runs) == 0) return;
    Scratch scratch(on);
    const std::int64_t chunks = chunk_count(runs);
    double* partial = scratch.take<double>(chunks);
    std::fill_n(partial, chunks, 0.0);
    for_each_stretch(
        runs, [&](std::int64_t chunk, const Run& run, std::int64_t offset, std::int64_t size) {
            const auto add = [&](const auto* x, std::int64_t n) {
                partial[chunk] = power.join(partial[chunk], power.of(x, n));
            };
            if (run.dtype == DType::f64) return read_lanes<double>(run, offset, size, add);
            read_lanes<float>(run, offset, size, add);
        });
    double sum = 0;
    for (std::int64_t i = 0; i < chunks; ++i) sum = power.join(sum, partial[i]);
    *result = power.root(sum);
}

void clip_coefficient(Cpu&, const double* norm, double max_norm, double* coefficient) {
    const double ratio = max_norm / (*norm + 1e-6);
    *coefficient = ratio > 1 ? 1 : ratio;
}

void scale(Cpu&, std::span<const Run> runs, const double* factor) {
    const double f = *factor;
    if (f == 1) return;
    for_each_stretch(
        runs, [&](std::int64_t, const Run& run, std::int64_t offset, std::int64_t size) {
            if (run.dtype == DType::f64)
                return change_lanes<double>(run, offset, size, [&](double* x, std::int64_t n) {
                    for (std::int64_t i = 0; i < n; ++i) x[i] *= f;
                });
            change_lanes<float>(run, offset, size, [&](float* x, std::int64_t n) {
                AXLE_CALL(multiply)(x, n, static_cast<float>(f));
            });
        });
}

void clamp(Cpu&, std::span<const Run> runs, double low, double high) {
    for_each_stretch(
        runs, [&](std::int64_t, const Run& run, std::int64_t offset, std::int64_t size) {
            if (run.dtype == DType::f64)
                return change_lanes<double>(run, offset, size, [&](double* x, std::int64_t n) {
                    for (std::int64_t i = 0; i < n; ++i)
                        x[i] = x[i] < low ? low : x[i] > high ? high : x[i];
                });
            change_lanes<float>(run, offset, size, [&](float* x, std::int64_t n) {
                AXLE_CALL(limit)(x, n, static_cast<float>(low), static_cast<float>(high));
            });
        });
}

void find_non_finite(Cpu& on, std::span<const Run> runs, double* found_inf) {
    double largest = 0;
    norm(on, runs, std::numeric_limits<double>::infinity(), &largest);
    if (!std::isfinite(largest)) *found_inf = 1;
}

}  // namespace axle::kernels

#endif  // HWY_ONCE
