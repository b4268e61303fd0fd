// Element types. Ops compute with the compute dtypes. Tensors of a storage dtype can only be
// viewed, copied, saved and loaded; kernels/ops/quantize.h converts to and from f8_e4m3 and
// f8_e5m2.
#pragma once

#include <cassert>
#include <cstdint>
#include <ostream>
#include <string_view>
#include <utility>

#include "kernels/half.h"

namespace axle {

enum class DType : std::uint8_t {
    // The compute dtypes, which ops support.
    f64,
    f32,
    f16,
    bf16,
    i64,
    i32,
    u8,
    boolean,
    // The storage dtypes, which only views, copies, saving and loading support.
    i16,
    i8,
    u64,
    u32,
    u16,
    f8_e4m3,
    f8_e5m2,
    f8_e8m0,
    c64,
};

inline constexpr DType f64 = DType::f64;
inline constexpr DType f32 = DType::f32;
inline constexpr DType f16 = DType::f16;
inline constexpr DType bf16 = DType::bf16;
inline constexpr DType i64 = DType::i64;
inline constexpr DType i32 = DType::i32;
inline constexpr DType u8 = DType::u8;
inline constexpr DType boolean = DType::boolean;

// Returns the size of one element in bytes.
constexpr std::int64_t size_of(DType t) {
    switch (t) {
        case DType::f64:
        case DType::i64:
        case DType::u64:
        case DType::c64:
            return 8;
        case DType::f32:
        case DType::i32:
        case DType::u32:
            return 4;
        case DType::f16:
        case DType::bf16:
        case DType::i16:
        case DType::u16:
            return 2;
        default:
            return 1;
    }
}

constexpr bool is_floating(DType t) {
    return t == DType::f64 || t == DType::f32 || t == DType::f16 || t == DType::bf16;
}
// Returns whether the dtype is f16 or bf16. Kernels convert such elements to f32 to compute.
constexpr bool is_half(DType t) { return t == DType::f16 || t == DType::bf16; }
constexpr bool is_integral(DType t) {
    return t == DType::i64 || t == DType::i32 || t == DType::u8 || t == DType::boolean;
}
constexpr bool is_compute(DType t) { return is_floating(t) || is_integral(t); }

// Returns PyTorch's name of the dtype, such as "float32", "bfloat16" or "bool".
std::string_view name_of(DType t);
inline std::ostream& operator<<(std::ostream& out, DType t) { return out << name_of(t); }

template <class T>
struct DTypeOf;
template <>
struct DTypeOf<double> {
    static constexpr DType value = DType::f64;
};
template <>
struct DTypeOf<float> {
    static constexpr DType value = DType::f32;
};
template <>
struct DTypeOf<Half> {
    static constexpr DType value = DType::f16;
};
template <>
struct DTypeOf<BFloat16> {
    static constexpr DType value = DType::bf16;
};
template <>
struct DTypeOf<std::int64_t> {
    static constexpr DType value = DType::i64;
};
template <>
struct DTypeOf<std::int32_t> {
    static constexpr DType value = DType::i32;
};
template <>
struct DTypeOf<std::uint8_t> {
    static constexpr DType value = DType::u8;
};
template <>
struct DTypeOf<bool> {
    static constexpr DType value = DType::boolean;
};
template <class T>
inline constexpr DType dtype_of = DTypeOf<T>::value;

// The visit functions call f.template operator()<T>() with the C++ type T of the dtype t, and
// return its result. visit_float supports the floating dtypes, visit_f32_f64 only f32 and f64,
// visit_index only i32 and i64, and visit_compute all compute dtypes. Callers have checked the
// dtype; any other dtype is a bug in Axle.
template <class F>
decltype(auto) visit_float(DType t, F&& f) {
    switch (t) {
        case DType::f64:
            return f.template operator()<double>();
        case DType::f16:
            return f.template operator()<Half>();
        case DType::bf16:
            return f.template operator()<BFloat16>();
        default:
            assert(t == DType::f32);
            return f.template operator()<float>();
    }
}
template <class F>
decltype(auto) visit_f32_f64(DType t, F&& f) {
    assert(t == DType::f32 || t == DType::f64);
    if (t == DType::f64) return f.template operator()<double>();
    return f.template operator()<float>();
}
template <class F>
decltype(auto) visit_index(DType t, F&& f) {
    assert(t == DType::i32 || t == DType::i64);
    if (t == DType::i32) return f.template operator()<std::int32_t>();
    return f.template operator()<std::int64_t>();
}
template <class F>
decltype(auto) visit_compute(DType t, F&& f) {
    switch (t) {
        case DType::i64:
            return f.template operator()<std::int64_t>();
        case DType::i32:
            return f.template operator()<std::int32_t>();
        case DType::u8:
            return f.template operator()<std::uint8_t>();
        case DType::boolean:
            return f.template operator()<bool>();
        default:
            return visit_float(t, std::forward<F>(f));
    }
}

}  // namespace axle
