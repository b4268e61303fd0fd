// A pack of floats with the operators and functions that formulas use, for the current SIMD target.
//
// Highway's foreach_target.h (see kernels/cpu/targets.h) includes this file once per target; the
// toggle below is its include guard.
#if defined(AXLE_KERNELS_CPU_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef AXLE_KERNELS_CPU_SIMD_INL_H_
#undef AXLE_KERNELS_CPU_SIMD_INL_H_
#else
#define AXLE_KERNELS_CPU_SIMD_INL_H_
#endif

#include <cmath>
#include <cstdint>

#include <hwy/highway.h>

#include "kernels/half.h"

HWY_BEFORE_NAMESPACE();
namespace axle::kernels::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using FloatTag = hn::ScalableTag<float>;
using IntTag = hn::ScalableTag<std::int32_t>;

// The type of a vector in a class or an array. The vector types of SVE have no size, so they cannot
// be members or elements. With -msve-vector-bits, GCC and Clang convert them to types that have
// one.
#if HWY_TARGET == HWY_SVE_256 || HWY_TARGET == HWY_SVE2_128
template <class Lane>
struct SizedVector;
#define AXLE_SIZED_VECTOR(LANE, VECTOR)                                                   \
    template <>                                                                           \
    struct SizedVector<LANE> {                                                            \
        typedef VECTOR type __attribute__((arm_sve_vector_bits(__ARM_FEATURE_SVE_BITS))); \
    }
AXLE_SIZED_VECTOR(float, svfloat32_t);
AXLE_SIZED_VECTOR(double, svfloat64_t);
AXLE_SIZED_VECTOR(std::int32_t, svint32_t);
AXLE_SIZED_VECTOR(std::uint32_t, svuint32_t);
AXLE_SIZED_VECTOR(std::uint8_t, svuint8_t);
#undef AXLE_SIZED_VECTOR
template <class Tag>
using StoredVec = typename SizedVector<hn::TFromD<Tag>>::type;
typedef svbool_t SizedMask __attribute__((arm_sve_vector_bits(__ARM_FEATURE_SVE_BITS)));
template <class>
using StoredMask = SizedMask;
#else
template <class Tag>
using StoredVec = hn::Vec<Tag>;
template <class Tag>
using StoredMask = hn::Mask<Tag>;
#endif

// Loads the first n elements, where n is at most the size of a vector. All other lanes are zero.
// Unlike hn::MaskedLoad(), does not read beyond these elements on targets without masked loads.
template <class Tag>
HWY_INLINE hn::Vec<Tag> load_first(Tag d, const hn::TFromD<Tag>* p, std::int64_t n) {
#if HWY_MEM_OPS_MIGHT_FAULT && HWY_TARGET != HWY_AVX2
    HWY_ALIGN hn::TFromD<Tag> lanes[hn::MaxLanes(Tag())] = {};
    for (std::int64_t i = 0; i < n; ++i) lanes[i] = p[i];
    return hn::Load(d, lanes);
#else
    return hn::MaskedLoad(hn::FirstN(d, static_cast<std::size_t>(n)), d, p);
#endif
}

// Stores the first n lanes, where n is at most the size of a vector. Unlike hn::BlendedStore(),
// does not access the other elements on targets without masked stores: another thread can write
// them.
template <class Tag>
HWY_INLINE void store_first(hn::Vec<Tag> v, Tag d, hn::TFromD<Tag>* p, std::int64_t n) {
#if HWY_MEM_OPS_MIGHT_FAULT && HWY_TARGET != HWY_AVX2
    HWY_ALIGN hn::TFromD<Tag> lanes[hn::MaxLanes(Tag())];
    hn::Store(v, d, lanes);
    for (std::int64_t i = 0; i < n; ++i) p[i] = lanes[i];
#else
    hn::BlendedStore(v, hn::FirstN(d, static_cast<std::size_t>(n)), d, p);
#endif
}

// Loads 2 n elements, where n is the size of a vector: the even ones and the odd ones.
template <class Tag>
HWY_INLINE void load_interleaved(Tag d, const hn::TFromD<Tag>* p, StoredVec<Tag>& even,
                                 StoredVec<Tag>& odd) {
    hn::Vec<Tag> first, second;
    hn::LoadInterleaved2(d, p, first, second);
    even = first, odd = second;
}

