// The configuration file of `axle launch`. It has the keys, defaults and types of the file that
// `accelerate config` writes, so that either program can read the other's file.
#pragma once

#include <optional>
#include <string>

#include "core/tree/tree.h"

namespace axle::launcher {

// The fields of the file. A missing field has its default; an optional without a value is null.
struct ClusterConfig {
    std::string compute_environment = "LOCAL_MACHINE";
    // NO, MULTI_CPU, MULTI_GPU, FSDP, DEEPSPEED, MEGATRON_LM or XLA. Types for other hardware are
    // read too, but cannot be launched.
    std::string distributed_type = "NO";
    std::optional<std::string> mixed_precision;
    bool use_cpu = false;
    bool debug = false;

    int num_processes = -1;  // on all machines; -1: must be given on the command line
    int machine_rank = 0;
    int num_machines = 1;
    std::optional<std::string> gpu_ids;  // "all" or "0,1"
    std::optional<std::string> main_process_ip;
    std::optional<int> main_process_port;
    std::optional<std::string> rdzv_backend = "static";
    bool same_network = false;
    std::string main_training_function = "main";
    bool enable_cpu_affinity = false;

    // Sections: maps, or null if absent. Their keys are kept unchanged.
    Tree deepspeed_config, dynamo_config, fp8_config, fsdp_config, megatron_lm_config,
        mpirun_config, parallelism_config;

    // Fields for TPUs, which are kept when the file is rewritten, but are not used.
    Tree downcast_bf16 = false;
    Tree command_file, commands, tpu_env, tpu_name, tpu_vm, tpu_zone;
    bool tpu_use_cluster = false;
    bool tpu_use_sudo = false;
};

// Returns $HF_HOME/accelerate/default_config.yaml, or else the same path below
// $XDG_CACHE_HOME/huggingface or ~/.cache/huggingface.
std::string default_config_path();
// Expands a leading ~ to this user's home folder.
std::string expand_home(const std::string& path);

// Reads a YAML file, or JSON if the path ends in .json. Accepts `fp16: true` and `dynamo_backend`
// of old files, and warns once about TPU fields. Throws FileError if the file cannot be read, and
// ValueError with the path for unknown keys (lists all of them), a value of the wrong type, a
// missing distributed_type, or a SageMaker configuration.
ClusterConfig read_config(const std::string& path);
// Reads the file at the default path, or returns nullopt if there is none.
std::optional<ClusterConfig> read_default_config();

// Replaces the file, creating its folder if needed. Writes JSON if the path ends in .json, else
// YAML, with the key order and style of Accelerate.
void write_config(const ClusterConfig& config, const std::string& path);

// Returns the fields to write, by key.
Tree to_tree(const ClusterConfig& config);
// `name` is used as the path in error messages.
ClusterConfig config_from_tree(const Tree& tree, const std::string& name);

}  // namespace axle::launcher
