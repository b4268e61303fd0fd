// Creates tensors with known bytes, and describes tensors in JSON.
#pragma once

#include <cstddef>
#include <string>

#include "core/ops.h"
#include "core/tree/tree.h"
#include "tests/dtypes.h"

namespace axle::bench {

using tests::kAllDTypes;

// Returns a tensor whose byte i is 7 i + 3 (mod 256), or (i + 1) mod 2 for bools.
inline Tensor patterned(const Shape& shape, DType dtype) {
    const Tensor x = Tensor::empty(shape, {.dtype = dtype});
    auto* bytes = static_cast<unsigned char*>(x.raw_data());
    for (std::int64_t i = 0; i < x.numel() * size_of(dtype); ++i)
        bytes[i] = static_cast<unsigned char>(dtype == boolean ? (i + 1) % 2 : 7 * i + 3);
    return x;
}

// Returns the bytes of the elements, in row-major order, as hexadecimal digits.
inline std::string hex_of(const Tensor& x) {
    const Tensor dense = contiguous(x);
    const auto* bytes = static_cast<const unsigned char*>(dense.raw_data());
    std::string text;
    for (std::int64_t i = 0; i < dense.numel() * size_of(dense.dtype()); ++i) {
        text += "0123456789abcdef"[bytes[i] / 16];
        text += "0123456789abcdef"[bytes[i] % 16];
    }
    return text;
}

inline Tree described(const Tensor& x) {
    Tree shape = Tree::list();
    for (const std::int64_t size : x.shape()) shape.push_back(size);
    return {{"dtype", std::string(name_of(x.dtype()))}, {"shape", shape}, {"bytes", hex_of(x)}};
}

}  // namespace axle::bench
