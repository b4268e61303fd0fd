// Private to dist: collectives on host memory, made of messages.
//
// Everybody sends directly to everybody it has something for, and a reduction is an exchange of
// parts, each reduced by one rank, whose results are gathered. That moves as many bytes as a ring
// does, in two steps rather than 2 (P - 1); and because one rank sees all values of an element
// together, 16-bit numbers are rounded once, the order of the sum is the same for every element
// (reduce.h), and all ranks get the same bits. A ring rounds at each hop.
#pragma once

#include <memory>

#include "dist/group/engine.h"
#include "dist/transport/transport.h"

namespace axle::inline v0::dist {

std::unique_ptr<HostEngine> make_collectives(std::unique_ptr<Transport> transport);

}  // namespace axle::inline v0::dist
