// Private to dist: JobLaunch, one start of all processes of a job on this machine.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "dist/launch/child.h"
#include "dist/launch/child_output.h"
#include "dist/launch/child_process_guard.h"
#include "dist/launch/intercepted_signals.h"
#include "dist/launch/launch.h"
#include "dist/launch/machines.h"
#include "dist/transport/launcher_channel.h"

namespace axle::dist {

// Options of one launch; SuperviseOptions documents them.
struct JobLaunchOptions {
    std::chrono::milliseconds monitor_interval{100}, patience{2000}, grace{30000};
    std::string log_folder;  // the log folder of this launch
    int tee = 0;
    std::function<void(int signal)> on_stop = {};
    int restart = 0;  // number of restarts before this launch
    // The launchers of the other machines, or nullptr for one machine. Must outlive the JobLaunch.
    // If the launch fails on another machine, the processes of this machine are stopped.
    Machines* machines = nullptr;
};

struct JobLaunchResult {
    int exit_code = 0;         // the exit code that supervise() returns
    int stop_signal = 0;       // the signal to this process that has stopped the job, or 0
    bool is_stopping = false;  // whether a process has ended with kExitAfterCheckpoint
    bool failed = false;
    JobFailure failure;     // the first process that failed
    std::size_t place = 0;  // index of the failed process's plan
    // Whether `failure` describes how a process of this machine ended, not a report about a
    // process.
    bool has_ended = false;
    // If has_ended: what the failed process has written to the descriptor `reason` (ChildWork).
    std::string reason;

    // Returns whether the job was asked to stop. Such a job must not be restarted.
    bool was_stopped() const { return stop_signal != 0 || is_stopping; }
};

// Starts the processes of a job and supervises them until all have ended. The plans and the signals
// must outlive the JobLaunch. The destructor kills processes that still run.
class JobLaunch {
  public:
    JobLaunch(JobLaunchOptions options, InterceptedSignals& signals,
              const std::vector<ChildPlan>& plans);
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
    void handle_signals();
    void stop(int signal);
    void kill_all();
    void read_reports();
    void follow_machines();
    void collect_ended();
    bool is_failure(const Child& child) const;
    void record_failures(const std::vector<std::size_t>& failed);
    void kill_overdue();
    void kill_leftovers();
    void ask_to_end(Child& child, int signal) const;
    JobLaunchResult result() const;
    void add_failure(JobLaunchResult& result) const;
    JobFailure failure_of(const Child& ended) const;
    JobFailure reported_failure(const Child& failed) const;

    JobLaunchOptions options_;
    InterceptedSignals& signals_;
    const std::vector<ChildPlan>& plans_;
    ChildProcessGuard guard_;
    ChildOutput output_;
    std::vector<Child> children_;
    std::optional<std::size_t> first_failed_;
    // The first reported failure of a rank, if it was received before a failure on this machine.
    std::optional<ReportedFailure> cause_;
    // The failure on another machine, if it was received before a failure on this machine.
    std::optional<LaunchFailure> failure_elsewhere_;
    Clock::time_point patience_ends_ = Clock::time_point::max();
    int stop_signal_ = 0, interrupts_ = 0;
    bool is_stopping_ = false;  // whether a process has ended with kExitAfterCheckpoint
};

}  // namespace axle::dist
