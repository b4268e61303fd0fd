#include <algorithm>
#include <chrono>
#include <memory>
#include <utility>

#include <fcntl.h>
#include <poll.h>

#include "dist/environment/job_environment.h"
#include "dist/launch/intercepted_signals.h"
#include "dist/launch/launch_commands.h"
#include "dist/launch/machines.h"
#include "kernels/error.h"

namespace axle::dist {
namespace {

using std::chrono::milliseconds;

MachinesOptions checked(MachinesOptions o, const SuperviseOptions& options) {
    const JobNode& place = o.place;
    if (place.num_nodes < 1)
        throw ValueError(str("launch: num_nodes must be positive: ", place.num_nodes));
    if (place.node_rank < 0 || place.node_rank >= place.num_nodes)
        throw ValueError(str("launch: node_rank must be at least 0 and below num_nodes: node_rank ",
                             place.node_rank, ", num_nodes ", place.num_nodes));
    if (place.local_world_size < 1)
        throw ValueError(
            str("launch: local_world_size must be positive: ", place.local_world_size));
    if (place.master_port < 1 || place.master_port > 65535)
        throw ValueError(str("launch: master_port must be from 1 to 65535: ", place.master_port));
    if (place.token.empty())
        throw ValueError(
            "launch: a job on several machines needs a token, but place.token is empty: set it to "
            "the same secret on all machines");
    if (o.min_nodes == 0) o.min_nodes = place.num_nodes;
    if (o.min_nodes < 1 || o.min_nodes > place.num_nodes)
        throw ValueError(str("launch: min_nodes must be from 1 to num_nodes: min_nodes ",
                             o.min_nodes, ", num_nodes ", place.num_nodes));
    if (o.min_nodes < place.num_nodes && options.max_restarts == 0)
        throw ValueError(str("launch: max_restarts must be positive if min_nodes is below ",
                             "num_nodes: max_restarts 0, min_nodes ", o.min_nodes, ", num_nodes ",
                             place.num_nodes));
    if (o.join_timeout <= milliseconds(0) || o.silence_timeout <= milliseconds(0))
        throw ValueError(
            str("launch: join_timeout and silence_timeout must be positive: ", "join_timeout ",
                o.join_timeout.count(), " ms, silence_timeout ", o.silence_timeout.count(), " ms"));
    return o;
}

// Removes the pending signals, and returns the first of them that stops the launcher, or 0.
int stop_signal(InterceptedSignals& signals) {
    for (const int signal : signals.take())
        if (signal != SIGUSR1) return signal;
    return 0;
}

// Joins the other machines. Returns nullptr after a signal that stops the launcher, and stores this
// signal in `signal`.
std::unique_ptr<Machines> join(const MachinesOptions& machines, int max_restarts,
                               InterceptedSignals& signals, int& signal) {
    const Socket cancel(::fcntl(signals.fd(), F_DUPFD_CLOEXEC, 0));
    for (;;) {
        try {
            return join_machines(machines, max_restarts, cancel);
        } catch (const CommError&) {
            pollfd entry{signals.fd(), POLLIN, 0};
            if (::poll(&entry, 1, 0) != 1) throw;
            signal = stop_signal(signals);
            if (signal != 0) return nullptr;
        }
    }
}

// Waits for the next decision. Returns nullopt after a signal that stops the launcher, and stores
// this signal in `signal`.
std::optional<MachineDecision> next_decision(Machines& machines, InterceptedSignals& signals,
                                             int& signal) {
    for (;;) {
        machines.proceed();
        if (auto decision = machines.take_decision()) return decision;
        signal = stop_signal(signals);
        if (signal != 0) return {};
        std::vector<pollfd> waited = {{signals.fd(), POLLIN, 0}};
        machines.add_poll_entries(waited);
        ::poll(waited.data(), waited.size(), milliseconds_until(machines.next_timer()));
    }
}

}  // namespace

int supervise_machines(const MachinesOptions& given,
                       const std::function<std::vector<Command>(const JobNode&)>& commands,
                       const SuperviseOptions& options) {
    const MachinesOptions options_of_machines = checked(given, options);
    const JobNode& place = options_of_machines.place;
    check_options(options);
    InterceptedSignals signals;
    int signal = 0, exit_code = 0;
    std::string failure;  // the text of the last failure
    const auto machines = join(options_of_machines, options.max_restarts, signals, signal);
    if (machines == nullptr) return 128 + signal;
    for (;;) {
        const auto decision = next_decision(*machines, signals, signal);
        if (!decision) return 128 + signal;
        if (const auto* const end = std::get_if<JobEnd>(&*decision)) {
            const bool is_new = !end->text.empty() && end->text != failure;
            if (is_new && given.on_change) given.on_change(end->text);
            return exit_code != 0 ? exit_code : end->exit_code;
        }
        const auto& start = std::get<LaunchStart>(*decision);
        JobNode node = place;
        node.node_rank = start.node_rank, node.num_nodes = start.num_nodes;
        node.master_port = start.master_port;
        JobVariables environment = {
            {"AXLE_FULL_WORLD_SIZE", std::to_string(place.num_nodes * place.local_world_size)}};
        const JobLaunchResult result =
            launch_commands(commands(node), options, start.restart, std::move(environment), signals,
                            machines.get());
        exit_code = result.exit_code;
        failure = result.failure.text;
        machines->report(LaunchEnd{.restart = start.restart,
                                   .exit_code = exit_code,
                                   .stop_signal = result.stop_signal,
                                   .is_checkpoint = result.is_stopping,
                                   .failed = result.failed});
        if (result.stop_signal != 0) return exit_code;
    }
}

}  // namespace axle::dist