// The distance, in elements, from the current element of a long contiguous pass over memory to the
// element that is prefetched. The CPU itself prefetches less far ahead; a sum of squares was 1.4
// times slower.
inline constexpr std::int64_t kPrefetch = 512;

// Functions of Highway that are templates need this type, not StoredVec<FloatTag>.
using Vector = hn::Vec<FloatTag>;

struct Pack {
    using Vec = StoredVec<FloatTag>;
    static constexpr std::int64_t kLanes = hn::MaxLanes(FloatTag());

    Vec v;

    Pack() = default;
    HWY_INLINE Pack(Vector x) : v(x) {}  // NOLINT
    HWY_INLINE explicit Pack(float x) : v(hn::Set(FloatTag(), x)) {}
    HWY_INLINE explicit Pack(double x) : Pack(static_cast<float>(x)) {}
    HWY_INLINE explicit Pack(int x) : Pack(static_cast<float>(x)) {}

    static HWY_INLINE Pack load(const float* p) { return hn::LoadU(FloatTag(), p); }
    // Loads the first n <= kLanes elements. All other lanes are zero.
    static HWY_INLINE Pack load(const float* p, std::int64_t n) {
        return load_first(FloatTag(), p, n);
    }
    HWY_INLINE void store(float* p) const { hn::StoreU(v, FloatTag(), p); }
    // Stores the first n <= kLanes lanes.
    HWY_INLINE void store(float* p, std::int64_t n) const { store_first(v, FloatTag(), p, n); }

    friend HWY_INLINE Pack operator+(Pack a, Pack b) { return hn::Add(a.v, b.v); }
    friend HWY_INLINE Pack operator-(Pack a, Pack b) { return hn::Sub(a.v, b.v); }
    friend HWY_INLINE Pack operator*(Pack a, Pack b) { return hn::Mul(a.v, b.v); }
    friend HWY_INLINE Pack operator/(Pack a, Pack b) { return hn::Div(a.v, b.v); }

    // A mask, with one bool per lane.
    using Mask = hn::Mask<FloatTag>;
    friend HWY_INLINE Mask operator==(Pack a, Pack b) { return hn::Eq(a.v, b.v); }
    friend HWY_INLINE Mask operator!=(Pack a, Pack b) { return hn::Ne(a.v, b.v); }
    friend HWY_INLINE Mask operator<(Pack a, Pack b) { return hn::Lt(a.v, b.v); }
    friend HWY_INLINE Mask operator<=(Pack a, Pack b) { return hn::Le(a.v, b.v); }
    friend HWY_INLINE Mask operator>(Pack a, Pack b) { return hn::Gt(a.v, b.v); }
    friend HWY_INLINE Mask operator>=(Pack a, Pack b) { return hn::Ge(a.v, b.v); }
    friend HWY_INLINE Pack select(Mask m, Pack yes, Pack no) {
        return hn::IfThenElse(m, yes.v, no.v);
    }
    friend HWY_INLINE Pack select_or_zero(Mask m, Pack yes) {
        return hn::IfThenElseZero(m, Vector(yes.v));
    }
    friend HWY_INLINE Mask is_nan(Pack a) { return hn::IsNaN(a.v); }
};

// Loads a pack, or only its first `left` elements unless kWhole is true.
template <bool kWhole>
HWY_INLINE Pack load_part(const float* p, std::int64_t left) {
    return kWhole ? Pack::load(p) : Pack::load(p, left);
}
// Stores a pack, or only its first `left` elements unless kWhole is true.
template <bool kWhole>
HWY_INLINE void store_part(Pack v, float* p, std::int64_t left) {
    if (kWhole)
        v.store(p);
    else
        v.store(p, left);
}

