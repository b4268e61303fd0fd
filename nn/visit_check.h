// Private to nn: finds members of modules that visit() does not name.
#pragma once

#include "nn/module.h"

namespace axle::nn {

// Add a module to the set of all modules of the process, and remove it. The constructors and the
// destructor of Module call them. Thread-safe.
void add_module(const Module& module);
void remove_module(const Module& module) noexcept;

// Implements Module::check_visit(): throws UsageError if the memory of `root`, or of a module below
// it, contains a module that visit() neither names nor ignores.
void check_visit(const Module& root);

}  // namespace axle::nn
