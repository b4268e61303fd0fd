#include "tools/axle/self_test.h"

#include <exception>
#include <filesystem>
#include <iostream>
#include <vector>

#include "core/cuda.h"
#include "dist/group/process_group.h"
#include "kernels/error.h"
#include "tools/axle/cluster_config.h"
#include "tools/axle/commands.h"
#include "tools/options/options.h"

namespace axle::launcher {
namespace {

int run_worker() {
    const PartialState state;
    state.print("Testing ", state.num_processes(), " process(es), ",
                state.process_group()->backend(), ", on ", state.device());
    run_self_test(state, [&](const std::string& name) { state.print("  ", name, ": passed"); });
    return 0;
}

// Returns the arguments of the default launch: all GPUs if there are several, else two processes on
// the CPU.
std::vector<std::string> usual_launch() {
    const int gpus = cuda::device_count();
    if (gpus < 2) return {"--cpu", "--num_processes", "2"};
    return {"--multi_gpu", "--num_processes", str(gpus)};
}

}  // namespace

void run_checks(const PartialState& state, const std::vector<Check>& checks,
                const std::function<void(const std::string& name)>& passed) {
    const auto& group = state.process_group();
    for (const Check& check : checks) {
        std::string wrong;
        try {
            check.run(state);
        } catch (const std::exception& error) {
            wrong = str("rank ", group->rank(), ": ", check.name, ": ", error.what());
        }
        // If a check fails on one process, other processes may still wait in a collective. Then the
        // group cannot be used any more.
        std::vector<Tree> said;
        try {
            said = group->all_gather_object(wrong);
        } catch (const std::exception&) {
            if (wrong.empty()) throw;
            throw Error("test: " + wrong);
        }
        for (const Tree& what : said)
            if (!what.string().empty()) throw Error("test: " + what.string());
        passed(check.name);
    }
}

void run_self_test(const PartialState& state,
                   const std::function<void(const std::string& name)>& passed) {
    run_checks(state, process_checks(), passed);
    run_checks(state, data_checks(), passed);
    run_checks(state, training_checks(), passed);
}

int run_test(std::vector<std::string> arguments) {
    tools::Options options(
        "Checks that training on several processes works here, as started by `axle launch`: "
        "execution, collectives, random numbers, data loaders, and that a model is the same as "
        "when trained by one process.",
        "axle test");
    std::string config;
    int processes = 0;
    bool cpu = false, worker = false;
    options.add("--config_file", config, "The configuration of the launch to test");
    options
        .add("--num_processes", processes,
             "Number of processes; default: from the configuration, else one for each GPU, or two")
        .range(1, std::numeric_limits<int>::max());
    options.add_flag("--cpu", cpu, "Use the CPU even if there is a GPU");
    options.add_flag("--worker", worker, "").group("");
    if (!options.parse(std::move(arguments))) return 0;
    if (worker) return run_worker();

    std::vector<std::string> launch;
    if (!config.empty()) launch = {"--config_file", config};
    if (cpu) launch.emplace_back("--cpu");
    if (processes > 0) launch.insert(launch.end(), {"--num_processes", str(processes)});
    if (launch.empty() && !std::filesystem::exists(default_config_path())) launch = usual_launch();
    std::error_code ignored;
    const std::string program = std::filesystem::read_symlink("/proc/self/exe", ignored).string();
    launch.insert(launch.end(), {"--quiet", program, "test", "--worker"});
    const int code = run_launch(std::move(launch));
    if (code == 0)
        std::cout << "The test has passed: this machine is ready for training on several "
                     "processes.\n";
    else
        std::cerr << "axle: the test has failed\n";
    return code;
}

}  // namespace axle::launcher
