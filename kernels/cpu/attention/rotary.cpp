// Rotary embedding in one pass over x. Each row of D elements is rotated by the table row of its
// position.
//
// The table contains the cosine and sine of every (position, pair), computed in f64 and rounded to
// the lane type once per call. The table is small, with D / 2 pairs per position, and each entry is
// used by batches * heads rows. Positions are split into blocks of kStride. At frequency f
// (negative in the backward direction), the entry of position first + r is e^(i (first + r) f) =
// e^(i first f) e^(i r f), where i is the imaginary unit. So most entries are computed by a complex
// product instead of a sine and a cosine. x is read once and y is written once; the table stays in
// the cache.
#include "kernels/ops/rotary.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention/rotary.cpp"
#include "kernels/cpu/targets.h"
//
#include <hwy/foreach_target.h>
//
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace axle::kernels::HWY_NAMESPACE {

// Rotates one row, whose two halves of `half` elements are low and high. The results can overwrite
// low and high.
void rotate_row(const float* low, const float* high, const float* cosine, const float* sine,
                std::int64_t half, float* low_to, float* high_to) {
    std::int64_t i = 0;
    for (; i + Pack::kLanes <= half; i += Pack::kLanes) {
        const Pack a = Pack::load(low + i), b = Pack::load(high + i);
        const Pack c = Pack::load(cosine + i), s = Pack::load(sine + i);
        (a * c - b * s).store(low_to + i);
        (b * c + a * s).store(high_to + i);
    }
    if (i == half) return;
    const std::int64_t rest = half - i;
    const Pack a = Pack::load(low + i, rest), b = Pack::load(high + i, rest);
    const Pack c = Pack::load(cosine + i, rest), s = Pack::load(sine + i, rest);
    (a * c - b * s).store(low_to + i, rest);
    (b * c + a * s).store(high_to + i, rest);
}

}  // namespace axle::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

#include <algorithm>
#include <cmath>
#include <complex>

#include "kernels/cpu/lanes.h"
#include "kernels/thread_pool.h"
#include "kernels/walk.h"

