// Reductions of contiguous floats. A span (a run of contiguous elements) is read four packs at a
// time, with one accumulator for each pack. Column totals stay in L1, and several rows are read
// together. Every element is read once.
#include "kernels/cpu/reduce/reduce_spans.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/reduce/reduce_spans.cpp"
#include "kernels/cpu/targets.h"
//
#include <algorithm>

#include <hwy/foreach_target.h>
//
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace axle::kernels::HWY_NAMESPACE {
namespace {

constexpr std::int64_t kSumBlock = 2048;  // elements summed in f32; block sums are added in f64

struct Plus {
    static HWY_INLINE Pack join(Pack a, Pack b) { return a + b; }
};
// Larger and Smaller select the larger or the smaller value, but NaN rather than any number.
struct Larger {
    static HWY_INLINE Pack join(Pack a, Pack b) {
        return hn::IfThenElse(hn::Or(hn::Gt(b.v, a.v), hn::IsNaN(b.v)), b.v, a.v);
    }
    static HWY_INLINE float join(float a, float b) { return b > a || b != b ? b : a; }
};
struct Smaller {
    static HWY_INLINE Pack join(Pack a, Pack b) {
        return hn::IfThenElse(hn::Or(hn::Lt(b.v, a.v), hn::IsNaN(b.v)), b.v, a.v);
    }
    static HWY_INLINE float join(float a, float b) { return b < a || b != b ? b : a; }
};

// Combines the full packs of x with a[0] to a[3]. Returns the number of elements processed.
template <class Op>
HWY_INLINE std::int64_t join_packs(const float* x, std::int64_t n, Pack* a) {
    std::int64_t i = 0;
    for (; i + 4 * Pack::kLanes <= n; i += 4 * Pack::kLanes) {
        HWY_UNROLL(4)
        for (int k = 0; k < 4; ++k) a[k] = Op::join(a[k], Pack::load(x + i + k * Pack::kLanes));
    }
    for (; i + Pack::kLanes <= n; i += Pack::kLanes) a[0] = Op::join(a[0], Pack::load(x + i));
    return i;
}

HWY_INLINE float sum_block(const float* x, std::int64_t n) {
    Pack a[4] = {Pack(0.0f), Pack(0.0f), Pack(0.0f), Pack(0.0f)};
    const std::int64_t i = join_packs<Plus>(x, n, a);
    if (i < n) a[1] = a[1] + Pack::load(x + i, n - i);
    return sum_of((a[0] + a[1]) + (a[2] + a[3]));
}

HWY_INLINE float square_block(const float* x, Pack centre, std::int64_t n) {
    Pack a[4] = {Pack(0.0f), Pack(0.0f), Pack(0.0f), Pack(0.0f)};
    std::int64_t i = 0;
    for (; i + 4 * Pack::kLanes <= n; i += 4 * Pack::kLanes) {
        HWY_UNROLL(4)
        for (int k = 0; k < 4; ++k) {
            const Pack d = Pack::load(x + i + k * Pack::kLanes) - centre;
            a[k] = fma(d, d, a[k]);
        }
    }
    for (; i + Pack::kLanes <= n; i += Pack::kLanes) {
        const Pack d = Pack::load(x + i) - centre;
        a[0] = fma(d, d, a[0]);
    }
    if (i < n) {
        float centres[Pack::kLanes];
        centre.store(centres);
        const Pack d = Pack::load(x + i, n - i) - Pack::load(centres, n - i);
        a[1] = fma(d, d, a[1]);
    }
    return sum_of((a[0] + a[1]) + (a[2] + a[3]));
}

double simd_sum_span(const float* x, std::int64_t n) {
    double total = 0;
    for (std::int64_t i = 0; i < n; i += kSumBlock)
        total += static_cast<double>(sum_block(x + i, std::min(kSumBlock, n - i)));
    return total;
}

double simd_square_span(const float* x, float centre, std::int64_t n) {
    double total = 0;
    for (std::int64_t i = 0; i < n; i += kSumBlock)
        total += static_cast<double>(square_block(x + i, Pack(centre), std::min(kSumBlock, n - i)));
    return total;
}

template <class Op>
HWY_INLINE float extreme_block(const float* x, std::int64_t n) {
    Pack a[4] = {Pack(x[0]), Pack(x[0]), Pack(x[0]), Pack(x[0])};
    std::int64_t i = join_packs<Op>(x, n, a);
    float lanes[Pack::kLanes];
    Op::join(Op::join(a[0], a[1]), Op::join(a[2], a[3])).store(lanes);
    float best = lanes[0];
    for (const float v : lanes) best = Op::join(best, v);
    for (; i < n; ++i) best = Op::join(best, x[i]);
    return best;
}
float simd_max_block(const float* x, std::int64_t n) { return extreme_block<Larger>(x, n); }
float simd_min_block(const float* x, std::int64_t n) { return extreme_block<Smaller>(x, n); }

// Adds element i of v to total[i], in f64. Only the first `left` elements are added unless kWhole.
template <bool kWhole>
HWY_INLINE void add_f64(Pack v, double* total, std::int64_t left) {
#if HWY_TARGET != HWY_SCALAR
    if (kWhole) {
        const hn::Repartition<double, FloatTag> d;
        const hn::Half<FloatTag> half;
        double* upper = total + Pack::kLanes / 2;
        const auto low = hn::PromoteTo(d, hn::LowerHalf(half, v.v));
        const auto high = hn::PromoteTo(d, hn::UpperHalf(half, v.v));
        hn::StoreU(hn::Add(hn::LoadU(d, total), low), d, total);
        hn::StoreU(hn::Add(hn::LoadU(d, upper), high), d, upper);
        return;
    }
#endif
    float lanes[Pack::kLanes];
    v.store(lanes);
    const std::int64_t count = kWhole ? Pack::kLanes : left;
    for (std::int64_t i = 0; i < count; ++i) total[i] += static_cast<double>(lanes[i]);
}

// Returns the sums of eight rows for the pack of columns that begins at c.
template <bool kWhole>
HWY_INLINE Pack sum_eight(const float* const* rows, std::int64_t c, std::int64_t left) {
    Pack v[8];
    HWY_UNROLL(8)
    for (int r = 0; r < 8; ++r) v[r] = load_part<kWhole>(rows[r] + c, left);
    return ((v[0] + v[1]) + (v[2] + v[3])) + ((v[4] + v[5]) + (v[6] + v[7]));
}
HWY_INLINE void sum_few(const float* const* rows, int count, std::int64_t width, double* total) {
    for (int r = 0; r < count; ++r) {
        std::int64_t c = 0;
        for (; c + Pack::kLanes <= width; c += Pack::kLanes)
            add_f64<true>(Pack::load(rows[r] + c), total + c, 0);
        if (c < width) add_f64<false>(Pack::load(rows[r] + c, width - c), total + c, width - c);
    }
}
void simd_sum_columns(const float* const* rows, int count, std::int64_t width, double* total) {
    if (count < 8) return sum_few(rows, count, width, total);
    // The pointers are copied, so that stores cannot change them.
    const float* const row[8] = {rows[0], rows[1], rows[2], rows[3],
                                 rows[4], rows[5], rows[6], rows[7]};
    std::int64_t c = 0;
    for (; c + Pack::kLanes <= width; c += Pack::kLanes)
        add_f64<true>(sum_eight<true>(row, c, 0), total + c, 0);
    if (c < width) add_f64<false>(sum_eight<false>(row, c, width - c), total + c, width - c);
}

template <bool kWhole>
HWY_INLINE void square_pack(const float* const* rows, int count, std::int64_t c, std::int64_t left,
                            const float* centre, double* total) {
    const Pack m = load_part<kWhole>(centre + c, left);
    Pack sum(0.0f);
    for (int r = 0; r < count; ++r) {
        const Pack d = load_part<kWhole>(rows[r] + c, left) - m;
        sum = fma(d, d, sum);
    }
    add_f64<kWhole>(sum, total + c, left);
}
void simd_square_columns(const float* const* rows, int count, std::int64_t width,
                         const float* centre, double* total) {
    std::int64_t c = 0;
    for (; c + Pack::kLanes <= width; c += Pack::kLanes)
        square_pack<true>(rows, count, c, 0, centre, total);
    if (c < width) square_pack<false>(rows, count, c, width - c, centre, total);
}

template <class Op>
HWY_INLINE void extreme_columns(const float* const* rows, int count, std::int64_t width,
                                float* total) {
    std::int64_t c = 0;
    for (; c + Pack::kLanes <= width; c += Pack::kLanes) {
        Pack best = Pack::load(total + c);
        for (int r = 0; r < count; ++r) best = Op::join(best, Pack::load(rows[r] + c));
        best.store(total + c);
    }
    for (; c < width; ++c)
        for (int r = 0; r < count; ++r) total[c] = Op::join(total[c], rows[r][c]);
}
void simd_max_columns(const float* const* rows, int count, std::int64_t width, float* total) {
    extreme_columns<Larger>(rows, count, width, total);
}
void simd_min_columns(const float* const* rows, int count, std::int64_t width, float* total) {
    extreme_columns<Smaller>(rows, count, width, total);
}

}  // namespace
}  // namespace axle::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace axle::kernels {
namespace {

AXLE_DISPATCH(simd_sum_span);
AXLE_DISPATCH(simd_square_span);
AXLE_DISPATCH(simd_max_block);
AXLE_DISPATCH(simd_min_block);
AXLE_DISPATCH(simd_sum_columns);
AXLE_DISPATCH(simd_square_columns);
AXLE_DISPATCH(simd_max_columns);
AXLE_DISPATCH(simd_min_columns);

}  // namespace

