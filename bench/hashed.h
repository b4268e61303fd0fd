// Weights and data that are hashes of their indices, as in bench/peers/hashed.py, so that programs
// of several engines train the same model with the same data.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>

#include "core/autograd/autograd.h"
#include "core/ops.h"
#include "nn/module.h"

namespace axle::bench {

// Returns number i of the sequence of random numbers with the key `key`.
constexpr std::uint32_t hashed(std::uint32_t key, std::uint32_t i) {
    std::uint32_t h = i * 0x9e3779b1u + key * 0x85ebca6bu + 0x27d4eb2fu;
    h = (h ^ (h >> 16)) * 0x7feb352du;
    h = (h ^ (h >> 15)) * 0x846ca68bu;
    return h ^ (h >> 16);
}
// The first key of data. Smaller keys are the indices of parameters.
inline constexpr std::uint32_t kDataKey = 1u << 20;

// Returns a tensor of uniform random numbers in [-bound, bound).
inline Tensor hashed_floats(std::uint32_t key, const Shape& shape, double bound) {
    Tensor x = empty(shape);
    auto* const to = x.data<float>();
    for (std::int64_t i = 0; i < x.numel(); ++i) {
        const auto bits = hashed(key, static_cast<std::uint32_t>(i)) >> 8;
        to[i] = static_cast<float>((bits * 0x1p-23 - 1) * bound);
    }
    return x;
}
// Returns an i64 tensor of random integers in [0, limit).
inline Tensor hashed_ids(std::uint32_t key, const Shape& shape, std::int64_t limit) {
    Tensor x = empty(shape, {i64});
    auto* const to = x.data<std::int64_t>();
    for (std::int64_t i = 0; i < x.numel(); ++i)
        to[i] = hashed(key, static_cast<std::uint32_t>(i)) % limit;
    return x;
}

// Sets the parameters. Matrices and convolution kernels are uniform with the bound bound_of(name,
// p), biases are 0, and all other parameters are 1.
template <class BoundOf>
void set_hashed_weights(nn::Module& model, BoundOf&& bound_of) {
    std::uint32_t key = 0;
    for (auto& [name, p] : model.named_parameters()) {
        const NoGrad no_grad;
        if (p.dim() > 1)
            p.set_data(hashed_floats(key, p.shape(), bound_of(name, p)));
        else
            p.set_data(full(p.shape(), name.ends_with("bias") ? 0.0 : 1.0));
        ++key;
    }
}
// Returns the bound of PyTorch's layers, 1 / sqrt(fan_in).
inline double fan_in_bound(const std::string&, const Tensor& p) {
    const std::int64_t fan_in = p.numel() / p.size(0);
    return 1 / std::sqrt(static_cast<double>(fan_in));
}

}  // namespace axle::bench
