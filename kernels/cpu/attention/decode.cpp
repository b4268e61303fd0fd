// Conversion of image bytes to planes and to floats, and of token ids to 64 bits, in full packs if
// possible.
#include "kernels/ops/decode.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention/decode.cpp"
#include "kernels/cpu/targets.h"
//
#include <hwy/foreach_target.h>
//
#include <algorithm>

#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace axle::kernels::HWY_NAMESPACE {

// Returns a / b, computed from the rounded value of 1 / b. The remainder of the approximate
// quotient corrects its last bit.
HWY_INLINE Pack divide(Pack a, Pack b, Pack inverse) {
    const Pack quotient = a * inverse;
    return fma(Pack(hn::NegMulAdd(quotient.v, b.v, a.v)), inverse, quotient);
}

HWY_INLINE Pack scaled(const std::uint8_t* x, const ByteScale::Factors& f) {
    const hn::Rebind<std::uint8_t, FloatTag> d8;
    const Pack byte = hn::ConvertTo(FloatTag(), hn::PromoteTo(IntTag(), hn::LoadU(d8, x)));
    const Pack unit = divide(byte, Pack(255.0f), Pack(1.0f / 255.0f));
    return divide(unit - Pack(f.mean), Pack(f.std), Pack(f.inverse));
}

// Scales n bytes, where n is at least Pack::kLanes. The results are in reverse order if `mirrored`
// is true. If n is not a multiple of Pack::kLanes, the last pack overlaps the previous one.
void scale_packs(const std::uint8_t* x, const ByteScale::Factors& f, float* y, std::int64_t n,
                 bool mirrored) {
    const auto put = [&](std::int64_t i) {
        const Pack pack = scaled(x + i, f);
        if (mirrored)
            Pack(hn::Reverse(FloatTag(), pack.v)).store(y + (n - i - Pack::kLanes));
        else
            pack.store(y + i);
    };
    std::int64_t i = 0;
    for (; i + Pack::kLanes <= n; i += Pack::kLanes) put(i);
    if (i < n) put(n - Pack::kLanes);
}

void scale_row(const std::uint8_t* x, const ByteScale& scale, float* y, std::int64_t n,
               bool mirrored) {
    if (scale.factors().exact && n >= Pack::kLanes)
        return scale_packs(x, scale.factors(), y, n, mirrored);
    for (std::int64_t i = 0; i < n; ++i) y[mirrored ? n - 1 - i : i] = scale[x[i]];
}

void scale_window(const ByteWindow& w, const ByteScale* scales, std::int64_t channels, float* y) {
    // The range of the window's columns that are inside the image.
    const std::int64_t begin = std::clamp<std::int64_t>(-w.left, 0, w.columns);
    const std::int64_t end = std::clamp<std::int64_t>(w.width - w.left, begin, w.columns);
    const std::int64_t before = w.mirrored ? w.columns - end : begin;
    const std::uint8_t* plane = w.x;
    for (std::int64_t p = 0; p < w.planes; ++p, plane += w.height * w.width) {
        const ByteScale& scale = scales[p % channels];
        const float fill = scale[w.fill];
        for (std::int64_t row = w.top; row < w.top + w.rows; ++row, y += w.columns) {
            if (row < 0 || row >= w.height) {
                std::fill_n(y, w.columns, fill);
                continue;
            }
            std::fill_n(y, before, fill);
            scale_row(plane + row * w.width + w.left + begin, scale, y + before, end - begin,
                      w.mirrored);
            std::fill_n(y + before + (end - begin), w.columns - before - (end - begin), fill);
        }
    }
}

