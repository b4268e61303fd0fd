// Quantization of weights, and conversion of their rows back to floating dtypes, which uses SIMD.
#include "kernels/ops/quantize.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/pointwise/quantized_weight.cpp"
#include "kernels/cpu/targets.h"
//
#include <hwy/foreach_target.h>
//
#include <algorithm>

#include "kernels/cpu/simd-inl.h"
#include "kernels/rules/quantized_weight_rules.h"

HWY_BEFORE_NAMESPACE();
namespace axle::kernels::HWY_NAMESPACE {

// Targets with 8 or 16 lanes look up packs in a table of 16 floats.
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET <= HWY_AVX3
HWY_INLINE Pack nf4_pack(const std::uint8_t* bytes) {
    const hn::Rebind<std::uint8_t, FloatTag> d8;
    const hn::Repartition<std::uint16_t, decltype(d8)> d16;
    const hn::Rebind<std::uint8_t, decltype(d16)> half_d8;
    const auto pairs = hn::PromoteTo(d16, hn::LoadU(half_d8, bytes));
    const auto upper = hn::ShiftRight<4>(pairs);
    const auto lower = hn::ShiftLeft<8>(hn::And(pairs, hn::Set(d16, 15)));
    const auto codes = hn::PromoteTo(IntTag(), hn::BitCast(d8, hn::Or(upper, lower)));
    const FloatTag d;
#if HWY_TARGET == HWY_AVX2
    // A table of 8 floats for each half of the codes.
    const auto half = hn::Set(IntTag(), 7);
    const auto indices = hn::IndicesFromVec(d, hn::And(codes, half));
    return hn::IfThenElse(hn::RebindMask(d, hn::Gt(codes, half)),
                          hn::TableLookupLanes(hn::LoadU(d, kNf4 + 8), indices),
                          hn::TableLookupLanes(hn::LoadU(d, kNf4), indices));
#else
    return hn::TableLookupLanes(hn::LoadU(d, kNf4), hn::IndicesFromVec(d, codes));
#endif
}
#define AXLE_NF4_PACKS 1
#else
#define AXLE_NF4_PACKS 0
#endif

// Writes n elements of a block, of which the first is the upper half of bytes[0].
HWY_INLINE void nf4_run(const std::uint8_t* bytes, float absmax, float* y, std::int64_t n) {
    std::int64_t i = 0;
#if AXLE_NF4_PACKS
    const Pack scale(absmax);
    for (; i + Pack::kLanes <= n; i += Pack::kLanes) (nf4_pack(bytes + i / 2) * scale).store(y + i);
#endif
    for (; i < n; ++i) {
        const std::uint8_t byte = bytes[i / 2];
        y[i] = kNf4[i % 2 == 0 ? byte >> 4 : byte & 15] * absmax;
    }
}
#undef AXLE_NF4_PACKS

HWY_INLINE void int8_run(const std::int8_t* codes, float absmax, float* y, std::int64_t n) {
    const hn::Rebind<std::int8_t, FloatTag> d8;
    const Pack scale(absmax), inverse(1.0f / 127);
    std::int64_t i = 0;
    for (; i + Pack::kLanes <= n; i += Pack::kLanes) {
        const auto whole = hn::PromoteTo(IntTag(), hn::LoadU(d8, codes + i));
        (Pack(hn::ConvertTo(FloatTag(), whole)) * scale * inverse).store(y + i);
    }
    for (; i < n; ++i) y[i] = int8_value(codes[i], absmax);
}

// Writes elements [begin, end) of the weight in row-major order.
void dequantize_span(const QuantizedMatrix& weight, std::int64_t begin, std::int64_t end,
                     float* y) {
    const bool is_int8 = weight.format == WeightFormat::int8;
    const std::int64_t size = is_int8 ? weight.columns : weight.block;
    for (std::int64_t i = begin; i < end;) {
        const std::int64_t block = i / size, stop = std::min(end, (block + 1) * size);
        if (is_int8) {
            int8_run(static_cast<const std::int8_t*>(weight.values) + i, weight.absmax[block], y,
                     stop - i);
        } else {
            const auto* const bytes = static_cast<const std::uint8_t*>(weight.values);
            const float absmax = block_absmax(weight, kDynamicMagnitudes, block);
            if (i % 2 != 0) *y++ = kNf4[bytes[i++ / 2] & 15] * absmax;
            nf4_run(bytes + i / 2, absmax, y, stop - i);
        }
        y += stop - i;
        i = stop;
    }
}

}  // namespace axle::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

#include <cfloat>
#include <cmath>

#include "kernels/cpu/chunks.h"
#include "kernels/cpu/lanes.h"
#include "kernels/walk.h"

