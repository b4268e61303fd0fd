// Inner loops of matrix products.
//
// The register tile is computed as an outer product per step of depth. A column of a, with one
// broadcast element per row, is multiplied by two vectors of b. The products are accumulated in
// rows x 2 registers. With 32 registers (AVX-512 and NEON), a tile has 14 x 2 accumulators and
// registers for b and the broadcast. With 16 registers (AVX2 and SSE), a tile has 6 x 2
// accumulators. A tile of 14 x 32 floats loads 184 bytes per step for 448 multiply-adds, so L2 is
// fast enough. c is accessed once per block of depth. Tiles with fewer rows process the last rows
// of c, and tiles one vector wide process the last columns.
#include "kernels/cpu/matmul/gemm.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/matmul/gemm.cpp"
#include "kernels/cpu/targets.h"
//
#include <hwy/foreach_target.h>
//
#include <cstring>

#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace axle::kernels::HWY_NAMESPACE {

#if HWY_TARGET <= HWY_AVX3 || HWY_TARGET == HWY_NEON
inline constexpr int kTileRows = 14;
#else
inline constexpr int kTileRows = 6;
#endif
static_assert(kTileRows <= kMaxTileRows);
static_assert(2 * Pack::kLanes <= kMaxTileColumns);

template <class T, int kRows, int kVectors>
void tile(std::int64_t depth, const T* HWY_RESTRICT a, std::int64_t a_step, const T* HWY_RESTRICT b,
          std::int64_t b_step, T* HWY_RESTRICT c, std::int64_t c_step, bool add) {
    const hn::ScalableTag<T> d;
    constexpr std::int64_t kLanes = hn::MaxLanes(d);
    hn::Vec<decltype(d)> sum[kRows][kVectors];
    HWY_UNROLL(16)
    for (int i = 0; i < kRows; ++i) {
        HWY_UNROLL(2)
        for (int j = 0; j < kVectors; ++j) sum[i][j] = hn::Zero(d);
    }
    for (std::int64_t p = 0; p < depth; ++p) {
        hn::Vec<decltype(d)> row[kVectors];
        HWY_UNROLL(2)
        for (int j = 0; j < kVectors; ++j) row[j] = hn::LoadU(d, b + j * kLanes);
        HWY_UNROLL(16)
        for (int i = 0; i < kRows; ++i) {
            const auto element = hn::Set(d, a[i]);
            HWY_UNROLL(2)
            for (int j = 0; j < kVectors; ++j) sum[i][j] = hn::MulAdd(element, row[j], sum[i][j]);
        }
        a += a_step;
        b += b_step;
    }
    HWY_UNROLL(16)
    for (int i = 0; i < kRows; ++i, c += c_step) {
        HWY_UNROLL(2)
        for (int j = 0; j < kVectors; ++j) {
            T* to = c + j * kLanes;
            const auto value = add ? hn::Add(hn::LoadU(d, to), sum[i][j]) : sum[i][j];
            hn::StoreU(value, d, to);
        }
    }
}

template <class T, int... kHalves>
struct Tiles {
    static constexpr typename GemmKernels<T>::Tile kTable[][2] = {
        {&tile<T, 2 * kHalves, 1>, &tile<T, 2 * kHalves, 2>}...};
};
#if HWY_TARGET <= HWY_AVX3 || HWY_TARGET == HWY_NEON
template <class T>
using AllTiles = Tiles<T, 1, 2, 3, 4, 5, 6, 7>;
#else
template <class T>
using AllTiles = Tiles<T, 1, 2, 3>;
#endif

template <int kWidth, class T>
void copy_rows_of(const T* from, std::int64_t from_step, std::int64_t n, T* to) {
    for (std::int64_t p = 0; p < n; ++p, from += from_step, to += kWidth)
        std::memcpy(to, from, kWidth * sizeof(T));
}

template <class T>
void copy_rows(const T* from, std::int64_t from_step, std::int64_t n, std::int64_t width, T* to) {
    constexpr int kColumns = 2 * hn::MaxLanes(hn::ScalableTag<T>());
    if (width == kTileRows) return copy_rows_of<kTileRows>(from, from_step, n, to);
    if (width == kColumns) return copy_rows_of<kColumns>(from, from_step, n, to);
    for (std::int64_t p = 0; p < n; ++p)
        std::memcpy(to + p * width, from + p * from_step,
                    static_cast<std::size_t>(width) * sizeof(T));
}

template <class T>
void interleave(const T* const* rows, int count, std::int64_t n, T* to, std::int64_t step) {
    for (std::int64_t p = 0; p < n; ++p, to += step)
        for (int i = 0; i < count; ++i) to[i] = rows[i][p];
}

