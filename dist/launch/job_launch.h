// Private to dist: JobLaunch, one start of all processes of a job on this machine.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "dist/launch/child.h"
#include "dist/launch/child_output.h"
#include "dist/launch/child_process_guard.h"
#include "dist/launch/intercepted_signals.h"
#include "dist/launch/launch.h"

namespace axle::dist {

// Options of one launch; SuperviseOptions documents them.
struct JobLaunchOptions {
    std::chrono::milliseconds monitor_interval{100}, patience{2000}, grace{30000};
    std::string log_folder;  // the log folder of this launch
    int tee = 0;
};

struct JobLaunchResult {
    bool failed = false;
    JobFailure failure;        // the first process that failed
    std::size_t place = 0;     // index of the failed process's plan
    std::string reason;        // error text that the failed process has written
    bool was_stopped = false;  // whether a signal to this process stopped the job
};

// Starts the processes of a job and supervises them until all have ended. The plans must outlive
// the JobLaunch. The destructor kills processes that still run.
class JobLaunch {
  public:
    JobLaunch(JobLaunchOptions options, const std::vector<ChildPlan>& plans);
    ~JobLaunch();
    JobLaunch(const JobLaunch&) = delete;
    JobLaunch& operator=(const JobLaunch&) = delete;

    // Starts the processes and returns when all have ended. Must be called once.
    JobLaunchResult run();

  private:
    using Clock = Child::Clock;

    void start(const ChildPlan& plan);
    std::vector<int> private_fds() const;
    bool is_over() const;
    void wait() const;
    int milliseconds_to_wait() const;
    void forward_signals();
    void collect_ended();
    void record_failures(const std::vector<std::size_t>& failed);
    void kill_overdue();
    void kill_leftovers();
    void terminate(Child& child);
    JobLaunchResult result();

    JobLaunchOptions options_;
    InterceptedSignals signals_;
    const std::vector<ChildPlan>& plans_;
    ChildProcessGuard guard_;
    ChildOutput output_;
    std::vector<Child> children_;
    std::optional<std::size_t> first_failed_;
    Clock::time_point patience_ends_ = Clock::time_point::max();
    bool was_stopped_ = false;
};

}  // namespace axle::dist
