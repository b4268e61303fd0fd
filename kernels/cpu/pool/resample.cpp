// Resizing of bytes. Columns are filtered for a vector of adjacent columns at a time: products of
// 16-bit numbers are added in pairs of rows. Rows are filtered as columns of their transpose.
#include "kernels/ops/decode.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/pool/resample.cpp"
#include "kernels/cpu/targets.h"
//
#include <algorithm>

#include <hwy/foreach_target.h>
//
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace axle::kernels::HWY_NAMESPACE {
namespace {

constexpr std::int64_t kBlock = 16;  // the bytes of a block, in which vectors are interleaved

// Computes n adjacent bytes of an output row. The input pixels of an output pixel are `stride`
// bytes apart.
template <std::int64_t n>
HWY_INLINE void filter_pixels(const ByteFilter::Pair* pairs, std::int64_t taps,
                              const std::uint8_t* x, std::int64_t stride, std::uint8_t* y) {
    std::int32_t sums[n];
    for (std::int64_t i = 0; i < n; ++i) sums[i] = 1 << (ByteFilter::kFractionBits - 1);
    const auto add = [&](std::int32_t high, std::int32_t low) {
        const std::int32_t weight = high * (1 << ByteFilter::kLowBits) + low;
        for (std::int64_t i = 0; i < n; ++i) sums[i] += x[i] * weight;
        x += stride;
    };
    for (std::int64_t k = 0; k < taps; k += 2, ++pairs) {
        add(static_cast<std::int16_t>(pairs->high), static_cast<std::int16_t>(pairs->low));
        if (k + 1 < taps) add(pairs->high >> 16, pairs->low >> 16);
    }
    for (std::int64_t i = 0; i < n; ++i)
        y[i] = static_cast<std::uint8_t>(std::clamp(sums[i] >> ByteFilter::kFractionBits, 0, 255));
}

#if HWY_TARGET == HWY_SCALAR

// Highway has no vectors for this target. Compilers vectorize filter_pixels() for SSE2.
struct BlockTag {};
using ByteTag = BlockTag;

template <class Tag>
constexpr std::int64_t lanes_of() {
    return kBlock;
}

HWY_INLINE void filter_vector(BlockTag, const ByteFilter::Pair* pairs, std::int64_t rows,
                              const std::uint8_t* x, std::int64_t stride, std::uint8_t* y) {
    filter_pixels<kBlock>(pairs, rows, x, stride, y);
}

HWY_INLINE void transpose_tile(BlockTag, const std::uint8_t* x, std::int64_t x_stride,
                               std::uint8_t* y, std::int64_t y_stride) {
    for (std::int64_t r = 0; r < kBlock; ++r)
        for (std::int64_t c = 0; c < kBlock; ++c) y[c * y_stride + r] = x[r * x_stride + c];
}

#else

using BlockTag = hn::CappedTag<std::uint8_t, kBlock>;
using ByteTag = hn::ScalableTag<std::uint8_t>;

template <class Tag>
constexpr std::int64_t lanes_of() {
    return static_cast<std::int64_t>(hn::MaxLanes(Tag()));
}

// Sums of 32 bits. Additions are modulo 2^32, so that only the total must be in range.
template <class Tag>
struct Sums {
    using Tag32 = hn::RepartitionToWide<hn::RepartitionToWide<hn::RebindToSigned<Tag>>>;
    using Tag16 = hn::RepartitionToNarrow<Tag32>;
    using Vec32 = hn::Vec<Tag32>;
    using Vec16 = hn::Vec<Tag16>;

    StoredVec<Tag32> low, low_odd, high, high_odd;

    HWY_INLINE Sums() {
        const Vec32 zero = hn::Zero(Tag32());
        low = low_odd = high = high_odd = zero;
    }
    // Adds products of pairs of 16-bit numbers.
    HWY_INLINE void add(Vec16 pixels, Vec16 low_weights, Vec16 high_weights) {
        Vec32 odd = low_odd;
        low = hn::ReorderWidenMulAccumulate(Tag32(), pixels, low_weights, Vec32(low), odd);
        low_odd = odd;
        odd = high_odd;
        high = hn::ReorderWidenMulAccumulate(Tag32(), pixels, high_weights, Vec32(high), odd);
        high_odd = odd;
    }
    // Returns the rounded totals, which are in [-512, 512).
    HWY_INLINE Vec32 rounded() const {
        const Vec32 low_sum = hn::RearrangeToOddPlusEven(Vec32(low), Vec32(low_odd));
        const Vec32 high_sum = hn::RearrangeToOddPlusEven(Vec32(high), Vec32(high_odd));
        const Vec32 half = hn::Set(Tag32(), 1 << (ByteFilter::kFractionBits - 1));
        const Vec32 sum =
            hn::Add(hn::Add(low_sum, half), hn::ShiftLeft<ByteFilter::kLowBits>(high_sum));
        return hn::ShiftRight<ByteFilter::kFractionBits>(sum);
    }
    // Returns the totals `first` and `second` of each block, limited to [0, 255].
    static HWY_INLINE Vec16 bytes(Vec32 first, Vec32 second) {
        const Tag16 d16;
#if HWY_TARGET == HWY_SVE_256 || HWY_TARGET == HWY_SVE2_128
        // ReorderDemote2To() would interleave the totals.
        HWY_ALIGN static constexpr std::uint8_t kOrder[] = {0, 1, 4, 5, 8,  9,  12, 13,
                                                            2, 3, 6, 7, 10, 11, 14, 15};
        const Vec16 mixed =
            hn::OddEven(hn::BitCast(d16, hn::ShiftLeft<16>(second)), hn::BitCast(d16, first));
        const Vec16 both =
            hn::TableLookupBytes(mixed, hn::BitCast(d16, hn::LoadDup128(Tag(), kOrder)));
#else
        const Vec16 both = hn::ReorderDemote2To(d16, first, second);
#endif
        return hn::Min(hn::Max(both, hn::Zero(d16)), hn::Set(d16, 255));
    }
};

// Computes a vector of one output row. x points to the first input row.
template <class Tag>
HWY_INLINE void filter_vector(Tag d, const ByteFilter::Pair* pairs, std::int64_t rows,
                              const std::uint8_t* x, std::int64_t stride, std::uint8_t* y) {
    using S = Sums<Tag>;
    const typename S::Tag32 d32;
    const typename S::Tag16 d16;
    const hn::RebindToUnsigned<typename S::Tag16> du16;
    const auto mask = hn::Set(du16, 255);
    S even_lower, even_upper, odd_lower, odd_upper;
    for (std::int64_t k = 0; k < rows; k += 2, ++pairs, x += 2 * stride) {
        const auto low = hn::BitCast(d16, hn::Set(d32, pairs->low));
        const auto high = hn::BitCast(d16, hn::Set(d32, pairs->high));
        const auto a = hn::BitCast(du16, hn::LoadU(d, x));
        const auto b = hn::BitCast(du16, hn::LoadU(d, k + 1 < rows ? x + stride : x));
        const auto even_a = hn::And(a, mask), even_b = hn::And(b, mask);
        const auto odd_a = hn::ShiftRight<8>(a), odd_b = hn::ShiftRight<8>(b);
        const auto add = [&](S& sums, auto pixels) {
            sums.add(hn::BitCast(d16, pixels), low, high);
        };
        add(even_lower, hn::InterleaveLower(du16, even_a, even_b));
        add(even_upper, hn::InterleaveUpper(du16, even_a, even_b));
        add(odd_lower, hn::InterleaveLower(du16, odd_a, odd_b));
        add(odd_upper, hn::InterleaveUpper(du16, odd_a, odd_b));
    }
    const auto even = S::bytes(even_lower.rounded(), even_upper.rounded());
    const auto odd = S::bytes(odd_lower.rounded(), odd_upper.rounded());
    hn::StoreU(hn::BitCast(d, hn::Or(even, hn::ShiftLeft<8>(odd))), d, y);
}

// Loads kBlocks blocks that are `step` bytes apart.
template <std::int64_t kBlocks, class Tag>
HWY_INLINE hn::Vec<Tag> load_blocks(Tag d, const std::uint8_t* x, std::int64_t step) {
    if constexpr (kBlocks == 1) {
        return hn::LoadU(d, x);
    } else {
        constexpr std::int64_t kHalf = kBlocks / 2;
        const hn::Half<Tag> half;
        return hn::Combine(d, load_blocks<kHalf>(half, x + kHalf * step, step),
                           load_blocks<kHalf>(half, x, step));
    }
}

// Interleaves the first and the second half of kBlock vectors. This moves the highest bit of the
// index of a vector to the lowest bit of the index of a byte in its block, and the highest bit of
// the latter to the lowest bit of the former. Four such steps transpose each block.
template <class Tag>
HWY_INLINE void interleave_halves(Tag d, const StoredVec<Tag>* v, StoredVec<Tag>* y) {
    HWY_UNROLL(8)
    for (std::int64_t i = 0; i < kBlock / 2; ++i) {
        const hn::Vec<Tag> a = v[i], b = v[i + kBlock / 2];
        y[2 * i] = hn::InterleaveLower(d, a, b);
        y[2 * i + 1] = hn::InterleaveUpper(d, a, b);
    }
}

// Computes y[c, r] = x[r, c] for the rows r of one vector and kBlock columns c. The strides are the
// distances of the rows of x and of y.
template <class Tag>
HWY_INLINE void transpose_tile(Tag d, const std::uint8_t* x, std::int64_t x_stride, std::uint8_t* y,
                               std::int64_t y_stride) {
    StoredVec<Tag> v[kBlock], moved[kBlock];
    HWY_UNROLL(16)
    for (std::int64_t r = 0; r < kBlock; ++r)
        v[r] = load_blocks<lanes_of<Tag>() / kBlock>(d, x + r * x_stride, kBlock * x_stride);
    interleave_halves(d, v, moved);
    interleave_halves(d, moved, v);
    interleave_halves(d, v, moved);
    interleave_halves(d, moved, v);
    HWY_UNROLL(16)
    for (std::int64_t c = 0; c < kBlock; ++c) hn::StoreU(hn::Vec<Tag>(v[c]), d, y + c * y_stride);
}

#endif

// Calls run(d, i) for ranges of hn::Lanes(d) elements that begin at i and cover [0, n), where n is
// at least kBlock. The last range can overlap the range before.
template <class Run>
HWY_INLINE void for_ranges(std::int64_t n, Run run) {
    constexpr std::int64_t kLanes = lanes_of<ByteTag>();
    if (n >= kLanes)
        for (std::int64_t i = 0; i < n; i += kLanes) run(ByteTag(), std::min(i, n - kLanes));
    else
        for (std::int64_t i = 0; i < n; i += kBlock) run(BlockTag(), std::min(i, n - kBlock));
}

void filter_all_columns(const ByteFilter& filter, const std::uint8_t* x, std::int64_t stride,
                        std::int64_t width, std::uint8_t* y, std::int64_t y_stride) {
    for (std::int64_t i = 0; i < filter.size(); ++i, y += y_stride) {
        const ByteFilter::Output& output = filter.outputs()[i];
        const ByteFilter::Pair* pairs = filter.pairs(output);
        const std::uint8_t* from = x + (output.begin - filter.begin()) * stride;
        const std::int64_t rows = output.end - output.begin;
        if (width < kBlock)
            for (std::int64_t c = 0; c < width; ++c)
                filter_pixels<1>(pairs, rows, from + c, stride, y + c);
        else
            for_ranges(width, [&](auto d, std::int64_t c) {
                filter_vector(d, pairs, rows, from + c, stride, y + c);
            });
    }
}

// Computes y[c, r] = x[r, c] for all rows r and columns c.
void transpose(const std::uint8_t* x, std::int64_t x_stride, std::int64_t rows,
               std::int64_t columns, std::uint8_t* y, std::int64_t y_stride) {
    if (rows < kBlock || columns < kBlock) {
        for (std::int64_t r = 0; r < rows; ++r)
            for (std::int64_t c = 0; c < columns; ++c) y[c * y_stride + r] = x[r * x_stride + c];
        return;
    }
    for (std::int64_t tile = 0; tile < columns; tile += kBlock) {
        const std::int64_t c = std::min(tile, columns - kBlock);
        for_ranges(rows, [&](auto d, std::int64_t r) {
            transpose_tile(d, x + r * x_stride + c, x_stride, y + c * y_stride + r, y_stride);
        });
    }
}

}  // namespace

void filter_byte_columns(const ByteFilter& filter, const std::uint8_t* x, std::int64_t stride,
                         std::int64_t width, std::uint8_t* y, std::int64_t y_stride) {
    filter_all_columns(filter, x, stride, width, y, y_stride);
}

// Filters a few rows. x points to the first input pixel that is used. The buffer has `rows` bytes
// for each pixel of an input line and of an output line.
void filter_byte_strip(const ByteFilter& filter, const std::uint8_t* x, std::int64_t stride,
                       std::int64_t rows, std::uint8_t* y, std::uint8_t* buffer) {
    const std::int64_t used = filter.end() - filter.begin();
    std::uint8_t* lines = buffer + used * rows;
    transpose(x, stride, rows, used, buffer, rows);
    filter_all_columns(filter, buffer, rows, rows, lines, rows);
    transpose(lines, rows, filter.size(), rows, y, filter.size());
}

}  // namespace axle::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace axle::kernels {
namespace {

AXLE_DISPATCH(filter_byte_columns);
AXLE_DISPATCH(filter_byte_strip);

}  // namespace

