// Between storage and lanes: kernels compute on contiguous spans of a few lane types, and these two
// functions bring any dtype and stride there and back.
#pragma once

#include <cstdint>

#include "kernels/dtype.h"

namespace axle::inline v0::kernels {

// Elements that a block of a strided walk has: its buffers stay in L1.
inline constexpr std::int64_t kBlock = 512;

// n elements of `dtype`, `stride` elements apart, as Lane (float, double, int64_t, int32_t,
// uint8_t, bool). Returns data itself where nothing must be moved or converted, else buffer (n of
// them).
template <class Lane>
const Lane* load_lanes(const void* data, DType dtype, std::int64_t stride, std::int64_t n,
                       Lane* buffer);

// The way back; f16 and bf16 are rounded to nearest, ties to even. Nothing is done where lanes is
// data itself.
template <class Lane>
void store_lanes(const Lane* lanes, void* data, DType dtype, std::int64_t stride, std::int64_t n);

// Whether store_lanes would have to move or convert: if not, a kernel may write to data directly.
template <class Lane>
bool is_lanes(DType dtype, std::int64_t stride, std::int64_t n) {
    return dtype == dtype_of<Lane> && (stride == 1 || n == 1);
}

// The type that arithmetic on a dtype happens in: f16 and bf16 in f32.
constexpr DType lane_dtype(DType t) { return is_half(t) ? DType::f32 : t; }

}  // namespace axle::inline v0::kernels
