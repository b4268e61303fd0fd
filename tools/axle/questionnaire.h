// Private to tools: the questions of `axle config`.
#pragma once

#include <istream>
#include <ostream>

#include "tools/axle/cluster_config.h"

namespace axle::launcher {

// Asks on `out` and reads answers from `in`, a line each; an empty line takes the default, and an
// answer that makes no sense is asked for again. `gpus` of this machine make the defaults.
// UsageError if the input ends.
ClusterConfig ask_for_config(std::istream& in, std::ostream& out, int gpus);

// What `axle config default` writes: every GPU of this machine, or the CPU.
ClusterConfig default_config(int gpus);

// UsageError for a configuration that no launch can follow, as two machines without an address.
void check_answers(const ClusterConfig& config);

}  // namespace axle::launcher
