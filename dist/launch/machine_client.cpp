#include "dist/launch/machine_client.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <utility>

#include <unistd.h>

#include "core/files/file.h"
#include "dist/rendezvous/activity.h"
#include "dist/transport/tcp_handshake.h"
#include "kernels/error.h"

namespace axle::dist {
namespace {

// The timeout of one attempt to connect and join, and the pause between two attempts.
constexpr std::chrono::seconds kAttempt{10};
constexpr std::chrono::milliseconds kPause{200};

// An error after which no further attempt is made: the server would refuse it too, or a signal has
// interrupted the join.
struct Refused : CommError {
    using CommError::CommError;
};

// Waits until a descriptor is ready, at most until the deadline. Throws Refused if `cancel` is
// readable.
void wait(std::vector<pollfd> waited, const Socket& cancel, TimePoint deadline) {
    waited.push_back({cancel.descriptor(), POLLIN, 0});
    ::poll(waited.data(), waited.size(), milliseconds_until(deadline));
    if (waited.back().revents != 0) throw Refused("launch: a signal has interrupted the join");
}

MachineLink connect(const MachinesOptions& options, const Socket& cancel, TimePoint deadline) {
    const JobNode& place = options.place;
    std::string reason;
    for (const Address& address : resolve(place.master_addr, place.master_port)) {
        try {
            return {connect_and_prove(address, key_of_launchers(options), place.node_rank, 0,
                                      deadline, cancel),
                    options.silence_timeout};
        } catch (const CommError& error) {
            reason += str(reason.empty() ? "" : "; ", address.text(), ": ", error.what());
        }
    }
    throw CommError(reason);
}

// Sends the join request and returns the first messages of the server. Throws Refused if the server
// refuses for good or a signal interrupts the wait, and CommError if another attempt can succeed.
std::vector<MachineMessage> request(MachineLink& link, const MachinesOptions& options,
                                    const Socket& cancel, TimePoint deadline) {
    link.send(JoinMachine{.host = host_name(),
                          .pid = ::getpid(),
                          .num_nodes = options.place.num_nodes,
                          .min_nodes = options.min_nodes,
                          .local_world_size = options.place.local_world_size});
    for (;;) {
        std::vector<MachineMessage> messages = link.proceed();
        if (!messages.empty()) {
            const auto* const refused = std::get_if<MachineRefused>(&messages.front());
            if (refused == nullptr) return messages;
            const std::string text = "launch: " + printable(refused->text);
            if (refused->try_again) throw CommError(text);
            throw Refused(text);
        }
        if (link.is_lost()) throw CommError(link.reason());
        if (Clock::now() >= deadline)
            throw CommError("the launcher of machine 0 did not respond in time");
        std::vector<pollfd> waited;
        link.add_poll_entry(waited);
        wait(std::move(waited), cancel, std::min(deadline, link.next_timer()));
    }
}

}  // namespace

std::unique_ptr<MachineClient> MachineClient::join(const MachinesOptions& options,
                                                   const Socket& cancel) {
    const JobNode& place = options.place;
    const std::chrono::milliseconds timeout = options.join_timeout;
    const TimePoint last = Clock::now() + timeout;
    const std::string server = str(printable(place.master_addr), ':', place.master_port);
    for (;;) {
        std::string reason;
        try {
            const TimePoint deadline = std::min(last, Clock::now() + kAttempt);
            MachineLink link = connect(options, cancel, deadline);
            const auto messages = request(link, options, cancel, deadline);
            std::unique_ptr<MachineClient> client(
                new MachineClient(std::move(link), server, place.num_nodes));
            client->receive(messages);
            return client;
        } catch (const Refused&) {
            throw;
        } catch (const CommError& error) {
            reason = error.what();
        }
        if (Clock::now() >= last)
            throw CommError(str("launch: machine ", place.node_rank,
                                " could not join the launcher of machine 0 at ", server, " within ",
                                seconds_text(timeout), ": ", reason,
                                "; check the address and the port, and that all machines have the "
                                "same token"));
        wait({}, cancel, std::min(last, Clock::now() + kPause));
    }
}

MachineClient::MachineClient(MachineLink link, std::string server, int num_nodes)
    : link_(std::move(link)), server_(std::move(server)), num_nodes_(num_nodes) {}

void MachineClient::proceed() {
    receive(link_.proceed());
    if (!link_.is_lost() || is_over_) return;
    handle(JobEnd{.exit_code = 1,
                  .text = str("the launcher of machine 0 at ", server_, " is lost: ",
                              link_.reason(), "; a job does not continue without machine 0")});
}

void MachineClient::receive(const std::vector<MachineMessage>& messages) {
    for (const MachineMessage& message : messages)
        std::visit([this](const auto& alternative) { handle(alternative); }, message);
}

void MachineClient::handle(const LaunchStart& start) {
    const bool is_valid = start.restart >= 0 && start.num_nodes >= 1 &&
                          start.num_nodes <= num_nodes_ && start.node_rank >= 1 &&
                          start.node_rank < start.num_nodes && start.master_port >= 1 &&
                          start.master_port <= 65535;
    if (!is_over_ && !is_running_ && is_valid) decision_ = start;
}

void MachineClient::handle(const LaunchFailure& failure) {
    if (is_running_ && !has_reported_ && !failure_ && failure.restart == restart_)
        failure_ = failure;
}

void MachineClient::handle(const JobEnd& end) {
    if (std::exchange(is_over_, true)) return;
    decision_ = end;
    if (!is_running_ || failure_) return;
    const std::string text = end.text.empty() ? "the job has ended on machine 0" : end.text;
    failure_ = {.restart = restart_,
                .exit_code = std::max(end.exit_code, 1),
                .failure = {.host = {}, .op = {}, .text = text}};
}

std::optional<MachineDecision> MachineClient::take_decision() {
    auto decision = std::exchange(decision_, std::nullopt);
    const auto* const start = decision ? std::get_if<LaunchStart>(&*decision) : nullptr;
    if (start == nullptr) return decision;
    is_running_ = true, has_reported_ = false;
    restart_ = start->restart;
    failure_.reset();
    return decision;
}

void MachineClient::report(const LaunchFailure& failure) {
    has_reported_ = true;
    link_.send(failure);
}

void MachineClient::report(const LaunchEnd& end) {
    is_running_ = false;
    link_.send(end);
}

}  // namespace axle::dist
