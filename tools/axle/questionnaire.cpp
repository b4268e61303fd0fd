#include "tools/axle/questionnaire.h"

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <vector>

#include "accel/config/fsdp_plugin.h"
#include "core/system/log.h"
#include "kernels/error.h"
#include "tools/axle/flags/deepspeed_flags.h"

namespace axle::launcher {
namespace {

class Asker {
  public:
    Asker(std::istream& in, std::ostream& out) : in_(in), out_(out) {}

    // Repeats the question until accept(answer) returns an empty error text. `standard` is the
    // default. Throws UsageError if the input ends before.
    void ask(const std::string& question, const std::string& standard,
             const std::function<std::string(const std::string&)>& accept) {
        for (;;) {
            out_ << question << (standard.empty() ? ": " : " [" + standard + "]: ") << std::flush;
            std::string line;
            if (!std::getline(in_, line))
                throw UsageError("config: the input ended before this question was answered: " +
                                 question);
            const std::size_t first = line.find_first_not_of(" \t\r");
            const std::size_t last = line.find_last_not_of(" \t\r");
            line = first == std::string::npos ? standard : line.substr(first, last - first + 1);
            const std::string wrong = accept(line);
            if (wrong.empty()) return;
            out_ << "  " << wrong << '\n';
        }
    }
    std::string text(const std::string& question, const std::string& standard = "") {
        std::string answer;
        ask(question, standard, [&](const std::string& line) {
            answer = line;
            return line.empty() ? "Please enter a text; there is no default." : "";
        });
        return answer;
    }
    int number(const std::string& question, int standard, int low, int high, int step = 1) {
        int answer = 0;
        ask(question, str(standard), [&](const std::string& line) -> std::string {
            const auto [end, error] =
                std::from_chars(line.data(), line.data() + line.size(), answer);
            if (error != std::errc() || end != line.data() + line.size() || answer < low ||
                answer > high)
                return str("Please enter a number from ", low, " to ", high, ".");
            return answer % step == 0 ? "" : str("Please enter a multiple of ", step, ".");
        });
        return answer;
    }
    std::int64_t big_number(const std::string& question, std::int64_t standard) {
        std::int64_t answer = 0;
        ask(question, str(standard), [&](const std::string& line) {
            const char* const end = line.data() + line.size();
            const auto [stop, error] = std::from_chars(line.data(), end, answer);
            return error == std::errc() && stop == end && answer >= 0
                       ? ""
                       : "Please enter a number of at least 0.";
        });
        return answer;
    }
    bool yes(const std::string& question, bool standard) {
        bool answer = false;
        ask(question, standard ? "yes" : "no", [&](const std::string& line) {
            answer = line == "yes" || line == "y";
            return answer || line == "no" || line == "n" ? "" : "Please enter yes or no.";
        });
        return answer;
    }
    // Returns the index of the chosen item.
    int choice(const std::string& question, const std::vector<std::string>& choices,
               int standard = 0) {
        out_ << question << '\n';
        for (std::size_t i = 0; i < choices.size(); ++i)
            out_ << "  " << i + 1 << "  " << choices[i] << '\n';
        return number("Number", standard + 1, 1, static_cast<int>(choices.size())) - 1;
    }

