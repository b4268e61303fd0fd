// Private to nn: finds members of modules that visit() does not name.
#pragma once

#include "nn/module.h"

namespace axle::nn {

// Called by the constructors and the destructor of every module.
void add_module(const Module& module);
void remove_module(const Module& module) noexcept;

// Throws UsageError if the memory of `root`, or of a module below it, contains a module that
// visit() neither names nor ignores.
void check_visit(const Module& root);

}  // namespace axle::nn
