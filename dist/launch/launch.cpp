#include "dist/launch/launch.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <iostream>
#include <memory>
#include <optional>
#include <string_view>

#include <unistd.h>

#include "core/system/fork.h"
#include "core/text/text.h"
#include "core/tree/tree.h"
#include "dist/environment/job_environment.h"
#include "dist/launch/intercepted_signals.h"
#include "dist/launch/job_launch.h"
#include "dist/transport/launcher_channel.h"
#include "kernels/error.h"

namespace axle::dist {
namespace {

void check(const LaunchOptions& o) {
    if (o.num_processes == 0)
        throw ValueError(
            "launch: num_processes must be set to the number of processes on this machine");
    if (o.num_processes < 0)
        throw ValueError(str("launch: num_processes must be positive: ", o.num_processes));
    if (o.num_nodes < 1) throw ValueError(str("launch: num_nodes must be positive: ", o.num_nodes));
    if (o.node_rank < 0 || o.node_rank >= o.num_nodes)
        throw ValueError(str("launch: node_rank must be at least 0 and below num_nodes: node_rank ",
                             o.node_rank, ", num_nodes ", o.num_nodes));
    if (o.use_port < 0 || o.use_port > 65535)
        throw ValueError(str("launch: use_port must be from 0 to 65535: ", o.use_port));
    if (o.num_nodes > 1 && o.use_port == 0)
        throw ValueError(str("launch: with several machines, use_port must be set to the same ",
                             "port on all machines: num_nodes is ", o.num_nodes));
    if (o.max_restarts < 0)
        throw ValueError(str("launch: max_restarts must not be negative: ", o.max_restarts));
    if (o.monitor_interval <= std::chrono::milliseconds(0))
        throw ValueError(
            str("launch: monitor_interval must be positive: ", o.monitor_interval.count(), " ms"));
    check_variables(o.environment);
    for (const char* known : {"no", "fp16", "bf16", "fp8"})
        if (o.mixed_precision == known) return;
    throw ValueError(
        str("launch: mixed_precision must be no, fp16, bf16 or fp8: '", o.mixed_precision, "'"));
}

std::string token_of(const LaunchOptions& options) {
    if (options.num_nodes == 1) return make_job_token();
    const char* const token = std::getenv("AXLE_JOB_TOKEN");
    if (token == nullptr || *token == '\0')
        throw UsageError(
            "launch: a job on several machines needs a shared secret: set AXLE_JOB_TOKEN to the "
            "same value on each machine");
    return token;
}

JobVariables environment_for(const LaunchOptions& options, const JobNode& place, int local_rank,
                             int restart) {
    JobVariables all = environment_of(place, local_rank);
    all["ACCELERATE_MIXED_PRECISION"] = options.mixed_precision;
    all["FORK_LAUNCHED"] = "1";
    if (options.cpu) all["ACCELERATE_USE_CPU"] = "true";
    add_restarts(all, restart, options.max_restarts);
    for (const auto& [name, value] : options.environment) all[name] = value;
    return all;
}

void write_reason(int fd, std::string_view text) {
    while (!text.empty()) {
        const ssize_t written = ::write(fd, text.data(), text.size());
        if (written < 0 && errno == EINTR) continue;
        if (written <= 0) return;
        text.remove_prefix(static_cast<std::size_t>(written));
    }
}

int run_in_child(const std::function<void()>& f, int rank, int reason) {
    std::optional<std::string> failure;
    try {
        f();
    } catch (const std::exception& error) {
        failure = error.what();
    } catch (...) {
        failure = "an exception not derived from std::exception";
    }
    if (failure) {
        // The text is truncated, because it must fit into a pipe's buffer.
        failure->resize(std::min(failure->size(), kMaxLauncherLine / 2));
        std::cerr << str("[rank ", rank, "] ", *failure, '\n');
        write_reason(reason, *failure);
    }
    std::cout.flush();
    std::cerr.flush();
    std::fflush(nullptr);
    return failure ? EXIT_FAILURE : EXIT_SUCCESS;
}

ChildPlan plan_for(const LaunchOptions& options, const JobNode& place, int local_rank, int restart,
                   const std::function<void()>& f) {
    const int rank = place.node_rank * place.local_world_size + local_rank;
    ChildPlan plan{
        .rank = rank, .local_rank = local_rank, .prepare = {}, .becomes_another_program = false};
    plan.prepare = [&f, rank, environment = environment_for(options, place, local_rank, restart)](
                       int channel) mutable {
        environment[kLauncherVariable] = std::to_string(channel);
        return [&f, rank, environment](int reason) {
            for (const auto& [name, value] : environment) ::setenv(name.c_str(), value.c_str(), 1);
            return run_in_child(f, rank, reason);
        };
    };
    return plan;
}

std::string text_of(const JobLaunchResult& result) {
    const JobFailure& failure = result.failure;
    if (result.stop_signal != 0)
        return str("launch: signal ", result.stop_signal, " (", ::strsignal(result.stop_signal),
                   ") has stopped the job", result.failed ? ", and " : "", failure.text);
    if (!result.failed)
        return str("launch: the job has ended after a checkpoint, with exit code ",
                   result.exit_code);
    if (result.reason.empty()) return "launch: " + failure.text;
    return str("launch: rank ", failure.rank, " (pid ", failure.pid, ") failed: ", result.reason,
               failure.op.empty() ? "" : str(" during ", failure.op, " #", failure.sequence));
}

}  // namespace

std::string JobFailure::to_json() const {
    return axle::to_json(Tree{{"rank", rank},
                              {"pid", pid},
                              {"host", host},
                              {"signal", signal},
                              {"exit_code", exit_code},
                              {"op", op},
                              {"seq", static_cast<std::int64_t>(sequence)},
                              {"text", replace_invalid_utf8(text)}},
                         -1);
}

void launch_function(const LaunchOptions& options, const std::function<void()>& f) {
    check(options);
    if (options.num_processes == 1 && options.num_nodes == 1) return f();
    const std::string lost = fork_unsafe_state();
    if (!lost.empty())
        throw UsageError(str("launch: this process has ", lost,
                             ", which does not survive a fork: call launch before the first "
                             "computation"));
    InterceptedSignals signals;
    for (int restart = 0;; ++restart) {
        std::unique_ptr<ReservedPort> port;
        JobNode place{.local_world_size = options.num_processes,
                      .node_rank = options.node_rank,
                      .num_nodes = options.num_nodes,
                      .master_addr = options.master_addr,
                      .master_port = options.use_port,
                      .token = token_of(options)};
        if (options.num_nodes == 1) {
            port = std::make_unique<ReservedPort>(options.use_port);
            place.master_port = port->port();
        }
        std::vector<ChildPlan> plans;
        plans.reserve(static_cast<std::size_t>(options.num_processes));
        for (int i = 0; i < options.num_processes; ++i)
            plans.push_back(plan_for(options, place, i, restart, f));
        std::cout.flush();  // otherwise each child would write the buffered output again
        std::fflush(nullptr);
        JobLaunchOptions how;
        how.monitor_interval = options.monitor_interval;
        const JobLaunchResult result = JobLaunch(how, signals, plans).run();
        if (!result.failed && !result.was_stopped()) return;
        if (restart == options.max_restarts || result.was_stopped())
            throw CommError(text_of(result));
    }
}

}  // namespace axle::dist
