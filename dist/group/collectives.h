// Private to dist: implements collectives on host memory with point-to-point messages.
//
// In a large all_reduce, the ranks exchange parts (all-to-all). Each rank then reduces one part and
// sends the result to all ranks. With P ranks, this algorithm transfers as many bytes as a ring,
// but in 2 steps instead of 2 (P - 1). In a small all_reduce, every rank reduces all inputs.
//
// In both algorithms, a rank that reduces an element has the values of all ranks. Therefore 16-bit
// numbers are rounded once (a ring rounds in each step), every element is summed in the same order
// (reduce.h), and all ranks get the same bits.
#pragma once

#include <memory>

#include "dist/group/engine.h"
#include "dist/transport/transport.h"

namespace axle::dist {

// Returns an engine that sends its messages with `transport`.
std::unique_ptr<HostEngine> make_collectives(std::unique_ptr<Transport> transport);

}  // namespace axle::dist
