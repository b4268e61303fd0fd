// Computes y = value(x), dx = dy slope(v) and out = curve(v) for all unary formulas. Operands are
// read once and the result is written once. f32 and 16-bit floats use SIMD packs, except for the
// formulas of special_formulas.inl. Everything else uses scalars.
#include "kernels/ops/pointwise.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/pointwise/unary.cpp"
#include "kernels/cpu/targets.h"
//
#include <hwy/foreach_target.h>
//
#include "kernels/cpu/pointwise/formulas-inl.h"
#include "kernels/cpu/pointwise/spans.h"

HWY_BEFORE_NAMESPACE();
namespace axle::kernels::HWY_NAMESPACE {

// Computes the values of a span. The elements after the last full pack are computed in a pack, too,
// so that an element's bits do not depend on its position.
template <class F>
void value_span(const void* formula, const void* const* in, void* out, std::int64_t n) {
    const F f = formula_from<F>(formula);
    const float* x = static_cast<const float*>(in[0]);
    float* y = static_cast<float*>(out);
    std::int64_t i = 0;
    for (; i + Pack::kLanes <= n; i += Pack::kLanes) f.value(Pack::load(x + i)).store(y + i);
    if (i < n) f.value(Pack::load(x + i, n - i)).store(y + i, n - i);
}

template <class F>
void slope_span(const void* formula, const void* const* in, void* out, std::int64_t n) {
    const F f = formula_from<F>(formula);
    const float* dy = static_cast<const float*>(in[0]);
    const float* v = static_cast<const float*>(in[1]);
    float* dx = static_cast<float*>(out);
    std::int64_t i = 0;
    for (; i + Pack::kLanes <= n; i += Pack::kLanes)
        (Pack::load(dy + i) * f.slope(Pack::load(v + i))).store(dx + i);
    if (i < n) {
        const Pack slope = f.slope(Pack::load(v + i, n - i));
        (Pack::load(dy + i, n - i) * slope).store(dx + i, n - i);
    }
}

template <class F>
void curve_span(const void* formula, const void* const* in, void* out, std::int64_t n) {
    const F f = formula_from<F>(formula);
    const float* v = static_cast<const float*>(in[0]);
    float* y = static_cast<float*>(out);
    std::int64_t i = 0;
    for (; i + Pack::kLanes <= n; i += Pack::kLanes) f.curve(Pack::load(v + i)).store(y + i);
    if (i < n) f.curve(Pack::load(v + i, n - i)).store(y + i, n - i);
}

// A function for each formula, so that the linker drops the formulas that a program does not use.
#define AXLE_SPANS(NAME)                                                                        \
    const Span* NAME##_spans() {                                                                \
        static constexpr Span kSpans[] = {value_span<formula::NAME>, slope_span<formula::NAME>, \
                                          curve_span<formula::NAME>};                           \
        return kSpans;                                                                          \
    }
AXLE_UNARY_FORMULAS(AXLE_SPANS)
#undef AXLE_SPANS

}  // namespace axle::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace axle::kernels {
namespace {

// Returns the spans of f32 for this CPU that compute the value, the slope and the curve.
template <class F>
const Span* simd_spans();
#define AXLE_SPANS(NAME)                      \
    AXLE_DISPATCH(NAME##_spans);              \
    template <>                               \
    const Span* simd_spans<formula::NAME>() { \
        return AXLE_CALL(NAME##_spans)();     \
    }
AXLE_UNARY_FORMULAS(AXLE_SPANS)
#undef AXLE_SPANS

template <class F, class T>
void scalar_value(const void* f, const void* const* in, void* out, std::int64_t n) {
    const T* x = static_cast<const T*>(in[0]);
    T* y = static_cast<T*>(out);
    for (std::int64_t i = 0; i < n; ++i)
        y[i] = static_cast<T>(static_cast<const F*>(f)->value(x[i]));
}

template <class F, class T>
void scalar_slope(const void* f, const void* const* in, void* out, std::int64_t n) {
    const T* dy = static_cast<const T*>(in[0]);
    const T* v = static_cast<const T*>(in[1]);
    T* dx = static_cast<T*>(out);
    for (std::int64_t i = 0; i < n; ++i) dx[i] = dy[i] * static_cast<const F*>(f)->slope(v[i]);
}

template <class F, class T>
void scalar_curve(const void* f, const void* const* in, void* out, std::int64_t n) {
    const T* v = static_cast<const T*>(in[0]);
    T* y = static_cast<T*>(out);
    for (std::int64_t i = 0; i < n; ++i) y[i] = static_cast<const F*>(f)->curve(v[i]);
}

// Returns the span of f32 that computes the value (0), the slope (1) or the curve (2).
template <class F>
Span f32_span(int what) {
    if constexpr (requires { F::kScalarOnly; }) {
        constexpr Span kSpans[] = {scalar_value<F, float>, scalar_slope<F, float>,
                                   scalar_curve<F, float>};
        return kSpans[what];
    } else {
        return simd_spans<F>()[what];
    }
}

template <class F>
Span value_of(DType lane) {
    if (lane == DType::f32) return f32_span<F>(0);
    if constexpr (F::kIntegers) {
        if (lane == DType::i64) return scalar_value<F, std::int64_t>;
        if (lane == DType::i32) return scalar_value<F, std::int32_t>;
        if (lane == DType::u8) return scalar_value<F, std::uint8_t>;
    }
    return scalar_value<F, double>;
}

}  // namespace

template <class F>
void unary(Cpu& on, F f, ConstView x, View y) {
    const DType lane = span_lane(x.dtype);
    const SpanInput in[] = {{x, lane}};
    run_spans(on, value_of<F>(lane), &f, in, 1, {y, lane});
}

template <class F>
void unary_slope(Cpu& on, F f, ConstView dy, ConstView v, View dx) {
    const DType lane = lane_dtype(v.dtype);
    const SpanInput in[] = {{dy, lane}, {v, lane}};
    const Span span = lane == DType::f32 ? f32_span<F>(1) : scalar_slope<F, double>;
    run_spans(on, span, &f, in, 2, {dx, lane});
}

template <class F>
void unary_curve(Cpu& on, F f, ConstView v, View out) {
    const DType lane = lane_dtype(v.dtype);
    const SpanInput in[] = {{v, lane}};
    const Span span = lane == DType::f32 ? f32_span<F>(2) : scalar_curve<F, double>;
    run_spans(on, span, &f, in, 1, {out, lane});
}

#define AXLE_INSTANTIATE(NAME)                                                  \
    template void unary(Cpu&, formula::NAME, ConstView, View);                  \
    template void unary_slope(Cpu&, formula::NAME, ConstView, ConstView, View); \
    template void unary_curve(Cpu&, formula::NAME, ConstView, View);
AXLE_UNARY_FORMULAS(AXLE_INSTANTIATE)
AXLE_SPECIAL_FORMULAS(AXLE_INSTANTIATE)
#undef AXLE_INSTANTIATE

}  // namespace axle::kernels

#endif  // HWY_ONCE
