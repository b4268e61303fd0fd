#include "tools/axle/flags/launch_flags.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <utility>

#include "accel/config/plugins.h"
#include "core/files/file.h"
#include "kernels/error.h"
#include "tools/axle/flags/foreign_flags.h"
#include "tools/options/options.h"

namespace axle::launcher {
namespace {

constexpr const char* kAbout =
    "Starts a program as one or several processes and stops all of them if one fails.\n\n"
    "  axle launch --num_processes 2 ./train --lr 0.1      two processes on this machine\n"
    "  axle launch --cpu --num_processes 2 train.py        the same for a Python script\n"
    "  axle launch --num_machines 2 --num_processes 8 --machine_rank 0 \\\n"
    "      --main_process_ip 10.0.0.1 --token_file job.token ./train\n\n"
    "Run the last command on each machine, with the same address, program, data and token, but "
    "with its own --machine_rank. Flags must come before the program; arguments after it are "
    "passed to it. Flags that are not given come from the configuration (axle config), if any.";

constexpr int kAnyInt = std::numeric_limits<int>::max();

// Declares the flags and binds them to the fields of LaunchFlags.
class Declaration {
  public:
    explicit Declaration(tools::Options& options, LaunchFlags& flags)
        : options_(options), f_(flags) {
        options_.let_last_win();
        declare_job();
        declare_machines();
        declare_processes();
        declare_compilation();
        declare_fp8();
        declare_fsdp();
        declare_deepspeed();
        declare_megatron();
        declare_parallelism();
        declare_foreign();
        options_.set_footer(
            "Flags of accelerate launch for TPUs and SageMaker, and some for Megatron-LM, are "
            "accepted without effect, or refused.");
    }

    // Throws UsageError for refused flags, and records the flags without effect. Called after
    // parsing.
    void refuse_and_note() {
        for (const RefusedFlag& flag : refused_flags())
            if (options_.find(dashed(flag.name))->was_given())
                throw UsageError(
                    str("launch: ", dashed(flag.name), " is not supported: ", flag.instead));
        for (const ForeignFlag& flag : flags_without_effect())
            if (options_.find(dashed(flag.name))->was_given())
                f_.without_effect.push_back(dashed(flag.name));
    }

  private:
    static std::string dashed(const char* name) { return str("--", name); }

    void declare_job() {
        group_ = "What to start";
        add("--config_file", f_.config_file,
            "File with values for flags that are not given, or none");
        flag("-m,--module", f_.module, "The program is a Python module, as for python -m");
        flag("--no_python", f_.no_python, "Start the program itself even if its name ends in .py");
        flag("-q,--quiet", f_.quiet, "Don't print default values or how a job failed");
        flag("--debug", f_.debug,
             "ACCELERATE_DEBUG_MODE; no effect: collectives always check their arguments");
        options_
            .add("--env", f_.env,
                 "Environment variable NAME=VALUE for the processes; can be repeated")
            .repeatable()
            .group(group_);
    }

    void declare_machines() {
        group_ = "Hardware and machines";
        flag("--cpu", f_.cpu, "Train on CPUs");
        flag("--multi_gpu", f_.multi_gpu, "Train on several GPUs");
        add("--num_processes", f_.num_processes, "Number of processes on all machines")
            .range(1, 65536);
        add("--num_machines", f_.num_machines, "Machines").range(1, 65536);
        add("--machine_rank", f_.machine_rank, "Number of this machine, from 0").range(0, 65535);
        add("--min_nodes", f_.min_nodes,
            "Restart a job that has lost machines if at least this many are left; default: "
            "--num_machines")
            .range(1, 65536);
        add("--join_timeout", f_.join_timeout,
            "Seconds to wait for all machines at the start, and for --min_nodes before a restart")
            .range(0.001, 1e6);
        add("--main_process_ip", f_.main_process_ip, "Address of machine 0");
        add("--main_process_port", f_.main_process_port,
            "Port of rank 0, or with several machines of the launcher of machine 0; 0 chooses a "
            "free one on this machine")
            .range(0, 65535);
        add("--token_file", f_.token_file,
            "File with the secret shared by all machines of the job, readable only by you; "
            "default: "
            "AXLE_JOB_TOKEN");
        add("--gpu_ids", f_.gpu_ids, "GPUs of this machine to use, such as 0,1; or all");
        flag("--same_network", unused_, "No effect: machines always connect to machine 0");
        add("--rdzv_backend", f_.rdzv_backend, "No effect: machines always connect to machine 0")
            .one_of({"static", "c10d"});
        add("--rdzv_conf", unused_text_, "No effect: machines always connect to machine 0");
        add("--mpirun_hostfile", f_.mpirun_hostfile, "Start with mpirun on the hosts of this file");
    }

