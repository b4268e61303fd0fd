// Checks of ids and targets, shared by ops and by the layers that processes divide
// (dist/tensor_parallel/). On a CPU the functions throw IndexError immediately; on a GPU the error
// is reported asynchronously, with the name of the current profiler::OpScope.
#pragma once

#include <cstdint>

#include "core/tensor.h"

namespace axle {

// Throws IndexError unless all indices are in [0, size).
void check_index_range(const char* op, const Tensor& index, std::int64_t size);
// Throws IndexError unless every target is ignore_index or in [0, classes). targets is [N].
void check_targets(const char* op, const Tensor& targets, std::int64_t classes,
                   std::int64_t ignore_index);

}  // namespace axle
