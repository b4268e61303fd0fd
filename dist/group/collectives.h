// Private to dist: implements collectives on host memory with point-to-point messages.
//
// A reduction is an all-to-all exchange of parts, after which each rank reduces one part, followed
// by a gather of the results. With P ranks, this transfers as many bytes as a ring, but in 2 steps
// instead of 2 (P - 1). One rank reduces all values of an element, so 16-bit numbers are rounded
// once (a ring rounds in each step), every element is summed in the same order (reduce.h), and all
// ranks get the same bits.
#pragma once

#include <memory>

#include "dist/group/engine.h"
#include "dist/transport/transport.h"

namespace axle::dist {

std::unique_ptr<HostEngine> make_collectives(std::unique_ptr<Transport> transport);

}  // namespace axle::dist
