// Private to dist: collectives on host memory, implemented with point-to-point messages.
//
// Ranks exchange data directly. A reduction is an all-to-all exchange of parts, each reduced by one
// rank, followed by a gather of the results. This moves as many bytes as a ring, but takes 2 steps
// instead of 2 (P - 1). Because one rank sees all values of an element, 16-bit numbers are rounded
// once (a ring rounds at each hop), every element is summed in the same order (reduce.h), and all
// ranks get the same bits.
#pragma once

#include <memory>

#include "dist/group/engine.h"
#include "dist/transport/transport.h"

namespace axle::dist {

std::unique_ptr<HostEngine> make_collectives(std::unique_ptr<Transport> transport);

}  // namespace axle::dist
