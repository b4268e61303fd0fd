#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string_view>
#include <system_error>
#include <utility>

#include <sched.h>
#include <unistd.h>

#include "core/files/file.h"
#include "core/system/log.h"
#include "dist/environment/job_environment.h"
#include "dist/launch/intercepted_signals.h"
#include "dist/launch/job_launch.h"
#include "dist/launch/launch.h"
#include "dist/launch/launch_commands.h"
#include "dist/transport/launcher_channel.h"
#include "kernels/error.h"

namespace axle::dist {
namespace {

constexpr int kCannotExecute = 126, kNotFound = 127;  // the exit codes of shells

int number_in(const JobVariables& environment, const char* name, std::size_t otherwise) {
    const auto found = environment.find(name);
    return found == environment.end() ? static_cast<int>(otherwise)
                                      : std::atoi(found->second.c_str());
}

// Returns lines NAME=value with the environment of this process and the variables `added`. The
// added variables take precedence.
std::vector<std::string> lines_of(const JobVariables& added) {
    std::vector<std::string> lines;
    for (char** entry = environ; *entry != nullptr; ++entry) {
        const std::string_view line = *entry;
        if (!added.contains(std::string(line.substr(0, line.find('='))))) lines.emplace_back(line);
    }
    for (const auto& [name, value] : added) lines.push_back(str(name, "=", value));
    return lines;
}

// The arguments of execve, prepared before the fork.
struct Program {
    Program(std::string path_, const Command& command, const JobVariables& added)
        : path(std::move(path_)),
          arguments(command.arguments),
          environment(lines_of(added)),
          argv(pointers(arguments)),
          envp(pointers(environment)),
          pinned(!command.cpus.empty()) {
        CPU_ZERO(&cpus);
        for (const int cpu : command.cpus) CPU_SET(static_cast<std::size_t>(cpu), &cpus);
    }

    static std::vector<char*> pointers(std::vector<std::string>& texts) {
        std::vector<char*> all;
        all.reserve(texts.size() + 1);
        for (std::string& text : texts) all.push_back(text.data());
        all.push_back(nullptr);
        return all;
    }
    // Executes the program. On failure, writes errno to the file descriptor `reason` and returns
    // the exit code of the process.
    int execute(int reason) const {
        if (pinned) ::sched_setaffinity(0, sizeof cpus, &cpus);
        ::execve(path.c_str(), argv.data(), envp.data());
        const int error = errno;
        while (::write(reason, &error, sizeof error) < 0 && errno == EINTR) continue;
        return error == ENOENT ? kNotFound : kCannotExecute;
    }