void ByteFilter::add(std::int64_t begin, std::span<const std::int32_t> weights) {
    constexpr std::int32_t kLow = (1 << kLowBits) - 1;
    outputs_.push_back({begin, begin + std::ssize(weights), pairs_.size()});
    for (std::size_t k = 0; k < weights.size(); k += 2) {
        const std::int32_t a = weights[k], b = k + 1 < weights.size() ? weights[k + 1] : 0;
        const auto both = [](std::int32_t lower, std::int32_t upper) {
            return (lower & 0xffff) | upper * 0x10000;
        };
        pairs_.push_back({both(a & kLow, b & kLow), both(a >> kLowBits, b >> kLowBits)});
    }
}

void filter_columns(const ByteFilter& filter, const std::uint8_t* x, std::int64_t stride,
                    std::int64_t width, std::uint8_t* y, std::int64_t y_stride) {
    AXLE_CALL(filter_byte_columns)(filter, x, stride, width, y, y_stride);
}

void filter_rows(const ByteFilter& filter, const std::uint8_t* x, std::int64_t stride,
                 std::int64_t rows, std::uint8_t* y, std::vector<std::uint8_t>& buffer) {
    constexpr std::int64_t kStrip = 64;  // as many rows as the longest vector has bytes
    const std::int64_t strip = std::min(rows, kStrip);
    const std::int64_t used = filter.end() - filter.begin();
    const auto size = static_cast<std::size_t>((used + filter.size()) * strip);
    if (buffer.size() < size) buffer.resize(size);
    for (std::int64_t row = 0; row < rows; row += strip) {
        const std::int64_t r = std::min(row, rows - strip);  // can overlap the strip before
        AXLE_CALL(filter_byte_strip)
        (filter, x + r * stride + filter.begin(), stride, strip, y + r * filter.size(),
         buffer.data());
    }
}

}  // namespace axle::kernels

#endif  // HWY_ONCE
