// Softmax and log softmax along rows, and their gradients. For a row of contiguous floats, a
// forward pass reads the row three times (maximum, sum of exponentials, result) and a backward pass
// reads it twice (sum, result). Only the first of these reads is from memory; the others are from
// the cache. The result is written once.
//
// If the rows are along a dimension that is not the last, elements of a row are strided but
// neighboring rows are contiguous. If at least 8 rows are contiguous and not f64, up to 64 of them
// are copied together to the columns of a tile in scratch memory. Memory is still read in full
// cache lines, and each lane of a pack processes a different row. Other rows are read in place if
// they are contiguous and f32 or f64; otherwise they are first copied to contiguous buffers.
#include "kernels/ops/softmax.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention/softmax.cpp"
#include "kernels/cpu/targets.h"
//
#include <algorithm>
#include <cmath>

#include <hwy/foreach_target.h>
//
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace axle::kernels::HWY_NAMESPACE {
namespace {

constexpr std::int64_t kSumBlock = 2048;  // elements summed in f32; block sums are added in f64

float largest(const float* x, std::int64_t n) {
    Pack a[4] = {Pack(-INFINITY), Pack(-INFINITY), Pack(-INFINITY), Pack(-INFINITY)};
    std::int64_t i = 0;
    for (; i + 4 * Pack::kLanes <= n; i += 4 * Pack::kLanes) HWY_UNROLL(4)
    for (int k = 0; k < 4; ++k) a[k] = max(a[k], Pack::load(x + i + k * Pack::kLanes));
    for (; i + Pack::kLanes <= n; i += Pack::kLanes) a[0] = max(a[0], Pack::load(x + i));
    float best = max_of(max(max(a[0], a[1]), max(a[2], a[3])));
    for (; i < n; ++i) best = std::max(best, x[i]);
    return best;
}

// Returns the sum of exp(x - shift). If kStore is true, also writes the terms to y.
template <bool kStore>
float exp_sum(const float* x, float shift, float* y, std::int64_t n) {
    const Pack s(shift);
    double total = 0;
    for (std::int64_t begin = 0; begin < n; begin += kSumBlock) {
        const std::int64_t end = std::min(n, begin + kSumBlock);
        Pack a[2] = {Pack(0.0f), Pack(0.0f)};
        std::int64_t i = begin;
        for (; i + 2 * Pack::kLanes <= end; i += 2 * Pack::kLanes) HWY_UNROLL(2)
        for (int k = 0; k < 2; ++k) {
            const Pack e = exp(Pack::load(x + i + k * Pack::kLanes) - s);
            if (kStore) e.store(y + i + k * Pack::kLanes);
            a[k] = a[k] + e;
        }
        for (; i < end; i += Pack::kLanes) {
            const std::int64_t left = std::min(end - i, Pack::kLanes);
            const Pack e = exp(Pack::load(x + i, left) - s);
            if (kStore) e.store(y + i, left);
            float lanes[Pack::kLanes];
            e.store(lanes);
            for (std::int64_t k = 0; k < left; ++k) total += static_cast<double>(lanes[k]);
        }
        total += static_cast<double>(sum_of(a[0] + a[1]));
    }
    return static_cast<float>(total);
}

void softmax_row(const float* x, const float*, float* y, std::int64_t n) {
    const float scale = 1.0f / exp_sum<true>(x, largest(x, n), y, n);
    std::int64_t i = 0;
    for (; i + Pack::kLanes <= n; i += Pack::kLanes) (Pack::load(y + i) * Pack(scale)).store(y + i);
    for (; i < n; ++i) y[i] *= scale;
}

void log_softmax_row(const float* x, const float*, float* y, std::int64_t n) {
    const float shift = largest(x, n);
    const float log_sum = std::log(exp_sum<false>(x, shift, y, n));
    std::int64_t i = 0;
    for (; i + Pack::kLanes <= n; i += Pack::kLanes)
        (Pack::load(x + i) - Pack(shift) - Pack(log_sum)).store(y + i);
    for (; i < n; ++i) y[i] = x[i] - shift - log_sum;
}

void softmax_backward_row(const float* dy, const float* y, float* dx, std::int64_t n) {
    Pack a[2] = {Pack(0.0f), Pack(0.0f)};
    std::int64_t i = 0;
    for (; i + 2 * Pack::kLanes <= n; i += 2 * Pack::kLanes) HWY_UNROLL(2)
    for (int k = 0; k < 2; ++k) {
        const std::int64_t at = i + k * Pack::kLanes;
        a[k] = fma(Pack::load(dy + at), Pack::load(y + at), a[k]);
    }
    float dot = sum_of(a[0] + a[1]);
    for (; i < n; ++i) dot += dy[i] * y[i];
    i = 0;
    for (; i + Pack::kLanes <= n; i += Pack::kLanes)
        (Pack::load(y + i) * (Pack::load(dy + i) - Pack(dot))).store(dx + i);
    for (; i < n; ++i) dx[i] = y[i] * (dy[i] - dot);
}

void log_softmax_backward_row(const float* dy, const float* y, float* dx, std::int64_t n) {
    Pack a[2] = {Pack(0.0f), Pack(0.0f)};
    std::int64_t i = 0;
    for (; i + 2 * Pack::kLanes <= n; i += 2 * Pack::kLanes) HWY_UNROLL(2)
    for (int k = 0; k < 2; ++k) a[k] = a[k] + Pack::load(dy + i + k * Pack::kLanes);
    float sum = sum_of(a[0] + a[1]);
    for (; i < n; ++i) sum += dy[i];
    for (i = 0; i < n; i += Pack::kLanes) {
        const std::int64_t left = std::min(n - i, Pack::kLanes);
        const Pack p = exp(Pack::load(y + i, left));
        (Pack::load(dy + i, left) - p * Pack(sum)).store(dx + i, left);
    }
}

// The functions below compute softmax, log softmax and their gradients over the columns of a tile
// of n rows of kTile floats. Results overwrite the first argument. kGroup columns are processed
// together, so that their running values stay in registers.
constexpr std::int64_t kTile = 64;
constexpr std::int64_t kGroup = std::min<std::int64_t>(4 * Pack::kLanes, kTile);
constexpr int kPacks = static_cast<int>(kGroup / Pack::kLanes);

HWY_INLINE void largest_down(const float* a, std::int64_t n, Pack* top) {
    HWY_UNROLL(kPacks)
    for (int k = 0; k < kPacks; ++k) top[k] = Pack::load(a + k * Pack::kLanes);
    for (std::int64_t j = 1; j < n; ++j) HWY_UNROLL(kPacks)
    for (int k = 0; k < kPacks; ++k)
        top[k] = max(top[k], Pack::load(a + j * kTile + k * Pack::kLanes));
}

void softmax_tile(float* tile, const float*, std::int64_t n) {
    for (std::int64_t c = 0; c < kTile; c += kGroup) {
        Pack top[kPacks], sum[kPacks];
        largest_down(tile + c, n, top);
        HWY_UNROLL(kPacks)
        for (int k = 0; k < kPacks; ++k) sum[k] = Pack(0.0f);
        for (std::int64_t j = 0; j < n; ++j) HWY_UNROLL(kPacks)
        for (int k = 0; k < kPacks; ++k) {
            float* p = tile + j * kTile + c + k * Pack::kLanes;
            const Pack e = exp(Pack::load(p) - top[k]);
            e.store(p);
            sum[k] = sum[k] + e;
        }
        HWY_UNROLL(kPacks)
        for (int k = 0; k < kPacks; ++k) sum[k] = Pack(1.0f) / sum[k];
        for (std::int64_t j = 0; j < n; ++j) HWY_UNROLL(kPacks)
        for (int k = 0; k < kPacks; ++k) {
            float* p = tile + j * kTile + c + k * Pack::kLanes;
            (Pack::load(p) * sum[k]).store(p);
        }
    }
}

void log_softmax_tile(float* tile, const float*, std::int64_t n) {
    for (std::int64_t c = 0; c < kTile; c += kGroup) {
        Pack top[kPacks], sum[kPacks];
        largest_down(tile + c, n, top);
        HWY_UNROLL(kPacks)
        for (int k = 0; k < kPacks; ++k) sum[k] = Pack(0.0f);
        for (std::int64_t j = 0; j < n; ++j) HWY_UNROLL(kPacks)
        for (int k = 0; k < kPacks; ++k)
            sum[k] = sum[k] + exp(Pack::load(tile + j * kTile + c + k * Pack::kLanes) - top[k]);
        HWY_UNROLL(kPacks)
        for (int k = 0; k < kPacks; ++k) sum[k] = log(sum[k]);
        for (std::int64_t j = 0; j < n; ++j) HWY_UNROLL(kPacks)
        for (int k = 0; k < kPacks; ++k) {
            float* p = tile + j * kTile + c + k * Pack::kLanes;
            (Pack::load(p) - top[k] - sum[k]).store(p);
        }
    }
}

void softmax_backward_tile(float* dy, const float* y, std::int64_t n) {
    for (std::int64_t c = 0; c < kTile; c += kGroup) {
        Pack dot[kPacks];
        HWY_UNROLL(kPacks)
        for (int k = 0; k < kPacks; ++k) dot[k] = Pack(0.0f);
        for (std::int64_t j = 0; j < n; ++j) HWY_UNROLL(kPacks)
        for (int k = 0; k < kPacks; ++k) {
            const std::int64_t at = j * kTile + c + k * Pack::kLanes;
            dot[k] = fma(Pack::load(dy + at), Pack::load(y + at), dot[k]);
        }
        for (std::int64_t j = 0; j < n; ++j) HWY_UNROLL(kPacks)
        for (int k = 0; k < kPacks; ++k) {
            const std::int64_t at = j * kTile + c + k * Pack::kLanes;
            (Pack::load(y + at) * (Pack::load(dy + at) - dot[k])).store(dy + at);
        }
    }
}

void log_softmax_backward_tile(float* dy, const float* y, std::int64_t n) {
    for (std::int64_t c = 0; c < kTile; c += kGroup) {
        Pack sum[kPacks];
        HWY_UNROLL(kPacks)
        for (int k = 0; k < kPacks; ++k) sum[k] = Pack(0.0f);
        for (std::int64_t j = 0; j < n; ++j) HWY_UNROLL(kPacks)
        for (int k = 0; k < kPacks; ++k)
            sum[k] = sum[k] + Pack::load(dy + j * kTile + c + k * Pack::kLanes);
        for (std::int64_t j = 0; j < n; ++j) HWY_UNROLL(kPacks)
        for (int k = 0; k < kPacks; ++k) {
            const std::int64_t at = j * kTile + c + k * Pack::kLanes;
            (Pack::load(dy + at) - exp(Pack::load(y + at)) * sum[k]).store(dy + at);
        }
    }
}

}  // namespace
}  // namespace axle::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

