// Stochastic rounding. The 16 random bits per element are generated in a buffer that stays in L1,
// which costs less than the rounding itself.
#include "kernels/cpu/pointwise/rounding.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/pointwise/rounding.cpp"
#include "kernels/cpu/targets.h"
//
#include <hwy/foreach_target.h>
//
#include "kernels/cpu/random/philox-inl.h"
#include "kernels/cpu/simd-inl.h"
#include "kernels/ops/rounding.h"

HWY_BEFORE_NAMESPACE();
namespace axle::kernels::HWY_NAMESPACE {

void round_bf16(const float* x, const std::uint16_t* random, BFloat16* y, std::int64_t n) {
    const hn::Repartition<std::uint32_t, FloatTag> d32;
    const hn::Rebind<std::uint16_t, FloatTag> d16;
    std::int64_t i = 0;
    for (; i + Pack::kLanes <= n; i += Pack::kLanes) {
        const auto bits = hn::BitCast(d32, Pack::load(x + i).v);
        const auto magnitude = hn::AndNot(hn::Set(d32, 0x80000000), bits);
        const auto added = hn::PromoteTo(d32, hn::LoadU(d16, random + i));
        const auto limit = hn::Set(d32, 0x7f7f);
        const auto finite = hn::Min(hn::ShiftRight<16>(hn::Add(magnitude, added)), limit);
        const auto nan = hn::Gt(magnitude, hn::Set(d32, 0x7f800000));
        const auto infinite =
            hn::Or(hn::ShiftRight<16>(magnitude), hn::IfThenElseZero(nan, hn::Set(d32, 0x40)));
        const auto rounded =
            hn::IfThenElse(hn::Gt(magnitude, hn::Set(d32, 0x7f7fffff)), infinite, finite);
        const auto sign = hn::ShiftRight<16>(hn::And(bits, hn::Set(d32, 0x80000000)));
        hn::StoreU(hn::TruncateTo(d16, hn::Or(rounded, sign)), d16,
                   reinterpret_cast<std::uint16_t*>(y + i));
    }
    for (; i < n; ++i) y[i] = round_stochastically<BFloat16>(x[i], random[i]);
}

}  // namespace axle::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

#include <bit>
#include <cassert>

namespace axle::kernels {
namespace {

AXLE_DISPATCH(philox_words);
AXLE_DISPATCH(round_bf16);

// kernels/ops/rounding.h requires that the lower half of a word comes before the upper half in
// memory.
static_assert(std::endian::native == std::endian::little);

}  // namespace

void store_stochastically(const float* lanes, void* data, DType dtype, Philox random,
                          std::int64_t first, std::int64_t n) {
    assert(n <= kBlock && is_half(dtype));
    // In the first block, up to 7 halves belong to elements before `first`.
    alignas(64) std::uint16_t halves[kBlock + 8 + 2 * HWY_NAMESPACE::kPhiloxStep];
    const std::int64_t before = first % 8;
    AXLE_CALL(philox_words)
    (random, static_cast<std::uint64_t>(first / 8), (before + n + 1) / 2,
     reinterpret_cast<std::uint32_t*>(halves));
    const std::uint16_t* const own = halves + before;
    if (dtype == DType::bf16)
        return AXLE_CALL(round_bf16)(lanes, own, static_cast<BFloat16*>(data), n);
    Half* const y = static_cast<Half*>(data);
    for (std::int64_t i = 0; i < n; ++i) y[i] = round_stochastically<Half>(lanes[i], own[i]);
}

}  // namespace axle::kernels

#endif  // HWY_ONCE
