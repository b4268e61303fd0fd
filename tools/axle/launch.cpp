// Implements the command `axle launch`.
#include "dist/launch/launch.h"

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <memory>
#include <set>
#include <system_error>
#include <utility>

#include <unistd.h>

#include "core/files/file.h"
#include "core/text/text.h"
#include "kernels/error.h"
#include "tools/axle/commands.h"
#include "tools/axle/launch_plan.h"
#include "tools/axle/mpirun.h"
#include "tools/axle/multinode/multinode.h"

namespace axle::launcher {
namespace {

std::optional<ClusterConfig> configuration(const LaunchFlags& flags) {
    if (flags.config_file == "none") return std::nullopt;
    if (flags.config_file) return read_config(*flags.config_file);
    if (flags.cpu) return std::nullopt;
    return read_default_config();
}

// Returns the lines of `defaults` that no earlier launch by this user has printed, and records them
// in a file in the folder of the default configuration. If the file cannot be written, later
// launches print the lines again.
std::vector<std::string> not_yet_printed(const std::vector<std::string>& defaults) {
    const auto folder = std::filesystem::path(default_config_path()).parent_path();
    const std::string path = folder / "axle_printed_defaults.txt";
    std::set<std::string> printed;
    std::ifstream before(path);
    for (std::string line; std::getline(before, line);) printed.insert(line);
    std::vector<std::string> fresh;
    for (const std::string& line : defaults)
        if (!printed.contains(line)) fresh.push_back(line);
    if (fresh.empty()) return fresh;
    std::string text;
    for (const std::string& line : fresh) text += line + "\n";
    std::error_code ignored;
    std::filesystem::create_directories(folder, ignored);
    std::ofstream(path, std::ios::app) << text;
    return fresh;
}

void list_defaults(const LaunchPlan& plan, const LaunchFlags& flags) {
    if (flags.quiet) return;
    std::string text;
    if (const auto fresh = not_yet_printed(plan.defaults); !fresh.empty()) {
        text += "axle launch: using default values:\n";
        for (const std::string& line : fresh) text += "    " + line + "\n";
        text +=
            "Run `axle config` to store them in a configuration. Later launches do not print this "
            "list.\n";
    }
    if (!plan.without_effect.empty()) {
        text += "axle launch: these flags have no effect:";
        for (const std::string& name : plan.without_effect) text += " " + name;
        text += "\n";
    }
    std::cerr << text;
}

// Chooses and reserves the port of rank 0, for a job on one machine or a job that mpirun starts.
class Ports {
  public:
    explicit Ports(const LaunchPlan& plan) : plan_(plan) {}

    // Returns the port for the next start of the job. On one machine, uses main_process_port, or a
    // free port if it is 0 or in use, and reserves the port until the next start. With mpirun on
    // several machines, uses main_process_port, which machine 0 reserves until the program ends.
    int next() {
        if (plan_.num_machines > 1) {
            if (plan_.machine_rank == 0 && !held_)
                held_ = std::make_unique<dist::ReservedPort>(plan_.main_process_port);
            return plan_.main_process_port;
        }
        held_.reset();
        try {
            held_ = std::make_unique<dist::ReservedPort>(plan_.main_process_port);
        } catch (const CommError& error) {
            held_ = std::make_unique<dist::ReservedPort>();
            std::cerr << str("axle ", error.what(), "; using port ", held_->port(),
                             ". --main_process_port 0 always chooses a free one.\n");
        }
        return held_->port();
    }

  private:
    const LaunchPlan& plan_;
    std::unique_ptr<dist::ReservedPort> held_;
};

void report(const dist::JobFailure& failure) {
    std::cerr << str("axle launch: ", failure.text, "\n", failure.to_json(), "\n");
}

void report_stop(int signal, double grace) {
    std::cerr << str("axle launch: signal ", signal, " (", ::strsignal(signal),
                     "): the processes have ", format_number(grace, std::chars_format::general, 6),
                     " s to end; a second SIGINT kills them\n");
}

std::chrono::milliseconds milliseconds(double seconds) {
    return std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1000));
}

dist::SuperviseOptions supervision(const LaunchFlags& flags) {
    dist::SuperviseOptions options;
    options.max_restarts = flags.max_restarts;
    options.monitor_interval = milliseconds(flags.monitor_interval);
    options.grace = milliseconds(flags.grace);
    options.log_dir = flags.log_dir.value_or("");
    options.tee = flags.tee;
    if (flags.quiet) return options;
    options.on_failure = report;
    options.on_stop = [grace = flags.grace](int signal) { report_stop(signal, grace); };
    return options;
}

dist::JobNode job_node(const LaunchPlan& plan) {
    return {.local_world_size = plan.processes_here,
            .node_rank = plan.machine_rank,
            .num_nodes = plan.num_machines,
            .master_addr = plan.main_process_ip,
            .master_port = plan.main_process_port,
            .token = plan.token,
            .num_threads = plan.threads};
}

dist::MachinesOptions machines_of(const LaunchPlan& plan, const LaunchFlags& flags) {
    dist::MachinesOptions options{.place = job_node(plan),
                                  .min_nodes = plan.min_nodes,
                                  .join_timeout = milliseconds(flags.join_timeout)};
    if (!flags.quiet)
        options.on_change = [](const std::string& text) {
            std::cerr << "axle launch: " + text + "\n";
        };
    return options;
}

