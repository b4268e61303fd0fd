// Private to tools: the decisions of `axle launch`, made from its flags and the configuration.
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
    int main_process_port = 0;  // 0 chooses a free one
    std::string token;          // empty: a new one for each start of the job
    int threads = 0;            // per process; 0: as in JobNode
    bool keep_to_cores = false;

    std::string mpirun_hostfile;                     // empty: don't use mpirun
    std::vector<std::string> command;                // the same for all processes
    std::map<std::string, std::string> environment;  // the same for all processes

    // Messages about values that were neither given nor configured.
    std::vector<std::string> defaults;
};

// Throws UsageError or ValueError for unsupported, missing or conflicting settings.
LaunchPlan plan_launch(const LaunchFlags& flags, const std::optional<ClusterConfig>& config);

}  // namespace axle::launcher
