// Loops of the norms: SIMD for f32, scalars for f64. Every loop reads its operands once and writes
// its result once. Affine and Gradient handle both planes (broadcast coefficients) and rows (loaded
// coefficients).
#include "kernels/cpu/norm/channel_spans.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/norm/channel_spans.cpp"
#include "kernels/cpu/targets.h"
//
#include <hwy/foreach_target.h>
//
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace axle::kernels::HWY_NAMESPACE {
namespace {

// The coefficients of a span: Same is a single coefficient for a plane, and Each has one
// coefficient for each element of a row.
struct Same {
    Pack v;
    explicit Same(const float* p) : v(*p) {}
    template <bool kWhole>
    HWY_INLINE Pack part(std::int64_t, std::int64_t) const {
        return v;
    }
};
struct Each {
    const float* p;
    explicit Each(const float* at) : p(at) {}
    template <bool kWhole>
    HWY_INLINE Pack part(std::int64_t i, std::int64_t left) const {
        return load_part<kWhole>(p + i, left);
    }
};

template <class Body>
HWY_INLINE void over(const Body& body, std::int64_t n) {
    std::int64_t i = 0;
    for (; i + Pack::kLanes <= n; i += Pack::kLanes) body.template part<true>(i, 0);
    if (i < n) body.template part<false>(i, n - i);
}

template <class Coefficient>
struct Affine {
    const float* x;
    Coefficient centre, scale, shift;
    float* y;

    template <bool kWhole>
    HWY_INLINE void part(std::int64_t i, std::int64_t left) const {
        const Pack d = load_part<kWhole>(x + i, left) - centre.template part<kWhole>(i, left);
        const Pack v =
            fma(d, scale.template part<kWhole>(i, left), shift.template part<kWhole>(i, left));
        store_part<kWhole>(v, y + i, left);
    }
};

void simd_affine_planes(const AffineSpan<float>& s, std::int64_t count, std::int64_t length) {
    for (std::int64_t p = 0; p < count; ++p)
        over(Affine<Same>{s.x + p * length, Same(s.centre + p), Same(s.scale + p),
                          Same(s.shift + p), s.y + p * length},
             length);
}
void simd_affine_row(const AffineSpan<float>& s, std::int64_t n) {
    over(Affine<Each>{s.x, Each(s.centre), Each(s.scale), Each(s.shift), s.y}, n);
}

template <class Coefficient>
struct Gradient {
    const float *dy, *x;
    Coefficient centre, a, b, c;
    float* dx;

    template <bool kWhole>
    HWY_INLINE void part(std::int64_t i, std::int64_t left) const {
        const Pack d = load_part<kWhole>(x + i, left) - centre.template part<kWhole>(i, left);
        const Pack rest =
            fma(d, b.template part<kWhole>(i, left), c.template part<kWhole>(i, left));
        const Pack v = fma(load_part<kWhole>(dy + i, left), a.template part<kWhole>(i, left), rest);
        store_part<kWhole>(v, dx + i, left);
    }
};

void simd_gradient_planes(const GradientSpan<float>& s, std::int64_t count, std::int64_t length) {
    for (std::int64_t p = 0; p < count; ++p)
        over(Gradient<Same>{s.dy + p * length, s.x + p * length, Same(s.centre + p), Same(s.a + p),
                            Same(s.b + p), Same(s.c + p), s.dx + p * length},
             length);
}
void simd_gradient_row(const GradientSpan<float>& s, std::int64_t n) {
    over(Gradient<Each>{s.dy, s.x, Each(s.centre), Each(s.a), Each(s.b), Each(s.c), s.dx}, n);
}

// Returns x - centre, with zeros after the first `left` elements unless kWhole.
template <bool kWhole>
HWY_INLINE Pack deviation(const float* x, Pack centre, std::int64_t left) {
    const Pack d = load_part<kWhole>(x, left) - centre;
    if (kWhole) return d;
    return select_or_zero(hn::FirstN(FloatTag(), static_cast<std::size_t>(left)), d);
}

// Sums g and g (x - centre) over a plane, where g is x - centre if kOwn is true, else dy.
template <bool kOwn>
struct PlaneSums {
    const float *dy, *x;
    Pack centre;
    Pack sum[2] = {Pack(0.0f), Pack(0.0f)}, product[2] = {Pack(0.0f), Pack(0.0f)};

    template <bool kWhole>
    HWY_INLINE void part(int k, std::int64_t i, std::int64_t left) {
        const Pack d = deviation<kWhole>(x + i, centre, left);
        const Pack g = kOwn ? d : load_part<kWhole>(dy + i, left);
        sum[k] = sum[k] + g;
        product[k] = fma(g, d, product[k]);
    }
};
template <bool kOwn>
HWY_INLINE void sum_planes(const float* dy, const float* x, const float* centre, std::int64_t count,
                           std::int64_t length, double* sum, double* product) {
    for (std::int64_t p = 0; p < count; ++p) {
        PlaneSums<kOwn> sums = {kOwn ? nullptr : dy + p * length, x + p * length, Pack(centre[p])};
        std::int64_t i = 0;
        for (; i + 2 * Pack::kLanes <= length; i += 2 * Pack::kLanes) {
            sums.template part<true>(0, i, 0);
            sums.template part<true>(1, i + Pack::kLanes, 0);
        }
        if (i + Pack::kLanes <= length) sums.template part<true>(0, i, 0), i += Pack::kLanes;
        if (i < length) sums.template part<false>(1, i, length - i);
        sum[p] += static_cast<double>(sum_of(sums.sum[0] + sums.sum[1]));
        product[p] += static_cast<double>(sum_of(sums.product[0] + sums.product[1]));
    }
}
void simd_span_sums_planes(const float* dy, const float* x, const float* centre, std::int64_t count,
                           std::int64_t length, double* sum, double* product) {
    if (dy == nullptr) return sum_planes<true>(dy, x, centre, count, length, sum, product);
    sum_planes<false>(dy, x, centre, count, length, sum, product);
}

template <bool kOwn>
struct ColumnSums {
    const float *const *dy, *const *x;
    int rows;
    const float* centre;
    float *sum, *product;

    template <bool kWhole>
    HWY_INLINE void part(std::int64_t i, std::int64_t left) const {
        const Pack m = load_part<kWhole>(centre + i, left);
        Pack s(0.0f), p(0.0f);
        for (int r = 0; r < rows; ++r) {
            const Pack d = load_part<kWhole>(x[r] + i, left) - m;
            const Pack g = kOwn ? d : load_part<kWhole>(dy[r] + i, left);
            s = s + g;
            p = fma(g, d, p);
        }
        store_part<kWhole>(load_part<kWhole>(sum + i, left) + s, sum + i, left);
        store_part<kWhole>(load_part<kWhole>(product + i, left) + p, product + i, left);
    }
};
void simd_span_sums_rows(const float* const* dy, const float* const* x, int rows,
                         const float* centre, std::int64_t n, float* sum, float* product) {
    if (dy == nullptr) return over(ColumnSums<true>{dy, x, rows, centre, sum, product}, n);
    over(ColumnSums<false>{dy, x, rows, centre, sum, product}, n);
}

}  // namespace
}  // namespace axle::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

