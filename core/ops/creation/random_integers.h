// Private to core: randint() with errors that name another op.
#pragma once

#include <cstdint>

#include "core/tensor.h"

namespace axle {

// Returns randint(low, high, shape, options). Errors name the op `op`, which calls it.
Tensor random_integers(const char* op, std::int64_t low, std::int64_t high, const Shape& shape,
                       TensorOptions options);

}  // namespace axle