namespace axle::kernels {
namespace {

AXLE_DISPATCH(dequantize_span);

// Returns max(a, |x|), or NaN if one of them is NaN.
float larger(float a, float x) {
    const float magnitude = std::fabs(x);
    return magnitude > a || magnitude != magnitude ? magnitude : a;
}

// Calls f(begin, values, n) with n elements of x from `begin` on, converted to f32, for each part
// of at most kBlock elements of a block of `size` elements.
template <class F>
void over_parts(const ConstView& x, std::int64_t size, std::int64_t block, F&& f) {
    float buffer[kBlock];
    const std::int64_t end = std::min(x.numel(), (block + 1) * size);
    for (std::int64_t begin = block * size; begin < end; begin += kBlock) {
        const std::int64_t n = std::min(kBlock, end - begin);
        f(begin, load_lanes(at(x.data, x.dtype, begin), x.dtype, 1, n, buffer), n);
    }
}

// Returns the largest magnitude of a block of `size` elements, or NaN if an element is NaN.
float absmax_of(const ConstView& x, std::int64_t size, std::int64_t block) {
    float absmax = 0;
    over_parts(x, size, block, [&](std::int64_t, const float* values, std::int64_t n) {
        for (std::int64_t i = 0; i < n; ++i) absmax = larger(absmax, values[i]);
    });
    return absmax;
}

// Calls f(block) for all blocks, in parallel.
template <class F>
void over_blocks(std::int64_t blocks, std::int64_t size, F&& f) {
    const std::int64_t each = std::max<std::int64_t>(1, kChunk / size);
    parallel_ranges(blocks, each, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t block = begin; block < end; ++block) f(block);
    });
}

// Returns the number of thresholds below x: the index of the nearest value.
int nearest(const float* values, int count, float x) {
    int low = 0, high = count - 1;
    while (low < high) {
        const int middle = (low + high) / 2;
        if (x > (values[middle] + values[middle + 1]) / 2)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

// Sets codes[i] to the index of the value of NF4 nearest to values[i] * inverse.
void nf4_codes(const float* values, std::int64_t n, float inverse, std::int32_t* codes) {
    for (std::int64_t i = 0; i < n; ++i) codes[i] = 0;
    for (int v = 0; v + 1 < 16; ++v) {
        const float threshold = (kNf4[v] + kNf4[v + 1]) / 2;
        for (std::int64_t i = 0; i < n; ++i) codes[i] += values[i] * inverse > threshold ? 1 : 0;
    }
}

// Returns the factor by which bitsandbytes multiplies the elements of a block.
float inverse_of(float absmax) { return 1 / std::max(absmax, 1e-38f); }

}  // namespace

void dequantize(Cpu&, const QuantizedMatrix& weight, std::int64_t first, View y) {
    const std::int64_t start = first * weight.columns;
    parallel_ranges(y.numel(), kChunk, [&](std::int64_t begin, std::int64_t end) {
        float buffer[kBlock];
        for (std::int64_t i = begin; i < end; i += kBlock) {
            const std::int64_t n = std::min(kBlock, end - i);
            void* const to = at(y.data, y.dtype, i);
            float* const lanes = y.dtype == DType::f32 ? static_cast<float*>(to) : buffer;
            AXLE_CALL(dequantize_span)(weight, start + i, start + i + n, lanes);
            store_lanes(lanes, to, y.dtype, 1, n);
        }
    });
}

void quantize_int8(Cpu&, ConstView x, std::int8_t* values, float* absmax) {
    const std::int64_t columns = x.shape[1];
    over_blocks(x.shape[0], columns, [&](std::int64_t row) {
        absmax[row] = absmax_of(x, columns, row);
        const float factor = 127 * (1 / absmax[row]);  // rounded like PyTorch's 127 / absmax
        const bool is_zero = !(absmax[row] <= FLT_MAX && factor <= FLT_MAX);
        over_parts(x, columns, row, [&](std::int64_t begin, const float* part, std::int64_t n) {
            for (std::int64_t i = 0; i < n; ++i)
                values[begin + i] = static_cast<std::int8_t>(
                    is_zero ? 0 : std::clamp(std::nearbyint(part[i] * factor), -127.0f, 127.0f));
        });
    });
}

void quantize_nf4(Cpu&, ConstView x, std::int64_t block, std::uint8_t* values, float* absmax) {
    const std::int64_t count = x.numel();
    over_blocks((count + block - 1) / block, block, [&](std::int64_t b) {
        absmax[b] = absmax_of(x, block, b);
        const float inverse = inverse_of(absmax[b]);
        over_parts(x, block, b, [&](std::int64_t begin, const float* part, std::int64_t n) {
            std::int32_t codes[kBlock + 1];
            nf4_codes(part, n, inverse, codes);
            codes[n] = 7;  // the code of 0, for the half of a byte after the last element
            for (std::int64_t i = 0; i < n; i += 2)
                values[(begin + i) / 2] = static_cast<std::uint8_t>(codes[i] << 4 | codes[i + 1]);
        });
    });
}

void quantize_absmax(Cpu&, const float* absmax, std::int64_t n, std::uint8_t* codes,
                     float* nested_absmax, float* nested_offset) {
    float map[256];
    for (int code = 0; code < 256; ++code) map[code] = dynamic_value(kDynamicMagnitudes, code);
    double sum = 0;
    for (std::int64_t i = 0; i < n; ++i) sum += absmax[i];
    const auto offset = static_cast<float>(sum / static_cast<double>(n));
    *nested_offset = offset;
    for (std::int64_t begin = 0; begin < n; begin += kAbsmaxGroup) {
        const std::int64_t end = std::min(n, begin + kAbsmaxGroup);
        float most = 0;
        for (std::int64_t i = begin; i < end; ++i) most = larger(most, absmax[i] - offset);
        nested_absmax[begin / kAbsmaxGroup] = most;
        const float inverse = inverse_of(most);
        for (std::int64_t i = begin; i < end; ++i)
            codes[i] = static_cast<std::uint8_t>(nearest(map, 256, (absmax[i] - offset) * inverse));
    }
}

}  // namespace axle::kernels

#endif  // HWY_ONCE
