// Layer norm and RMS norm, one row at a time. A row is processed in passes (sum, deviations and
// their squares, result). The first pass reads it from memory, and later passes read it from the
// cache. An RMS norm is a layer norm with mean 0, without the pass for the sum.
//
// The backward pass reads x and dy from memory once for all gradients. Each task adds its rows to
// its own sums for weight and bias. It sums groups of 64 rows as lanes, and adds the sums of the
// groups in f64. Then the sums of all tasks are added in order. The split depends on the shape
// only.
#include "kernels/ops/norm.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/norm/norm.cpp"
#include "kernels/cpu/targets.h"
//
#include <algorithm>
#include <cmath>
#include <cstdint>

#include <hwy/foreach_target.h>
//
#include "kernels/cpu/simd-inl.h"

#ifndef AXLE_KERNELS_CPU_NORM_ROW_
#define AXLE_KERNELS_CPU_NORM_ROW_
namespace axle::kernels {
namespace {

// The operands of one row of the backward pass. If weight is null, all weights are 1. Outputs that
// are null are not written.
template <class L>
struct NormGradRow {
    const L *dy, *x, *weight;
    L mean, rstd;
    bool centred;  // false for an RMS norm
    std::int64_t n;
    L *dx, *dweight, *dbias;  // dx is overwritten; dweight and dbias are incremented
};

}  // namespace
}  // namespace axle::kernels
#endif

HWY_BEFORE_NAMESPACE();
namespace axle::kernels::HWY_NAMESPACE {
namespace {

struct NormRow {
    const float *x, *weight, *bias;
    Pack mean, rstd;
    float* y;

    template <bool kWhole>
    HWY_INLINE void part(std::int64_t i, std::int64_t left) const {
        Pack h = (load_part<kWhole>(x + i, left) - mean) * rstd;
        if (weight != nullptr) h = h * load_part<kWhole>(weight + i, left);
        if (bias != nullptr) h = h + load_part<kWhole>(bias + i, left);
        store_part<kWhole>(h, y + i, left);
    }
};

// Computes y = (x - mean) rstd weight + bias for n elements. A weight or bias that is null is left
// out.
void normalize(const float* x, float mean, float rstd, const float* weight, const float* bias,
               float* y, std::int64_t n) {
    const NormRow row = {x, weight, bias, Pack(mean), Pack(rstd), y};
    std::int64_t i = 0;
    for (; i + Pack::kLanes <= n; i += Pack::kLanes) row.part<true>(i, 0);
    if (i < n) row.part<false>(i, n - i);
}

struct Gradient {
    const NormGradRow<float> row;  // a copy, so that stores cannot change its pointers
    Pack mean, rstd;
    Pack sum_g = Pack(0.0f), sum_gh = Pack(0.0f);  // sums of g and g h, needed by dx

    // Adds a part of the row to the sums, dweight and dbias. Elements after the end of the row have
    // no effect, because their dy is 0.
    template <bool kWhole>
    HWY_INLINE void sums(std::int64_t i, std::int64_t left) {
        const Pack dy = load_part<kWhole>(row.dy + i, left);
        const Pack dyh = dy * ((load_part<kWhole>(row.x + i, left) - mean) * rstd);
        if (row.dweight != nullptr)
            store_part<kWhole>(load_part<kWhole>(row.dweight + i, left) + dyh, row.dweight + i,
                               left);
        if (row.dbias != nullptr)
            store_part<kWhole>(load_part<kWhole>(row.dbias + i, left) + dy, row.dbias + i, left);
        const Pack w = row.weight == nullptr ? Pack(1.0f) : load_part<kWhole>(row.weight + i, left);
        sum_g = fma(dy, w, sum_g);
        sum_gh = fma(dyh, w, sum_gh);
    }
    template <bool kWhole>
    HWY_INLINE void result(std::int64_t i, std::int64_t left, Pack mean_g, Pack mean_gh) const {
        Pack g = load_part<kWhole>(row.dy + i, left);
        if (row.weight != nullptr) g = g * load_part<kWhole>(row.weight + i, left);
        const Pack h = (load_part<kWhole>(row.x + i, left) - mean) * rstd;
        store_part<kWhole>(rstd * ((g - mean_g) - h * mean_gh), row.dx + i, left);
    }
};

void norm_gradient(const NormGradRow<float>& row) {
    Gradient gradient = {row, Pack(row.mean), Pack(row.rstd)};
    std::int64_t i = 0;
    for (; i + Pack::kLanes <= row.n; i += Pack::kLanes) gradient.sums<true>(i, 0);
    if (i < row.n) gradient.sums<false>(i, row.n - i);
    if (row.dx == nullptr) return;
    const float n = static_cast<float>(row.n);
    const Pack mean_g(row.centred ? sum_of(gradient.sum_g) / n : 0.0f);
    const Pack mean_gh(sum_of(gradient.sum_gh) / n);
    for (i = 0; i + Pack::kLanes <= row.n; i += Pack::kLanes)
        gradient.result<true>(i, 0, mean_g, mean_gh);
    if (i < row.n) gradient.result<false>(i, row.n - i, mean_g, mean_gh);
}

}  // namespace
}  // namespace axle::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

