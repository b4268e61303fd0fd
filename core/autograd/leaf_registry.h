// Private to the library: the registry of all leaves of the process that require a gradient. nn
// uses it to find the parameters that are members of a module.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "core/tensor.h"

namespace axle::autograd {

// Add and remove a leaf that requires a gradient. Called by Tensor::set_requires_grad() and ~Impl,
// so that tensors that do not require a gradient cost nothing. Thread-safe.
void add_leaf(const std::shared_ptr<Impl>& leaf);
void remove_leaf(const Impl& leaf) noexcept;

// A registered leaf, and an address whose bytes are equal to a Tensor that refers to the leaf.
struct FoundLeaf {
    const std::byte* place;
    Tensor leaf;
};

// Searches [begin, end) for Tensors that refer to registered leaves, and returns them in the order
// of their addresses. `begin` must have the alignment of a Tensor. The search also reads bytes that
// no constructor has written, which can contain a copy of an earlier handle. Bytes of a destroyed
// Tensor are not found, because ~Tensor clears them. Thread-safe, but other threads must not write
// to the range.
std::vector<FoundLeaf> find_leaves(const std::byte* begin, const std::byte* end);

}  // namespace axle::autograd
