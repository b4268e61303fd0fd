#include "tools/axle/launch_plan.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <system_error>
#include <utility>

#include <sys/stat.h>
#include <unistd.h>

#include "core/cuda.h"
#include "core/files/file.h"
#include "core/text/text.h"
#include "kernels/error.h"
#include "tools/axle/multinode/multinode.h"

namespace axle::launcher {
namespace {

constexpr int kUsualPort = 29500;

// Throws UsageError if `axle launch` does not support the distributed type of a configuration.
void check_type(const std::string& type) {
    for (const char* known : {"NO", "MULTI_CPU", "MULTI_GPU", "FSDP", "DEEPSPEED", "MEGATRON_LM"})
        if (type == known) return;
    throw UsageError(
        str("launch: distributed_type must be NO, MULTI_CPU, MULTI_GPU, FSDP, "
            "DEEPSPEED or MEGATRON_LM: ",
            in_quotes(type), "; run `axle config` to write another configuration"));
}

// Returns the value of `key` in a section as text, or nullopt without a text, integer or boolean of
// this key. The file may contain the key with or without the prefix before the first underscore.
std::optional<std::string> text_in(const Tree& section, const std::string& key) {
    if (!section.is_map()) return {};
    for (const std::string& name : {key, key.substr(key.find('_') + 1)}) {
        const Tree* const found = section.find(name);
        if (found != nullptr && found->is_string()) return found->string();
        if (found != nullptr && found->is_integer()) return std::to_string(found->integer());
        if (found != nullptr && found->is_boolean()) return found->boolean() ? "true" : "false";
    }
    return {};
}

std::vector<std::string> split(const std::string& list) {
    std::vector<std::string> parts;
    for (std::size_t begin = 0; begin <= list.size();) {
        const std::size_t end = std::min(list.find(',', begin), list.size());
        parts.push_back(list.substr(begin, end - begin));
        begin = end + 1;
    }
    return parts;
}

std::string secret_in(const std::string& path) {
    constexpr std::int64_t kMaxSecret = 4096;
    struct stat status = {};
    if (::stat(path.c_str(), &status) != 0)
        throw FileError(
            str(printable(path), ": cannot be read: ", std::generic_category().message(errno)));
    if ((status.st_mode & 0077) != 0 || status.st_uid != ::geteuid())
        throw FileError(printable(path) +
                        ": other users can access this secret: the file must be owned by you, "
                        "with mode 600");
    std::string token = read_file(path, kMaxSecret);
    while (!token.empty() && (token.back() == '\n' || token.back() == '\r')) token.pop_back();
    constexpr std::size_t kShortest = 16;
    if (token.size() < kShortest)
        throw ValueError(str("launch: the token in ", printable(path), " must have at least ",
                             kShortest, " characters: it has ", token.size()));
    return token;
}

// Returns override_linear_precision of a section as texts, or {} without it. It can be a list, or a
// text such as "false,false,true". Valid are three texts, one for each product of a layer: "true"
// if the product is not computed in fp8.
std::vector<std::string> overrides_in(const Tree& section) {
    if (!section.is_map()) return {};
    for (const char* name : {"fp8_override_linear_precision", "override_linear_precision"}) {
        const Tree* const found = section.find(name);
        if (found == nullptr) continue;
        if (found->is_string()) return split(found->string());
        if (!found->is_list()) continue;
        std::vector<std::string> values;
        for (std::size_t i = 0; i < found->size(); ++i) values.push_back(to_json((*found)[i]));
        return values;
    }
    return {};
}

class Planner {
  public:
    Planner(const LaunchFlags& flags, const std::optional<ClusterConfig>& config)
        : f_(flags), config_(config), c_(config.value_or(ClusterConfig{})) {}

    LaunchPlan plan() {
        if (config_) check_type(c_.distributed_type);
        cpu_ = f_.cpu || (c_.use_cpu && !f_.multi_gpu) || c_.distributed_type == "MULTI_CPU";
        multi_gpu_ = f_.multi_gpu || (!cpu_ && c_.distributed_type == "MULTI_GPU");
        check_exclusive();
        const bool is_free =
            !f_.multi_gpu && !f_.use_fsdp && !f_.use_deepspeed && !f_.use_megatron_lm;
        use_fsdp_ = f_.use_fsdp || (c_.distributed_type == "FSDP" && is_free);
        use_deepspeed_ = f_.use_deepspeed || (c_.distributed_type == "DEEPSPEED" && is_free);
        use_megatron_ = f_.use_megatron_lm || (c_.distributed_type == "MEGATRON_LM" && is_free);
        gpu_ids_ = f_.gpu_ids.value_or(c_.gpu_ids.value_or("all"));
        if (use_deepspeed_) plan_hosts();
        plan_machines();
        plan_processes();
        plan_meeting();
        plan_command();
        plan_environment();
        return std::move(p_);
    }

