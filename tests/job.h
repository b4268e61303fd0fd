// Runs tests in real processes. Each forked child is one rank, which runs a function and reports
// its result. A failed expectation in a rank fails the test.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "dist/environment/environment.h"

namespace axle::tests {

// The result of a rank.
struct RankOutcome {
    bool reported = false;  // false if the rank died, or was killed by wait()
    std::string text;       // result of the function, or "threw: " and the text of the exception
    int status = 0;         // status from waitpid
    double seconds =
        0;  // time from the last Job::start_clock(), or from the job's start, to the report
};

// A job whose ranks are forked processes. Forking must be possible (see tests/fork.h). The
// destructor kills children that are still running.
class Job {
  public:
    using Rank = std::function<std::string(const dist::Environment&)>;
    explicit Job(int size, const Rank& rank);
    ~Job();
    Job(const Job&) = delete;
    Job& operator=(const Job&) = delete;

    // Restarts the clock of the job for all ranks. Must be called in a rank.
    static void start_clock();
    // Waits until all ranks except the given ranks have ended, but at most for `limit`. Then kills
    // the ranks that still run, and returns the outcomes by rank.
    std::vector<RankOutcome> wait(std::chrono::milliseconds limit,
                                  const std::vector<int>& except = {});
    int pid(int rank) const { return children_[static_cast<std::size_t>(rank)].pid; }

  private:
    struct Child {
        int pid = 0, report = -1;
        std::string bytes;  // the part of the report that has been read
        bool ended = false;
        RankOutcome outcome;
    };
    static void read_report(Child& child);
    void reap(Child& child) const;

    std::vector<Child> children_;
    double* clock_start_;  // the start time of the clock, shared with the children
};

}  // namespace axle::tests
