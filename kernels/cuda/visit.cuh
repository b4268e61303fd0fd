// Private to kernels: dispatch from dtypes to types of device code, and conversion of operands.
#pragma once

#include "kernels/dtype.h"
#include "kernels/exec.h"
#include "kernels/ops/copy.h"

namespace axle::kernels {

// Calls f<T>() with the type of an integer dtype. Booleans are visited as bytes 0 and 1.
template <class F>
void visit_integer(DType t, F&& f) {
    if (t == DType::i64) return f.template operator()<std::int64_t>();
    if (t == DType::i32) return f.template operator()<std::int32_t>();
    f.template operator()<std::uint8_t>();
}

// Calls f<T>() with the type of a floating dtype or, if kIntegers is true, of any compute dtype.
template <bool kIntegers, class F>
void visit_lanes(DType t, F&& f) {
    if constexpr (kIntegers) {
        if (!is_floating(t)) return visit_integer(t, std::forward<F>(f));
    }
    visit_float(t, std::forward<F>(f));
}

// Calls f<T>() with an unsigned integer of the dtype's size, to copy elements of any dtype.
template <class F>
void visit_bits(DType t, F&& f) {
    switch (size_of(t)) {
        case 1:
            return f.template operator()<std::uint8_t>();
        case 2:
            return f.template operator()<std::uint16_t>();
        case 4:
            return f.template operator()<std::uint32_t>();
        default:
            return f.template operator()<std::uint64_t>();
    }
}

// Returns a row-major view of `data` with x's shape and the given dtype.
template <class V>
View dense_like(const V& x, void* data, DType dtype) {
    View y;
    y.data = data, y.dtype = dtype, y.ndim = x.ndim;
    std::int64_t stride = 1;
    for (int d = x.ndim - 1; d >= 0; --d) {
        y.shape[d] = x.shape[d], y.stride[d] = stride;
        stride *= x.shape[d];
    }
    return y;
}

// Returns x if it is row-major or has no data, else a row-major copy in scratch memory.
inline ConstView as_contiguous(Cuda& on, DeviceScratch& scratch, ConstView x) {
    if (x.contiguous() || x.data == nullptr) return x;
    const View y = dense_like(x, scratch.take<char>(x.numel() * size_of(x.dtype)), x.dtype);
    copy(on, x, y);
    return y;
}

// Returns x if it has the dtype or no data, else a converted copy in scratch memory.
inline ConstView as_dtype(Cuda& on, DeviceScratch& scratch, ConstView x, DType dtype) {
    if (x.dtype == dtype || x.data == nullptr) return x;
    const View y = dense_like(x, scratch.take<char>(x.numel() * size_of(dtype)), dtype);
    copy(on, x, y);
    return y;
}

// Calls compute(wide) with an f32 view of y's shape in scratch memory, and converts the result to
// y.
template <class Compute>
void compute_in_f32(Cuda& on, DeviceScratch& scratch, View y, Compute&& compute) {
    const View wide = dense_like(
        y, scratch.take<char>(y.numel() * static_cast<std::int64_t>(sizeof(float))), DType::f32);
    compute(wide);
    copy(on, wide, y);
}

}  // namespace axle::kernels