// Returns a * b + c.
HWY_INLINE Pack fma(Pack a, Pack b, Pack c) { return hn::MulAdd(a.v, b.v, c.v); }
HWY_INLINE Pack max(Pack a, Pack b) { return hn::Max(a.v, b.v); }
HWY_INLINE Pack min(Pack a, Pack b) { return hn::Min(a.v, b.v); }
HWY_INLINE Pack sqrt(Pack a) { return hn::Sqrt(a.v); }
HWY_INLINE Pack abs(Pack a) { return hn::Abs(a.v); }
HWY_INLINE Pack floor(Pack a) { return hn::Floor(a.v); }
HWY_INLINE Pack ceil(Pack a) { return hn::Ceil(a.v); }
HWY_INLINE Pack trunc(Pack a) { return hn::Trunc(a.v); }
HWY_INLINE Pack rint(Pack a) { return hn::Round(a.v); }  // halfway numbers become even
HWY_INLINE Pack copy_sign(Pack magnitude, Pack sign) {
    return hn::CopySign(Vector(magnitude.v), Vector(sign.v));
}
HWY_INLINE float sum_of(Pack a) { return hn::GetLane(hn::SumOfLanes(FloatTag(), Vector(a.v))); }
HWY_INLINE float max_of(Pack a) { return hn::GetLane(hn::MaxOfLanes(FloatTag(), Vector(a.v))); }

// Returns x 2^n for integer n in [-252, 254]. Without an instruction for it, it is computed in two
// steps, so that results can be subnormal.
HWY_INLINE Pack scale_by_power_of_two(Pack x, Pack n) {
#if HWY_TARGET <= HWY_AVX3
    return Vector{_mm512_scalef_ps(Vector(x.v).raw, Vector(n.v).raw)};
#else
    const IntTag di;
    const auto whole = hn::ConvertTo(di, n.v);
    const auto half = hn::ShiftRight<1>(whole);
    const auto bias = hn::Set(di, 127);
    const auto first = hn::BitCast(FloatTag(), hn::ShiftLeft<23>(hn::Add(half, bias)));
    const auto second =
        hn::BitCast(FloatTag(), hn::ShiftLeft<23>(hn::Add(hn::Sub(whole, half), bias)));
    return hn::Mul(hn::Mul(x.v, first), second);
#endif
}

// Returns e^x within 1.1 ulp. x = n ln 2 + r, with ln 2 split into two parts; e^r is the minimax
// polynomial of Cephes' expf on [-ln2/2, ln2/2]. If x <= -104, 0 is scaled instead of e^r. (The
// scores of hidden keys are -infinity, and a result that underflows is slow on Intel CPUs, because
// microcode computes it.)
HWY_INLINE Pack exp(Pack x) {
    const Pack clamped = max(min(x, Pack(89.0f)), Pack(-104.0f));
    const Pack n = rint(clamped * Pack(1.44269504088896341f));
    Pack r = fma(n, Pack(-0.693145751953125f), clamped);
    r = fma(n, Pack(-1.42860682030941723e-6f), r);
    Pack p = Pack(1.9875691500e-4f);
    p = fma(p, r, Pack(1.3981999507e-3f));
    p = fma(p, r, Pack(8.3334519073e-3f));
    p = fma(p, r, Pack(4.1665795894e-2f));
    p = fma(p, r, Pack(1.6666665459e-1f));
    p = fma(p, r, Pack(5.0000001201e-1f));
    p = fma(p * r, r, r);
    p = select_or_zero(x > Pack(-104.0f), p + Pack(1.0f));
    return select(is_nan(x), x, scale_by_power_of_two(p, n));
}

