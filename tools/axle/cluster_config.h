// The configuration file of `axle launch`. It has the keys, defaults and types of the file that
// `accelerate config` writes, so that Axle can read Accelerate's file, and Accelerate can read
// Axle's.
#pragma once

#include <optional>
#include <string>

#include "core/tree/tree.h"

namespace axle::launcher {

// The fields of the file. A field that is missing in the file has its default, except that
// num_processes is 1 for the type NO. Null values, such as an optional without a value, and empty
// maps are not written.
struct ClusterConfig {
    std::string compute_environment = "LOCAL_MACHINE";
    // The type: NO, MULTI_CPU, MULTI_GPU, FSDP, DEEPSPEED or MEGATRON_LM. Other types of
    // Accelerate, such as XLA, can be read, but not launched.
    std::string distributed_type = "NO";
    std::optional<std::string> mixed_precision;
    bool use_cpu = false;
    bool debug = false;

    int num_processes = -1;  // total of all machines; -1: the command line must set it
    int machine_rank = 0;
    int num_machines = 1;
    std::optional<std::string> gpu_ids;  // "all" or indices such as "0,1"
    std::optional<std::string> main_process_ip;
    std::optional<int> main_process_port;
    std::optional<std::string> rdzv_backend = "static";
    bool same_network = false;
    std::string main_training_function = "main";
    bool enable_cpu_affinity = false;

    // The sections of the file: maps, or null if the section is missing. Their keys are not
    // changed.
    Tree deepspeed_config, dynamo_config, fp8_config, fsdp_config, megatron_lm_config,
        mpirun_config, parallelism_config;

    // Fields for TPUs. Axle does not use them, but writes them back to the file.
    Tree downcast_bf16 = false;
    Tree command_file, commands, tpu_env, tpu_name, tpu_vm, tpu_zone;
    bool tpu_use_cluster = false;
    bool tpu_use_sudo = false;
};

// Returns the path of the default file, $HF_HOME/accelerate/default_config.yaml. The default of
// HF_HOME is $XDG_CACHE_HOME/huggingface, or else ~/.cache/huggingface.
std::string default_config_path();
// Returns the path with this user's home folder in place of ~, if the path is ~ or begins with ~/.
std::string expand_home(const std::string& path);

// Reads a YAML file, or a JSON file if the path ends in .json. Accepts `fp16: true` and
// `dynamo_backend` of old files, and logs one warning about TPU fields. Throws FileError if the
// file cannot be read. Throws ValueError with the path if the text is not valid YAML or JSON, or if
// the file has unknown keys (the message lists them), an invalid value, no distributed_type, or a
// compute_environment other than LOCAL_MACHINE.
ClusterConfig read_config(const std::string& path);
// Reads the file at the default path. Returns nullopt if the file does not exist. Throws the errors
// of read_config().
std::optional<ClusterConfig> read_default_config();

// Replaces the file, creating its folder if needed. Writes JSON if the path ends in .json, else
// YAML, with the key order and style of Accelerate. Throws FileError if the file cannot be written.
void write_config(const ClusterConfig& config, const std::string& path);

// Returns a map of the fields that are written, by key.
Tree to_tree(const ClusterConfig& config);
// Converts a map of fields to a configuration. Throws ValueError as read_config() does, with `name`
// in place of the path.
ClusterConfig config_from_tree(const Tree& tree, const std::string& name);

}  // namespace axle::launcher
