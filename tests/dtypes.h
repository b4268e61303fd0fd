// The list of all dtypes. bench/interop/interop_pairs.py lists them in the same order.
#pragma once

#include "kernels/dtype.h"

namespace axle::tests {

inline constexpr DType kAllDTypes[] = {f64,
                                       f32,
                                       f16,
                                       bf16,
                                       i64,
                                       i32,
                                       u8,
                                       boolean,
                                       DType::i16,
                                       DType::i8,
                                       DType::u64,
                                       DType::u32,
                                       DType::u16,
                                       DType::c64,
                                       DType::f8_e4m3,
                                       DType::f8_e5m2,
                                       DType::f8_e8m0};

}  // namespace axle::tests
