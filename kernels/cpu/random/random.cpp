// Random numbers, generated in blocks of 512. Philox words are written to a buffer in L1, converted
// to numbers, and written to the tensor. Philox runs one counter per lane, so a vector of n lanes
// generates n blocks together. The speed is limited by the 40 multiplications for these n blocks,
// not by memory.
#include "kernels/ops/random.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/random/random.cpp"
#include "kernels/cpu/targets.h"
//
#include <hwy/foreach_target.h>
//
#include <algorithm>

#include "kernels/cpu/lanes.h"
#include "kernels/cpu/random/philox-inl.h"
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace axle::kernels::HWY_NAMESPACE {

// Converts the upper 24 bits of each word to a float in [0, 1). The conversion is exact.
HWY_INLINE Pack to_unit(Words w) {
    const auto upper = hn::BitCast(IntTag(), hn::ShiftRight<8>(w));
    return hn::Mul(hn::ConvertTo(FloatTag(), upper), hn::Set(FloatTag(), 0x1p-24f));
}

// Computes min(low + u * range, limit) without fused multiply-adds, so that every target gives the
// same bits.
void uniform_floats(const std::uint32_t* words, float low, float range, float limit, float* y) {
    for (std::int64_t i = 0; i < kBlock; i += Pack::kLanes) {
        const Pack u = to_unit(hn::LoadU(WordTag(), words + i));
        min(u * Pack(range) + Pack(low), Pack(limit)).store(y + i);
    }
}

// Returns (w + 1/2) / 2^32, rounded once: both 16-bit halves of w and their scaled values are exact
// floats.
HWY_INLINE Pack to_open_unit(Words w) {
    const FloatTag d;
    const auto upper = hn::ConvertTo(d, hn::BitCast(IntTag(), hn::ShiftRight<16>(w)));
    const auto low_bits = hn::And(w, hn::Set(WordTag(), 0xffff));
    const auto lower = hn::ConvertTo(d, hn::BitCast(IntTag(), low_bits));
    const Pack tail = fma(Pack(lower), Pack(0x1p-32f), Pack(0x1p-33f));
    return fma(Pack(upper), Pack(0x1p-16f), tail);
}

// Computes the cosine and sine of 2 pi u for u in [0, 1]. The number of quarter turns, 4 u, is
// split exactly into the nearest integer q and f in [-1/2, 1/2]. Chebyshev approximations in f^2
// give sin(pi f / 2) / f and cos(pi f / 2).
HWY_INLINE void cos_sin_turn(Pack u, Pack& cosine, Pack& sine) {
    const Pack t = u * Pack(4.0f);
    const Pack q = rint(t);
    const Pack f = t - q;
    const Pack z = f * f;
    Pack s = Pack(1.5820628793e-4f);
    s = fma(s, z, Pack(-4.6812662490e-3f));
    s = fma(s, z, Pack(7.9692582724e-2f));
    s = fma(s, z, Pack(-6.4596409615e-1f));
    s = fma(s, z, Pack(1.5707963268f)) * f;
    Pack c = Pack(9.0362805864e-4f);
    c = fma(c, z, Pack(-2.0860069496e-2f));
    c = fma(c, z, Pack(2.5366920365e-1f));
    c = fma(c, z, Pack(-1.2337005406f));
    c = fma(c, z, Pack(1.0f));
    const auto odd = hn::Or((q == Pack(1.0f)), (q == Pack(3.0f)));
    const Pack x = select(odd, s, c);
    const Pack y = select(odd, c, s);
    const auto left = hn::Or((q == Pack(1.0f)), (q == Pack(2.0f)));
    const auto below = hn::Or((q == Pack(2.0f)), (q == Pack(3.0f)));
    cosine = select(left, Pack(hn::Neg(x.v)), x);
    sine = select(below, Pack(hn::Neg(y.v)), y);
}

void normal_floats(const std::uint32_t* words, float mean, float std, float* y) {
    const WordTag d;
    for (std::int64_t i = 0; i < kBlock; i += 2 * Pack::kLanes) {
        Words first, second;
        load_interleaved(d, words + i, first, second);
        const Pack radius = sqrt(Pack(-2.0f) * log(to_open_unit(first)));
        Pack cosine, sine;
        cos_sin_turn(to_unit(second), cosine, sine);
        const Pack scale = Pack(std);
        const Pack even = fma(radius * cosine, scale, Pack(mean));
        const Pack odd = fma(radius * sine, scale, Pack(mean));
        hn::StoreInterleaved2(even.v, odd.v, FloatTag(), y + i);
    }
}

// Computes y = x * scale if the word's upper 24 bits are at least the threshold, else 0.
void dropout_floats(const std::uint32_t* words, std::int32_t threshold, float scale, const float* x,
                    float* y, std::int64_t n) {
    const IntTag di;
    const auto below = hn::Set(di, threshold - 1);
    const auto kept = [&](std::int64_t i) {
        const auto bits = hn::ShiftRight<8>(hn::LoadU(WordTag(), words + i));
        return hn::RebindMask(FloatTag(), hn::Gt(hn::BitCast(di, bits), below));
    };
    std::int64_t i = 0;
    for (; i + Pack::kLanes <= n; i += Pack::kLanes) {
        const Pack scaled = Pack::load(x + i) * Pack(scale);
        select_or_zero(kept(i), scaled).store(y + i);
    }
    if (i < n) {
        const Pack scaled = Pack::load(x + i, n - i) * Pack(scale);
        select_or_zero(kept(i), scaled).store(y + i, n - i);
    }
}

}  // namespace axle::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

#include <cmath>
#include <limits>
#include <numbers>

#include "kernels/walk.h"

