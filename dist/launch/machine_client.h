// Private to dist: MachineClient, the implementation of Machines on all machines except machine 0.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "dist/launch/machine_link.h"
#include "dist/launch/machines.h"

namespace axle::dist {

class MachineClient : public Machines {
  public:
    // Connects to machine 0. join_machines() describes the arguments and errors.
    static std::unique_ptr<MachineClient> join(const MachinesOptions& options,
                                               const Socket& cancel);

    void proceed() override;
    void add_poll_entries(std::vector<pollfd>& waited) const override {
        link_.add_poll_entry(waited);
    }
    TimePoint next_timer() const override { return link_.next_timer(); }
    std::optional<MachineDecision> take_decision() override;
    std::optional<LaunchFailure> failure() const override { return failure_; }
    void report(const LaunchFailure& failure) override;
    void report(const LaunchEnd& end) override;

  private:
    MachineClient(MachineLink link, std::string server, int num_nodes);
    void receive(const std::vector<MachineMessage>& messages);
    void handle(const LaunchStart& start);
    void handle(const LaunchFailure& failure);
    void handle(const JobEnd& end);
    // Ignores heartbeats, refusals after the join, and messages that only the server receives.
    void handle(const auto&) {}

    MachineLink link_;
    const std::string server_;  // the address of machine 0
    const int num_nodes_;       // the number of all machines of the job
    std::optional<MachineDecision> decision_;
    bool is_over_ = false;  // whether the server has ended the job
    bool is_running_ = false, has_reported_ = false;
    int restart_ = 0;  // number of restarts before the current launch
    std::optional<LaunchFailure> failure_;
};

}  // namespace axle::dist
