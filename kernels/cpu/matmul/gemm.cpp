// Inner loops of matrix products.
//
// The register tile is computed as an outer product per step of depth. A column of a, with one
// broadcast element per row, is multiplied by two vectors of b. The products are accumulated in
// rows x 2 registers. With 32 registers (AVX-512 and NEON), a tile has 14 x 2 accumulators and
// registers for b and the broadcast. With 16 registers (AVX2 and SSE), a tile has 6 x 2
// accumulators. A tile of 14 x 32 floats loads 184 bytes per step for 448 multiply-adds, so L2 is
// fast enough if the elements of b are prefetched. c is accessed once per block of depth. Tiles
// with fewer rows process the last rows of c, and tiles one vector wide process the last columns.
#include "kernels/cpu/matmul/gemm.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/matmul/gemm.cpp"
#include "kernels/cpu/targets.h"
//
#include <hwy/foreach_target.h>
//
#include <cstring>
#include <type_traits>

#include <hwy/cache_control.h>

#include "kernels/cpu/matmul/interleave-inl.h"
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace axle::kernels::HWY_NAMESPACE {

#if HWY_TARGET <= HWY_AVX3 || HWY_ARCH_ARM_A64
inline constexpr int kTileRows = 14;
#else
inline constexpr int kTileRows = 6;
#endif
static_assert(kTileRows <= kMaxTileRows);
static_assert(2 * Pack::kLanes <= kMaxTileColumns);

// The distance from the current step to the step whose elements are prefetched.
inline constexpr std::int64_t kAhead = 12;

template <class T, int kRows, int kVectors>
void tile(std::int64_t depth, const T* HWY_RESTRICT a, std::int64_t a_step, const T* HWY_RESTRICT b,
          std::int64_t b_step, T* HWY_RESTRICT c, std::int64_t c_step, bool add) {
    const hn::ScalableTag<T> d;
    constexpr std::int64_t kLanes = hn::MaxLanes(d);
    StoredVec<decltype(d)> sum[kRows][kVectors];
    HWY_UNROLL(16)
    for (int i = 0; i < kRows; ++i) {
        HWY_UNROLL(2)
        for (int j = 0; j < kVectors; ++j) sum[i][j] = hn::Zero(d);
    }
    // The CPU itself prefetches a packed a.
    const std::int64_t a_ahead = a_step == kRows ? 0 : kAhead * a_step;
    // A multiply-add of AVX-512 can load and broadcast an element itself. Compilers use that if
    // each loaded element has one use, so half of the rows load their element twice. This balances
    // the numbers of loads and of instructions.
    const T* again = a;
#if HWY_TARGET <= HWY_AVX3
    asm("" : "+r"(again));  // hides that the pointers are equal
#endif
    for (std::int64_t p = 0; p < depth; ++p) {
        StoredVec<decltype(d)> row[kVectors];
        HWY_UNROLL(2)
        for (int j = 0; j < kVectors; ++j) {
            row[j] = hn::LoadU(d, b + j * kLanes);
            hwy::Prefetch(b + kAhead * b_step + j * kLanes);
        }
        HWY_UNROLL(16)
        for (int i = 0; i < kRows; ++i) {
            const T first = a[i], second = i % 2 == 0 ? again[i] : first;
            HWY_UNROLL(2)
            for (int j = 0; j < kVectors; ++j)
                sum[i][j] = hn::MulAdd(hn::Set(d, j == 0 ? first : second), row[j], sum[i][j]);
        }
        hwy::Prefetch(a + a_ahead);
        a += a_step, again += a_step;
        b += b_step;
    }
    HWY_UNROLL(16)
    for (int i = 0; i < kRows; ++i, c += c_step) {
        HWY_UNROLL(2)
        for (int j = 0; j < kVectors; ++j) {
            T* to = c + j * kLanes;
            const hn::Vec<decltype(d)> own = sum[i][j];
            hn::StoreU(add ? hn::Add(hn::LoadU(d, to), own) : own, d, to);
        }
    }
}

template <class T, int... kHalves>
struct Tiles {
    static constexpr typename GemmKernels<T>::Tile kTable[][2] = {
        {&tile<T, 2 * kHalves, 1>, &tile<T, 2 * kHalves, 2>}...};
};
#if HWY_TARGET <= HWY_AVX3 || HWY_ARCH_ARM_A64
template <class T>
using AllTiles = Tiles<T, 1, 2, 3, 4, 5, 6, 7>;
#else
template <class T>
using AllTiles = Tiles<T, 1, 2, 3>;
#endif

// Copies kWidth elements.
template <int kWidth, class T>
HWY_INLINE void copy_line(const T* HWY_RESTRICT from, T* HWY_RESTRICT to) {
    const hn::ScalableTag<T> d;
    constexpr int kLanes = hn::MaxLanes(d), kFull = kWidth / kLanes * kLanes;
    for (int i = 0; i < kFull; i += kLanes) hn::StoreU(hn::LoadU(d, from + i), d, to + i);
    if constexpr (kFull < kWidth)
        store_first(load_first(d, from + kFull, kWidth - kFull), d, to + kFull, kWidth - kFull);
}

template <int kWidth, class T>
void copy_panels_of(const T* from, std::int64_t from_step, std::int64_t depth, std::int64_t panels,
                    T* to) {
    // Copies a few lines of several panels at a time, so that memory is read in longer runs.
    constexpr std::int64_t kPanels = 8, kLines = 4;
    for (std::int64_t first = 0; first < panels; first += kPanels) {
        const std::int64_t end = HWY_MIN(panels, first + kPanels);
        for (std::int64_t begin = 0; begin < depth; begin += kLines) {
            const std::int64_t last = HWY_MIN(depth, begin + kLines);
            for (std::int64_t panel = first; panel < end; ++panel)
                for (std::int64_t p = begin; p < last; ++p)
                    copy_line<kWidth>(from + p * from_step + panel * kWidth,
                                      to + (panel * depth + p) * kWidth);
        }
    }
}

template <class T>
void copy_panels(const T* from, std::int64_t from_step, std::int64_t depth, std::int64_t panels,
                 std::int64_t width, T* to) {
    constexpr int kColumns = 2 * hn::MaxLanes(hn::ScalableTag<T>());
    if (width == kTileRows) return copy_panels_of<kTileRows>(from, from_step, depth, panels, to);
    if (width == kColumns) return copy_panels_of<kColumns>(from, from_step, depth, panels, to);
    for (std::int64_t panel = 0; panel < panels; ++panel, from += width)
        for (std::int64_t p = 0; p < depth; ++p, to += width)
            std::memcpy(to, from + p * from_step, static_cast<std::size_t>(width) * sizeof(T));
}

// Loads a vector of elements as numbers of type T.
template <class T>
HWY_INLINE hn::Vec<hn::ScalableTag<T>> load_as(const T* from) {
    return hn::LoadU(hn::ScalableTag<T>(), from);
}
template <class T>
HWY_INLINE hn::Vec<hn::ScalableTag<T>> load_as(const BFloat16* from) {
    return load_bf16(from).v;
}

// Loads the first n lanes.
template <class T>
HWY_INLINE hn::Vec<hn::ScalableTag<T>> load_first_as(const T* from, std::int64_t n) {
    return load_first(hn::ScalableTag<T>(), from, n);
}
template <class T>
HWY_INLINE hn::Vec<hn::ScalableTag<T>> load_first_as(const BFloat16* from, std::int64_t n) {
    HWY_ALIGN T lanes[hn::MaxLanes(hn::ScalableTag<T>())] = {};
    for (std::int64_t i = 0; i < n; ++i) lanes[i] = from[i];
    return hn::Load(hn::ScalableTag<T>(), lanes);
}

// The number of elements in a cache line.
template <class T>
inline constexpr std::int64_t kInCacheLine = 64 / sizeof(T);

// Adds the dot products of a line and kDots rows of x to `sum`. A product has four independent sums
// to hide the latency of the additions. The line is loaded once.
template <class T, class Stored, int kDots>
void dots(const Stored* HWY_RESTRICT line, std::int64_t ahead, const T* HWY_RESTRICT x,
          std::int64_t x_step, std::int64_t n, T* HWY_RESTRICT sum) {
    const hn::ScalableTag<T> d;
    constexpr std::int64_t kLanes = hn::MaxLanes(d);
    StoredVec<decltype(d)> s[kDots][4];
    HWY_UNROLL(4)
    for (int i = 0; i < kDots; ++i) {
        HWY_UNROLL(4)
        for (int j = 0; j < 4; ++j) s[i][j] = hn::Zero(d);
    }
    std::int64_t p = 0;
    for (; p + 4 * kLanes <= n; p += 4 * kLanes) {
        // The CPU itself prefetches longer elements as fast.
        if constexpr (sizeof(Stored) == 2)
            for (std::int64_t q = 0; q < 4 * kLanes; q += kInCacheLine<Stored>)
                hwy::Prefetch(line + ahead + p + q);
        HWY_UNROLL(4)
        for (int j = 0; j < 4; ++j) {
            const auto element = load_as<T>(line + p + j * kLanes);
            HWY_UNROLL(4)
            for (int i = 0; i < kDots; ++i)
                s[i][j] = hn::MulAdd(element, hn::LoadU(d, x + i * x_step + p + j * kLanes),
                                     hn::Vec<decltype(d)>(s[i][j]));
        }
    }
    for (; p + kLanes <= n; p += kLanes) {
        const auto element = load_as<T>(line + p);
        HWY_UNROLL(4)
        for (int i = 0; i < kDots; ++i)
            s[i][0] = hn::MulAdd(element, hn::LoadU(d, x + i * x_step + p),
                                 hn::Vec<decltype(d)>(s[i][0]));
    }
    HWY_UNROLL(4)
    for (int i = 0; i < kDots; ++i) {
        const hn::Vec<decltype(d)> s0 = s[i][0], s1 = s[i][1], s2 = s[i][2], s3 = s[i][3];
        T total = hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(s0, s1), hn::Add(s2, s3))));
        for (std::int64_t q = p; q < n; ++q) total += T(line[q]) * x[i * x_step + q];
        sum[i] += total;
    }
}