  private:
    // Throws ValueError if flags exclude each other. Unlike Accelerate, allows --cpu with
    // --use_fsdp and the like: then the processes of the sharded training use the CPU.
    void check_exclusive() const {
        std::vector<std::string> given;
        if (f_.use_deepspeed) given.emplace_back("use_deepspeed");
        if (f_.use_fsdp) given.emplace_back("use_fsdp");
        if (f_.use_megatron_lm) given.emplace_back("use_megatron_lm");
        if (f_.cpu && given.empty()) given.emplace_back("cpu");
        if (f_.multi_gpu) given.emplace_back("multi_gpu");
        if (given.size() > 1)
            throw ValueError(str("launch: --", given[0], " cannot be combined with --", given[1]));
    }
    void take_default(const std::string& flag, const std::string& value) {
        if (!config_) p_.defaults.push_back(str("--", flag, " is ", value));
    }

    void plan_hosts() {
        const int total = f_.num_processes.value_or(c_.num_processes);
        p_.multinode = select_hosts(f_.deepspeed, c_.deepspeed_config,
                                    f_.num_machines.value_or(c_.num_machines),
                                    total > 0 ? std::optional(total) : std::nullopt);
    }

    void plan_machines() {
        if (!f_.num_machines && p_.multinode.hosts.empty()) take_default("num_machines", "1");
        p_.num_machines = p_.multinode.hosts.empty() ? f_.num_machines.value_or(c_.num_machines)
                                                     : static_cast<int>(p_.multinode.hosts.size());
        p_.min_nodes = f_.min_nodes.value_or(p_.num_machines);
        if (p_.min_nodes > p_.num_machines)
            throw ValueError(
                str("launch: --min_nodes must not exceed --num_machines: ", "--min_nodes is ",
                    p_.min_nodes, ", --num_machines is ", p_.num_machines));
        if (p_.min_nodes < p_.num_machines && f_.max_restarts == 0)
            throw ValueError(
                str("launch: --max_restarts must be at least 1 if --min_nodes is less "
                    "than --num_machines: --min_nodes is ",
                    p_.min_nodes, ", --num_machines is ", p_.num_machines));
        const std::string& launcher = p_.multinode.launcher;
        if (f_.min_nodes && !launcher.empty() && launcher != "pdsh")
            throw ValueError(str("launch: --min_nodes cannot be combined with ", launcher,
                                 ", which starts processes on a fixed list of hosts"));
        if (p_.num_machines == 1 || !launcher.empty()) return;
        if (!f_.machine_rank && !config_)
            throw ValueError(
                "launch: a job on several machines needs --machine_rank, a different number on "
                "each machine");
        p_.machine_rank = f_.machine_rank.value_or(c_.machine_rank);
        if (p_.machine_rank < 0 || p_.machine_rank >= p_.num_machines)
            throw ValueError(str("launch: --machine_rank must be from 0 to ", p_.num_machines - 1,
                                 " (--num_machines - 1): ", p_.machine_rank));
    }

    int gpus() const {
        if (cpu_) return 0;
        return gpu_ids_ == "all" ? cuda::device_count() : static_cast<int>(split(gpu_ids_).size());
    }

    void plan_processes() {
        int total = f_.num_processes.value_or(c_.num_processes);
        if (total < 1 && !p_.multinode.hosts.empty())
            total =
                static_cast<int>(p_.multinode.hosts.size() * p_.multinode.hosts[0].slots.size());
        if (!f_.num_processes && config_ && total < 1)
            throw ValueError(
                "launch: the number of processes is missing: pass --num_processes, or set "
                "num_processes in the configuration");
        if (total < 1) {
            total = std::max(1, gpus()) * p_.num_machines;
            take_default("num_processes", std::to_string(total));
        }
        const std::string needs_two =
            str("launch: ", f_.multi_gpu ? "--multi_gpu" : "MULTI_GPU", " needs at least two ");
        if (multi_gpu_ && total < 2)
            throw ValueError(str(needs_two, "processes: num_processes is ", total));
        if (multi_gpu_ && p_.num_machines == 1 && gpu_ids_ != "all" && split(gpu_ids_).size() < 2)
            throw ValueError(str(needs_two, "gpu_ids, or all: ", in_quotes(gpu_ids_)));
        if (total % p_.num_machines != 0)
            throw ValueError(str("launch: ", total, " processes cannot be divided evenly among ",
                                 p_.num_machines, " machines"));
        p_.processes_here = total / p_.num_machines;
        p_.threads = f_.num_cpu_threads_per_process.value_or(0);
        p_.keep_to_cores =
            (f_.enable_cpu_affinity || c_.enable_cpu_affinity) && (cpu_ || gpus() == 0);
    }

