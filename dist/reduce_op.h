// ReduceOp: the operation by which a collective combines the values of several processes.
#pragma once

#include <cstdint>

namespace axle::dist {

// The operation that combines the values of several processes. `mean` of an integer or bool dtype
// throws DTypeError. bool supports only `max` (any) and `min` (all); other operations throw
// DTypeError. All operations on storage dtypes throw DTypeError. In host memory, f16 and bf16 are
// computed in f32 and rounded once; NCCL computes in the dtype and rounds at each step.
enum class ReduceOp : std::uint8_t { sum, mean, max, min, product };

}  // namespace axle::dist