// Returns ln x within 1 ulp. x = 2^e m with m in [sqrt(1/2), sqrt(2)), and ln m = 2 atanh(s) with s
// = (m - 1) / (m + 1).
HWY_INLINE Pack log(Pack x) {
    const IntTag di;
    const auto tiny = hn::Lt(x.v, hn::Set(FloatTag(), 0x1p-126f));
    const Pack scaled = hn::IfThenElse(tiny, hn::Mul(x.v, hn::Set(FloatTag(), 0x1p23f)), x.v);
    const auto bits = hn::BitCast(di, scaled.v);
    const auto shifted = hn::Sub(bits, hn::Set(di, 0x3f3504f3));  // the bits of sqrt(1/2)
    Pack e = hn::ConvertTo(FloatTag(), hn::ShiftRight<23>(shifted));
    e = e - select(tiny, Pack(23.0f), Pack(0.0f));
    const Pack m = hn::BitCast(
        FloatTag(), hn::Add(hn::And(shifted, hn::Set(di, 0x007fffff)), hn::Set(di, 0x3f3504f3)));
    const Pack f = m - Pack(1.0f);
    const Pack s = f / (m + Pack(1.0f));
    const Pack z = s * s;
    Pack p = Pack(0.24279078841f);
    p = fma(p, z, Pack(0.28498786688f));
    p = fma(p, z, Pack(0.40000972152f));
    p = fma(p, z, Pack(0.66666662693f));
    const Pack half_square = Pack(0.5f) * f * f;
    // The formula ln m = f - (half_square - s (half_square + z p)) preserves the bits of f.
    const Pack tail = s * fma(p, z, half_square);
    const Pack low = fma(e, Pack(1.42860682030941723e-6f), tail);
    Pack y = fma(e, Pack(0.693145751953125f), f - (half_square - low));
    y = select(x == Pack(INFINITY), x, y);
    y = select(x < Pack(0.0f), Pack(NAN), y);
    y = select(x == Pack(0.0f), Pack(-INFINITY), y);
    return select(is_nan(x), x, y);
}

// Returns ln(1 + x) within 3 ulp. The rounding error of 1 + x is added to the result to first order
// (Goldberg, "What every computer scientist should know about floating-point arithmetic", 1991).
HWY_INLINE Pack log1p(Pack x) {
    const Pack u = Pack(1.0f) + x, rounded = u - Pack(1.0f), y = log(u);
    return select(rounded == x, y, y + (x - rounded) / u);
}

// Returns e^x - 1 within 4 ulp, as (u - 1) x / ln u with u = e^x rounded (Higham, "Accuracy and
// Stability of Numerical Algorithms", 1.14.1). If x > 20, where 1 is less than half an ulp of u,
// returns u - 1, because the product overflows above 84.
HWY_INLINE Pack expm1(Pack x) {
    const Pack u = exp(x), difference = u - Pack(1.0f);
    Pack y = select(u == Pack(1.0f), x, difference * x / log(u));
    y = select(difference == Pack(-1.0f), difference, y);
    return select(x > Pack(20.0f), difference, y);
}

// Returns tanh x within 2 ulp: an odd minimax polynomial if |x| is below 0.625, and 1 - 2 /
// (e^(2|x|) + 1) above.
HWY_INLINE Pack tanh(Pack x) {
    const Pack a = abs(x);
    const Pack z = x * x;
    Pack p = Pack(-5.70498872745e-3f);
    p = fma(p, z, Pack(2.06390887954e-2f));
    p = fma(p, z, Pack(-5.37397155531e-2f));
    p = fma(p, z, Pack(1.33314422036e-1f));
    p = fma(p, z, Pack(-3.33332819422e-1f));
    const Pack small = fma(p * z, x, x);
    const Pack large = Pack(1.0f) - Pack(2.0f) / (exp(a + a) + Pack(1.0f));
    return select(a < Pack(0.625f), small, copy_sign(large, x));
}

// Returns erf x within 1.5 ulp, computed with polynomials in x^2 and in |x|.
HWY_INLINE Pack erf(Pack x) {
    const Pack a = abs(x);
    const Pack z = x * x;
    // If |x| > 0.921875, erf |x| = 1 - exp(q(|x|)).
    Pack q = Pack(-1.72853470e-5f);
    q = fma(q, a, Pack(3.83197126e-4f));
    q = fma(q, a, Pack(-3.88396438e-3f));
    q = fma(q, a, Pack(2.42546219e-2f));
    q = fma(q, a, Pack(-1.06777877e-1f));
    q = fma(q, a, Pack(-6.34846687e-1f));
    q = fma(q, a, Pack(-1.28717512e-1f));
    q = fma(q, a, Pack(0.0f) - a);
    const Pack large = Pack(1.0f) - exp(max(q, Pack(-30.0f)));
    Pack p = Pack(-5.96761703e-4f);
    p = fma(p, z, Pack(4.99119423e-3f));
    p = fma(p, z, Pack(-2.67681349e-2f));
    p = fma(p, z, Pack(1.12819925e-1f));
    p = fma(p, z, Pack(-3.76125336e-1f));
    p = fma(p, z, Pack(1.28379166e-1f));
    const Pack small = fma(p, x, x);
    const Pack y = select(a > Pack(0.921875f), copy_sign(large, x), small);
    return select(is_nan(x), x, y);
}

