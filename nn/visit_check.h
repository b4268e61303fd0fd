// Private to nn: finds members of modules that visit() does not name.
#pragma once

#include <cstddef>

#include "nn/module.h"

namespace axle::nn {

// Add a module to the set of all modules of the process, and remove it. The constructors and the
// destructor of Module call them. Thread-safe.
void add_module(const Module& module);
void remove_module(const Module& module) noexcept;

// Records which bytes in the memory of a module look like a Tensor before its members are
// constructed, even if they refer to no tensor now: a later tensor can have the same address. Such
// bytes can remain from earlier objects in this memory, and stay unchanged in a member such as an
// empty optional. Thread-safe.
void remember_old_bytes(void* memory, std::size_t size) noexcept;

// Implements Module::check_visit(): throws UsageError if the memory of `root`, or of a module below
// it, contains a module or a parameter that visit() neither names nor ignores, or if a visit() uses
// a name twice. A parameter is found by its bytes, which must be equal to a Tensor that is a leaf
// and requires a gradient. The bytes of a destroyed Tensor do not match, because ~Tensor clears
// them. remember_old_bytes() has recorded the bytes that were in the memory before the object was
// constructed. So only a member that refers to the leaf without being a Tensor (a
// std::shared_ptr<Impl> or a std::weak_ptr<Impl>) is reported by mistake.
void check_visit(const Module& root);

}  // namespace axle::nn
