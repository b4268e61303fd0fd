// Private to tools: what `axle launch` is to do, from its flags and the configuration.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tools/axle/cluster_config.h"
#include "tools/axle/launch_flags.h"

namespace axle::launcher {

struct LaunchPlan {
    int num_machines = 1, machine_rank = 0;
    int processes_here = 1;
    std::string main_process_ip = "127.0.0.1";
    int main_process_port = 0;  // 0: a free one
    std::string token;          // empty: one for each attempt
    int threads = 0;            // of each process; 0: as JobNode
    bool keep_to_cores = false;

    std::string mpirun_hostfile;                     // empty: without mpirun
    std::vector<std::string> command;                // of each process
    std::map<std::string, std::string> environment;  // the same for all processes

    // Lines about what nobody has said.
    std::vector<std::string> defaults;
};

// UsageError and ValueError for what is not here, what is missing and what does not go together.
LaunchPlan plan_launch(const LaunchFlags& flags, const std::optional<ClusterConfig>& config);

}  // namespace axle::launcher