#include <type_traits>

#include "kernels/cpu/lanes.h"
#include "kernels/cpu/norm/channel_spans.h"
#include "kernels/cpu/reduce/reduce_spans.h"
#include "kernels/cpu/rows.h"
#include "kernels/thread_pool.h"
#include "kernels/walk.h"

namespace axle::kernels {
namespace {

AXLE_DISPATCH(normalize);
AXLE_DISPATCH(norm_gradient);

template <class L>
void normalise_row(const L* x, L mean, L rstd, const L* weight, const L* bias, L* y,
                   std::int64_t n) {
    if constexpr (std::is_same_v<L, float>) {
        AXLE_CALL(normalize)(x, mean, rstd, weight, bias, y, n);
    } else {
        for (std::int64_t i = 0; i < n; ++i) {
            const L h = (x[i] - mean) * rstd;
            y[i] = h * (weight == nullptr ? 1 : weight[i]) + (bias == nullptr ? 0 : bias[i]);
        }
    }
}

void gradient_row(const NormGradRow<float>& row) { AXLE_CALL(norm_gradient)(row); }

void gradient_row(const NormGradRow<double>& row) {
    double sum_g = 0, sum_gh = 0;
    for (std::int64_t i = 0; i < row.n; ++i) {
        const double h = (row.x[i] - row.mean) * row.rstd;
        const double g = row.weight == nullptr ? row.dy[i] : row.dy[i] * row.weight[i];
        if (row.dweight != nullptr) row.dweight[i] += row.dy[i] * h;
        if (row.dbias != nullptr) row.dbias[i] += row.dy[i];
        sum_g += g, sum_gh += g * h;
    }
    if (row.dx == nullptr) return;
    const auto n = static_cast<double>(row.n);
    const double mean_g = row.centred ? sum_g / n : 0, mean_gh = sum_gh / n;
    for (std::int64_t i = 0; i < row.n; ++i) {
        const double h = (row.x[i] - row.mean) * row.rstd;
        const double g = row.weight == nullptr ? row.dy[i] : row.dy[i] * row.weight[i];
        row.dx[i] = row.rstd * (g - mean_g - h * mean_gh);
    }
}

constexpr std::int64_t kTasks = 32;  // maximum number of tasks; each has its own scratch memory
constexpr std::int64_t kFlush = 64;  // rows summed in f32 before their sums are added in f64

std::int64_t rows_per_task(std::int64_t rows, std::int64_t n) {
    return std::max((kGrain + n - 1) / n, (rows + kTasks - 1) / kTasks);
}

// Returns a row of a view as lanes. Uses `buffer` if the row must be converted.
template <class L>
const L* load_row(const ConstView& x, std::int64_t offset, L* buffer) {
    return load_lanes<L>(at(x.data, x.dtype, offset), x.dtype, x.back_stride(1), x.back(1), buffer);
}
// Returns a weight or bias as lanes, which are in scratch memory if v must be converted. Returns
// null if v has no data.
template <class L>
const L* load_vector(Scratch& scratch, const ConstView& v, std::int64_t n) {
    if (v.data == nullptr) return nullptr;
    return load_lanes<L>(v.data, v.dtype, v.stride[0], n, scratch.take<L>(n));
}

// The mean and the variance of a row. In layer norm, the sum of the deviations corrects the
// rounding error of the mean. In RMS norm, mean is 0 and variance is the mean square.
struct RowMoments {
    double mean = 0, variance = 0;
};
template <class L>
RowMoments moments_of(const L* x, std::int64_t n, bool centred) {
    const auto count = static_cast<double>(n);
    if (!centred) return {0, square_span(x, L(0), n) / count};
    const L centre = static_cast<L>(sum_span(x, n) / count);
    double sum = 0, square = 0;
    for (std::int64_t i = 0; i < n; i += kPiece)
        span_sums_planes(static_cast<const L*>(nullptr), x + i, &centre, 1, std::min(kPiece, n - i),
                         &sum, &square);
    const double off = sum / count;
    return {static_cast<double>(centre) + off, std::max(square / count - off * off, 0.0)};
}

// Normalizes all rows. `mean` has no data for an RMS norm.
template <class L>
void forward(Cpu& on, const ConstView& x, const ConstView& weight, const ConstView& bias,
             double eps, const View& y, const View& mean, const View& rstd) {
    const Rows<2> rows({x, y});
    const std::int64_t n = x.back(1), grain = rows_per_task(rows.count(), n);
    Scratch scratch(on);
    const L* w = load_vector<L>(scratch, weight, n);
    const L* b = load_vector<L>(scratch, bias, n);
    const bool direct = is_lanes<L>(y.dtype, y.back_stride(1), n);
    L* buffers = scratch.take<L>((rows.count() + grain - 1) / grain * 2 * n);
    parallel_ranges(rows.count(), grain, [&](std::int64_t first, std::int64_t last) {
        L* buffer = buffers + first / grain * 2 * n;
        for (std::int64_t row = first; row < last; ++row) {
            const auto offset = rows.offsets(row);
            const L* from = load_row<L>(x, offset[0], buffer);
            void* out = at(y.data, y.dtype, offset[1]);
            L* to = direct ? static_cast<L*>(out) : buffer + n;
            const RowMoments moments = moments_of(from, n, mean.data != nullptr);
            const L m = static_cast<L>(moments.mean);
            const L r = static_cast<L>(1 / std::sqrt(moments.variance + eps));
            if (mean.data != nullptr) mean.as<L>()[row] = m;
            rstd.as<L>()[row] = r;
            normalise_row(from, m, r, w, b, to, n);
            store_lanes(to, out, y.dtype, y.back_stride(1), n);
        }
    });
}

// The sums of one or more tasks. Each task has n sums for dweight, followed by n sums for dbias.
template <class L>
struct VectorSums {
    L* recent;      // sums of fewer than kFlush rows
    double* total;  // sums of all earlier rows