namespace axle::kernels {
namespace {

AXLE_DISPATCH(philox_words);
AXLE_DISPATCH(uniform_floats);
AXLE_DISPATCH(normal_floats);
AXLE_DISPATCH(dropout_floats);

constexpr std::int64_t kTask = 64 * kBlock;

// Calls f(words, first, n) for every block [first, first + n) of [0, count), where n <= kBlock.
// words[i] is the random word of element first + i.
template <class F>
void for_blocks(const Philox& random, std::int64_t count, F&& f) {
    parallel_ranges(count, kTask, [&](std::int64_t begin, std::int64_t end) {
        alignas(64) std::uint32_t words[kBlock];
        for (std::int64_t first = begin; first < end; first += kBlock) {
            AXLE_CALL(philox_words)(random, static_cast<std::uint64_t>(first / 4), kBlock, words);
            f(words, first, std::min(kBlock, end - first));
        }
    });
}

// Returns the number that to_open_unit computes, for one word.
float open_unit(std::uint32_t word) { return static_cast<float>((word + 0.5) * 0x1p-32); }

// Returns the largest value of the dtype below high.
double largest_below(double high, DType dtype) {
    constexpr double kDown = -std::numeric_limits<double>::infinity();
    if (dtype == DType::f64) return std::nextafter(high, kDown);
    if (dtype == DType::f32) {
        const float rounded = static_cast<float>(high);
        return rounded < high ? rounded : std::nextafter(rounded, -HUGE_VALF);
    }
    return visit_float(dtype, [&]<class T>() -> double {
        if constexpr (sizeof(T) == 2) {
            T rounded(static_cast<float>(high));
            if (static_cast<double>(rounded) < high) return rounded;
            const bool zero = (rounded.bits & 0x7fff) == 0;
            const bool negative = (rounded.bits & 0x8000) != 0;
            if (zero)
                rounded.bits = 0x8001;
            else
                rounded.bits = static_cast<std::uint16_t>(rounded.bits + (negative ? 1 : -1));
            return rounded;
        } else {
            return high;
        }
    });
}

}  // namespace

void uniform(Cpu&, Philox random, double low, double high, View y) {
    const double limit = std::max(low, largest_below(high, y.dtype));
    const double range = high - low;
    for_blocks(random, y.numel(), [&](const std::uint32_t* words, std::int64_t i, std::int64_t n) {
        if (y.dtype == DType::f64) {
            double* out = y.as<double>() + i;
            for (std::int64_t j = 0; j < n; ++j)
                out[j] =
                    std::min(low + range * static_cast<double>(Philox::to_unit(words[j])), limit);
            return;
        }
        alignas(64) float values[kBlock];
        AXLE_CALL(uniform_floats)
        (words, static_cast<float>(low), static_cast<float>(range), static_cast<float>(limit),
         values);
        store_lanes(values, at(y.data, y.dtype, i), y.dtype, 1, n);
    });
}

void normal(Cpu&, Philox random, double mean, double std, View y) {
    for_blocks(random, y.numel(), [&](const std::uint32_t* words, std::int64_t i, std::int64_t n) {
        if (y.dtype != DType::f64) {
            alignas(64) float values[kBlock];
            AXLE_CALL(normal_floats)
            (words, static_cast<float>(mean), static_cast<float>(std), values);
            return store_lanes(values, at(y.data, y.dtype, i), y.dtype, 1, n);
        }
        double* out = y.as<double>() + i;
        for (std::int64_t j = 0; j < n; j += 2) {
            const double radius =
                std::sqrt(-2 * std::log(static_cast<double>(open_unit(words[j]))));
            const double angle = 2 * std::numbers::pi * Philox::to_unit(words[j + 1]);
            out[j] = mean + std * (radius * std::cos(angle));
            if (j + 1 < n) out[j + 1] = mean + std * (radius * std::sin(angle));
        }
    });
}

void randint(Cpu&, Philox random, std::int64_t low, std::int64_t high, View y) {
    const std::uint64_t range = static_cast<std::uint64_t>(high) - static_cast<std::uint64_t>(low);
    visit_index(y.dtype, [&]<class T>() {
        T* out = y.as<T>();
        for_blocks(random, y.numel(),
                   [&](const std::uint32_t* words, std::int64_t i, std::int64_t n) {
                       for (std::int64_t j = 0; j < n; ++j) {
                           const std::uint64_t step = words[j] * range >> 32;
                           out[i + j] = static_cast<T>(low + static_cast<std::int64_t>(step));
                       }
                   });
    });
}

void dropout(Cpu&, Philox random, double p, ConstView x, View y) {
    // The test u >= p, where u = bits / 2^24, is computed as a comparison of integers.
    const auto threshold = static_cast<std::int32_t>(std::ceil(p * 0x1p24));
    const double scale = p < 1 ? 1 / (1 - p) : 0;
    for_blocks(random, y.numel(), [&](const std::uint32_t* words, std::int64_t i, std::int64_t n) {
        if (y.dtype == DType::f64) {
            const double* in = x.as<double>() + i;
            double* out = y.as<double>() + i;
            for (std::int64_t j = 0; j < n; ++j)
                out[j] = static_cast<std::int32_t>(words[j] >> 8) >= threshold ? in[j] * scale : 0;
            return;
        }
        alignas(64) float in_buffer[kBlock], out_buffer[kBlock];
        void* to = at(y.data, y.dtype, i);
        const float* in = load_lanes(at(x.data, x.dtype, i), x.dtype, 1, n, in_buffer);
        float* out = y.dtype == DType::f32 ? static_cast<float*>(to) : out_buffer;
        AXLE_CALL(dropout_floats)(words, threshold, static_cast<float>(scale), in, out, n);
        store_lanes(out, to, y.dtype, 1, n);
    });
}

}  // namespace axle::kernels

#endif  // HWY_ONCE
