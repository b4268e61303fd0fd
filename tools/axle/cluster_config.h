// The configuration file of `axle launch`: the one that `accelerate config` writes, with its keys,
// defaults and types, so that either program reads what the other has written.
#pragma once

#include <optional>
#include <string>

#include "core/tree/tree.h"

namespace axle::launcher {

// What is said in the file; what isn't has its default. An optional without a value is null there.
struct ClusterConfig {
    std::string compute_environment = "LOCAL_MACHINE";
    // NO, MULTI_CPU, MULTI_GPU, FSDP, DEEPSPEED, MEGATRON_LM or XLA; others are for machines that
    // Axle does not run on, and are read all the same.
    std::string distributed_type = "NO";
    std::optional<std::string> mixed_precision;
    bool use_cpu = false;
    bool debug = false;

    int num_processes = -1;  // of all machines; -1: the command line must say it
    int machine_rank = 0;
    int num_machines = 1;
    std::optional<std::string> gpu_ids;  // "all" or "0,1"
    std::optional<std::string> main_process_ip;
    std::optional<int> main_process_port;
    std::optional<std::string> rdzv_backend = "static";
    bool same_network = false;
    std::string main_training_function = "main";
    bool enable_cpu_affinity = false;

    // Sections: maps, or null where there is none. Their keys are kept as they are.
    Tree deepspeed_config, dynamo_config, fp8_config, fsdp_config, megatron_lm_config,
        mpirun_config, parallelism_config;

    // What only a TPU has: kept, so that it is written back, and never used.
    Tree downcast_bf16 = false;
    Tree command_file, commands, tpu_env, tpu_name, tpu_vm, tpu_zone;
    bool tpu_use_cluster = false;
    bool tpu_use_sudo = false;
};

// $HF_HOME/accelerate/default_config.yaml, or the same below $XDG_CACHE_HOME/huggingface or
// ~/.cache/huggingface.
std::string default_config_path();
// ~/x below this user's home; another path as it is.
std::string expand_home(const std::string& path);

// YAML, or JSON where the path ends in .json. FileError for what can't be read; ValueError, with
// the path, for unknown keys (all of them), a value of the wrong kind, no distributed_type, or a
// configuration for SageMaker. `fp16: true` and `dynamo_backend` of old files are understood. Warns
// once of what only a TPU uses.
ClusterConfig read_config(const std::string& path);
// The file at the default path, if there is one.
std::optional<ClusterConfig> read_default_config();

// Replaces the file, creating its folder: YAML or JSON by its name, in the order and the style of
// Accelerate's files.
void write_config(const ClusterConfig& config, const std::string& path);

// What is written, by key.
Tree to_tree(const ClusterConfig& config);
// `name` stands for the path in messages.
ClusterConfig config_from_tree(const Tree& tree, const std::string& name);

}  // namespace axle::launcher
