// Private to the library: finds parameters by the address of their Impl.
#pragma once

#include <functional>
#include <span>

#include "core/tensor.h"

namespace axle::autograd {

// Called when a leaf begins to require a gradient, and when its Impl is destroyed.
void add_parameter(const Impl& impl);
void remove_parameter(const Impl& impl) noexcept;

// Returns the first of the addresses that is the Impl of a leaf which requires a gradient and for
// which `is_known` returns false, or nullptr. The addresses can have any value. Thread-safe.
const Impl* find_unknown_parameter(std::span<const void* const> addresses,
                                   const std::function<bool(const Impl*)>& is_known);

}  // namespace axle::autograd
