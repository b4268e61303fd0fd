// The folders of a run, and the naming of its checkpoints.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace axle::accel {

// The folders and checkpoint options of a run, in the order of Accelerate's ProjectConfiguration.
struct ProjectConfiguration {
    std::string project_dir = {};
    std::string logging_dir = {};  // the folder of trackers; defaults to project_dir
    // If true, save_state() writes project_dir/checkpoints/checkpoint_<iteration>, and load_state()
    // without a folder loads the newest of these checkpoints.
    bool automatic_checkpoint_naming = false;
    // The number of checkpoints that are kept. Older checkpoints are removed after a new one is
    // complete.
    std::optional<int> total_limit = {};
    std::int64_t iteration = 0;  // the number of the next checkpoint
    // If true, the main process of each machine writes to its own project_dir. If false, only rank
    // 0 writes.
    bool save_on_each_node = false;

    // Sets both folders, as in Accelerate.
    void set_directories(const std::string& directory) { project_dir = logging_dir = directory; }
};

}  // namespace axle::accel
