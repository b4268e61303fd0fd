#include "tools/axle/multinode/multinode.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <utility>

#include <unistd.h>

#include "core/files/file.h"
#include "kernels/error.h"
#include "tools/axle/cluster_config.h"

namespace axle::launcher {
namespace {

using Arguments = std::vector<std::string>;

void append(Arguments& to, const Arguments& more) { to.insert(to.end(), more.begin(), more.end()); }

std::string joined(const Arguments& words, const char* separator) {
    std::string text;
    for (const std::string& word : words) text += (text.empty() ? "" : separator) + word;
    return text;
}

std::string host_list(const MultinodeJob& job) {
    Arguments names;
    for (const HostSlots& host : job.machines.hosts) names.push_back(host.host);
    return joined(names, ",");
}

std::string total(const MultinodeJob& job) {
    return std::to_string(job.num_machines * job.processes_per_machine);
}

// Returns the argument in quotes if a shell would otherwise change it.
std::string shell_quoted(const std::string& argument) {
    constexpr const char* kPlain =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_@%+=:,./-";
    if (!argument.empty() && argument.find_first_not_of(kPlain) == std::string::npos)
        return argument;
    std::string text = "'";
    for (const char c : argument) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
    return text + "'";
}

// Doubles percent signs, because pdsh replaces %n, %h and %u in the command, and %% by a percent
// sign.
std::string with_doubled_percents(const std::string& text) {
    std::string result;
    for (const char c : text) result += c == '%' ? std::string("%%") : std::string(1, c);
    return result;
}

// Returns a description such as "slots 0,2 of worker-1".
std::string slots_of(const HostSlots& host) {
    std::vector<std::string> slots;
    for (const int slot : host.slots) slots.push_back(std::to_string(slot));
    return str("slots ", joined(slots, ","), " of ", host.host);
}

// Throws ValueError unless all machines use the same slots. With first_slots, the slots must also
// be numbered from 0 without gaps. The error ends with `fix`.
void check_slots(const MultinodeJob& job, bool first_slots, const char* fix) {
    const HostSlots& first = job.machines.hosts[0];
    for (const HostSlots& host : job.machines.hosts) {
        const bool is_even = host.slots == first.slots;
        bool is_first = true;
        for (std::size_t i = 0; i < host.slots.size(); ++i)
            is_first = is_first && host.slots[i] == static_cast<int>(i);
        if (is_even && (is_first || !first_slots)) continue;
        throw ValueError(str(
            "launch: deepspeed_multinode_launcher ", job.machines.launcher, " needs the same slots",
            first_slots ? ", counted from 0, on all machines: " : " on all machines: ",
            "the job uses ", slots_of(host), is_even ? "" : str(" and ", slots_of(first)), "; ",
            fix));
    }
}

// Returns the names of the variables that MPI launchers must pass to the processes.
Arguments names_of(const MultinodeJob& job) {
    Arguments names = {"AXLE_JOB_TOKEN"};
    if (!job.main_process_ip.empty()) append(names, {"MASTER_ADDR", "MASTER_PORT"});
    if (job.threads > 0) append(names, {"OMP_NUM_THREADS", "AXLE_NUM_THREADS"});
    for (const auto& [name, value] : job.environment) names.push_back(name);
    return names;
}

// Returns the command of a process. It removes AXLE_LAUNCHER_FD, which connects `axle launch` only
// with mpirun or srun on this machine.
Arguments program_arguments(const MultinodeJob& job) {
    Arguments arguments = {"env", "-u", "AXLE_LAUNCHER_FD"};
    append(arguments, job.command);
    return arguments;
}

Arguments pdsh_arguments(const MultinodeJob& job) {
    check_slots(job, false, "use nossh, and run axle launch on each machine");
    if (job.token_file.empty())
        throw ValueError(
            "launch: deepspeed_multinode_launcher pdsh needs --token_file, a file that exists on "
            "all machines; `openssl rand -hex 32` creates its contents");
    Arguments remote = {job.axle, "launch", "--config_file", "none", "--no_python"};
    append(remote, {"--num_machines", std::to_string(job.num_machines)});
    append(remote, {"--num_processes", total(job)});
    append(remote, {"--main_process_ip", job.main_process_ip});
    append(remote, {"--main_process_port", std::to_string(job.main_process_port)});
    append(remote, {"--token_file", job.token_file});
    if (job.threads > 0)
        append(remote, {"--num_cpu_threads_per_process", std::to_string(job.threads)});
    append(remote, job.flags);
    for (const auto& [name, value] : job.environment)
        append(remote, {"--env", str(name, "=", value)});
    remote.emplace_back("--");
    append(remote, job.command);
    for (std::string& word : remote) word = with_doubled_percents(shell_quoted(word));
    const std::string folder = with_doubled_percents(shell_quoted(job.folder));
    // pdsh replaces %n by the position of the machine in the list, which is its rank.
    remote.insert(remote.begin() + 2, {"--machine_rank", "%n"});
    return {"pdsh",
            "-S",
            "-f",
            "1024",
            "-w",
            host_list(job),
            str("cd ", folder, " && exec ", joined(remote, " "))};
}

void refuse_filter(const MultinodeJob& job) {
    if (job.machines.are_filtered)
        throw ValueError(str("launch: deepspeed_multinode_launcher ", job.machines.launcher,
                             " does not support deepspeed_inclusion_filter and "
                             "deepspeed_exclusion_filter; use a hostfile that lists only the "
                             "machines of the job"));
}

Arguments open_mpi_arguments(const MultinodeJob& job) {
    refuse_filter(job);
    Arguments arguments = {"mpirun",
                           "-n",
                           total(job),
                           "-hostfile",
                           job.machines.hostfile,
                           "--npernode",
                           std::to_string(job.processes_per_machine)};
    for (const std::string& name : names_of(job)) append(arguments, {"-x", name});
    if (::geteuid() == 0) arguments.emplace_back("--allow-run-as-root");
    append(arguments, program_arguments(job));
    return arguments;
}

// Returns the command of MPICH or MVAPICH, which both start processes with Hydra.
Arguments hydra_arguments(const MultinodeJob& job) {
    refuse_filter(job);
    check_slots(job, true, "write the same number of slots for each machine into the hostfile");
    Arguments arguments = {"mpirun", job.machines.launcher == "mvapich" ? "-np" : "-n", total(job),
                           "-ppn", std::to_string(job.processes_per_machine)};
    append(arguments, {"-hosts", host_list(job), "-genvlist", joined(names_of(job), ",")});
    append(arguments, program_arguments(job));
    return arguments;
}

Arguments slurm_arguments(const MultinodeJob& job) {
    if (!job.machines.hosts.empty())
        check_slots(job, true, "select the first slots of each machine, the same number for all");
    Arguments arguments = {"srun", "-n", total(job), "--nodes", std::to_string(job.num_machines)};
    append(arguments, {"--ntasks-per-node", std::to_string(job.processes_per_machine)});
    if (!job.machines.hosts.empty()) append(arguments, {"--nodelist", host_list(job)});
    arguments.emplace_back("--export=ALL");
    append(arguments, program_arguments(job));
    return arguments;
}

Arguments arguments_of(const MultinodeJob& job) {
    if (job.machines.launcher == "pdsh") return pdsh_arguments(job);
    if (job.machines.launcher == "openmpi") return open_mpi_arguments(job);
    if (job.machines.launcher == "slurm") return slurm_arguments(job);
    return hydra_arguments(job);
}

// Throws ValueError if a machine has fewer slots than it needs: its share of num_processes or, if
// that is missing, as many as the first machine. If a machine has more slots, keeps the first ones,
// but throws ValueError if filters have selected the slots or num_processes is missing.
void limit_slots(MultinodeHosts& machines, std::optional<int> num_processes) {
    const auto count = static_cast<int>(machines.hosts.size());
    if (num_processes && *num_processes % count != 0)
        throw ValueError(str("launch: ", *num_processes, " processes cannot be divided evenly ",
                             "among the ", count, " machines of the hostfile"));
    const int wanted =
        num_processes ? *num_processes / count : static_cast<int>(machines.hosts[0].slots.size());
    for (HostSlots& host : machines.hosts) {
        const auto slots = static_cast<int>(host.slots.size());
        if (wanted > slots || (wanted < slots && (machines.are_filtered || !num_processes)))
            throw ValueError(str("launch: the hostfile and its filters leave ", slots,
                                 slots == 1 ? " slot of " : " slots of ", host.host,
                                 ", but each machine needs ", wanted > slots ? "" : "exactly ",
                                 wanted, wanted == 1 ? " slot" : " slots",
                                 ", one for each process; change the hostfile or the filters"));
        host.slots.resize(static_cast<std::size_t>(wanted));
    }
}

}  // namespace

MultinodeHosts select_hosts(const FlagValues& flags, const Tree& deepspeed_config, int num_machines,
                            std::optional<int> num_processes) {
    const auto option = [&](const char* name) {
        return deepspeed_value(flags, deepspeed_config, name).value_or("");
    };
    MultinodeHosts machines;
    machines.hostfile = option("deepspeed_hostfile");
    const bool has_file = !machines.hostfile.empty();
    std::string launcher = option("deepspeed_multinode_launcher");
    if (launcher.empty()) launcher = has_file ? "pdsh" : "standard";
    const std::string inclusion = option("deepspeed_inclusion_filter"),
                      exclusion = option("deepspeed_exclusion_filter");
    const bool has_filter = !inclusion.empty() || !exclusion.empty();
    if (has_filter && !has_file)
        throw ValueError(
            "launch: deepspeed_inclusion_filter and deepspeed_exclusion_filter need "
            "--deepspeed_hostfile");
    if (launcher == "standard" && has_file)
        throw ValueError(
            "launch: deepspeed_multinode_launcher standard does not use --deepspeed_hostfile; use "
            "nossh");
    if (launcher == "standard" || (num_machines == 1 && !has_file)) return {};
    if (launcher != "nossh") machines.launcher = launcher;
    if (!has_file && launcher == "slurm") return machines;
    if (!has_file)
        throw ValueError(
            str("launch: deepspeed_multinode_launcher ", launcher, " needs --deepspeed_hostfile"));
    machines.hosts = filter_hosts(read_hostfile(machines.hostfile), inclusion, exclusion);
    machines.are_filtered = has_filter;
    if (num_machines > 1 && std::cmp_not_equal(num_machines, machines.hosts.size()))
        throw ValueError(str("launch: --num_machines is ", num_machines,
                             ", but the hostfile and its filters leave ", machines.hosts.size(),
                             " machines"));
    limit_slots(machines, num_processes);
    return machines;
}

dist::Command multinode_command(const MultinodeJob& job) {
    dist::Command command{.arguments = arguments_of(job)};
    if (job.machines.launcher == "pdsh") {
        command.environment["PDSH_RCMD_TYPE"] = "ssh";
        return command;
    }
    command.environment = job.environment;
    if (!job.main_process_ip.empty()) {
        command.environment["MASTER_ADDR"] = job.main_process_ip;
        command.environment["MASTER_PORT"] = std::to_string(job.main_process_port);
    }
    if (job.threads > 0)
        for (const char* name : {"OMP_NUM_THREADS", "AXLE_NUM_THREADS"})
            command.environment[name] = std::to_string(job.threads);
    return command;
}

const char* program_of(std::string_view launcher) {
    if (launcher == "pdsh") return "pdsh";
    return launcher == "slurm" ? "srun" : "mpirun";
}

void check_multinode_program(std::string_view launcher) {
    try {
        dist::find_program(program_of(launcher));
    } catch (const FileError&) {
        throw FileError(str("launch: deepspeed_multinode_launcher ", launcher,
                            " needs the program ", program_of(launcher),
                            ", which is not in PATH; install it, or run axle launch on each "
                            "machine with nossh (with a hostfile) or standard"));
    }
}

std::map<std::string, std::string> parse_deepspeed_env(std::string_view text,
                                                       const std::string& name) {
    std::map<std::string, std::string> variables;
    int number = 0;
    for (std::size_t begin = 0; begin < text.size();) {
        const std::size_t end = std::min(text.find('\n', begin), text.size());
        std::string_view line = text.substr(begin, end - begin);
        begin = end + 1;
        ++number;
        while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.remove_suffix(1);
        if (line.empty() || line[0] == '#') continue;
        const std::size_t equals = line.find('=');
        if (equals == 0 || equals == std::string_view::npos ||
            line.substr(0, equals).find_first_of(" \t") != std::string_view::npos)
            throw ValueError(
                str(printable(name), ":", number,
                    ": a line must be NAME=VALUE, without spaces before '=': ", in_quotes(line)));
        variables[std::string(line.substr(0, equals))] = line.substr(equals + 1);
    }
    return variables;
}

std::map<std::string, std::string> read_deepspeed_env() {
    constexpr std::int64_t kMaxSize = std::int64_t{256} << 10;
    const char* const given = std::getenv("DS_ENV_FILE");
    const std::string name = given != nullptr && *given != '\0' ? given : ".deepspeed_env";
    std::map<std::string, std::string> variables;
    for (const std::string& path : {name, expand_home("~/" + name)}) {
        std::error_code ignored;
        if (std::filesystem::is_regular_file(path, ignored))
            variables.merge(parse_deepspeed_env(read_file(path, kMaxSize), path));
    }
    return variables;
}

}  // namespace axle::launcher
