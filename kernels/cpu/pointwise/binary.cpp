// Computes y = f(a, b) for all binary formulas and comparisons, and where(). Operands are read once
// and the result is written once. Binary formulas use SIMD packs for f32 and 16-bit floats, except
// for the formulas of special_formulas.inl. Everything else is computed with scalars.
#include "kernels/ops/pointwise.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/pointwise/binary.cpp"
#include "kernels/cpu/targets.h"
//
#include <hwy/foreach_target.h>
//
#include "kernels/cpu/pointwise/formulas-inl.h"
#include "kernels/cpu/pointwise/spans.h"

HWY_BEFORE_NAMESPACE();
namespace axle::kernels::HWY_NAMESPACE {

template <class F>
void binary_span(const void* formula, const void* const* in, void* out, std::int64_t n) {
    const F f = formula_from<F>(formula);
    const float* a = static_cast<const float*>(in[0]);
    const float* b = static_cast<const float*>(in[1]);
    float* y = static_cast<float*>(out);
    std::int64_t i = 0;
    for (; i + Pack::kLanes <= n; i += Pack::kLanes)
        f.value(Pack::load(a + i), Pack::load(b + i)).store(y + i);
    if (i < n) f.value(Pack::load(a + i, n - i), Pack::load(b + i, n - i)).store(y + i, n - i);
}

#define AXLE_ROW(NAME) &binary_span<formula::NAME>,
inline constexpr Span kBinarySpans[] = {AXLE_BINARY_FORMULAS(AXLE_ROW)};
#undef AXLE_ROW

Span binary_simd_span(int formula) { return kBinarySpans[formula]; }

}  // namespace axle::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace axle::kernels {
namespace {

AXLE_DISPATCH(binary_simd_span);

#define AXLE_NUMBER(NAME) k##NAME,
enum FormulaNumber { AXLE_BINARY_FORMULAS(AXLE_NUMBER) };
#undef AXLE_NUMBER

template <class F>
constexpr int kNumber = -1;
#define AXLE_NUMBER(NAME) \
    template <>           \
    constexpr int kNumber<formula::NAME> = k##NAME;
AXLE_BINARY_FORMULAS(AXLE_NUMBER)
#undef AXLE_NUMBER

template <class F, class T>
void scalar_span(const void* f, const void* const* in, void* out, std::int64_t n) {
    const T* a = static_cast<const T*>(in[0]);
    const T* b = static_cast<const T*>(in[1]);
    T* y = static_cast<T*>(out);
    for (std::int64_t i = 0; i < n; ++i)
        y[i] = static_cast<T>(static_cast<const F*>(f)->value(a[i], b[i]));
}

template <class F>
Span integer_span_of(DType lane) {
    if (lane == DType::i64) return scalar_span<F, std::int64_t>;
    if (lane == DType::i32) return scalar_span<F, std::int32_t>;
    return scalar_span<F, std::uint8_t>;
}

template <class F>
Span span_of(DType lane) {
    if (lane == DType::f32) {
        if constexpr (requires { F::kScalarOnly; })
            return scalar_span<F, float>;
        else
            return AXLE_CALL(binary_simd_span)(kNumber<F>);
    }
    if (lane == DType::f64) return scalar_span<F, double>;
    if constexpr (F::kIntegers) return integer_span_of<F>(lane);
    return nullptr;
}

template <class F, class T>
void comparison_span(const void* f, const void* const* in, void* out, std::int64_t n) {
    const T* a = static_cast<const T*>(in[0]);
    const T* b = static_cast<const T*>(in[1]);
    auto* y = static_cast<std::uint8_t*>(out);
    for (std::int64_t i = 0; i < n; ++i) y[i] = static_cast<const F*>(f)->value(a[i], b[i]);
}

template <class F>
Span comparison_of(DType lane) {
    switch (lane) {
        case DType::i64:
            return comparison_span<F, std::int64_t>;
        case DType::i32:
            return comparison_span<F, std::int32_t>;
        case DType::u8:
            return comparison_span<F, std::uint8_t>;
        case DType::f64:
            return comparison_span<F, double>;
        default:
            return comparison_span<F, float>;
    }
}

template <class T>
void where_span(const void*, const void* const* in, void* out, std::int64_t n) {
    const auto* condition = static_cast<const std::uint8_t*>(in[0]);
    const T* a = static_cast<const T*>(in[1]);
    const T* b = static_cast<const T*>(in[2]);
    T* y = static_cast<T*>(out);
    for (std::int64_t i = 0; i < n; ++i) y[i] = condition[i] != 0 ? a[i] : b[i];
}

Span where_of(DType lane) {
    switch (lane) {
        case DType::i64:
            return where_span<std::int64_t>;
        case DType::i32:
            return where_span<std::int32_t>;
        case DType::u8:
            return where_span<std::uint8_t>;
        case DType::f64:
            return where_span<double>;
        default:
            return where_span<float>;
    }
}

}  // namespace

template <class F>
void binary(Cpu& on, F f, ConstView a, ConstView b, View y) {
    const DType lane = span_lane(a.dtype);
    const SpanInput in[] = {{a, lane}, {b, lane}};
    if constexpr (requires { F::kBitwise; })
        run_spans(on, integer_span_of<F>(lane), &f, in, 2, {y, lane});
    else if constexpr (requires { F::kIntegers; })
        run_spans(on, span_of<F>(lane), &f, in, 2, {y, lane});
    else
        run_spans(on, comparison_of<F>(lane), &f, in, 2, {y, DType::u8});
}

void where(Cpu& on, ConstView condition, ConstView a, ConstView b, View y) {
    const DType lane = span_lane(y.dtype);
    const SpanInput in[] = {{condition, DType::u8}, {a, lane}, {b, lane}};
    run_spans(on, where_of(lane), nullptr, in, 3, {y, lane});
}

#define AXLE_INSTANTIATE(NAME) \
    template void binary(Cpu&, formula::NAME, ConstView, ConstView, View);
AXLE_BINARY_FORMULAS(AXLE_INSTANTIATE)
AXLE_COMPARISON_FORMULAS(AXLE_INSTANTIATE)
AXLE_SPECIAL_BINARY_FORMULAS(AXLE_INSTANTIATE)
AXLE_BITWISE_FORMULAS(AXLE_INSTANTIATE)
#undef AXLE_INSTANTIATE

}  // namespace axle::kernels

#endif  // HWY_ONCE
