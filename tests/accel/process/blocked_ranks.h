// Lets a rank of a Job wait until other ranks are blocked.
#pragma once

#include <fstream>
#include <string>

#include <unistd.h>

#include "tests/temporary_folder.h"
#include "tests/wait.h"

namespace axle::tests {

// Detects whether ranks of a Job are blocked. It must be created before the Job, so that all ranks
// share the folder with their pids.
class BlockedRanks {
  public:
    // A rank calls enter() before the call that must block.
    void enter(int rank) const { std::ofstream(path(rank)) << ::getpid() << '\n'; }
    // Waits until the rank has called enter() and its main thread is blocked. Returns false after
    // 20 seconds.
    bool wait_for(int rank) const {
        return comes_true([&] {
            std::ifstream file(path(rank));
            std::string line;
            if (!std::getline(file, line) || file.eof()) return false;
            return is_blocked(static_cast<pid_t>(std::stol(line)));
        });
    }

  private:
    std::string path(int rank) const { return folder_ / std::to_string(rank); }

    TemporaryFolder folder_;
};

}  // namespace axle::tests
