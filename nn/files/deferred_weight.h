// Private to nn: weights of files that are read when they are used (DeferredWeights in nn/init.h).
#pragma once

#include <string>

#include "core/tensor.h"
#include "nn/files/weight_files.h"

namespace axle::nn {

// Returns a tensor on the CPU without memory. The first use of its elements allocates the memory,
// reads the weight and converts it to `dtype`. This throws FileError, which names `path`, if the
// weight cannot be read. The weight must not be empty.
Tensor deferred_weight(const WeightFiles::Weight& weight, DType dtype, const std::string& path);

}  // namespace axle::nn
