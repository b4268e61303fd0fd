// A job whose processes report their progress to the test. The test kills or stops them.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include <sys/types.h>

#include "dist/group/process_group.h"

namespace axle::tests {

enum class Event : std::int64_t { loaded, saved, finished };

struct Report {
    Event event;
    std::int64_t value;
};

// Processes that run a function as the ranks of a job. The destructor kills processes that still
// run.
class ReportingJob {
  public:
    using Group = std::shared_ptr<dist::ProcessGroup>;
    using Reporter = std::function<void(Event, std::int64_t)>;
    // A process ends with code 0, or with code 1 if the function throws.
    using Rank = std::function<void(const Group&, const Reporter&)>;

    // Each process calls `before_join` with its environment before it joins the job.
    ReportingJob(int size, const Rank& rank, const dist::ProcessGroupOptions& options = {},
                 const std::function<void(dist::Environment&)>& before_join = {});
    ~ReportingJob();
    ReportingJob(const ReportingJob&) = delete;
    ReportingJob& operator=(const ReportingJob&) = delete;

    int size() const { return static_cast<int>(pids_.size()); }
    // Waits for the next report of any rank. Returns nullopt after the timeout, or if all processes
    // have ended.
    std::optional<Report> next(std::chrono::milliseconds limit = std::chrono::seconds(30));
    void signal(int rank, int number) const;
    // Waits until all processes, or all except the rank `except`, have ended, but at most for
    // `limit`. Then kills the processes that still run. Returns false if one of them was not the
    // rank `except`.
    bool wait(std::chrono::milliseconds limit = std::chrono::seconds(30), int except = -1);
    // Returns the status of an ended process as from waitpid().
    int status(int rank) const { return statuses_[static_cast<std::size_t>(rank)]; }

  private:
    bool has_ended(std::size_t rank);

    std::vector<pid_t> pids_;  // 0 for processes that have ended
    std::vector<int> statuses_;
    int reports_ = -1;
};

}  // namespace axle::tests
