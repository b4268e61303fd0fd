// Implements the commands `axle config`, `axle config default` and `axle config update`.
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <limits>
#include <optional>

#include <unistd.h>

#include "core/cuda.h"
#include "core/files/file.h"
#include "kernels/error.h"
#include "tools/axle/cluster_config.h"
#include "tools/axle/commands.h"
#include "tools/axle/flags/deepspeed_flags.h"
#include "tools/axle/flags/fsdp_flags.h"
#include "tools/axle/questionnaire.h"
#include "tools/options/options.h"

namespace axle::launcher {
namespace {

constexpr int kAnyInt = std::numeric_limits<int>::max();
constexpr const char* kFileHelp =
    "The file; default: $HF_HOME/accelerate/default_config.yaml, or the same path below "
    "~/.cache/huggingface. Uses JSON if it ends in .json";

void add_file(tools::Options& options, std::string& path) {
    path = default_config_path();
    options.add("--config_file", path, kFileHelp);
}

void say_written(const std::string& path) {
    std::cout << "Wrote the configuration to " << path << ".\n";
}

int run_default(std::vector<std::string> arguments) {
    tools::Options options(
        "Writes a configuration without questions: every GPU of this machine, or the CPU.",
        "axle config default");
    std::string path, precision = "no";
    add_file(options, path);
    options.add("--mixed_precision", precision, "no, fp16, bf16 or fp8")
        .one_of({"no", "fp16", "bf16", "fp8"});
    if (!options.parse(std::move(arguments))) return 0;
    if (std::filesystem::exists(path))
        throw FileError(
            printable(path) +
            ": the file exists and was not changed; run `axle config` to replace it, or "
            "use --config_file for another file");
    ClusterConfig config = default_config(cuda::device_count());
    config.mixed_precision = precision;
    write_config(config, path);
    say_written(path);
    return 0;
}

int run_update(std::vector<std::string> arguments) {
    tools::Options options("Rewrites a configuration with the current keys and their defaults.",
                           "axle config update");
    std::string path;
    add_file(options, path);
    if (!options.parse(std::move(arguments))) return 0;
    write_config(read_config(path), path);
    say_written(path);
    return 0;
}

// The answers to the questions, given as flags, so that scripts can run `axle config`.
class Answers {
  public:
    explicit Answers(tools::Options& options) {
        config_.mixed_precision = "no";
        config_.downcast_bf16 = "no";
        config_.same_network = true;
        type_ = options
                    .add("--distributed_type", config_.distributed_type,
                         "NO, MULTI_GPU, MULTI_CPU, FSDP or DEEPSPEED; default: derived from the "
                         "other flags")
                    .one_of({"NO", "MULTI_GPU", "MULTI_CPU", "FSDP", "DEEPSPEED"});
        processes_ = options
                         .add("--num_processes", config_.num_processes,
                              "Number of processes on all machines")
                         .range(1, kAnyInt);
        add(options, "--num_machines", config_.num_machines, "Number of machines")
            .range(1, kAnyInt);
        add(options, "--machine_rank", config_.machine_rank, "Number of this machine, from 0");
        add(options, "--main_process_ip", config_.main_process_ip, "The address of machine 0");
        add(options, "--main_process_port", config_.main_process_port, "A port of machine 0")
            .range(0, 65535);
        precision_ =
            add(options, "--mixed_precision", config_.mixed_precision, "no, fp16, bf16 or fp8")
                .one_of({"no", "fp16", "bf16", "fp8"});
        add(options, "--gpu_ids", config_.gpu_ids, "GPUs of this machine: all, or such as 0,1");
        cpu_ = options.add_flag("--use_cpu,--cpu", config_.use_cpu,
                                "Use the CPU even if there is a GPU");
        given_.push_back(*cpu_);
        given_.push_back(options.add_flag("--enable_cpu_affinity", config_.enable_cpu_affinity,
                                          "Bind each process to its share of the CPU cores"));
        given_.push_back(options.add_flag("--debug", config_.debug, "ACCELERATE_DEBUG_MODE"));
        given_.push_back(options.add("--mpirun_hostfile", hostfile_,
                                     "Start the processes with mpirun on the hosts of this file"));
        for (const FsdpField& field : fsdp_fields())
            add(options, str("--fsdp_", field.name), fsdp_[field.name], field.help);
        for (const DeepSpeedField& field : deepspeed_fields())
            add(options, str("--", field.name), deepspeed_[field.name], field.help);
        given_.push_back(*type_);
        given_.push_back(*processes_);
    }