    std::string path;
    std::vector<std::string> arguments, environment;
    std::vector<char*> argv, envp;
    bool pinned;
    cpu_set_t cpus;
};

ChildPlan plan_for(const Command& command, std::size_t place, const JobVariables& of_restart) {
    if (command.arguments.empty())
        throw ValueError(str("launch: a command must contain at least the program: command ", place,
                             " is empty"));
    for (const std::string& argument : command.arguments)
        if (argument.find('\0') != std::string::npos)
            throw ValueError(
                str("launch: an argument contains a zero byte: ", in_quotes(argument)));
    JobVariables environment = of_restart;
    environment.insert(command.environment.begin(), command.environment.end());
    check_variables(environment);
    ChildPlan plan{.rank = number_in(environment, "RANK", place),
                   .local_rank = number_in(environment, "LOCAL_RANK", place),
                   .prepare = {}};
    plan.prepare = [path = find_program(command.arguments[0]), command,
                    environment = std::move(environment)](int channel) mutable {
        environment[kLauncherVariable] = std::to_string(channel);
        const auto program = std::make_shared<const Program>(path, command, environment);
        return [program](int reason) { return program->execute(reason); };
    };
    return plan;
}

// Logs that the program could not be started, and the reason, if execute() has written an errno.
void explain(const JobLaunchResult& result, const std::string& program) {
    int error = 0;
    if (result.reason.size() != sizeof error) return;
    std::memcpy(&error, result.reason.data(), sizeof error);
    log(LogLevel::error, "launch: rank ", result.failure.rank, " cannot start ", in_quotes(program),
        ": ", std::generic_category().message(error));
}

}  // namespace

void check_options(const SuperviseOptions& options) {
    using std::chrono::milliseconds;
    if (options.max_restarts < 0)
        throw ValueError(str("launch: max_restarts must not be negative: ", options.max_restarts));
    if (options.monitor_interval <= milliseconds(0) || options.grace < milliseconds(0) ||
        options.patience < milliseconds(0))
        throw ValueError(
            str("launch: times must not be negative, and monitor_interval must be positive: grace ",
                options.grace.count(), " ms, patience ", options.patience.count(),
                " ms, monitor_interval ", options.monitor_interval.count(), " ms"));
    if (options.tee < 0 || options.tee > 3)
        throw ValueError(str("launch: tee must be 0, 1, 2 or 3: ", options.tee));
}

// Skips files in PATH that are not executable. Unlike execvp(), the launcher does not run a file of
// an unknown format with a shell.
std::string find_program(const std::string& program) {
    namespace fs = std::filesystem;
    std::error_code ignored;
    const auto is_program = [&](const std::string& path) {
        return fs::is_regular_file(path, ignored) && ::access(path.c_str(), X_OK) == 0;
    };
    if (program.find('/') != std::string::npos) {
        if (is_program(program)) return program;
        std::string why = "is not executable; run chmod +x on it";
        if (fs::is_directory(program, ignored))
            why = "is a folder";
        else if (!fs::exists(program, ignored))
            why = program.starts_with('/')
                      ? "does not exist"
                      : str("does not exist in ", printable(fs::current_path(ignored).string()));
        throw FileError(str("launch: the program ", in_quotes(program), " ", why));
    }
    const char* const listed = std::getenv("PATH");
    std::string_view folders = listed == nullptr ? "/bin:/usr/bin" : listed;
    for (;;) {
        const std::size_t end = std::min(folders.find(':'), folders.size());
        const std::string path = str(end == 0 ? "." : folders.substr(0, end), "/", program);
        if (is_program(path)) return path;
        if (end == folders.size()) break;
        folders.remove_prefix(end + 1);
    }
    const bool is_here = fs::is_regular_file(program, ignored);
    throw FileError(str(
        "launch: the program ", in_quotes(program), " was not found in PATH",
        is_here ? str("; use ./", printable(program), " for the file in the current folder") : ""));
}

JobLaunchResult launch_commands(const std::vector<Command>& commands,
                                const SuperviseOptions& options, int restart,
                                JobVariables environment, InterceptedSignals& signals,
                                Machines* machines) {
    if (commands.empty()) throw ValueError("launch: the list of commands is empty");
    if (options.environment) environment.merge(options.environment(restart));
    add_restarts(environment, restart, options.max_restarts);
    std::vector<ChildPlan> plans;
    for (std::size_t i = 0; i < commands.size(); ++i)
        plans.push_back(plan_for(commands[i], i, environment));
    const std::string log_folder =
        options.log_dir.empty() ? "" : str(options.log_dir, "/", restart);
    JobLaunch job({.monitor_interval = options.monitor_interval,
                   .patience = options.patience,
                   .grace = options.grace,
                   .log_folder = log_folder,
                   .tee = options.tee,
                   .on_stop = options.on_stop,
                   .restart = restart,
                   .machines = machines},
                  signals, plans);
    JobLaunchResult result = job.run();
    if (result.failed) {
        explain(result, commands[result.place].arguments[0]);
        if (options.on_failure) options.on_failure(result.failure);
    }
    return result;
}

int supervise(const std::vector<Command>& commands, const SuperviseOptions& options) {
    if (commands.empty()) throw ValueError("launch: the list of commands is empty");
    check_options(options);
    InterceptedSignals signals;
    for (int restart = 0;; ++restart) {
        const JobLaunchResult result =
            launch_commands(commands, options, restart, {}, signals, nullptr);
        if (!result.failed || result.was_stopped() || restart == options.max_restarts)
            return result.exit_code;
    }
}

}  // namespace axle::dist
