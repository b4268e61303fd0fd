// Private to dist: many runs of numbers become one.
#pragma once

#include <cstdint>
#include <span>

#include "dist/group/process_group.h"
#include "kernels/dtype.h"
#include "kernels/exec.h"

namespace axle::inline v0::dist {

// out[i] is the reduction of from[0][i], from[1][i], ...; out may be one of them. Whatever numel
// is, the order is that of a binary tree over neighbours, ((r0 + r1) + (r2 + r3)) + r4, so that all
// who reduce the same runs get the same bits. f16 and bf16 are computed in f32 and rounded once.
void reduce(kernels::Cpu& on, void* out, std::span<const void* const> from, std::int64_t numel,
            DType dtype, ReduceOp op);

const char* name_of(ReduceOp op);

// DTypeError for an op that the dtype does not have: see ReduceOp.
void check_reducible(const char* where, DType dtype, ReduceOp op);

}  // namespace axle::inline v0::dist