#include <array>

#include "kernels/cpu/lanes.h"
#include "kernels/cpu/rows.h"
#include "kernels/thread_pool.h"
#include "kernels/walk.h"

namespace axle::kernels {
namespace {

AXLE_DISPATCH(softmax_row);
AXLE_DISPATCH(log_softmax_row);
AXLE_DISPATCH(softmax_backward_row);
AXLE_DISPATCH(log_softmax_backward_row);
AXLE_DISPATCH(softmax_tile);
AXLE_DISPATCH(log_softmax_tile);
AXLE_DISPATCH(softmax_backward_tile);
AXLE_DISPATCH(log_softmax_backward_tile);

void softmax_row_f64(const double* x, const double*, double* y, std::int64_t n) {
    const double shift = *std::max_element(x, x + n);
    double sum = 0;
    for (std::int64_t i = 0; i < n; ++i) sum += y[i] = std::exp(x[i] - shift);
    for (std::int64_t i = 0; i < n; ++i) y[i] /= sum;
}

void log_softmax_row_f64(const double* x, const double*, double* y, std::int64_t n) {
    const double shift = *std::max_element(x, x + n);
    double sum = 0;
    for (std::int64_t i = 0; i < n; ++i) sum += std::exp(x[i] - shift);
    const double log_sum = std::log(sum);
    for (std::int64_t i = 0; i < n; ++i) y[i] = x[i] - shift - log_sum;
}

void softmax_backward_row_f64(const double* dy, const double* y, double* dx, std::int64_t n) {
    double dot = 0;
    for (std::int64_t i = 0; i < n; ++i) dot += dy[i] * y[i];
    for (std::int64_t i = 0; i < n; ++i) dx[i] = y[i] * (dy[i] - dot);
}

void log_softmax_backward_row_f64(const double* dy, const double* y, double* dx, std::int64_t n) {
    double sum = 0;
    for (std::int64_t i = 0; i < n; ++i) sum += dy[i];
    for (std::int64_t i = 0; i < n; ++i) dx[i] = dy[i] - std::exp(y[i]) * sum;
}

// Computes out = f(a, b) for one row. Forward passes ignore b.
template <class L>
using RowFunction = void (*)(const L* a, const L* b, L* out, std::int64_t n);
// Computes out = f(a, b) for the columns of a tile, and writes out to a.
using TileFunction = void (*)(float* a, const float* b, std::int64_t n);

constexpr std::int64_t kGrain = std::int64_t{1} << 15;  // minimum elements per task
constexpr std::int64_t kTasks = 64;  // maximum number of tasks; each has its own scratch memory
constexpr std::int64_t kTileWidth = 64;

// Returns the number of items to process per task, where an item has n elements.
std::int64_t items_per_task(std::int64_t items, std::int64_t n) {
    return std::max((kGrain + n - 1) / n, (items + kTasks - 1) / kTasks);
}

// The operands of a call: first one or two inputs, then the output.
template <int kInputs>
struct Operands {
    std::array<ConstView, kInputs + 1> in;
    View out;
    Rows<kInputs + 1> rows;
    std::int64_t n;