// The distribution function Phi and the density phi of the standard normal distribution at -a, for
// a >= 0: Phi(-a) = power q t, and phi(a) = power / sqrt(2 pi), so that both need only one exp.
struct NormalTail {
    Pack power;  // exp(-a^2 / 2)
    Pack q, t;   // a polynomial in t, and t = 1 / (1 + 11 a / 32)
};

// The polynomial was fitted for the smallest relative error of Phi(-a) until a = 14.5.
HWY_INLINE NormalTail normal_tail(Pack a) {
    const Pack t = Pack(1.0f) / fma(a, Pack(0.34375f), Pack(1.0f));
    Pack p = Pack(-0.0275822431f);
    p = fma(p, t, Pack(0.142804191f));
    p = fma(p, t, Pack(-0.269681036f));
    p = fma(p, t, Pack(0.188743845f));
    p = fma(p, t, Pack(-0.0379081704f));
    p = fma(p, t, Pack(0.112107493f));
    p = fma(p, t, Pack(0.116869576f));
    p = fma(p, t, Pack(0.137525812f));
    p = fma(p, t, Pack(0.137120545f));
    return {exp(Pack(-0.5f) * a * a), p, t};
}

// Returns Phi(x). The absolute error is below 2e-7. For x in [-9, 0), the relative error is below
// 4e-6.
HWY_INLINE Pack normal_cdf(Pack x) {
    const NormalTail at = normal_tail(abs(x));
    const Pack negative = at.power * (at.q * at.t);
    return select(x < Pack(0.0f), negative, Pack(1.0f) - negative);
}

// Returns the derivative of x Phi(x), Phi(x) + x phi(x). The error is below 3e-7.
HWY_INLINE Pack gelu_slope(Pack x) {
    const Pack a = abs(x);
    const NormalTail at = normal_tail(a);
    const Pack negative = at.power * fma(at.q, at.t, Pack(-0.398942280f) * a);
    return select(x < Pack(0.0f), negative, Pack(1.0f) - negative);
}

// Returns x^y, computed lane by lane with the C library. It is used rarely, so accuracy is more
// important than speed.
HWY_INLINE Pack pow(Pack x, Pack y) {
    float base[Pack::kLanes], exponent[Pack::kLanes];
    x.store(base);
    y.store(exponent);
    for (std::int64_t i = 0; i < Pack::kLanes; ++i) base[i] = std::pow(base[i], exponent[i]);
    return Pack::load(base);
}

// Stores a pack as bf16, rounded with integer arithmetic: adds 0x7fff plus the lowest bit of the
// upper half, then discards the lower half. NaN keeps its upper half, with the quiet bit set. p
// needs no alignment.
HWY_INLINE void store_bf16(Pack x, BFloat16* p) {
    const hn::Repartition<std::uint32_t, FloatTag> d32;
    const hn::Rebind<std::uint16_t, FloatTag> d16;
    const auto bits = hn::BitCast(d32, x.v);
    const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(d32, 1));
    const auto rounded = hn::Add(bits, hn::Add(odd, hn::Set(d32, 0x7fff)));
    const auto quiet = hn::Or(bits, hn::Set(d32, 0x400000));
    const auto nan = hn::RebindMask(d32, is_nan(x));
    const auto upper = hn::ShiftRight<16>(hn::IfThenElse(nan, quiet, rounded));
    hn::StoreU(hn::TruncateTo(d16, upper), d16, reinterpret_cast<std::uint16_t*>(p));
}

// Loads a pack of bf16, converted to floats. p needs no alignment.
HWY_INLINE Pack load_bf16(const BFloat16* p) {
    const hn::Rebind<std::uint16_t, FloatTag> d16;
    const hn::Rebind<std::uint32_t, FloatTag> d32;
    const auto bits = hn::LoadU(d16, reinterpret_cast<const std::uint16_t*>(p));
    return hn::BitCast(FloatTag(), hn::ShiftLeft<16>(hn::PromoteTo(d32, bits)));
}

}  // namespace axle::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // toggle