#include "kernels/ops/copy.h"

namespace axle::kernels {
namespace {

AXLE_DISPATCH(simd_affine_planes);
AXLE_DISPATCH(simd_affine_row);
AXLE_DISPATCH(simd_gradient_planes);
AXLE_DISPATCH(simd_gradient_row);
AXLE_DISPATCH(simd_span_sums_planes);
AXLE_DISPATCH(simd_span_sums_rows);

}  // namespace

void affine_planes(const AffineSpan<float>& span, std::int64_t count, std::int64_t length) {
    if (length == 1) return affine_row(span, count);
    AXLE_CALL(simd_affine_planes)(span, count, length);
}
void affine_planes(const AffineSpan<double>& s, std::int64_t count, std::int64_t length) {
    for (std::int64_t p = 0; p < count; ++p)
        for (std::int64_t i = p * length; i < (p + 1) * length; ++i)
            s.y[i] = (s.x[i] - s.centre[p]) * s.scale[p] + s.shift[p];
}
void affine_row(const AffineSpan<float>& span, std::int64_t n) {
    AXLE_CALL(simd_affine_row)(span, n);
}

void span_sums_planes(const float* dy, const float* x, const float* centre, std::int64_t count,
                      std::int64_t length, double* sum, double* product) {
    if (length > 1)
        return AXLE_CALL(simd_span_sums_planes)(dy, x, centre, count, length, sum, product);
    for (std::int64_t p = 0; p < count; ++p) {
        const float d = x[p] - centre[p], g = dy == nullptr ? d : dy[p];
        sum[p] += static_cast<double>(g);
        product[p] += static_cast<double>(g * d);
    }
}
void span_sums_planes(const double* dy, const double* x, const double* centre, std::int64_t count,
                      std::int64_t length, double* sum, double* product) {
    for (std::int64_t p = 0; p < count; ++p)
        for (std::int64_t i = p * length; i < (p + 1) * length; ++i) {
            const double d = x[i] - centre[p], g = dy == nullptr ? d : dy[i];
            sum[p] += g;
            product[p] += g * d;
        }
}
void span_sums_rows(const float* const* dy, const float* const* x, int rows, const float* centre,
                    std::int64_t n, float* sum, float* product) {
    AXLE_CALL(simd_span_sums_rows)(dy, x, rows, centre, n, sum, product);
}

void gradient_planes(const GradientSpan<float>& span, std::int64_t count, std::int64_t length) {
    if (length == 1) return gradient_row(span, count);
    AXLE_CALL(simd_gradient_planes)(span, count, length);
}
void gradient_planes(const GradientSpan<double>& s, std::int64_t count, std::int64_t length) {
    for (std::int64_t p = 0; p < count; ++p)
        for (std::int64_t i = p * length; i < (p + 1) * length; ++i)
            s.dx[i] = s.a[p] * s.dy[i] + (s.b[p] * (s.x[i] - s.centre[p]) + s.c[p]);
}
void gradient_row(const GradientSpan<float>& span, std::int64_t n) {
    AXLE_CALL(simd_gradient_row)(span, n);
}

DensePlanes planes_of(Cpu& on, Scratch& scratch, const ConstView& x) {
    if (x.data == nullptr || x.contiguous()) return {x.data, x.dtype};
    View copied;
    copied.data = scratch.take<char>(x.numel() * size_of(x.dtype));
    copied.dtype = x.dtype, copied.ndim = x.ndim;
    std::int64_t stride = 1;
    for (int d = x.ndim - 1; d >= 0; stride *= x.shape[d--])
        copied.shape[d] = x.shape[d], copied.stride[d] = stride;
    copy(on, x, copied);
    return {copied.data, copied.dtype};
}

}  // namespace axle::kernels

#endif  // HWY_ONCE
