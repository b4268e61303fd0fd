// Conversion between storage and SIMD lanes. Kernels compute on contiguous blocks of a few lane
// types; load_lanes and store_lanes convert lanes from and to any compute dtype and stride.
// Conversions to integers are as in copy() (kernels/ops/copy.h).
#pragma once

#include <cstdint>

#include "kernels/dtype.h"

namespace axle::kernels {

// The number of elements per block of a strided walk. Buffers of this size stay in L1.
inline constexpr std::int64_t kBlock = 512;

// Returns n elements of `dtype`, `stride` elements apart, as an array of Lane (float, double,
// int64_t, int32_t, uint8_t or bool). Returns data itself if no conversion is needed. Otherwise
// fills and returns buffer (n elements).
template <class Lane>
const Lane* load_lanes(const void* data, DType dtype, std::int64_t stride, std::int64_t n,
                       Lane* buffer);

// Stores n lanes at data, `stride` elements apart, converted to dtype. For f16 and bf16, values are
// converted to f32, then rounded to nearest, ties to even. Does nothing if lanes is data itself.
template <class Lane>
void store_lanes(const Lane* lanes, void* data, DType dtype, std::int64_t stride, std::int64_t n);

// Returns whether a kernel can write lanes directly to data, so that store_lanes is not needed.
template <class Lane>
bool is_lanes(DType dtype, std::int64_t stride, std::int64_t n) {
    return dtype == dtype_of<Lane> && (stride == 1 || n == 1);
}

// Returns the dtype that is used for arithmetic: f32 for f16 and bf16, and t for other dtypes.
constexpr DType lane_dtype(DType t) { return is_half(t) ? DType::f32 : t; }

}  // namespace axle::kernels
