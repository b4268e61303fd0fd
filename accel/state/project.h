// Where a run keeps its files.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace axle::accel {

// Fields in the order of Accelerate's.
struct ProjectConfiguration {
    std::string project_dir = {};
    std::string logging_dir = {};  // of trackers; empty is project_dir
    // save_state() writes project_dir/checkpoints/checkpoint_<iteration>, and load_state() without
    // a folder takes the newest of them.
    bool automatic_checkpoint_naming = false;
    // So many of them are kept: the oldest go, once the new one is whole.
    std::optional<int> total_limit = {};
    std::int64_t iteration = 0;  // the number of the next one
    // The main process of each machine writes, to its own project_dir; else that of all.
    bool save_on_each_node = false;

    // One folder for both, as Accelerate's.
    void set_directories(const std::string& directory) { project_dir = logging_dir = directory; }
};

}  // namespace axle::accel
