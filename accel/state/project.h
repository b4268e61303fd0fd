// The folders of a run, and the naming of its checkpoints.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace axle::accel {

// Fields are in the order of Accelerate's ProjectConfiguration.
struct ProjectConfiguration {
    std::string project_dir = {};
    std::string logging_dir = {};  // the folder of trackers; defaults to project_dir
    // save_state() writes project_dir/checkpoints/checkpoint_<iteration>, and load_state() without
    // a folder loads the newest of them.
    bool automatic_checkpoint_naming = false;
    // The number of checkpoints that are kept. Older ones are removed after a new one is complete.
    std::optional<int> total_limit = {};
    std::int64_t iteration = 0;  // the number of the next checkpoint
    // true: the main process of each machine writes to its own project_dir. false: only the main
    // process of all writes.
    bool save_on_each_node = false;

    // Sets both folders, as in Accelerate.
    void set_directories(const std::string& directory) { project_dir = logging_dir = directory; }
};

}  // namespace axle::accel
