// Operands and names of the rows of bench_kernels.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>

#include "core/numerics.h"
#include "core/ops.h"

namespace axle::bench {

// Operands are tensors, which own the memory; the calls use their views.
inline Tensor operand(const Shape& shape, DType dtype = f32) { return randn(shape, {dtype}); }
inline Tensor indices(std::int64_t below, const Shape& shape) { return randint(0, below, shape); }

inline double product(std::initializer_list<std::int64_t> sizes) {
    double n = 1;
    for (const std::int64_t size : sizes) n *= static_cast<double>(size);
    return n;
}
inline std::string size_text(std::initializer_list<std::int64_t> sizes) {
    std::string text;
    for (const std::int64_t size : sizes) text += (text.empty() ? "" : "x") + std::to_string(size);
    return text;
}

}  // namespace axle::bench