#if HWY_TARGET == HWY_SCALAR
inline constexpr auto kInterleaveF32 = &interleave<float>;
#else
// Transposes 4 x 4 elements in 128-bit vectors. If there are two rows, they are duplicated and half
// of the result is stored.
void interleave_f32(const float* const* rows, int count, std::int64_t n, float* to,
                    std::int64_t step) {
    const hn::FixedTag<float, 4> d;
    const hn::Half<decltype(d)> half;
    const float* const r0 = rows[0];
    const float* const r1 = rows[1];
    const float* const r2 = rows[count == 4 ? 2 : 0];
    const float* const r3 = rows[count == 4 ? 3 : 1];
    std::int64_t p = 0;
    for (; p + 4 <= n; p += 4, to += 4 * step) {
        const auto v0 = hn::LoadU(d, r0 + p);
        const auto v1 = hn::LoadU(d, r1 + p);
        const auto v2 = hn::LoadU(d, r2 + p);
        const auto v3 = hn::LoadU(d, r3 + p);
        const auto even_low = hn::InterleaveLower(d, v0, v2);
        const auto even_high = hn::InterleaveUpper(d, v0, v2);
        const auto odd_low = hn::InterleaveLower(d, v1, v3);
        const auto odd_high = hn::InterleaveUpper(d, v1, v3);
        const auto t0 = hn::InterleaveLower(d, even_low, odd_low);
        const auto t1 = hn::InterleaveUpper(d, even_low, odd_low);
        const auto t2 = hn::InterleaveLower(d, even_high, odd_high);
        const auto t3 = hn::InterleaveUpper(d, even_high, odd_high);
        if (count == 4) {
            hn::StoreU(t0, d, to);
            hn::StoreU(t1, d, to + step);
            hn::StoreU(t2, d, to + 2 * step);
            hn::StoreU(t3, d, to + 3 * step);
        } else {
            hn::StoreU(hn::LowerHalf(half, t0), half, to);
            hn::StoreU(hn::LowerHalf(half, t1), half, to + step);
            hn::StoreU(hn::LowerHalf(half, t2), half, to + 2 * step);
            hn::StoreU(hn::LowerHalf(half, t3), half, to + 3 * step);
        }
    }
    const float* const rest[] = {r0 + p, r1 + p, r2 + p, r3 + p};
    interleave(rest, count, n - p, to, step);
}
inline constexpr auto kInterleaveF32 = &interleave_f32;
#endif

// Returns a dot product, computed with four independent sums to hide the latency of the additions.
template <class T>
T dot(const T* HWY_RESTRICT x, const T* HWY_RESTRICT y, std::int64_t n) {
    const hn::ScalableTag<T> d;
    constexpr std::int64_t kLanes = hn::MaxLanes(d);
    auto s0 = hn::Zero(d), s1 = hn::Zero(d), s2 = hn::Zero(d), s3 = hn::Zero(d);
    std::int64_t p = 0;
    for (; p + 4 * kLanes <= n; p += 4 * kLanes) {
        s0 = hn::MulAdd(hn::LoadU(d, x + p), hn::LoadU(d, y + p), s0);
        s1 = hn::MulAdd(hn::LoadU(d, x + p + kLanes), hn::LoadU(d, y + p + kLanes), s1);
        s2 = hn::MulAdd(hn::LoadU(d, x + p + 2 * kLanes), hn::LoadU(d, y + p + 2 * kLanes), s2);
        s3 = hn::MulAdd(hn::LoadU(d, x + p + 3 * kLanes), hn::LoadU(d, y + p + 3 * kLanes), s3);
    }
    for (; p + kLanes <= n; p += kLanes)
        s0 = hn::MulAdd(hn::LoadU(d, x + p), hn::LoadU(d, y + p), s0);
    const auto sums = hn::Add(hn::Add(s0, s1), hn::Add(s2, s3));
    T sum = hn::GetLane(hn::SumOfLanes(d, sums));
    for (; p < n; ++p) sum += x[p] * y[p];
    return sum;
}

// Adds four rows, multiplied by x[0] to x[3], to sum. The last columns use the same multiply-adds,
// so that an element's bits do not depend on its position.
template <class T>
void add_rows(const T* const* rows, const T* x, T* HWY_RESTRICT sum, std::int64_t n) {
    const hn::ScalableTag<T> d;
    constexpr std::int64_t kLanes = hn::MaxLanes(d);
    const auto x0 = hn::Set(d, x[0]), x1 = hn::Set(d, x[1]);
    const auto x2 = hn::Set(d, x[2]), x3 = hn::Set(d, x[3]);
    std::int64_t j = 0;
    for (; j + kLanes <= n; j += kLanes) {
        auto s = hn::LoadU(d, sum + j);
        s = hn::MulAdd(x0, hn::LoadU(d, rows[0] + j), s);
        s = hn::MulAdd(x1, hn::LoadU(d, rows[1] + j), s);
        s = hn::MulAdd(x2, hn::LoadU(d, rows[2] + j), s);
        s = hn::MulAdd(x3, hn::LoadU(d, rows[3] + j), s);
        hn::StoreU(s, d, sum + j);
    }
    if (j == n) return;
    const std::int64_t left = n - j;
    auto s = load_first(d, sum + j, left);
    s = hn::MulAdd(x0, load_first(d, rows[0] + j, left), s);
    s = hn::MulAdd(x1, load_first(d, rows[1] + j, left), s);
    s = hn::MulAdd(x2, load_first(d, rows[2] + j, left), s);
    s = hn::MulAdd(x3, load_first(d, rows[3] + j, left), s);
    store_first(s, d, sum + j, left);
}

GemmKernels<float> gemm_f32() {
    return {kTileRows,
            static_cast<int>(hn::MaxLanes(hn::ScalableTag<float>())),
            AllTiles<float>::kTable,
            &copy_rows<float>,
            kInterleaveF32,
            &dot<float>,
            &add_rows<float>};
}
GemmKernels<double> gemm_f64() {
    return {kTileRows,
            static_cast<int>(hn::MaxLanes(hn::ScalableTag<double>())),
            AllTiles<double>::kTable,
            &copy_rows<double>,
            &interleave<double>,
            &dot<double>,
            &add_rows<double>};
}

}  // namespace axle::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace axle::kernels {
namespace {
AXLE_DISPATCH(gemm_f32);
AXLE_DISPATCH(gemm_f64);
}  // namespace

template <>
const GemmKernels<float>& gemm_kernels<float>() {
    static const GemmKernels<float> kernels = AXLE_CALL(gemm_f32)();
    return kernels;
}
template <>
const GemmKernels<double>& gemm_kernels<double>() {
    static const GemmKernels<double> kernels = AXLE_CALL(gemm_f64)();
    return kernels;
}

}  // namespace axle::kernels

#endif  // HWY_ONCE