namespace axle::kernels {
namespace {

AXLE_DISPATCH(rotate_row);

constexpr std::int64_t kStride = 32;        // positions per block
constexpr std::int64_t kGrain = 32 * 1024;  // elements per task

void rotate(const double* low, const double* high, const double* cosine, const double* sine,
            std::int64_t half, double* low_to, double* high_to) {
    for (std::int64_t i = 0; i < half; ++i) {
        const double a = low[i], b = high[i];
        low_to[i] = a * cosine[i] - b * sine[i];
        high_to[i] = b * cosine[i] + a * sine[i];
    }
}
void rotate(const float* low, const float* high, const float* cosine, const float* sine,
            std::int64_t half, float* low_to, float* high_to) {
    AXLE_CALL(rotate_row)(low, high, cosine, sine, half, low_to, high_to);
}

// Fills the tables cosine and sine [positions][half]. `near` is scratch memory for half entries of
// each position of a block.
template <class Lane>
void fill_table(double base, std::int64_t offset, int direction, std::int64_t positions,
                std::int64_t half, std::complex<double>* near, Lane* cosine, Lane* sine) {
    const auto frequency = [&](std::int64_t i) {
        return direction * std::pow(base, -static_cast<double>(i) / static_cast<double>(half));
    };
    const std::int64_t steps = std::min(kStride, positions);
    for (std::int64_t i = 0; i < half; ++i)
        for (std::int64_t r = 0; r < steps; ++r)
            near[r * half + i] = std::polar(1.0, static_cast<double>(r) * frequency(i));
    const std::int64_t grain = std::max<std::int64_t>(1, kGrain / (kStride * half));
    parallel_ranges(
        (positions + kStride - 1) / kStride, grain, [&](std::int64_t b, std::int64_t e) {
            for (std::int64_t i = 0; i < half; ++i)
                for (std::int64_t first = b * kStride; first < std::min(e * kStride, positions);
                     first += kStride) {
                    const auto far =
                        std::polar(1.0, static_cast<double>(offset + first) * frequency(i));
                    for (std::int64_t r = 0; r < std::min(kStride, positions - first); ++r) {
                        const std::complex<double> step = near[r * half + i];
                        const std::int64_t entry = (first + r) * half + i;
                        cosine[entry] =
                            static_cast<Lane>(far.real() * step.real() - far.imag() * step.imag());
                        sine[entry] =
                            static_cast<Lane>(far.real() * step.imag() + far.imag() * step.real());
                    }
                }
        });
}

// Returns the offset of a matrix, given its number; a matrix is the last two dimensions of x.
std::int64_t outer_offset(const ConstView& x, std::int64_t matrix) {
    std::int64_t offset = 0;
    for (int d = x.ndim - 3; d >= 0; --d) {
        offset += matrix % x.shape[d] * x.stride[d];
        matrix /= x.shape[d];
    }
    return offset;
}

template <class Lane>
void rotate_rows(const ConstView& x, const View& y, const Lane* cosine, const Lane* sine) {
    const std::int64_t positions = x.back(2), half = x.back(1) / 2;
    const std::int64_t step = x.back_stride(1), step_to = y.back_stride(1);
    // Long rows are rotated in pieces that fit in the buffers.
    const std::int64_t piece = std::min(half, kBlock);
    const std::int64_t rows = x.numel() / (2 * half);
    parallel_ranges(
        rows, std::max<std::int64_t>(1, kGrain / (2 * half)),
        [&](std::int64_t begin, std::int64_t end) {
            Lane buffers[2][kBlock];
            for (std::int64_t row = begin; row < end; ++row) {
                const std::int64_t t = row % positions, outer = row / positions;
                const std::int64_t from = outer_offset(x, outer) + t * x.back_stride(2);
                const std::int64_t to = outer_offset(y, outer) + t * y.back_stride(2);
                for (std::int64_t i = 0; i < half; i += piece) {
                    const std::int64_t n = std::min(piece, half - i);
                    const Lane* low = load_lanes<Lane>(at(x.data, x.dtype, from + i * step),
                                                       x.dtype, step, n, buffers[0]);
                    const Lane* high =
                        load_lanes<Lane>(at(x.data, x.dtype, from + (half + i) * step), x.dtype,
                                         step, n, buffers[1]);
                    void* low_to = at(y.data, y.dtype, to + i * step_to);
                    void* high_to = at(y.data, y.dtype, to + (half + i) * step_to);
                    const bool direct = is_lanes<Lane>(y.dtype, step_to, n);
                    Lane* const low_lanes = direct ? static_cast<Lane*>(low_to) : buffers[0];
                    Lane* const high_lanes = direct ? static_cast<Lane*>(high_to) : buffers[1];
                    rotate(low, high, cosine + t * half + i, sine + t * half + i, n, low_lanes,
                           high_lanes);
                    store_lanes<Lane>(low_lanes, low_to, y.dtype, step_to, n);
                    store_lanes<Lane>(high_lanes, high_to, y.dtype, step_to, n);
                }
            }
        });
}

}  // namespace

void rotary(Cpu& on, double base, std::int64_t offset, int direction, ConstView x, View y) {
    if (x.numel() == 0) return;
    const std::int64_t positions = x.back(2), half = x.back(1) / 2;
    visit_f32_f64(lane_dtype(x.dtype), [&]<class Lane>() {
        Scratch scratch(on);
        auto* const near = scratch.take<std::complex<double>>(std::min(kStride, positions) * half);
        Lane* const cosine = scratch.take<Lane>(positions * half);
        Lane* const sine = scratch.take<Lane>(positions * half);
        fill_table(base, offset, direction, positions, half, near, cosine, sine);
        rotate_rows(x, y, cosine, sine);
    });
}

}  // namespace axle::kernels

#endif  // HWY_ONCE
