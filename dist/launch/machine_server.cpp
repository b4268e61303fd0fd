#include "dist/launch/machine_server.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <iterator>
#include <utility>

#include "core/files/file.h"
#include "dist/environment/environment.h"
#include "dist/launch/machine_client.h"
#include "dist/rendezvous/activity.h"
#include "dist/rendezvous/handshake.h"
#include "dist/rendezvous/server.h"
#include "kernels/error.h"

namespace axle::dist {
namespace {

// The maximum time that machine 0 waits at the end until the other launchers have received the
// message that ends the job.
constexpr std::chrono::seconds kLinger{2};

Environment environment_of(const MachinesOptions& options) {
    const JobNode& place = options.place;
    Environment environment;
    environment.world_size = place.num_nodes * place.local_world_size;
    environment.local_world_size = place.local_world_size;
    environment.master_addr = place.master_addr;
    environment.master_port = place.master_port;
    environment.token = place.token;
    return environment;
}

Socket listen_for(const MachinesOptions& options) {
    std::string tried;
    for (const Address& address : addresses_of_master("launch: ", environment_of(options))) {
        try {
            return listen_at(with_port(address, options.place.master_port));
        } catch (const SocketError& error) {
            tried += str(tried.empty() ? "" : "; ", error.what());
        }
    }
    throw CommError(str("launch: machine 0 cannot listen for the other machines at ",
                        in_quotes(options.place.master_addr), " port ", options.place.master_port,
                        ": ", tried,
                        ": the address must be one of this machine, and the port must be free"));
}

}  // namespace

Key key_of_launchers(const MachinesOptions& options) {
    return derive_key(key_of(environment_of(options)), "launchers, version 1");
}

std::unique_ptr<Machines> join_machines(const MachinesOptions& options, int max_restarts,
                                        const Socket& cancel) {
    if (options.place.node_rank == 0) return std::make_unique<MachineServer>(options, max_restarts);
    return MachineClient::join(options, cancel);
}

std::string MachineServer::Member::text() const {
    return str("machine ", machine, " (pid ", pid, ", host ", host, ")");
}

MachineServer::MachineServer(const MachinesOptions& options, int max_restarts)
    : options_(options),
      max_restarts_(max_restarts),
      handshakes_(listen_for(options), key_of_launchers(options), 0, options.place.num_nodes,
                  [this](int machine, Socket socket) {
                      members_.push_back(std::make_unique<Member>(Member{
                          .machine = machine,
                          .link = MachineLink(std::move(socket), options_.silence_timeout)}));
                  }),
      join_deadline_(Clock::now() + join_timeout()) {}

MachineServer::~MachineServer() {
    if (!is_over_) end_job({.exit_code = 1, .text = "the launcher of machine 0 has ended"});
    const TimePoint deadline = Clock::now() + kLinger;
    for (const auto& member : members_) member->link.finish(deadline);
}

void MachineServer::proceed() {
    handshakes_.proceed();
    for (const auto& member : members_) {
        for (const MachineMessage& message : member->link.proceed())
            std::visit([&](const auto& alternative) { handle(*member, alternative); }, message);
    }
    remove_lost();
    decide();
}

void MachineServer::add_poll_entries(std::vector<pollfd>& waited) const {
    handshakes_.add_poll_entries(waited);
    for (const auto& member : members_) member->link.add_poll_entry(waited);
}

TimePoint MachineServer::next_timer() const {
    TimePoint next = handshakes_.next_timer();
    if (!is_running_ && !is_over_) next = std::min(next, join_deadline_);
    for (const auto& member : members_) next = std::min(next, member->link.next_timer());
    return next;
}

std::optional<MachineDecision> MachineServer::take_decision() {
    return std::exchange(decision_, std::nullopt);
}

std::optional<LaunchFailure> MachineServer::failure() const {
    if (is_own_failure_ || !is_running_here_) return {};
    return failure_;
}

void MachineServer::report(const LaunchFailure& failure) { fail_launch(failure, nullptr); }

void MachineServer::report(const LaunchEnd& end) {
    is_running_here_ = false;
    record_end(end);
    if (end.stop_signal != 0 && !end.is_checkpoint)
        end_job({.exit_code = end.exit_code,
                 .text = str("the launcher of machine 0 was stopped by signal ", end.stop_signal)});
    decide();
}

// --- members

void MachineServer::handle(Member& member, const JoinMachine& request) {
    if (member.has_joined || member.is_refused) return;
    member.host = printable(request.host).substr(0, 255);
    member.pid = request.pid;
    if (const auto refused = reason_to_refuse(member, request)) {
        member.is_refused = true;
        return member.link.send(*refused);
    }
    member.has_joined = true;
    member.link.send(MachineHeartbeat());  // tells the client that it was accepted
    if (is_running_) tell(str(member.text(), " has joined and waits for a restart"));
}

std::optional<MachineRefused> MachineServer::reason_to_refuse(const Member& member,
                                                              const JoinMachine& request) const {
    const JobNode& place = options_.place;
    const auto differs = [&](const char* what, int here, int there) {
        return MachineRefused{
            .text = str(what, " is ", here, " on machine 0, but ", there, " on ", member.text())};
    };
    if (is_over_) return MachineRefused{.text = "the job has ended"};
    if (request.num_nodes != place.num_nodes)
        return differs("the number of machines", place.num_nodes, request.num_nodes);
    if (request.min_nodes != options_.min_nodes)
        return differs("the minimum number of machines", options_.min_nodes, request.min_nodes);
    if (request.local_world_size != place.local_world_size)
        return differs("the number of processes per machine", place.local_world_size,
                       request.local_world_size);
    for (const auto& other : members_) {
        if (!other->has_joined || other->machine != member.machine) continue;
        // A later attempt may succeed: if the machine was restarted, the server may not have
        // detected yet that its earlier launcher is lost.
        return MachineRefused{.text = str("the node_rank of ", member.text(),
                                          " is used by another launcher: ", other->text()),
                              .try_again = restart_ >= 0};
    }
    return {};
}

void MachineServer::handle(Member& member, const LaunchFailure& failure) {
    if (member.is_running && failure.restart == restart_) fail_launch(failure, &member);
}

void MachineServer::handle(Member& member, const LaunchEnd& end) {
    if (!member.is_running || end.restart != restart_) return;
    member.is_running = false;
    if (end.stop_signal != 0) {
        has_failed_ = true;
        member.has_joined = false, member.is_refused = true;  // not part of any later launch
        tell(str(member.text(), " was stopped by signal ", end.stop_signal));
    }
    record_end(end);
}

void MachineServer::record_end(const LaunchEnd& end) {
    has_failed_ = has_failed_ || end.failed;
    is_checkpoint_ = is_checkpoint_ || end.is_checkpoint;
}

void MachineServer::remove_lost() {
    std::vector<std::unique_ptr<Member>> lost;
    for (auto& member : members_)
        if (member->link.is_lost()) lost.push_back(std::move(member));
    std::erase(members_, nullptr);
    for (const auto& member : lost) on_lost(*member);
}

void MachineServer::on_lost(const Member& member) {
    if (!member.has_joined || is_over_) return;
    const std::string text = str(member.text(), " is lost: ", member.link.reason());
    // If this loss becomes the failure of the launch, it is reported after all processes have
    // ended.
    if (!member.is_running || failure_) tell(text);
    if (!member.is_running) return;
    fail_launch({.restart = restart_, .failure = {.host = member.host, .op = {}, .text = text}},
                &member);
}

void MachineServer::fail_launch(const LaunchFailure& failure, const Member* from) {
    has_failed_ = true;
    if (failure_ || !is_running_) return;
    failure_ = failure;
    failure_->exit_code = std::max(failure.exit_code, 1);
    is_own_failure_ = from == nullptr;
    for (const auto& member : members_)
        if (member->is_running && member.get() != from) member->link.send(*failure_);
}

// --- launches

void MachineServer::decide() {
    if (is_over_) return;
    const bool some_run = is_running_here_ || std::ranges::any_of(members_, [](const auto& member) {
                              return member->is_running;
                          });
    if (is_running_ && !some_run) end_launch();
    if (!is_over_ && !is_running_) start_if_ready();
}

void MachineServer::end_launch() {
    is_running_ = false;
    if (is_checkpoint_) return end_job({.exit_code = kExitAfterCheckpoint, .text = {}});
    if (!has_failed_) return end_job({});
    if (restart_ == max_restarts_)
        return end_job({.exit_code = failure_ ? failure_->exit_code : 1, .text = {}});
    join_deadline_ = Clock::now() + join_timeout();
    if (std::ssize(joined()) + 1 < options_.min_nodes)
        tell(str("waiting up to ", seconds_text(join_timeout()), " for ", missing_machines()));
}

void MachineServer::start_if_ready() {
    const int all = options_.place.num_nodes, least = options_.min_nodes;
    const int present = static_cast<int>(joined().size()) + 1;
    const bool is_late = Clock::now() >= join_deadline_;
    // The first launch waits for all machines until the join timeout, and then needs only
    // min_nodes. A restart needs only min_nodes, and does not wait for lost machines.
    const int needed = restart_ < 0 && !is_late ? all : least;
    if (present >= needed) return start();
    if (!is_late) return;
    end_job({.exit_code = failure_ ? failure_->exit_code : 1,
             .text = str(present, " of the ", all, " machines of the job ",
                         restart_ < 0 ? "have joined" : "are left", ", and at least ", least,
                         " are needed: ", missing_machines(), " did not join within ",
                         seconds_text(join_timeout()))});
}

void MachineServer::start() {
    const bool is_first = restart_ < 0;
    ++restart_;
    is_running_ = is_running_here_ = true;
    has_failed_ = is_checkpoint_ = is_own_failure_ = false;
    failure_.reset();
    port_.reset();
    port_ = std::make_unique<ReservedPort>();
    std::vector<Member*> others = joined();
    std::ranges::sort(others, {}, &Member::machine);
    LaunchStart start{.restart = restart_,
                      .num_nodes = static_cast<int>(others.size()) + 1,
                      .master_port = port_->port()};
    decision_ = start;
    for (Member* member : others) {
        ++start.node_rank;
        member->is_running = true;
        member->link.send(start);
    }
    const bool is_full = start.num_nodes == options_.place.num_nodes;
    if (!is_first || !is_full)
        tell(str(restart_ == 0 ? "starting" : "restarting", " on ", start.num_nodes, " of ",
                 options_.place.num_nodes, " machines",
                 is_full ? "" : " without " + missing_machines(),
                 restart_ == 0 ? "" : str(" (restart ", restart_, " of ", max_restarts_, ")")));
}

void MachineServer::end_job(JobEnd end) {
    if (std::exchange(is_over_, true)) return;
    for (Member* member : joined()) member->link.send(end);
    decision_ = std::move(end);
}

std::vector<MachineServer::Member*> MachineServer::joined() {
    std::vector<Member*> all;
    for (const auto& member : members_)
        if (member->has_joined && !member->link.is_lost()) all.push_back(member.get());
    return all;
}

// Returns the names of the machines that have not joined, such as "machine 1, machine 2".
std::string MachineServer::missing_machines() {
    const std::vector<Member*> present = joined();
    std::string text;
    for (int machine = 1; machine < options_.place.num_nodes; ++machine) {
        const auto found = std::ranges::find(present, machine, &Member::machine);
        if (found == present.end()) text += str(text.empty() ? "" : ", ", "machine ", machine);
    }
    return text;
}

void MachineServer::tell(const std::string& text) const {
    if (options_.on_change) options_.on_change(text);
}

}  // namespace axle::dist
