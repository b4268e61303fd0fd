// Copies, conversions, fills and arange(). Operands of the same dtype are copied as raw bits, in
// runs if they are contiguous. Operands of different dtypes are converted through lanes of i64, f32
// or f64. A transposed copy is iterated in the order of the output.
#include "kernels/ops/copy.h"

#include <algorithm>
#include <cstring>

#include "kernels/cpu/pointwise/spans.h"
#include "kernels/walk.h"

namespace axle::kernels {
namespace {

constexpr std::int64_t kTask = 65536;

// Copies n elements that have the size of T as raw bits.
template <class T>
void copy_row(const void* x, std::int64_t x_stride, void* y, std::int64_t y_stride,
              std::int64_t n) {
    if (x_stride == 1 && y_stride == 1) {
        std::memcpy(y, x, static_cast<std::size_t>(n) * sizeof(T));
        return;
    }
    const T* from = static_cast<const T*>(x);
    T* to = static_cast<T*>(y);
    for (std::int64_t i = 0; i < n; ++i) to[i * y_stride] = from[i * x_stride];
}

using CopyRow = void (*)(const void*, std::int64_t, void*, std::int64_t, std::int64_t);

CopyRow copy_row_of(std::int64_t size) {
    switch (size) {
        case 8:
            return copy_row<std::uint64_t>;
        case 4:
            return copy_row<std::uint32_t>;
        case 2:
            return copy_row<std::uint16_t>;
        default:
            return copy_row<std::uint8_t>;
    }
}

// Calls piece(from, from_stride, to, to_stride, n) for pieces of rows, each with n <= kTask
// elements.
template <class Piece>
void for_each_piece(ConstView x, View y, Piece&& piece) {
    const Walk<2> walk({y, x});
    const std::int64_t width = walk.width();
    if (walk.rows() == 0 || width == 0) return;
    const std::int64_t parts = (width + kTask - 1) / kTask;
    const std::int64_t grain = std::max<std::int64_t>(1, kTask / width);
    parallel_ranges(walk.rows() * parts, grain, [&](std::int64_t first, std::int64_t last) {
        for (std::int64_t task = first; task < last; ++task) {
            const auto offsets = walk.offsets(task / parts);
            const std::int64_t begin = task % parts * kTask;
            piece(at(x.data, x.dtype, offsets[1] + begin * walk.stride(1)), walk.stride(1),
                  at(y.data, y.dtype, offsets[0] + begin * walk.stride(0)), walk.stride(0),
                  std::min(kTask, width - begin));
        }
    });
}

// Converts the elements to Lane, and then to the dtype of y.
template <class Lane>
void convert(ConstView x, View y) {
    const DType from_dtype = x.dtype, to_dtype = y.dtype;
    for_each_piece(x, y,
                   [=](const void* from, std::int64_t from_stride, void* to, std::int64_t to_stride,
                       std::int64_t n) {
                       alignas(64) Lane buffer[kBlock];
                       const bool direct = is_lanes<Lane>(to_dtype, to_stride, n);
                       for (std::int64_t i = 0; i < n; i += kBlock) {
                           const std::int64_t count = std::min(kBlock, n - i);
                           void* const out = at(to, to_dtype, i * to_stride);
                           const Lane* lanes = load_lanes<Lane>(
                               at(from, from_dtype, i * from_stride), from_dtype, from_stride,
                               count, direct ? static_cast<Lane*>(out) : buffer);
                           store_lanes<Lane>(lanes, out, to_dtype, to_stride, count);
                       }
                   });
}

void to_f32(const void*, const void* const* in, void* out, std::int64_t n) {
    const auto* const x = static_cast<const std::int64_t*>(in[0]);
    auto* const y = static_cast<float*>(out);
    for (std::int64_t i = 0; i < n; ++i) y[i] = static_cast<float>(x[i]);
}

template <class T>
void store_constant(const void* value, const void* const*, void* out, std::int64_t n) {
    std::fill_n(static_cast<T*>(out), n, *static_cast<const T*>(value));
}

}  // namespace

void copy(Cpu& on, ConstView x, View y) {
    if (x.dtype == y.dtype) return for_each_piece(x, y, copy_row_of(size_of(y.dtype)));
    // The lane type is i64 for two integer dtypes, f32 if both dtypes are f32, f16 or bf16, and f64
    // otherwise. From i64 to f32, f16 or bf16, the lanes are converted from i64 to f32, because f64
    // would round values beyond 2^53 once more.
    const bool small =
        (is_half(x.dtype) || x.dtype == DType::f32) && (is_half(y.dtype) || y.dtype == DType::f32);
    const bool whole = is_integral(x.dtype) && is_integral(y.dtype);
    if (whole) return convert<std::int64_t>(x, y);
    if (small) return convert<float>(x, y);
    if (x.dtype == DType::i64 && y.dtype != DType::f64) {
        const SpanInput in[] = {{x, DType::i64}};
        return run_spans(on, to_f32, nullptr, in, 1, {y, DType::f32});
    }
    convert<double>(x, y);
}

void fill(Cpu& on, double value, View y) {
    if (y.dtype != DType::f32)
        return run_spans(on, store_constant<double>, &value, nullptr, 0, {y, DType::f64});
    const float single = static_cast<float>(value);
    run_spans(on, store_constant<float>, &single, nullptr, 0, {y, DType::f32});
}

void fill(Cpu& on, std::int64_t value, View y) {
    if (!is_integral(y.dtype)) return fill(on, static_cast<double>(value), y);
    run_spans(on, store_constant<std::int64_t>, &value, nullptr, 0, {y, DType::i64});
}

void arange(Cpu&, double start, double step, View y) {
    const std::int64_t stride = y.ndim == 0 ? 1 : y.stride[0];
    visit_compute(y.dtype, [&]<class T>() {
        const std::int64_t n = y.numel();
        for (std::int64_t i = 0; i < n; ++i) {
            const double value = start + static_cast<double>(i) * step;
            if constexpr (std::is_integral_v<T>)
                y.as<T>()[i * stride] = static_cast<T>(static_cast<std::int64_t>(value));
            else if constexpr (std::is_same_v<T, double>)
                y.as<T>()[i * stride] = value;
            else
                y.as<T>()[i * stride] = T(static_cast<float>(value));
        }
    });
}

}  // namespace axle::kernels