  private:
    std::istream& in_;
    std::ostream& out_;
};

void ask_for_machines(Asker& asker, ClusterConfig& config) {
    config.num_machines = asker.number("How many machines are there?", 1, 1, 65536);
    if (config.num_machines == 1) return;
    config.machine_rank =
        asker.number("What is the number of this machine (from 0)?", 0, 0, config.num_machines - 1);
    config.main_process_ip = asker.text("What is the address of machine 0 for the other machines?");
    config.main_process_port =
        asker.number("Which port of machine 0 should they use?", 29500, 1, 65535);
    config.same_network = asker.yes("Are they all in one local network?", true);
}

void ask_for_processes(Asker& asker, ClusterConfig& config, int gpus) {
    const bool on_cpu = config.use_cpu;
    const int machines = config.num_machines;
    const int here = on_cpu || gpus < 2 ? 2 : gpus;
    config.num_processes =
        asker.number(str("How many ", on_cpu ? "processes" : "GPUs",
                         machines == 1 ? "" : ", on all machines", "?"),
                     machines == 1 ? here : (on_cpu ? 1 : std::max(gpus, 1)) * machines,
                     machines == 1 ? 2 : machines, 1 << 20, machines);
}

// Returns the name that the user has chosen.
std::string choose(Asker& asker, const std::string& question,
                   const std::vector<std::string>& names) {
    return names[static_cast<std::size_t>(asker.choice(question, names))];
}

Tree ask_for_fsdp(Asker& asker) {
    Tree fsdp = Tree::map();
    const bool is_v2 = asker.number("Which version of FSDP?", 2, 1, 2) == 2;
    fsdp.set("fsdp_version", is_v2 ? 2 : 1);
    if (is_v2)
        fsdp.set("fsdp_reshard_after_forward",
                 asker.yes("Free the parameters of each unit after its forward?", true));
    else
        fsdp.set("fsdp_reshard_after_forward",
                 choose(asker, "Which sharding strategy?", accel::fsdp_strategies()));
    fsdp.set("fsdp_offload_params", asker.yes("Keep parameters and gradients on the CPU?", false));
    const std::string policy =
        choose(asker, "Which modules are units, which are gathered one by one?",
               accel::fsdp_auto_wrap_policies());
    fsdp.set("fsdp_auto_wrap_policy", policy);
    if (policy == "TRANSFORMER_BASED_WRAP" && !asker.yes("The blocks that the model names?", true))
        fsdp.set("fsdp_transformer_layer_cls_to_wrap",
                 asker.text("Which types of modules, such as GPT2Block,Embedding?"));
    if (policy == "SIZE_BASED_WRAP")
        fsdp.set("fsdp_min_num_params",
                 asker.big_number("How many parameters does a unit have at least?", 100000000));
    if (!is_v2)
        fsdp.set("fsdp_backward_prefetch", choose(asker, "When does backward gather the next unit?",
                                                  accel::fsdp_backward_prefetches()));
    // LOCAL_STATE_DICT is for version 1 only.
    fsdp.set("fsdp_state_dict_type",
             is_v2 ? choose(asker, "Which type of checkpoints?",
                            {"SHARDED_STATE_DICT", "FULL_STATE_DICT"})
                   : choose(asker, "Which type of checkpoints?", accel::fsdp_state_dict_types()));
    if (!is_v2) {
        fsdp.set("fsdp_forward_prefetch", asker.yes("Gather the next unit during forward?", false));
        fsdp.set("fsdp_use_orig_params", asker.yes("Keep the shapes of parameters?", true));
    }
    const bool loads_once = asker.yes("Does only rank 0 have the values of the model?", true);
    fsdp.set("fsdp_cpu_ram_efficient_loading", loads_once);
    if (!is_v2)
        fsdp.set(
            "fsdp_sync_module_states",
            loads_once || asker.yes("Do all processes start with the values of rank 0?", true));
    fsdp.set("fsdp_activation_checkpointing",
             asker.yes("Recompute activations in backward?", false));
    return fsdp;
}

void ask_for_offload(Asker& asker, int stage, Tree& deepspeed) {
    const std::vector<std::string> devices = {"none", "cpu", "nvme"};
    const auto ask = [&](const char* what, const std::string& name, bool allows_nvme) {
        const std::string device =
            choose(asker, str("Where are ", what, " kept, if not in the memory of GPUs?"),
                   allows_nvme ? devices : std::vector<std::string>{"none", "cpu"});
        deepspeed.set("offload_" + name + "_device", device);
        if (device == "nvme")
            deepspeed.set("offload_" + name + "_nvme_path",
                          asker.text(str("In which folder are ", what, " kept?"), "/nvme"));
    };
    if (stage >= 2) ask("optimizer states", "optimizer", stage == 3);
    if (stage == 3) ask("parameters", "param", true);
}

void ask_for_multinode(Asker& asker, Tree& deepspeed) {
    const std::string launcher =
        choose(asker, "How are the processes on several machines started?", multinode_launchers());
    deepspeed.set("deepspeed_multinode_launcher", launcher);
    if (launcher == "standard") return;
    deepspeed.set("deepspeed_hostfile", asker.text("Where is DeepSpeed's hostfile?"));
    for (const char* filter : {"exclusion", "inclusion"})
        if (asker.yes(str("Is there an ", filter, " filter?"), false)) {
            deepspeed.set(str("deepspeed_", filter, "_filter"),
                          asker.text("Which machines and slots, such as worker-0@worker-1:0,2?"));
            return;
        }
}

Tree ask_for_deepspeed(Asker& asker, int num_machines) {
    Tree deepspeed = Tree::map();
    int stage = 3;
    if (asker.yes("Is there a DeepSpeed configuration, a JSON file?", false)) {
        deepspeed.set("deepspeed_config_file", asker.text("Where is it?"));
    } else {
        stage = asker.choice(
            "What is sharded (the ZeRO stage)?",
            {"0: nothing", "1: optimizer states", "2: also gradients", "3: also parameters"}, 2);
        deepspeed.set("zero_stage", stage);
        ask_for_offload(asker, stage, deepspeed);
        deepspeed.set("gradient_accumulation_steps",
                      asker.number("How many micro-batches does an update have?", 1, 1, 1 << 20));
        if (asker.yes("Should step() clip gradients?", false))
            asker.ask("To which norm?", "1.0", [&](const std::string& line) -> std::string {
                try {
                    deepspeed.set(
                        "gradient_clipping",
                        deepspeed_config_of({{"gradient_clipping", line}})["gradient_clipping"]);
                    return "";
                } catch (const ValueError&) {
                    return "Please enter a number of at least 0.";
                }
            });
        if (stage == 3)
            deepspeed.set("zero3_save_16bit_model",
                          asker.yes("Save models as a whole, in 16 bits?", false));
    }
    if (stage == 3)
        deepspeed.set("zero3_init_flag", asker.yes("Construct models in shards?", false));
    if (stage == 3 && asker.yes("Are there modules that are gathered as a whole (MoE)?", false))
        deepspeed.set("deepspeed_moe_layer_cls_names",
                      asker.text("Which types of modules, such as MixtralSparseMoeBlock?"));
    if (num_machines > 1) ask_for_multinode(asker, deepspeed);
    return deepspeed;
}

}  // namespace

ClusterConfig ask_for_config(std::istream& in, std::ostream& out, int gpus) {
    Asker asker(in, out);
    ClusterConfig config;
    config.same_network = true;
    config.downcast_bf16 = "no";
    config.num_processes = 1;
    const char* const types[] = {"NO", "MULTI_GPU", "MULTI_CPU", "FSDP", "DEEPSPEED"};
    config.distributed_type =
        types[asker.choice("What do you train on?",
                           {"One process", "Several GPUs", "Several processes on the CPU",
                            "A model that is sharded over several processes (FSDP)",
                            "A model that is sharded with the options of DeepSpeed"},
                           gpus > 1 ? 1 : 0)];
    const bool distributed = config.distributed_type != "NO";
    const bool is_deepspeed = config.distributed_type == "DEEPSPEED";
    config.use_cpu = config.distributed_type == "MULTI_CPU" ||
                     ((!distributed || config.distributed_type == "FSDP" || is_deepspeed) &&
                      asker.yes("Use the CPU even if there is a GPU?", gpus == 0));
    if (distributed) {
        ask_for_machines(asker, config);
        ask_for_processes(asker, config, gpus);
    }
    if (distributed && config.use_cpu && asker.yes("Should mpirun start them?", false))
        config.mpirun_config = {
            {"mpirun_hostfile", expand_home(asker.text("Where is its hostfile?", "~/hostfile"))}};
    if (config.distributed_type == "FSDP") config.fsdp_config = ask_for_fsdp(asker);
    if (is_deepspeed) config.deepspeed_config = ask_for_deepspeed(asker, config.num_machines);
    if (!config.use_cpu) {
        config.gpu_ids = asker.text("Which GPUs of this machine, such as 0,1?", "all");
        config.enable_cpu_affinity =
            asker.yes("Bind each process to its share of the CPU cores?", false);
    }
    // If a DeepSpeed file is given, it contains the precision.
    if (is_deepspeed && config.deepspeed_config.contains("deepspeed_config_file")) return config;
    const std::vector<std::string> precisions = {"no", "fp16", "bf16", "fp8"};
    config.mixed_precision =
        precisions[static_cast<std::size_t>(asker.choice("Which mixed precision?", precisions))];
    return config;
}

ClusterConfig default_config(int gpus) {
    ClusterConfig config;
    config.mixed_precision = "no";
    config.num_processes = std::max(gpus, 1);
    config.use_cpu = gpus == 0;
    config.distributed_type = gpus > 1 ? "MULTI_GPU" : "NO";
    return config;
}

void check_answers(const ClusterConfig& config) {
    const bool alone = config.distributed_type == "NO";
    const int machines = config.num_machines;
    const auto refuse = [](const std::string& why) { throw UsageError("config: " + why); };
    if (machines < 1) refuse(str("--num_machines must be at least 1: ", machines));
    if (config.num_processes < 1)
        refuse(str("--num_processes must be at least 1: ", config.num_processes));
    if (alone && (machines > 1 || config.num_processes > 1))
        refuse(str("--distributed_type NO needs one process on one machine: --num_processes is ",
                   config.num_processes, ", --num_machines is ", machines));
    if (!alone && machines == 1 && config.num_processes == 1)
        refuse(str("--distributed_type ", config.distributed_type,
                   " needs at least two processes: --num_processes is 1"));
    if (config.num_processes % machines != 0)
        refuse(str(config.num_processes, " processes cannot be divided evenly among ", machines,
                   " machines"));
    if (config.machine_rank < 0 || config.machine_rank >= machines)
        refuse(str("--machine_rank must be from 0 to ", machines - 1, ": ", config.machine_rank));
    if (machines > 1 && !config.main_process_ip)
        refuse("a job on several machines needs --main_process_ip, the address of machine 0");
}

}  // namespace axle::launcher