    // Sets the token of the job, and the address and port of rank 0. If axle launch runs on each of
    // several machines, sets the address and port of machine 0's launcher instead.
    void plan_meeting() {
        const auto port = f_.main_process_port ? f_.main_process_port : c_.main_process_port;
        const bool is_multinode = !p_.multinode.launcher.empty();
        const bool is_one = p_.num_machines == 1 && !is_multinode;
        p_.main_process_port = port.value_or(is_one ? 0 : kUsualPort);
        p_.token_file = f_.token_file.value_or("");
        if (f_.token_file) p_.token = secret_in(*f_.token_file);
        if (is_one) return;
        auto address = f_.main_process_ip ? f_.main_process_ip : c_.main_process_ip;
        if (!address && !p_.multinode.hosts.empty()) address = p_.multinode.hosts[0].host;
        if (is_multinode && !address) {  // processes read the address from SLURM's variables
            p_.main_process_ip.clear();
            return;
        }
        if (!address || address->empty())
            throw ValueError(
                "launch: a job on several machines needs --main_process_ip: the address of machine "
                "0");
        p_.main_process_ip = *address;
        if (p_.main_process_port == 0)
            throw ValueError(
                "launch: a job on several machines needs a --main_process_port other than 0");
        if (is_multinode) return;
        const char* const token = std::getenv("AXLE_JOB_TOKEN");
        if (p_.token.empty() && token != nullptr) p_.token = token;
        if (p_.token.empty())
            throw UsageError(
                "launch: a job on several machines needs a shared secret: use --token_file, or "
                "AXLE_JOB_TOKEN in the environment; `openssl rand -hex 32` creates one");
    }

    void plan_command() {
        if (f_.module && f_.no_python)
            throw ValueError("launch: --module cannot be combined with --no_python");
        if (f_.module)
            p_.command = {"python3", "-m"};
        else if (f_.program[0].ends_with(".py") && !f_.no_python) {
            p_.command = {"python3"};
            p_.python_script = f_.program[0];
        }
        p_.command.insert(p_.command.end(), f_.program.begin(), f_.program.end());
        p_.mpirun_hostfile =
            f_.mpirun_hostfile.value_or(text_in(c_.mpirun_config, "mpirun_hostfile").value_or(""));
        if (!p_.mpirun_hostfile.empty() && f_.min_nodes)
            throw ValueError(
                "launch: --min_nodes cannot be combined with --mpirun_hostfile: mpirun starts "
                "processes on a fixed list of hosts");
    }

    void plan_environment() {
        auto& e = p_.environment;
        e["ACCELERATE_MIXED_PRECISION"] = precision();
        e["ACCELERATE_USE_CPU"] = cpu_ ? "true" : "false";
        if (f_.debug || c_.debug) e["ACCELERATE_DEBUG_MODE"] = "true";
        if (f_.enable_cpu_affinity || c_.enable_cpu_affinity) e["ACCELERATE_CPU_AFFINITY"] = "1";
        if (f_.gradient_accumulation_steps)
            e["ACCELERATE_GRADIENT_ACCUMULATION_STEPS"] =
                std::to_string(*f_.gradient_accumulation_steps);
        if (f_.role) e["ROLE_NAME"] = *f_.role;
        plan_gpus();
        plan_compilation();
        plan_fp8();
        plan_fsdp();
        plan_deepspeed();
        plan_megatron();
        plan_parallelism();
        for (const std::string& variable : f_.env) {
            const std::size_t equals = variable.find('=');
            if (equals == std::string::npos || equals == 0)
                throw UsageError("launch: --env needs NAME=VALUE: " + in_quotes(variable));
            e[variable.substr(0, equals)] = variable.substr(equals + 1);
        }
    }

    std::string precision() {
        if (!f_.mixed_precision && !c_.mixed_precision) take_default("mixed_precision", "no");
        return f_.mixed_precision.value_or(c_.mixed_precision.value_or("no"));
    }

    // Sets the environment variables for the fields of accel/config/fp8_recipes.h that the flags
    // or the configuration have.
    void plan_fp8() {
        for (const char* field :
             {"backend", "format", "margin", "interval", "amax_history_len", "amax_compute_algo",
              "use_autocast_during_eval", "use_mxfp8_block_scaling", "pad_inner_dim",
              "enable_fsdp_float8_all_gather"}) {
            const auto flag = f_.fp8.find(field);
            const auto said = flag != f_.fp8.end() && flag->second
                                  ? flag->second
                                  : text_in(c_.fp8_config, str("fp8_", field));
            if (said) p_.environment["ACCELERATE_FP8_" + upper(field)] = *said;
        }
        const auto given = f_.fp8.find("override_linear_precision");
        const auto overrides = given != f_.fp8.end() && given->second ? split(*given->second)
                                                                      : overrides_in(c_.fp8_config);
        if (!overrides.empty() && overrides.size() != 3)
            throw ValueError(
                str("launch: fp8_override_linear_precision needs three values, such as "
                    "false,false,true, for the products of forward, input gradient and weight "
                    "gradient: it has ",
                    overrides.size()));
        for (std::size_t i = 0; i < overrides.size(); ++i)
            p_.environment[std::array{"ACCELERATE_FP8_OVERRIDE_FPROP",
                                      "ACCELERATE_FP8_OVERRIDE_DGRAD",
                                      "ACCELERATE_FP8_OVERRIDE_WGRAD"}[i]] = overrides[i];
        if (f_.fp8_use_autocast_during_eval)
            p_.environment["ACCELERATE_FP8_USE_AUTOCAST_DURING_EVAL"] = "true";
    }