    void declare_processes() {
        group_ = "Processes";
        add("--mixed_precision", f_.mixed_precision, "no, fp16, bf16 or fp8")
            .one_of({"no", "fp16", "bf16", "fp8"});
        add("--num_cpu_threads_per_process", f_.num_cpu_threads_per_process,
            "Threads of each process; default: OMP_NUM_THREADS, or an equal share of the cores")
            .range(1, 1024);
        flag("--enable_cpu_affinity", f_.enable_cpu_affinity,
             "Bind each process to its share of the cores, by NUMA node");
        add("--gradient_accumulation_steps", f_.gradient_accumulation_steps,
            "ACCELERATE_GRADIENT_ACCUMULATION_STEPS")
            .range(1, kAnyInt);
        add("--role", f_.role, "ROLE_NAME of the processes");
        add("--log_dir", f_.log_dir,
            "Write <log_dir>/<launch>/<local rank>/stdout.log and stderr.log");
        add("-t,--tee", f_.tee, "Prefix output lines with their rank: 1 stdout, 2 stderr, 3 both")
            .range(0, 3);
        add("--max_restarts", f_.max_restarts, "How often to restart a failed job")
            .range(0, kAnyInt);
        add("--monitor_interval", f_.monitor_interval, "Seconds between checks of the processes")
            .range(0.001, 3600.0);
        add("--grace", f_.grace,
            "Seconds in which processes must end after SIGTERM or SIGINT, before they are killed; "
            "default: 30")
            .range(0.0, 86400.0);
    }

    void declare_compilation() {
        group_ = "Compilation";
        add("--dynamo_backend", f_.dynamo_backend,
            "no; others only log a warning, because models are not compiled")
            .one_of(accel::known_dynamo_backends());
        add("--dynamo_mode", f_.dynamo_mode, "ACCELERATE_DYNAMO_MODE")
            .one_of({"default", "reduce-overhead", "max-autotune"});
        flag("--dynamo_use_fullgraph", f_.dynamo_use_fullgraph, "ACCELERATE_DYNAMO_USE_FULLGRAPH");
        flag("--dynamo_use_dynamic", f_.dynamo_use_dynamic, "ACCELERATE_DYNAMO_USE_DYNAMIC");
        flag("--dynamo_use_regional_compilation", f_.dynamo_use_regional_compilation,
             "ACCELERATE_DYNAMO_USE_REGIONAL_COMPILATION");
    }

    void declare_fp8() {
        group_ = "FP8";
        for (const char* field :
             {"backend", "format", "margin", "interval", "amax_history_len", "amax_compute_algo",
              "pad_inner_dim", "enable_fsdp_float8_all_gather", "override_linear_precision"})
            add(str("--fp8_", field), f_.fp8[field],
                str("The field ", field, " of the FP8 recipe"));
        flag("--fp8_use_autocast_during_eval", f_.fp8_use_autocast_during_eval,
             "The field use_autocast_during_eval of the FP8 recipe");
    }

