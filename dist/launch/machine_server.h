// Private to dist: MachineServer, which implements Machines on machine 0.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "dist/launch/machine_link.h"
#include "dist/launch/machines.h"
#include "dist/transport/incoming_handshakes.h"

namespace axle::dist {

// Accepts the launchers of the other machines and decides about launches. A launcher joins with the
// number of its machine. This number stays the same during the job. The machine's rank in a launch
// is its position among the machines of this launch.
class MachineServer : public Machines {
  public:
    // Throws CommError if the server can't listen on its port.
    MachineServer(const MachinesOptions& options, int max_restarts);
    // Sends JobEnd to the launchers unless the job has ended. Waits until they have received it, at
    // most two seconds.
    ~MachineServer() override;

    void proceed() override;
    void add_poll_entries(std::vector<pollfd>& waited) const override;
    TimePoint next_timer() const override;
    std::optional<MachineDecision> take_decision() override;
    std::optional<LaunchFailure> failure() const override;
    void report(const LaunchFailure& failure) override;
    void report(const LaunchEnd& end) override;

  private:
    // A launcher that has proven that it has the job's token.
    struct Member {
        int machine = 0;
        MachineLink link;
        std::string host = {};
        std::int64_t pid = 0;
        bool has_joined = false;
        bool is_refused = false;  // also true after a signal has stopped the launcher
        bool is_running = false;  // whether processes of its machine still run in this launch
        std::string text() const;
    };

    void handle(Member& member, const JoinMachine& request);
    void handle(Member& member, const LaunchFailure& failure);
    void handle(Member& member, const LaunchEnd& end);
    // Ignores heartbeats, and messages that only clients receive.
    void handle(Member&, const auto&) {}
    std::optional<MachineRefused> reason_to_refuse(const Member& member,
                                                   const JoinMachine& request) const;
    void remove_lost();
    void on_lost(const Member& member);
    // Records the first failure of the launch and sends it to the other machines. `from` is
    // nullptr for a failure on this machine.
    void fail_launch(const LaunchFailure& failure, const Member* from);
    void record_end(const LaunchEnd& end);
    void decide();
    void end_launch();
    void start_if_ready();
    void start();
    void end_job(JobEnd end);
    std::vector<Member*> joined();
    std::string missing_machines();
    void tell(const std::string& text) const;
    std::chrono::milliseconds join_timeout() const { return options_.join_timeout; }

    const MachinesOptions options_;
    const int max_restarts_;
    IncomingHandshakes handshakes_;
    std::vector<std::unique_ptr<Member>> members_;
    std::optional<MachineDecision> decision_;
    bool is_over_ = false;

    // The number of restarts before the current or last launch; -1 before the first launch.
    int restart_ = -1;
    bool is_running_ = false, is_running_here_ = false;
    // The current or last launch: whether it has failed, whether a process has ended with
    // kExitAfterCheckpoint, and the first failure.
    bool has_failed_ = false, is_checkpoint_ = false;
    std::optional<LaunchFailure> failure_;
    bool is_own_failure_ = false;
    TimePoint join_deadline_;
    std::unique_ptr<ReservedPort> port_;  // the port of rank 0 in the current launch
};

}  // namespace axle::dist
