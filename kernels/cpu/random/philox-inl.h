// Philox 4x32-10 (kernels/philox.h) for a pack of counters, for the current SIMD target.
//
// Highway's foreach_target.h includes this file once per target; the toggle below is its include
// guard.
#if defined(AXLE_KERNELS_CPU_PHILOX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef AXLE_KERNELS_CPU_PHILOX_INL_H_
#undef AXLE_KERNELS_CPU_PHILOX_INL_H_
#else
#define AXLE_KERNELS_CPU_PHILOX_INL_H_
#endif

#include <cstdint>

#include <hwy/highway.h>

#include "kernels/cpu/simd-inl.h"
#include "kernels/philox.h"

HWY_BEFORE_NAMESPACE();
namespace axle::kernels::HWY_NAMESPACE {

using WordTag = hn::ScalableTag<std::uint32_t>;
using Words = StoredVec<WordTag>;

// The largest step of all targets. A step is the number of words that philox_words() generates
// together.
inline constexpr std::int64_t kPhiloxStep = 64;

#if HWY_TARGET == HWY_SCALAR
// Writes `count` words of `random`, beginning with block first_block. The count is rounded up to a
// multiple of the step.
inline void philox_words(Philox random, std::uint64_t first_block, std::int64_t count,
                         std::uint32_t* words) {
    for (std::int64_t i = 0; i < count; i += 4) {
        const auto block = random.block(first_block + static_cast<std::uint64_t>(i) / 4);
        for (int w = 0; w < 4; ++w) words[i + w] = block[static_cast<std::size_t>(w)];
    }
}

// Converts the four words of the block that contains word `first` to numbers in [0, 1), and stores
// them in units.
inline void philox_units(Philox random, std::int64_t first, std::int64_t, float* units) {
    const auto words = random.block(static_cast<std::uint64_t>(first) / 4);
    for (int w = 0; w < 4; ++w) units[w] = Philox::to_unit(words[w]);
}
#else

// Computes the low and high halves of the 64-bit products x * factor.
HWY_INLINE void multiply_words(hn::Vec<WordTag> x, hn::Vec<WordTag> factor, Words& low,
                               Words& high) {
    const WordTag d;
    const hn::Repartition<std::uint64_t, WordTag> wide;
    const auto even = hn::MulEven(x, factor);
    const auto odd = hn::MulEven(hn::BitCast(d, hn::ShiftRight<32>(hn::BitCast(wide, x))), factor);
    low = hn::OddEven(hn::BitCast(d, hn::ShiftLeft<32>(odd)), hn::BitCast(d, even));
    high = hn::OddEven(hn::BitCast(d, odd), hn::BitCast(d, hn::ShiftRight<32>(even)));
}

// Computes words 0 to 3 of the blocks whose counters have the 32-bit halves `low` and `high`.
HWY_INLINE void philox_rounds(std::uint64_t seed, Words low, Words high, Words words[4]) {
    const WordTag d;
    Words c0 = low, c1 = high, c2 = hn::Zero(d), c3 = hn::Zero(d);
    Words k0 = hn::Set(d, static_cast<std::uint32_t>(seed));
    Words k1 = hn::Set(d, static_cast<std::uint32_t>(seed >> 32));
    for (int round = 0; round < 10; ++round) {
        Words low0, high0, low1, high1;
        multiply_words(c0, hn::Set(d, 0xD2511F53u), low0, high0);
        multiply_words(c2, hn::Set(d, 0xCD9E8D57u), low1, high1);
        c0 = hn::Xor(hn::Xor(high1, c1), k0);
        c1 = low1;
        c2 = hn::Xor(hn::Xor(high0, c3), k1);
        c3 = low0;
        k0 = hn::Add(k0, hn::Set(d, 0x9E3779B9u));
        k1 = hn::Add(k1, hn::Set(d, 0xBB67AE85u));
    }
    words[0] = c0, words[1] = c1, words[2] = c2, words[3] = c3;
}

// Writes `count` words of `random`, beginning with block first_block. The count is rounded up to a
// multiple of the step.
inline void philox_words(Philox random, std::uint64_t first_block, std::int64_t count,
                         std::uint32_t* words) {
    const WordTag d;
    const Words iota = hn::Iota(d, 0);
    constexpr std::int64_t kLanes = hn::MaxLanes(WordTag());
    static_assert(kPhiloxStep % (4 * kLanes) == 0);
    for (std::int64_t i = 0; i < count; i += 4 * kLanes) {
        const std::uint64_t counter =
            random.offset + first_block + static_cast<std::uint64_t>(i) / 4;
        const Words low = hn::Add(hn::Set(d, static_cast<std::uint32_t>(counter)), iota);
        const Words carry = hn::VecFromMask(d, hn::Lt(low, iota));  // -1 if low overflowed
        const Words high = hn::Sub(hn::Set(d, static_cast<std::uint32_t>(counter >> 32)), carry);
        Words w[4];
        philox_rounds(random.seed, low, high, w);
        hn::StoreInterleaved4(w[0], w[1], w[2], w[3], d, words + i);
    }
}

// Converts word w of the block that contains word first + lane * stride to a number in [0, 1), and
// stores it in units[w][lane]. units has 4 rows of kLanes elements.
HWY_INLINE void philox_units(Philox random, std::int64_t first, std::int64_t stride, float* units) {
    const WordTag d;
    std::uint32_t low[Pack::kLanes], high[Pack::kLanes];
    for (std::int64_t lane = 0; lane < Pack::kLanes; ++lane) {
        const std::uint64_t counter =
            random.offset + static_cast<std::uint64_t>(first + lane * stride) / 4;
        low[lane] = static_cast<std::uint32_t>(counter);
        high[lane] = static_cast<std::uint32_t>(counter >> 32);
    }
    Words words[4];
    philox_rounds(random.seed, hn::LoadU(d, low), hn::LoadU(d, high), words);
    for (int w = 0; w < 4; ++w) {
        const auto bits = hn::BitCast(IntTag(), hn::ShiftRight<8>(words[w]));
        const Pack unit = hn::ConvertTo(FloatTag(), bits);
        (unit * Pack(0x1p-24f)).store(units + w * Pack::kLanes);
    }
}
#endif

}  // namespace axle::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // toggle