double sum_span(const float* x, std::int64_t n) { return AXLE_CALL(simd_sum_span)(x, n); }
double square_span(const float* x, float centre, std::int64_t n) {
    return AXLE_CALL(simd_square_span)(x, centre, n);
}
double sum_span(const double* x, std::int64_t n) {
    double a[4] = {};
    std::int64_t i = 0;
    for (; i + 4 <= n; i += 4)
        for (int k = 0; k < 4; ++k) a[k] += x[i + k];
    for (; i < n; ++i) a[0] += x[i];
    return (a[0] + a[1]) + (a[2] + a[3]);
}
double square_span(const double* x, double centre, std::int64_t n) {
    double a[4] = {};
    std::int64_t i = 0;
    for (; i + 4 <= n; i += 4)
        for (int k = 0; k < 4; ++k) a[k] += (x[i + k] - centre) * (x[i + k] - centre);
    for (; i < n; ++i) a[0] += (x[i] - centre) * (x[i] - centre);
    return (a[0] + a[1]) + (a[2] + a[3]);
}
float max_block(const float* x, std::int64_t n) { return AXLE_CALL(simd_max_block)(x, n); }
float min_block(const float* x, std::int64_t n) { return AXLE_CALL(simd_min_block)(x, n); }
void sum_columns(const float* const* rows, int count, std::int64_t width, double* total) {
    return AXLE_CALL(simd_sum_columns)(rows, count, width, total);
}
void square_columns(const float* const* rows, int count, std::int64_t width, const float* centre,
                    double* total) {
    return AXLE_CALL(simd_square_columns)(rows, count, width, centre, total);
}
void max_columns(const float* const* rows, int count, std::int64_t width, float* total) {
    return AXLE_CALL(simd_max_columns)(rows, count, width, total);
}
void min_columns(const float* const* rows, int count, std::int64_t width, float* total) {
    return AXLE_CALL(simd_min_columns)(rows, count, width, total);
}

}  // namespace axle::kernels

#endif  // HWY_ONCE