    void declare_fsdp() {
        group_ = "FSDP";
        flag("--use_fsdp", f_.use_fsdp, "Shard the model over the processes");
        for (const FsdpField& field : fsdp_fields())
            add(str("--fsdp_", field.name), f_.fsdp[field.name], field.help);
    }

    void declare_deepspeed() {
        group_ = "DeepSpeed";
        flag("--use_deepspeed", f_.use_deepspeed,
             "Shard optimizer states, gradients and parameters, by stage");
        for (const DeepSpeedField& field : deepspeed_fields())
            add(str("--", field.name), f_.deepspeed[field.name], field.help);
    }

    void declare_megatron() {
        group_ = "Megatron-LM";
        flag("--use_megatron_lm", f_.use_megatron_lm,
             "Divide the layers of the model, and their weights, among the processes");
        for (const MegatronField& field : megatron_fields())
            add(str("--megatron_lm_", field.name), f_.megatron[field.name], field.help);
    }

    void declare_parallelism() {
        group_ = "Parallelism";
        flag("--use_parallelism_config", f_.use_parallelism_config,
             "Divide the processes among several kinds of parallelism");
        for (const ParallelismField& field : parallelism_fields())
            add(str("--parallelism_config_", field.name), f_.parallelism[field.name], field.help);
    }

    void declare_foreign() {
        group_ = "";  // the help does not list the following flags
        for (const ForeignFlag& known : flags_without_effect()) declare_unused(known);
        for (const RefusedFlag& known : refused_flags())
            declare_unused({known.name, known.takes_value});
    }
    void declare_unused(const ForeignFlag& known) {
        if (known.takes_value)
            add(dashed(known.name), unused_text_, "");
        else
            flag(dashed(known.name), unused_, "");
    }

    template <class T>
    tools::Option add(const std::string& names, T& value, const std::string& help) {
        return options_.add(names, value, help).group(group_);
    }
    void flag(const std::string& names, bool& value, const std::string& help) {
        options_.add_flag(names, value, help).group(group_);
    }

    tools::Options& options_;
    LaunchFlags& f_;
    std::string group_, unused_text_;
    bool unused_ = false;
};

// Returns the name of the flag in an argument, in the spelling that tools::Options uses.
std::string name_of(const std::string& argument) {
    std::string name = argument.substr(0, argument.find('='));
    if (!name.starts_with("--")) return name.substr(0, 2);
    std::replace(name.begin() + 2, name.end(), '-', '_');
    return name;
}

// Returns the index of the first argument after the flags, which is the program or --.
std::size_t end_of_flags(const tools::Options& options, const std::vector<std::string>& arguments) {
    std::size_t i = 0;
    while (i < arguments.size() && arguments[i].starts_with("-") && arguments[i] != "--") {
        const std::string& argument = arguments[i++];
        const auto option = options.find(name_of(argument));
        const bool has_value_in_it = argument.starts_with("--")
                                         ? argument.find('=') != std::string::npos
                                         : argument.size() > 2;
        if (option && option->takes_value() && !has_value_in_it) ++i;
    }
    return std::min(i, arguments.size());
}

}  // namespace

std::optional<LaunchFlags> parse_launch_flags(std::vector<std::string> arguments) {
    LaunchFlags flags;
    tools::Options options(kAbout, "axle launch");
    Declaration declaration(options, flags);
    auto program =
        arguments.begin() + static_cast<std::ptrdiff_t>(end_of_flags(options, arguments));
    flags.program.assign(program, arguments.end());
    if (!flags.program.empty() && flags.program[0] == "--")
        flags.program.erase(flags.program.begin());
    arguments.erase(program, arguments.end());
    if (!options.parse(std::move(arguments))) return std::nullopt;
    declaration.refuse_and_note();
    if (flags.program.empty() || flags.program[0].empty())
        throw UsageError("launch: no program given; see axle launch --help");
    return flags;
}

}  // namespace axle::launcher
