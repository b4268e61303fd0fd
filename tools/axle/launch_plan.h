// Private to tools: resolves the flags and the configuration of `axle launch`.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tools/axle/cluster_config.h"
#include "tools/axle/flags/launch_flags.h"
#include "tools/axle/multinode/hostfile.h"

namespace axle::launcher {

struct LaunchPlan {
    int num_machines = 1, machine_rank = 0;
    int min_nodes = 1;  // the smallest number of machines of a launch
    int processes_here = 1;
    std::string main_process_ip = "127.0.0.1";
    // The port of rank 0 or, if axle launch runs on each of several machines, of machine 0's
    // launcher. On one machine, 0 means a free port.
    int main_process_port = 0;
    std::string token;  // empty: a new token for each start of the job
    int threads = 0;    // threads per process; 0: the default of JobNode
    bool keep_to_cores = false;

    std::string mpirun_hostfile;                     // empty: mpirun is not used
    std::vector<std::string> command;                // the program and its arguments
    std::string python_script;                       // path of the script; empty if there is none
    std::map<std::string, std::string> environment;  // variables of all processes

    // The machines of a job that uses DeepSpeed's hostfile or launchers. If the launcher is empty,
    // this program starts the processes of this machine.
    MultinodeHosts multinode;
    std::string token_file;

    // The given flags, and keys of the configuration, that have no effect.
    std::vector<std::string> without_effect;
    // Messages about default values that are used because no flag or file sets them.
    std::vector<std::string> defaults;
};

// Returns the plan of a launch. Throws UsageError or ValueError for unsupported, missing or
// conflicting settings, and FileError if a file that the settings name is missing or invalid.
LaunchPlan plan_launch(const LaunchFlags& flags, const std::optional<ClusterConfig>& config);

}  // namespace axle::launcher
