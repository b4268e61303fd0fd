// Inner loops of bf16 products on CPUs with AVX512_BF16. The instruction vdpbf16ps multiplies 16
// pairs of bf16 and adds them to 16 floats. It computes twice as many multiply-adds as an f32
// instruction, and operands packed as pairs need half the cache. The tile has the layout of
// gemm.cpp with pairs instead of floats, and 14 x 2 accumulators. In each step, one broadcast pair
// of a is multiplied by two vectors of pairs of b.
//
// The instruction defines the rounding within a pair; it ignores the rounding mode and replaces
// denormals by zeros. The pairs of a block are added in the order of the depth, as single elements
// are in gemm.cpp.
//
// Instructions are enabled per function by attributes, so this file needs no compiler flags.
#include "kernels/cpu/matmul/gemm.h"

#if defined(__x86_64__)
#include <array>
#include <cstring>

#include <hwy/base.h>
// GCC 12 warns about uninitialized variables in its own intrinsics.
#pragma GCC diagnostic push
#if !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
#include <immintrin.h>
#pragma GCC diagnostic pop

// Marks a function that is compiled for AVX-512 with bf16.
#define AXLE_BF16 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,fma")))

namespace axle::kernels {
namespace {

constexpr int kTileRows = 14;
constexpr int kLanes = 16;
static_assert(kTileRows <= kMaxTileRows && 2 * kLanes <= kMaxTileColumns);

AXLE_BF16 inline __m512bh broadcast(const BFloat16Pair* pair) {
    std::int32_t bits;
    std::memcpy(&bits, pair, sizeof bits);
    __m512i pairs = _mm512_set1_epi32(bits);
#if defined(__clang__)
    // Clang 16 crashes when it broadcasts a value of type bf16; the asm statement hides the type.
    asm("" : "+v"(pairs));
#endif
    return reinterpret_cast<__m512bh>(pairs);
}

template <int kRows, int kVectors>
AXLE_BF16 void tile(std::int64_t depth, const BFloat16Pair* a, std::int64_t a_step,
                    const BFloat16Pair* b, std::int64_t b_step, float* c, std::int64_t c_step,
                    bool add) {
    __m512 sum[kRows][kVectors];
    HWY_UNROLL(16)
    for (int i = 0; i < kRows; ++i) {
        HWY_UNROLL(2)
        for (int j = 0; j < kVectors; ++j) sum[i][j] = _mm512_setzero_ps();
    }
    for (std::int64_t p = 0; p < depth; ++p) {
        __m512bh row[kVectors];
        HWY_UNROLL(2)
        for (int j = 0; j < kVectors; ++j)
            row[j] = reinterpret_cast<__m512bh>(_mm512_loadu_si512(b + j * kLanes));
        HWY_UNROLL(16)
        for (int i = 0; i < kRows; ++i) {
            const __m512bh element = broadcast(a + i);
            HWY_UNROLL(2)
            for (int j = 0; j < kVectors; ++j)
                sum[i][j] = _mm512_dpbf16_ps(sum[i][j], element, row[j]);
        }
        a += a_step;
        b += b_step;
    }
    HWY_UNROLL(16)
    for (int i = 0; i < kRows; ++i, c += c_step) {
        HWY_UNROLL(2)
        for (int j = 0; j < kVectors; ++j) {
            float* to = c + j * kLanes;
            const __m512 value = add ? _mm512_add_ps(_mm512_loadu_ps(to), sum[i][j]) : sum[i][j];
            _mm512_storeu_ps(to, value);
        }
    }
}

template <int... kHalves>
struct Tiles {
    static constexpr GemmKernels<BFloat16Pair>::Tile kTable[][2] = {
        {&tile<2 * kHalves, 1>, &tile<2 * kHalves, 2>}...};
};

// Returns a mask of `most` bits in which the lowest n bits are set (none if n <= 0).
constexpr std::uint32_t low_bits(std::int64_t n, int most) {
    if (n >= most) return most == 32 ? ~std::uint32_t{0} : (std::uint32_t{1} << most) - 1;
    return n <= 0 ? 0 : (std::uint32_t{1} << n) - 1;
}

// Transposes a matrix of 16 x 16 elements of 32 bits.
AXLE_BF16 inline void transpose(__m512i (&v)[16]) {
    __m512i t[16];
    HWY_UNROLL(4)
    for (int i = 0; i < 16; i += 4) {
        const __m512i low01 = _mm512_unpacklo_epi32(v[i], v[i + 1]);
        const __m512i high01 = _mm512_unpackhi_epi32(v[i], v[i + 1]);
        const __m512i low23 = _mm512_unpacklo_epi32(v[i + 2], v[i + 3]);
        const __m512i high23 = _mm512_unpackhi_epi32(v[i + 2], v[i + 3]);
        t[i] = _mm512_unpacklo_epi64(low01, low23);
        t[i + 1] = _mm512_unpackhi_epi64(low01, low23);
        t[i + 2] = _mm512_unpacklo_epi64(high01, high23);
        t[i + 3] = _mm512_unpackhi_epi64(high01, high23);
    }
    // Quarter q of t[4 r + c] contains the elements of column 4 q + c in rows 4 r .. 4 r + 3.
    HWY_UNROLL(4)
    for (int c = 0; c < 4; ++c) {
        const __m512i even01 = _mm512_shuffle_i32x4(t[c], t[c + 4], 0x88);
        const __m512i odd01 = _mm512_shuffle_i32x4(t[c], t[c + 4], 0xdd);
        const __m512i even23 = _mm512_shuffle_i32x4(t[c + 8], t[c + 12], 0x88);
        const __m512i odd23 = _mm512_shuffle_i32x4(t[c + 8], t[c + 12], 0xdd);
        v[c] = _mm512_shuffle_i32x4(even01, even23, 0x88);
        v[c + 4] = _mm512_shuffle_i32x4(odd01, odd23, 0x88);
        v[c + 8] = _mm512_shuffle_i32x4(even01, even23, 0xdd);
        v[c + 12] = _mm512_shuffle_i32x4(odd01, odd23, 0xdd);
    }
}

AXLE_BF16 void pack_along(const BFloat16* from, std::int64_t stride, std::int64_t count,
                          std::int64_t terms, std::int64_t width, BFloat16Pair* to) {
    for (std::int64_t i = 0; i < width; i += kLanes) {
        const auto stored = static_cast<__mmask16>(low_bits(width - i, kLanes));
        const std::int64_t present = count - i;
        for (std::int64_t p = 0; p < terms; p += 2 * kLanes) {
            const __mmask32 loaded = low_bits(terms - p, 2 * kLanes);
            __m512i v[kLanes];
            HWY_UNROLL(16)
            for (int r = 0; r < kLanes; ++r)
                v[r] =
                    _mm512_maskz_loadu_epi16(r < present ? loaded : 0, from + (i + r) * stride + p);
            transpose(v);
            BFloat16Pair* const first = to + p / 2 * width + i;
            HWY_UNROLL(16)
            for (int q = 0; q < kLanes; ++q)
                if (p + 2 * q < terms) _mm512_mask_storeu_epi32(first + q * width, stored, v[q]);
        }
    }
}

// Returns the words of the 16 pairs that begin with pair `first` of two vectors, as indices for
// vpermt2w, where the words of the second vector begin with 32.
constexpr std::array<std::int16_t, 32> order_of_pairs(int first) {
    std::array<std::int16_t, 32> order = {};
    for (int i = 0; i < kLanes; ++i) {
        order[2 * i] = static_cast<std::int16_t>(first + i);
        order[2 * i + 1] = static_cast<std::int16_t>(32 + first + i);
    }
    return order;
}
alignas(64) constexpr auto kFirstPairs = order_of_pairs(0), kSecondPairs = order_of_pairs(kLanes);

AXLE_BF16 void pack_across(const BFloat16* low, const BFloat16* high, std::int64_t ahead,
                           std::int64_t count, std::int64_t width, BFloat16Pair* to,
                           std::int64_t to_step) {
    const __m512i first = _mm512_load_si512(kFirstPairs.data());
    const __m512i second = _mm512_load_si512(kSecondPairs.data());
    for (std::int64_t j = 0; j < count; j += width, to += to_step) {
        for (std::int64_t i = 0; i < width; i += 2 * kLanes) {
            const auto present = static_cast<__mmask32>(low_bits(count - j - i, 2 * kLanes));
            const auto stored = low_bits(width - i, 2 * kLanes);
            const BFloat16* const x = low + j + i;
            _mm_prefetch(x + ahead, _MM_HINT_T0);
            const __m512i lows = _mm512_maskz_loadu_epi16(present, x);
            __m512i highs = _mm512_setzero_si512();
            if (high != nullptr) {
                const BFloat16* const y = high + j + i;
                _mm_prefetch(y + ahead, _MM_HINT_T0);
                highs = _mm512_maskz_loadu_epi16(present, y);
            }
            _mm512_mask_storeu_epi32(to + i, static_cast<__mmask16>(stored),
                                     _mm512_permutex2var_epi16(lows, first, highs));
            _mm512_mask_storeu_epi32(to + i + kLanes, static_cast<__mmask16>(stored >> kLanes),
                                     _mm512_permutex2var_epi16(lows, second, highs));
        }
    }
}

AXLE_BF16 void transpose_pairs(const BFloat16Pair* from, std::int64_t from_step, BFloat16Pair* to,
                               std::int64_t to_step) {
    __m512i v[kLanes];
    HWY_UNROLL(16)
    for (int p = 0; p < kLanes; ++p) v[p] = _mm512_loadu_si512(from + p * from_step);
    transpose(v);
    HWY_UNROLL(16)
    for (int i = 0; i < kLanes; ++i) _mm512_storeu_si512(to + i * to_step, v[i]);
}

}  // namespace

template <>
const GemmKernels<BFloat16Pair>& gemm_kernels() {
    static constexpr GemmKernels<BFloat16Pair> kKernels = {
        kTileRows,   kLanes,       Tiles<1, 2, 3, 4, 5, 6, 7>::kTable,
        &pack_along, &pack_across, &transpose_pairs};
    return kKernels;
}

}  // namespace axle::kernels

#else

namespace axle::kernels {

template <>
const GemmKernels<BFloat16Pair>& gemm_kernels() {
    static constexpr GemmKernels<BFloat16Pair> kNone = {};
    return kNone;
}

}  // namespace axle::kernels

#endif
