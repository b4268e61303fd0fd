// Interleaves rows: the transposition of a few rows, which packs operands of products.
//
// Highway's foreach_target.h includes this file once per target; the toggle below is its include
// guard.
#if defined(AXLE_KERNELS_CPU_MATMUL_INTERLEAVE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef AXLE_KERNELS_CPU_MATMUL_INTERLEAVE_INL_H_
#undef AXLE_KERNELS_CPU_MATMUL_INTERLEAVE_INL_H_
#else
#define AXLE_KERNELS_CPU_MATMUL_INTERLEAVE_INL_H_
#endif

#include <cstdint>

#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace axle::kernels::HWY_NAMESPACE {

template <class T>
void interleave(const T* const* rows, int count, std::int64_t n, T* to, std::int64_t step) {
    for (std::int64_t p = 0; p < n; ++p, to += step)
        for (int i = 0; i < count; ++i) to[i] = rows[i][p];
}

#if HWY_TARGET == HWY_SCALAR
inline constexpr auto kInterleaveF32 = &interleave<float>;
#else
// Interleaves up to 16 rows. Each step transposes 4 x 4 elements in each 128-bit block of `kBlocks`
// blocks: block b of column p contains the elements of rows 4 b .. 4 b + 3.
template <int kBlocks>
void interleave_blocks(const float* const* rows, int count, std::int64_t n, float* to,
                       std::int64_t step) {
    const hn::FixedTag<float, 4 * kBlocks> d;
    const hn::FixedTag<float, 4> block;
    const float* row[4 * kBlocks];
    for (int i = 0; i < 4 * kBlocks; ++i) row[i] = rows[i < count ? i : 0];
    const auto stored = hn::FirstN(d, static_cast<std::size_t>(count));
    const auto store = [&](auto column, std::int64_t p) HWY_ATTR {
        if (count == 4 * kBlocks)
            hn::StoreU(column, d, to + p * step);
        else
            hn::BlendedStore(column, stored, d, to + p * step);
    };
    // Loads the elements p .. p + 3 of the rows r, r + 4, ..., one row per block.
    const auto load = [&](int r, std::int64_t p) HWY_ATTR {
        if constexpr (kBlocks == 1) {
            return hn::LoadU(block, row[r] + p);
        } else {
#if HWY_TARGET <= HWY_AVX3
            __m512 v = _mm512_castps128_ps512(_mm_loadu_ps(row[r] + p));
            v = _mm512_mask_broadcast_f32x4(v, 0xf0, _mm_loadu_ps(row[r + 4] + p));
            v = _mm512_mask_broadcast_f32x4(v, 0xf00, _mm_loadu_ps(row[r + 8] + p));
            v = _mm512_mask_broadcast_f32x4(v, 0xf000, _mm_loadu_ps(row[r + 12] + p));
            return hn::Vec<decltype(d)>{v};
#endif
        }
    };
    const auto transpose = [&](auto v0, auto v1, auto v2, auto v3, std::int64_t p) HWY_ATTR {
        const auto even_low = hn::InterleaveLower(d, v0, v2);
        const auto even_high = hn::InterleaveUpper(d, v0, v2);
        const auto odd_low = hn::InterleaveLower(d, v1, v3);
        const auto odd_high = hn::InterleaveUpper(d, v1, v3);
        store(hn::InterleaveLower(d, even_low, odd_low), p);
        store(hn::InterleaveUpper(d, even_low, odd_low), p + 1);
        store(hn::InterleaveLower(d, even_high, odd_high), p + 2);
        store(hn::InterleaveUpper(d, even_high, odd_high), p + 3);
    };
    if (n < 4) return interleave(rows, count, n, to, step);
    std::int64_t next = 0;
    if constexpr (kBlocks == 4) {
        // Reads whole cache lines, row by row. If the distance between rows is a multiple of 4 KiB,
        // their lines do not fit in L1 together.
        for (; next + 16 <= n; next += 16) {
            StoredVec<decltype(d)> v[4][4];
            HWY_UNROLL(4)
            for (int r = 0; r < 4; ++r) {
                HWY_UNROLL(4)
                for (int q = 0; q < 4; ++q) v[r][q] = load(r, next + 4 * q);
            }
            HWY_UNROLL(4)
            for (int q = 0; q < 4; ++q)
                transpose(hn::Vec<decltype(d)>(v[0][q]), hn::Vec<decltype(d)>(v[1][q]),
                          hn::Vec<decltype(d)>(v[2][q]), hn::Vec<decltype(d)>(v[3][q]),
                          next + 4 * q);
        }
    }
    // The last step overlaps the step before if n is not a multiple of 4.
    for (; next < n; next += 4) {
        const std::int64_t p = next + 4 <= n ? next : n - 4;
        transpose(load(0, p), load(1, p), load(2, p), load(3, p), p);
    }
}

void interleave_f32(const float* const* rows, int count, std::int64_t n, float* to,
                    std::int64_t step) {
#if HWY_TARGET <= HWY_AVX3
    if (count > 8) return interleave_blocks<4>(rows, count, n, to, step);
#endif
    for (int i = 0; i < count; i += 4)
        interleave_blocks<1>(rows + i, count - i < 4 ? count - i : 4, n, to + i, step);
}
inline constexpr auto kInterleaveF32 = &interleave_f32;
#endif

}  // namespace axle::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // toggle