// Separates n pixels of three bytes. The last vector overlaps the previous one if necessary.
void separate_triples(const std::uint8_t* x, std::int64_t n, std::uint8_t* y, std::int64_t plane) {
    const hn::ScalableTag<std::uint8_t> d8;
    constexpr auto kLanes = static_cast<std::int64_t>(hn::MaxLanes(d8));
    if (n < kLanes) {
        for (std::int64_t i = 0; i < n; ++i)
            for (std::int64_t c = 0; c < 3; ++c) y[c * plane + i] = x[3 * i + c];
        return;
    }
    for (std::int64_t block = 0; block < n; block += kLanes) {
        const std::int64_t i = std::min(block, n - kLanes);
        hn::Vec<decltype(d8)> red, green, blue;
        hn::LoadInterleaved3(d8, x + 3 * i, red, green, blue);
        hn::StoreU(red, d8, y + i);
        hn::StoreU(green, d8, y + plane + i);
        hn::StoreU(blue, d8, y + 2 * plane + i);
    }
}

using WideTag = hn::ScalableTag<std::uint64_t>;

HWY_INLINE hn::Vec<WideTag> wide(const std::uint32_t* x) {
    return hn::PromoteTo(WideTag(), hn::LoadU(hn::Rebind<std::uint32_t, WideTag>(), x));
}
HWY_INLINE hn::Vec<WideTag> wide(const std::uint16_t* x) {
    const hn::Rebind<std::uint32_t, WideTag> d32;
    const hn::Rebind<std::uint16_t, WideTag> d16;
    return hn::PromoteTo(WideTag(), hn::PromoteTo(d32, hn::LoadU(d16, x)));
}

template <class T>
HWY_INLINE void widen_all(const T* x, std::int64_t* y, std::int64_t n) {
    constexpr auto kLanes = static_cast<std::int64_t>(hn::MaxLanes(WideTag()));
    std::int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes)
        hn::StoreU(wide(x + i), WideTag(), reinterpret_cast<std::uint64_t*>(y + i));
    for (; i < n; ++i) y[i] = x[i];
}

void widen16(const std::uint16_t* x, std::int64_t* y, std::int64_t n) { widen_all(x, y, n); }
void widen32(const std::uint32_t* x, std::int64_t* y, std::int64_t n) { widen_all(x, y, n); }

}  // namespace axle::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

#include <cstring>
#include <numeric>

namespace axle::kernels {
namespace {

AXLE_DISPATCH(scale_packs);
AXLE_DISPATCH(scale_window);
AXLE_DISPATCH(separate_triples);
AXLE_DISPATCH(widen16);
AXLE_DISPATCH(widen32);

}  // namespace

ByteScale::ByteScale(float mean, float std) : factors_{mean, std, 1 / std, false} {
    std::array<std::uint8_t, 256> bytes;
    std::iota(bytes.begin(), bytes.end(), std::uint8_t{0});
    for (const std::uint8_t byte : bytes)
        values_[byte] = (static_cast<float>(byte) / 255.0f - mean) / std;
    std::array<float, 256> tried;
    AXLE_CALL(scale_packs)(bytes.data(), factors_, tried.data(), 256, false);
    factors_.exact = std::memcmp(tried.data(), values_.data(), sizeof tried) == 0;
}

void scale_bytes(const ByteWindow& window, const ByteScale* scales, std::int64_t channels,
                 float* y) {
    ByteWindow w = window;
    const bool whole =
        w.top == 0 && w.left == 0 && w.rows == w.height && w.columns == w.width && !w.mirrored;
    if (whole) {  // the window's rows are contiguous, so a plane is processed as one row
        w.columns = w.width = w.height * w.width;
        w.rows = w.height = 1;
    }
    AXLE_CALL(scale_window)(w, scales, channels, y);
}

void separate_pixels(const std::uint8_t* x, std::int64_t n, std::uint8_t* y, std::int64_t plane) {
    AXLE_CALL(separate_triples)(x, n, y, plane);
}

void widen(const std::uint16_t* x, std::int64_t* y, std::int64_t n) { AXLE_CALL(widen16)(x, y, n); }
void widen(const std::uint32_t* x, std::int64_t* y, std::int64_t n) { AXLE_CALL(widen32)(x, y, n); }

}  // namespace axle::kernels

#endif  // HWY_ONCE
