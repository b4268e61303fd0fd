// Private to dist: all processes of a job on this machine, from their start to the end of the last.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "dist/launch/child.h"
#include "dist/launch/child_output.h"
#include "dist/launch/keeper.h"
#include "dist/launch/launch.h"
#include "dist/launch/taken_signals.h"

namespace axle::inline v0::dist {

struct AttemptOptions {
    std::chrono::milliseconds monitor_interval{100}, patience{2000}, grace{30000};
    std::string log_folder;  // of this attempt
    int tee = 0;
};

struct AttemptResult {
    bool failed = false;
    JobFailure failure;        // of the process that failed first
    std::size_t place = 0;     // ...in the plans
    std::string reason;        // what it has written
    bool was_stopped = false;  // by a signal to this process
};

// Nothing of it is left when it is gone.
class Attempt {
  public:
    Attempt(AttemptOptions options, const std::vector<ChildPlan>& plans);
    ~Attempt();
    Attempt(const Attempt&) = delete;
    Attempt& operator=(const Attempt&) = delete;

    AttemptResult run();

  private:
    using Clock = Child::Clock;

    void start(const ChildPlan& plan);
    std::vector<int> private_fds() const;
    bool is_over() const;
    void wait() const;
    int milliseconds_to_wait() const;
    void forward_signals();
    void note_ends();
    void note_failures(const std::vector<std::size_t>& failed);
    void end_what_is_due();
    void end_leftovers();
    void ask_to_end(Child& child);
    AttemptResult result();

    AttemptOptions options_;
    TakenSignals signals_;
    const std::vector<ChildPlan>& plans_;
    Keeper keeper_;
    ChildOutput output_;
    std::vector<Child> children_;
    std::optional<std::size_t> first_failed_;
    Clock::time_point patience_ends_ = Clock::time_point::max();
    bool was_stopped_ = false;
};

}  // namespace axle::inline v0::dist