    Operands(const std::array<ConstView, kInputs + 1>& views, const View& out_)
        : in(views), out(out_), rows(views), n(out_.back(1)) {}
};

template <class L, int kInputs>
void by_rows(Cpu& on, const Operands<kInputs>& o, RowFunction<L> f) {
    const std::int64_t n = o.n, grain = items_per_task(o.rows.count(), n);
    const std::int64_t tasks = (o.rows.count() + grain - 1) / grain;
    bool direct[kInputs + 1], all_direct = true;
    for (int k = 0; k <= kInputs; ++k) {
        direct[k] = is_lanes<L>(o.in[k].dtype, o.in[k].back_stride(1), n);
        all_direct &= direct[k];
    }
    Scratch scratch(on);
    L* buffers = all_direct ? nullptr : scratch.take<L>(tasks * (kInputs + 1) * n);
    parallel_ranges(o.rows.count(), grain, [&](std::int64_t first, std::int64_t last) {
        const auto buffer = [&](std::int64_t k) -> L* {
            if (buffers == nullptr) return nullptr;
            return buffers + (first / grain * (kInputs + 1) + k) * n;
        };
        for (std::int64_t row = first; row < last; ++row) {
            const auto offset = o.rows.offsets(row);
            const L* x[2] = {nullptr, nullptr};
            for (int k = 0; k < kInputs; ++k)
                x[k] = load_lanes<L>(at(o.in[k].data, o.in[k].dtype, offset[k]), o.in[k].dtype,
                                     o.in[k].back_stride(1), n, buffer(k));
            void* out = at(o.out.data, o.out.dtype, offset[kInputs]);
            L* y = direct[kInputs] ? static_cast<L*>(out) : buffer(kInputs);
            f(x[0], x[1], y, n);
            store_lanes(y, out, o.out.dtype, o.out.back_stride(1), n);
        }
    });
}

// Loads `width` rows of x, which begin at `offset` and are `step` elements apart, as the columns of
// a tile. The other columns become 0.
void load_tile(const ConstView& x, std::int64_t offset, std::int64_t step, std::int64_t width,
               float* tile) {
    for (std::int64_t j = 0; j < x.back(1); ++j) {
        float* line = tile + j * kTileWidth;
        const void* source = at(x.data, x.dtype, offset + j * x.back_stride(1));
        const float* lanes = load_lanes<float>(source, x.dtype, step, width, line);
        if (lanes != line) std::copy(lanes, lanes + width, line);
        std::fill(line + width, line + kTileWidth, 0.0f);
    }
}

template <int kInputs>
void by_tiles(Cpu& on, const Operands<kInputs>& o, TileFunction f) {
    const std::int64_t run = o.rows.run(), blocks = (run + kTileWidth - 1) / kTileWidth;
    const std::int64_t tiles = o.rows.count() / run * blocks, size = o.n * kTileWidth;
    const std::int64_t grain = items_per_task(tiles, size);
    Scratch scratch(on);
    auto* buffers = scratch.take<float>((tiles + grain - 1) / grain * kInputs * size);
    parallel_ranges(tiles, grain, [&](std::int64_t first, std::int64_t last) {
        float* a = buffers + first / grain * kInputs * size;
        float* b = a + (kInputs - 1) * size;
        for (std::int64_t t = first; t < last; ++t) {
            const std::int64_t begin = t % blocks * kTileWidth;
            const std::int64_t width = std::min(kTileWidth, run - begin);
            const auto offset = o.rows.offsets(t / blocks * run + begin);
            load_tile(o.in[0], offset[0], o.rows.step(0), width, a);
            if (kInputs == 2) load_tile(o.in[1], offset[1], o.rows.step(1), width, b);
            f(a, b, o.n);
            for (std::int64_t j = 0; j < o.n; ++j) {
                const std::int64_t line = offset[kInputs] + j * o.out.back_stride(1);
                store_lanes(a + j * kTileWidth, at(o.out.data, o.out.dtype, line), o.out.dtype,
                            o.rows.step(kInputs), width);
            }
        }
    });
}

template <int kInputs>
void run(Cpu& on, const Operands<kInputs>& o, RowFunction<float> row, TileFunction tile,
         RowFunction<double> row_f64) {
    if (o.out.numel() == 0) return;
    if (o.out.dtype == DType::f64) return by_rows<double>(on, o, row_f64);
    const bool columns = o.in[0].back_stride(1) != 1 && o.n > 1 && o.rows.step(0) == 1;
    if (columns && o.rows.run() >= 8) return by_tiles(on, o, tile);
    by_rows<float>(on, o, row);
}

}  // namespace

void softmax(Cpu& on, ConstView x, View y) {
    run<1>(on, {{x, y}, y}, AXLE_CALL(softmax_row), AXLE_CALL(softmax_tile), softmax_row_f64);
}

void log_softmax(Cpu& on, ConstView x, View y) {
    run<1>(on, {{x, y}, y}, AXLE_CALL(log_softmax_row), AXLE_CALL(log_softmax_tile),
           log_softmax_row_f64);
}

void softmax_backward(Cpu& on, ConstView dy, ConstView y, View dx) {
    run<2>(on, {{dy, y, dx}, dx}, AXLE_CALL(softmax_backward_row), AXLE_CALL(softmax_backward_tile),
           softmax_backward_row_f64);
}

void log_softmax_backward(Cpu& on, ConstView dy, ConstView y, View dx) {
    run<2>(on, {{dy, y, dx}, dx}, AXLE_CALL(log_softmax_backward_row),
           AXLE_CALL(log_softmax_backward_tile), log_softmax_backward_row_f64);
}

}  // namespace axle::kernels

#endif  // HWY_ONCE
