// Real processes for tests: each forked child is one rank, runs a function, and says what came of
// it.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "dist/environment/environment.h"

namespace axle::tests {

// What became of a rank.
struct RankOutcome {
    bool reported = false;  // false where it died, or had not ended in time
    std::string text;       // what the function returned, or "threw: " and what it threw
    int status = 0;         // of waitpid
    double seconds = 0;     // from Job::mark, or the start, to its report
};

// A port of the loopback interface that nobody listens on now.
int free_port();

// Call it before this process has threads. Children that still run when the job is destroyed are
// killed.
class Job {
  public:
    using Rank = std::function<std::string(const dist::Environment&)>;
    explicit Job(int size, const Rank& rank);
    ~Job();
    Job(const Job&) = delete;
    Job& operator=(const Job&) = delete;

    // Within a rank: from now on its job's seconds are counted, for everybody.
    static void mark();
    // Waits for all but those that are named, which are killed then.
    std::vector<RankOutcome> wait(std::chrono::milliseconds limit,
                                  const std::vector<int>& but_not = {});
    int pid(int rank) const { return children_[static_cast<std::size_t>(rank)].pid; }

  private:
    struct Child {
        int pid = 0, report = -1;
        std::string bytes;  // of the report so far
        bool ended = false;
        RankOutcome outcome;
    };
    static void listen(Child& child);
    void reap(Child& child) const;

    std::vector<Child> children_;
    double* marked_;  // shared with the children: when mark() was called, or 0
};

}  // namespace axle::tests