// Adds four rows, multiplied by x[0] to x[3], to sum, for kSums vectors x and sums. The last
// columns use the same multiply-adds, so that an element's bits do not depend on its position.
template <class T, class Stored, int kSums>
void add_rows(const Stored* const* rows, std::int64_t ahead, const T* x, std::int64_t x_step,
              std::int64_t n, T* HWY_RESTRICT sum, std::int64_t sum_step) {
    const hn::ScalableTag<T> d;
    constexpr std::int64_t kLanes = hn::MaxLanes(d);
    StoredVec<decltype(d)> factor[kSums][4];
    HWY_UNROLL(4)
    for (int i = 0; i < kSums; ++i) {
        HWY_UNROLL(4)
        for (int r = 0; r < 4; ++r) factor[i][r] = hn::Set(d, x[i * x_step + r]);
    }
    std::int64_t j = 0;
    for (; j + kLanes <= n; j += kLanes) {
        StoredVec<decltype(d)> row[4];
        HWY_UNROLL(4)
        for (int r = 0; r < 4; ++r) row[r] = load_as<T>(rows[r] + j);
        if (ahead != 0 && j % kInCacheLine<Stored> == 0) {
            HWY_UNROLL(4)
            for (int r = 0; r < 4; ++r) hwy::Prefetch(rows[r] + ahead + j);
        }
        HWY_UNROLL(4)
        for (int i = 0; i < kSums; ++i) {
            auto s = hn::LoadU(d, sum + i * sum_step + j);
            HWY_UNROLL(4)
            for (int r = 0; r < 4; ++r)
                s = hn::MulAdd(hn::Vec<decltype(d)>(factor[i][r]), hn::Vec<decltype(d)>(row[r]), s);
            hn::StoreU(s, d, sum + i * sum_step + j);
        }
    }
    if (j == n) return;
    const std::int64_t left = n - j;
    HWY_UNROLL(4)
    for (int i = 0; i < kSums; ++i) {
        auto s = load_first(d, sum + i * sum_step + j, left);
        HWY_UNROLL(4)
        for (int r = 0; r < 4; ++r)
            s = hn::MulAdd(hn::Vec<decltype(d)>(factor[i][r]), load_first_as<T>(rows[r] + j, left),
                           s);
        store_first(s, d, sum + i * sum_step + j, left);
    }
}

