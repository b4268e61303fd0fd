// Private to tools: the command line of `axle launch`, which is compatible with `accelerate
// launch`.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tools/axle/flags/deepspeed_flags.h"
#include "tools/axle/flags/fsdp_flags.h"
#include "tools/axle/flags/megatron_flags.h"
#include "tools/axle/flags/parallelism_flags.h"

namespace axle::launcher {

// The values of the flags. An optional is empty if its flag is not given.
struct LaunchFlags {
    std::optional<std::string> config_file;
    bool quiet = false;

    bool cpu = false, multi_gpu = false;

    std::optional<int> num_processes, num_machines, machine_rank, main_process_port;
    std::optional<int> min_nodes;
    double join_timeout = 300;  // seconds
    std::optional<int> num_cpu_threads_per_process;
    bool enable_cpu_affinity = false;
    std::optional<std::string> mixed_precision, gpu_ids, main_process_ip, token_file;

    std::optional<std::string> dynamo_backend, dynamo_mode;
    bool dynamo_use_fullgraph = false, dynamo_use_dynamic = false,
         dynamo_use_regional_compilation = false;
    // The values of the flags --fp8_<field>, by field.
    std::map<std::string, std::optional<std::string>> fp8;
    bool fp8_use_autocast_during_eval = false;
    bool use_fsdp = false;
    FlagValues fsdp;  // --fsdp_<name>
    bool use_deepspeed = false;
    FlagValues deepspeed;  // the flags of deepspeed_fields(), by name
    bool use_megatron_lm = false;
    FlagValues megatron;  // --megatron_lm_<name>
    bool use_parallelism_config = false;
    ParallelismFlags parallelism;  // --parallelism_config_<name>
    std::optional<int> gradient_accumulation_steps;

    std::optional<std::string> rdzv_backend, role, log_dir, mpirun_hostfile;
    int tee = 0, max_restarts = 0;
    double monitor_interval = 0.1, grace = 30;  // seconds
    bool module = false, no_python = false, debug = false;
    std::vector<std::string> env;  // variables, as NAME=VALUE

    // The given flags that have no effect (see foreign_flags.h).
    std::vector<std::string> without_effect;
    std::vector<std::string> program;  // the program and its arguments
};

// Parses the arguments of `axle launch`. Returns nullopt after it has printed the help. Throws
// UsageError for invalid arguments and unsupported flags. For an unknown flag, the message suggests
// a similar name, if there is one.
std::optional<LaunchFlags> parse_launch_flags(std::vector<std::string> arguments);

}  // namespace axle::launcher
