// Private to dist: reduces several arrays elementwise into one.
#pragma once

#include <cstdint>
#include <span>

#include "dist/group/process_group.h"
#include "kernels/dtype.h"
#include "kernels/exec.h"

namespace axle::dist {

// Sets out[i] to the reduction of from[k][i] over all k. `from` must not be empty; `out` may be one
// of the inputs. Values are combined in a binary tree, ((r0 + r1) + (r2 + r3)) + r4. All processes
// that reduce the same arrays therefore get the same bits. f16 and bf16 are computed in f32 and
// rounded once.
void reduce(kernels::Cpu& on, void* out, std::span<const void* const> from, std::int64_t numel,
            DType dtype, ReduceOp op);

const char* name_of(ReduceOp op);

// Throws DTypeError if the dtype does not support the op (see ReduceOp). The message begins with
// `where`.
void check_reducible(const char* where, DType dtype, ReduceOp op);

}  // namespace axle::dist
