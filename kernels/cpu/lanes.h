// Conversion between storage and SIMD lanes. Kernels compute on contiguous blocks of a few lane
// types; load_lanes and store_lanes convert from and to any dtype and stride.
#pragma once

#include <cstdint>

#include "kernels/dtype.h"

namespace axle::kernels {

// Elements per block of a strided walk; its buffers stay in L1.
inline constexpr std::int64_t kBlock = 512;

// Returns n elements of `dtype`, `stride` elements apart, as Lane (float, double, int64_t, int32_t,
// uint8_t, bool). Returns data itself if no conversion is needed, else buffer (n elements).
template <class Lane>
const Lane* load_lanes(const void* data, DType dtype, std::int64_t stride, std::int64_t n,
                       Lane* buffer);

// Stores lanes, rounding f16 and bf16 to nearest, ties to even. Does nothing if lanes is data
// itself.
template <class Lane>
void store_lanes(const Lane* lanes, void* data, DType dtype, std::int64_t stride, std::int64_t n);

// Returns whether a kernel can write to data directly, because store_lanes would do nothing.
template <class Lane>
bool is_lanes(DType dtype, std::int64_t stride, std::int64_t n) {
    return dtype == dtype_of<Lane> && (stride == 1 || n == 1);
}

// Returns the dtype that arithmetic is done in, which is f32 for f16 and bf16.
constexpr DType lane_dtype(DType t) { return is_half(t) ? DType::f32 : t; }

}  // namespace axle::kernels
