// Private to tools: the questions of `axle config`.
#pragma once

#include <istream>
#include <ostream>

#include "tools/axle/cluster_config.h"

namespace axle::launcher {

// Asks questions on `out` and reads one answer per line from `in`. An empty line chooses the
// default, and an invalid answer is asked again. The defaults depend on `gpus`, the number of GPUs
// of this machine. Throws UsageError if the input ends early.
ClusterConfig ask_for_config(std::istream& in, std::ostream& out, int gpus);

// Returns the configuration that `axle config default` writes: every GPU of this machine, or the
// CPU.
ClusterConfig default_config(int gpus);

// Throws UsageError for a configuration that cannot be launched, such as two machines without an
// address.
void check_answers(const ClusterConfig& config);

}  // namespace axle::launcher