    void clear(std::int64_t count) const {
        std::fill(recent, recent + count, L(0));
        std::fill(total, total + count, 0.0);
    }
    void flush(std::int64_t count) const {
        for (std::int64_t i = 0; i < count; ++i) total[i] += static_cast<double>(recent[i]);
        std::fill(recent, recent + count, L(0));
    }
};

// Adds the sums of all tasks in order, and writes dweight and dbias.
template <class L>
void gather_sums(const VectorSums<L>& sums, std::int64_t tasks, std::int64_t n, const View& dweight,
                 const View& dbias) {
    parallel_ranges(2 * n, std::max<std::int64_t>(64, kGrain / tasks),
                    [&](std::int64_t first, std::int64_t last) {
                        for (std::int64_t i = first; i < last; ++i) {
                            const View& out = i < n ? dweight : dbias;
                            if (out.data == nullptr) continue;
                            double total = 0;
                            for (std::int64_t t = 0; t < tasks; ++t)
                                total += sums.total[t * 2 * n + i];
                            out.as<L>()[i % n] = static_cast<L>(total);
                        }
                    });
}

template <class L>
void backward(Cpu& on, const ConstView& dy, const ConstView& x, const ConstView& weight,
              const ConstView& mean, const ConstView& rstd, const View& dx, const View& dweight,
              const View& dbias) {
    const Rows<3> rows({x, dy, dx.data == nullptr ? x : ConstView(dx)});
    const std::int64_t n = x.back(1), grain = rows_per_task(rows.count(), n);
    const std::int64_t tasks = (rows.count() + grain - 1) / grain;
    Scratch scratch(on);
    const L* w = load_vector<L>(scratch, weight, n);
    const bool direct = dx.data != nullptr && is_lanes<L>(dx.dtype, dx.back_stride(1), n);
    L* buffers = scratch.take<L>(tasks * 3 * n);
    const VectorSums<L> sums = {scratch.take<L>(tasks * 2 * n),
                                scratch.take<double>(tasks * 2 * n)};
    parallel_ranges(rows.count(), grain, [&](std::int64_t first, std::int64_t last) {
        const std::int64_t task = first / grain;
        L* buffer = buffers + task * 3 * n;
        const VectorSums<L> own = {sums.recent + task * 2 * n, sums.total + task * 2 * n};
        own.clear(2 * n);
        for (std::int64_t row = first; row < last; ++row) {
            const auto offset = rows.offsets(row);
            void* out = dx.data == nullptr ? nullptr : at(dx.data, dx.dtype, offset[2]);
            NormGradRow<L> g;
            g.x = load_row<L>(x, offset[0], buffer);
            g.dy = load_row<L>(dy, offset[1], buffer + n);
            g.weight = w, g.n = n, g.centred = mean.data != nullptr;
            g.mean = g.centred ? mean.as<L>()[row] : L(0), g.rstd = rstd.as<L>()[row];
            g.dx = direct || out == nullptr ? static_cast<L*>(out) : buffer + 2 * n;
            g.dweight = dweight.data == nullptr ? nullptr : own.recent;
            g.dbias = dbias.data == nullptr ? nullptr : own.recent + n;
            gradient_row(g);
            if (out != nullptr) store_lanes(g.dx, out, dx.dtype, dx.back_stride(1), n);
            if ((row - first) % kFlush == kFlush - 1) own.flush(2 * n);
        }
        own.flush(2 * n);
    });
    gather_sums(sums, tasks, n, dweight, dbias);
}

}  // namespace

void layer_norm(Cpu& on, ConstView x, ConstView weight, ConstView bias, double eps, View y,
                View mean, View rstd) {
    if (x.numel() == 0) return;
    visit_f32_f64(rstd.dtype,
                  [&]<class L>() { forward<L>(on, x, weight, bias, eps, y, mean, rstd); });
}

void rms_norm(Cpu& on, ConstView x, ConstView weight, double eps, View y, View rstd) {
    layer_norm(on, x, weight, {}, eps, y, {}, rstd);
}

void layer_norm_backward(Cpu& on, ConstView dy, ConstView x, ConstView weight, ConstView mean,
                         ConstView rstd, View dx, View dweight, View dbias) {
    visit_f32_f64(rstd.dtype, [&]<class L>() {
        if (x.numel() > 0) return backward<L>(on, dy, x, weight, mean, rstd, dx, dweight, dbias);
        for (const View& v : {dweight, dbias})
            if (v.data != nullptr) std::fill_n(v.as<L>(), x.back(1), L(0));
    });
}

void rms_norm_backward(Cpu& on, ConstView dy, ConstView x, ConstView weight, ConstView rstd,
                       View dx, View dweight) {
    layer_norm_backward(on, dy, x, weight, {}, rstd, dx, dweight, {});
}

}  // namespace axle::kernels

#endif  // HWY_ONCE
