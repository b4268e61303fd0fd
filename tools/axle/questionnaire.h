// Private to tools: the questions of `axle config`.
#pragma once

#include <istream>
#include <ostream>

#include "tools/axle/cluster_config.h"

namespace axle::launcher {

// Prints questions to `out` and reads one answer per line from `in`. An empty line selects the
// default, and a question is repeated after an invalid answer. The defaults depend on `gpus`, the
// number of GPUs of this machine. Throws UsageError if the input ends before the last answer.
ClusterConfig ask_for_config(std::istream& in, std::ostream& out, int gpus);

// Returns the configuration that `axle config default` writes for a machine with `gpus` GPUs. It
// uses all of them, or the CPU if there is no GPU.
ClusterConfig default_config(int gpus);

// Throws UsageError for a configuration that cannot be launched, such as two machines without the
// address of machine 0.
void check_answers(const ClusterConfig& config);

}  // namespace axle::launcher