// Returns a command for each process of this machine, with its variables: those of the plan and of
// environment_of().
std::vector<dist::Command> commands_of(const LaunchPlan& plan, const dist::JobNode& node) {
    std::vector<dist::Command> commands;
    for (int i = 0; i < plan.processes_here; ++i) {
        dist::Command command{.arguments = plan.command, .environment = plan.environment};
        // merge() does not replace variables, so variables given with --env take precedence.
        command.environment.merge(dist::environment_of(node, i));
        if (plan.keep_to_cores) command.cpus = dist::cpus_of(node, i);
        commands.push_back(std::move(command));
    }
    return commands;
}

// Returns the flags of this launch that the `axle launch` of each machine also gets if pdsh starts
// it. multinode_command() adds the flags of the job.
std::vector<std::string> flags_of_machines(const LaunchPlan& plan, const LaunchFlags& flags) {
    std::vector<std::string> all;
    const auto add = [&](const char* name, const auto& value) {
        all.insert(all.end(), {name, str(value)});
    };
    if (plan.multinode.are_filtered) add("--gpu_ids", slot_list(plan.multinode.hosts[0]));
    if (flags.enable_cpu_affinity) all.emplace_back("--enable_cpu_affinity");
    if (flags.quiet) all.emplace_back("--quiet");
    if (flags.min_nodes) add("--min_nodes", *flags.min_nodes);
    if (flags.log_dir) add("--log_dir", *flags.log_dir);
    add("--max_restarts", flags.max_restarts);
    add("--join_timeout", flags.join_timeout);
    add("--monitor_interval", flags.monitor_interval);
    add("--grace", flags.grace);
    add("--tee", flags.tee);
    return all;
}

int run_multinode(const LaunchPlan& plan, const LaunchFlags& flags,
                  dist::SuperviseOptions options) {
    check_multinode_program(plan.multinode.launcher);
    const bool is_pdsh = plan.multinode.launcher == "pdsh";
    const MultinodeJob job{.machines = plan.multinode,
                           .num_machines = plan.num_machines,
                           .processes_per_machine = plan.processes_here,
                           .main_process_ip = plan.main_process_ip,
                           .main_process_port = plan.main_process_port,
                           .command = plan.command,
                           .environment = plan.environment,
                           .threads = plan.threads,
                           .axle = std::filesystem::read_symlink("/proc/self/exe"),
                           .folder = std::filesystem::current_path(),
                           .token_file = plan.token_file,
                           .flags = flags_of_machines(plan, flags)};
    if (is_pdsh)
        options.max_restarts = 0;  // the launchers on the machines restart the job
    else
        options.environment = [&](int) {
            return std::map<std::string, std::string>{
                {"AXLE_JOB_TOKEN", plan.token.empty() ? dist::make_job_token() : plan.token}};
        };
    return dist::supervise({multinode_command(job)}, options);
}

// Throws FileError if the program, or the Python script, cannot be started. mpirun and launchers
// for several machines check this themselves, because the files need to exist only on their hosts.
void check_program(const LaunchPlan& plan) {
    if (!plan.mpirun_hostfile.empty() || !plan.multinode.launcher.empty()) return;
    std::error_code ignored;
    if (!plan.python_script.empty() && !std::filesystem::exists(plan.python_script, ignored)) {
        const auto folder = std::filesystem::current_path(ignored).string();
        throw FileError(str("launch: the Python script ", in_quotes(plan.python_script),
                            " does not exist",
                            plan.python_script.starts_with('/') ? "" : " in " + printable(folder)));
    }
    dist::find_program(plan.command[0]);
    if (!plan.python_script.empty() && ::access(plan.python_script.c_str(), R_OK) != 0)
        throw FileError(str("launch: the Python script ", in_quotes(plan.python_script),
                            " cannot be read: ", std::generic_category().message(errno)));
}

}  // namespace

int run_launch(std::vector<std::string> arguments) {
    const auto flags = parse_launch_flags(std::move(arguments));
    if (!flags) return 0;
    const LaunchPlan plan = plan_launch(*flags, configuration(*flags));
    check_program(plan);
    list_defaults(plan, *flags);
    // The parent process may have set SIGCHLD to be ignored, and then waiting for children fails.
    std::signal(SIGCHLD, SIG_DFL);

    dist::SuperviseOptions options = supervision(*flags);
    if (!plan.multinode.launcher.empty()) return run_multinode(plan, *flags, options);
    if (plan.num_machines > 1 && plan.mpirun_hostfile.empty()) {
        const auto commands = [&](const dist::JobNode& node) { return commands_of(plan, node); };
        return dist::supervise_machines(machines_of(plan, *flags), commands, options);
    }
    Ports ports(plan);
    options.environment = [&](int) {
        return std::map<std::string, std::string>{
            {"MASTER_PORT", std::to_string(ports.next())},
            {"AXLE_JOB_TOKEN", plan.token.empty() ? dist::make_job_token() : plan.token}};
    };
    if (plan.mpirun_hostfile.empty())
        return dist::supervise(commands_of(plan, job_node(plan)), options);
    return dist::supervise({mpirun_command(plan)}, options);
}

}  // namespace axle::launcher
