// Conversion between storage and lanes. Contiguous bf16 and f16 are converted to floats with SIMD,
// and floats to contiguous bf16. All other conversions are plain loops, one per pair of types.
#include "kernels/cpu/lanes.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/lanes.cpp"
#include "kernels/cpu/targets.h"
//
#include <hwy/foreach_target.h>
//
#include <hwy/cache_control.h>

#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace axle::kernels::HWY_NAMESPACE {

void widen_bf16(const BFloat16* x, float* y, std::int64_t n) {
    std::int64_t i = 0;
    for (; i + Pack::kLanes <= n; i += Pack::kLanes) load_bf16(x + i).store(y + i);
    for (; i < n; ++i) y[i] = x[i];
}

void narrow_bf16(const float* x, BFloat16* y, std::int64_t n) {
    std::int64_t i = 0;
    for (; i + Pack::kLanes <= n; i += Pack::kLanes) {
        hwy::Prefetch(x + i + kPrefetch);
        store_bf16(Pack::load(x + i), y + i);
    }
    for (; i < n; ++i) y[i] = BFloat16(x[i]);
}

void widen_f16(const Half* x, float* y, std::int64_t n) {
    std::int64_t i = 0;
    // Without an instruction for the conversion, Highway converts infinities and NaN incorrectly.
#if HWY_TARGET != HWY_SSE2 && HWY_TARGET != HWY_EMU128 && HWY_TARGET != HWY_SCALAR
    const hn::Rebind<hwy::float16_t, FloatTag> d16;
    for (; i + Pack::kLanes <= n; i += Pack::kLanes) {
        const auto half = hn::LoadU(d16, reinterpret_cast<const hwy::float16_t*>(x + i));
        hn::StoreU(hn::PromoteTo(FloatTag(), half), FloatTag(), y + i);
    }
#endif
    for (; i < n; ++i) y[i] = x[i];
}

}  // namespace axle::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

#include <cstring>
#include <type_traits>

namespace axle::kernels {
namespace {

AXLE_DISPATCH(widen_bf16);
AXLE_DISPATCH(narrow_bf16);
AXLE_DISPATCH(widen_f16);

template <class To, class From>
To convert(From x) {
    if constexpr (std::is_same_v<To, bool>) {
        return x != From(0);
    } else if constexpr (std::is_same_v<To, BFloat16> || std::is_same_v<To, Half>) {
        return To(static_cast<float>(x));
    } else if constexpr (std::is_same_v<From, BFloat16> || std::is_same_v<From, Half>) {
        return convert<To>(static_cast<float>(x));
    } else if constexpr (std::is_integral_v<To> && std::is_floating_point_v<From>) {
        // The value is converted through i64, so that negative numbers wrap around in u8. NaN and
        // values outside of i64 become the minimum of i64 before they are converted.
        if (!(x >= From(-0x1p63) && x < From(0x1p63))) return static_cast<To>(INT64_MIN);
        return static_cast<To>(static_cast<std::int64_t>(x));
    } else {
        return static_cast<To>(x);
    }
}

}  // namespace

template <class Lane>
const Lane* load_lanes(const void* data, DType dtype, std::int64_t stride, std::int64_t n,
                       Lane* buffer) {
    if (is_lanes<Lane>(dtype, stride, n)) return static_cast<const Lane*>(data);
    if constexpr (std::is_same_v<Lane, float>) {
        if (stride == 1 && dtype == DType::bf16) {
            AXLE_CALL(widen_bf16)(static_cast<const BFloat16*>(data), buffer, n);
            return buffer;
        }
        if (stride == 1 && dtype == DType::f16) {
            AXLE_CALL(widen_f16)(static_cast<const Half*>(data), buffer, n);
            return buffer;
        }
    }
    visit_compute(dtype, [&]<class T>() {
        const T* x = static_cast<const T*>(data);
        if (stride == 0) {
            const Lane value = convert<Lane>(*x);
            for (std::int64_t i = 0; i < n; ++i) buffer[i] = value;
            return;
        }
        for (std::int64_t i = 0; i < n; ++i) buffer[i] = convert<Lane>(x[i * stride]);
    });
    return buffer;
}

template <class Lane>
void store_lanes(const Lane* lanes, void* data, DType dtype, std::int64_t stride, std::int64_t n) {
    if (lanes == data) return;
    if (is_lanes<Lane>(dtype, stride, n)) {
        std::memcpy(data, lanes, static_cast<std::size_t>(n) * sizeof(Lane));
        return;
    }
    if constexpr (std::is_same_v<Lane, float>) {
        if (stride == 1 && dtype == DType::bf16)
            return AXLE_CALL(narrow_bf16)(lanes, static_cast<BFloat16*>(data), n);
    }
    visit_compute(dtype, [&]<class T>() {
        T* y = static_cast<T*>(data);
        for (std::int64_t i = 0; i < n; ++i) y[i * stride] = convert<T>(lanes[i]);
    });
}

#define AXLE_LANES(T)                                                                 \
    template const T* load_lanes(const void*, DType, std::int64_t, std::int64_t, T*); \
    template void store_lanes(const T*, void*, DType, std::int64_t, std::int64_t)
AXLE_LANES(float);
AXLE_LANES(double);
AXLE_LANES(std::int64_t);
AXLE_LANES(std::int32_t);
AXLE_LANES(std::uint8_t);
AXLE_LANES(bool);
#undef AXLE_LANES

}  // namespace axle::kernels

#endif  // HWY_ONCE