    bool given() const {
        for (const tools::Option& option : given_)
            if (option.was_given()) return true;
        return false;
    }

    ClusterConfig config(int gpus) {
        if (!processes_->was_given()) config_.num_processes = config_.num_machines;
        if (gpus == 0 && !cpu_->was_given()) config_.use_cpu = !says_gpu();
        if (!hostfile_.empty())
            config_.mpirun_config = {{"mpirun_hostfile", expand_home(hostfile_)}};
        const auto is_set = [](const auto& flag) { return flag.second.has_value(); };
        const bool has_fsdp = std::ranges::any_of(fsdp_, is_set),
                   has_deepspeed = std::ranges::any_of(deepspeed_, is_set);
        if (has_fsdp && has_deepspeed)
            throw UsageError("config: --fsdp_* flags cannot be combined with DeepSpeed flags");
        if (!type_->was_given() && has_fsdp) config_.distributed_type = "FSDP";
        if (!type_->was_given() && has_deepspeed) config_.distributed_type = "DEEPSPEED";
        const bool is_fsdp = config_.distributed_type == "FSDP";
        if (has_fsdp && !is_fsdp)
            throw UsageError("config: --fsdp_* flags need --distributed_type FSDP: it is " +
                             config_.distributed_type);
        if (is_fsdp) config_.fsdp_config = fsdp_config_of(fsdp_);
        const bool is_deepspeed = config_.distributed_type == "DEEPSPEED";
        if (has_deepspeed && !is_deepspeed)
            throw UsageError("config: DeepSpeed flags need --distributed_type DEEPSPEED: it is " +
                             config_.distributed_type);
        if (is_deepspeed) config_.deepspeed_config = deepspeed_config_of(deepspeed_);
        // If a DeepSpeed file is given, it contains the precision.
        if (deepspeed_["deepspeed_config_file"] && !precision_->was_given())
            config_.mixed_precision.reset();
        if (!type_->was_given() && !is_fsdp && !is_deepspeed &&
            (config_.num_processes > 1 || config_.num_machines > 1))
            config_.distributed_type = config_.use_cpu ? "MULTI_CPU" : "MULTI_GPU";
        if (config_.distributed_type == "MULTI_CPU") config_.use_cpu = true;
        if (config_.use_cpu && says_gpu())
            throw UsageError(
                "config: --use_cpu and --distributed_type MULTI_CPU cannot be combined with "
                "--gpu_ids or --distributed_type MULTI_GPU");
        if (!config_.use_cpu && !config_.gpu_ids) config_.gpu_ids = "all";
        check_answers(config_);
        return config_;
    }

  private:
    template <class T>
    tools::Option add(tools::Options& options, const std::string& name, T& value,
                      const char* help) {
        given_.push_back(options.add(name, value, help));
        return given_.back();
    }
    bool says_gpu() const {
        return config_.gpu_ids.has_value() || config_.distributed_type == "MULTI_GPU";
    }

    ClusterConfig config_;
    std::string hostfile_;
    FlagValues fsdp_;
    FlagValues deepspeed_;
    std::optional<tools::Option> type_, processes_, cpu_, precision_;
    std::vector<tools::Option> given_;
};

int run_questions(std::vector<std::string> arguments) {
    tools::Options options(
        "Asks for the defaults of `axle launch` and writes them to a file, which Accelerate can "
        "read too. With any of the flags below, no questions are asked.\n\n"
        "  axle config            questions\n"
        "  axle config default    every GPU of this machine, or the CPU\n"
        "  axle config update     rewrites an old file with the current keys\n",
        "axle config");
    std::string path;
    add_file(options, path);
    Answers answers(options);
    if (!options.parse(std::move(arguments))) return 0;
    if (!answers.given() && !isatty(STDIN_FILENO))
        throw UsageError(
            "config: stdin is not a terminal; use `axle config default`, or give the answers as "
            "flags (see `axle config --help`)");
    const int gpus = cuda::device_count();
    write_config(answers.given() ? answers.config(gpus) : ask_for_config(std::cin, std::cout, gpus),
                 path);
    say_written(path);
    return 0;
}

}  // namespace

int run_config(std::vector<std::string> arguments) {
    const std::string first = arguments.empty() ? "" : arguments[0];
    if (first != "default" && first != "update") return run_questions(std::move(arguments));
    arguments.erase(arguments.begin());
    return first == "default" ? run_default(std::move(arguments))
                              : run_update(std::move(arguments));
}

}  // namespace axle::launcher