    void plan_fsdp() {
        p_.without_effect = f_.without_effect;
        if (use_fsdp_)
            p_.environment.merge(fsdp_variables(f_.fsdp, c_.fsdp_config));
        else
            note_unused("--fsdp_", f_.fsdp);
    }

    // Records the given flags that have no effect because another flag is missing.
    void note_unused(const std::string& prefix, const FlagValues& flags) {
        for (const auto& [name, value] : flags)
            if (value) p_.without_effect.push_back(prefix + name);
    }

    void plan_megatron() {
        if (!use_megatron_) return note_unused("--megatron_lm_", f_.megatron);
        p_.environment.merge(
            megatron_variables(f_.megatron, c_.megatron_lm_config, p_.without_effect));
    }

    void plan_deepspeed() {
        if (!use_deepspeed_) return note_unused("--", f_.deepspeed);
        auto& e = p_.environment;
        const bool has_precision = c_.mixed_precision && !f_.mixed_precision;
        e.merge(deepspeed_variables(f_.deepspeed, c_.deepspeed_config, has_precision));
        if (!p_.multinode.launcher.empty()) e.merge(read_deepspeed_env());
    }

    void plan_parallelism() {
        const bool is_configured =
            c_.parallelism_config.is_map() && !c_.parallelism_config.entries().empty();
        if (f_.use_parallelism_config || is_configured)
            p_.environment.merge(parallelism_variables(f_.parallelism, c_.parallelism_config));
        else
            note_unused("--parallelism_config_", f_.parallelism);
    }

    void plan_gpus() {
        const MultinodeHosts& machines = p_.multinode;
        if (machines.are_filtered && machines.launcher.empty())
            gpu_ids_ = slot_list(machines.hosts[static_cast<std::size_t>(p_.machine_rank)]);
        if (gpu_ids_ == "all" || cpu_) return;
        for (const std::string& id : split(gpu_ids_)) {
            const auto fits = [](unsigned char c) { return std::isalnum(c) != 0 || c == '-'; };
            if (id.empty() || !std::all_of(id.begin(), id.end(), fits))
                throw ValueError(
                    "launch: --gpu_ids must be comma-separated numbers or UUIDs, or all: " +
                    in_quotes(gpu_ids_));
        }
        p_.environment["CUDA_VISIBLE_DEVICES"] = gpu_ids_;
    }

    void plan_compilation() {
        const auto said = [&](const char* key) { return text_in(c_.dynamo_config, key); };
        const auto on = [&](bool flag, const char* key) {
            return flag || said(key) == "true" ? "True" : "False";
        };
        if (!f_.dynamo_backend && !said("dynamo_backend")) take_default("dynamo_backend", "no");
        auto& e = p_.environment;
        e["ACCELERATE_DYNAMO_BACKEND"] =
            upper(f_.dynamo_backend.value_or(said("dynamo_backend").value_or("no")));
        e["ACCELERATE_DYNAMO_MODE"] =
            f_.dynamo_mode.value_or(said("dynamo_mode").value_or("default"));
        e["ACCELERATE_DYNAMO_USE_FULLGRAPH"] = on(f_.dynamo_use_fullgraph, "dynamo_use_fullgraph");
        e["ACCELERATE_DYNAMO_USE_DYNAMIC"] = on(f_.dynamo_use_dynamic, "dynamo_use_dynamic");
        e["ACCELERATE_DYNAMO_USE_REGIONAL_COMPILATION"] =
            on(f_.dynamo_use_regional_compilation, "dynamo_use_regional_compilation");
    }

    const LaunchFlags& f_;
    const std::optional<ClusterConfig>& config_;
    const ClusterConfig c_;
    bool cpu_ = false, multi_gpu_ = false, use_fsdp_ = false, use_deepspeed_ = false,
         use_megatron_ = false;
    std::string gpu_ids_;
    LaunchPlan p_;
};

}  // namespace

LaunchPlan plan_launch(const LaunchFlags& flags, const std::optional<ClusterConfig>& config) {
    return Planner(flags, config).plan();
}

}  // namespace axle::launcher