// Not templates, because shared libraries would export them.
using KernelsF32 = GemmKernels<float>;
using KernelsF64 = GemmKernels<double>;
constexpr KernelsF32::Dots<float> kDotsF32[] = {&dots<float, float, 1>, &dots<float, float, 2>,
                                                &dots<float, float, 3>, &dots<float, float, 4>};
constexpr KernelsF32::Dots<BFloat16> kDotsBf16[] = {
    &dots<float, BFloat16, 1>, &dots<float, BFloat16, 2>, &dots<float, BFloat16, 3>,
    &dots<float, BFloat16, 4>};
constexpr KernelsF64::Dots<double> kDotsF64[] = {&dots<double, double, 1>, &dots<double, double, 2>,
                                                 &dots<double, double, 3>,
                                                 &dots<double, double, 4>};
constexpr KernelsF32::AddRows<float> kAddRowsF32[] = {
    &add_rows<float, float, 1>, &add_rows<float, float, 2>, &add_rows<float, float, 3>,
    &add_rows<float, float, 4>};
constexpr KernelsF32::AddRows<BFloat16> kAddRowsBf16[] = {
    &add_rows<float, BFloat16, 1>, &add_rows<float, BFloat16, 2>, &add_rows<float, BFloat16, 3>,
    &add_rows<float, BFloat16, 4>};
constexpr KernelsF64::AddRows<double> kAddRowsF64[] = {
    &add_rows<double, double, 1>, &add_rows<double, double, 2>, &add_rows<double, double, 3>,
    &add_rows<double, double, 4>};

GemmKernels<float> gemm_f32() {
    return {kTileRows,
            static_cast<int>(hn::MaxLanes(hn::ScalableTag<float>())),
            AllTiles<float>::kTable,
            &copy_panels<float>,
            kInterleaveF32,
            kDotsF32,
            kDotsBf16,
            kAddRowsF32,
            kAddRowsBf16};
}
GemmKernels<double> gemm_f64() {
    return {kTileRows,
            static_cast<int>(hn::MaxLanes(hn::ScalableTag<double>())),
            AllTiles<double>::kTable,
            &copy_panels<double>,
            &interleave<double>,
            kDotsF64,
            nullptr,
            kAddRowsF64,
            nullptr};
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
