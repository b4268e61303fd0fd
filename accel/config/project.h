// ProjectConfiguration: the folders of a run, and the naming, the number and the identity of its
// checkpoints.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace axle::accel {

// The folders and checkpoint options of a run, in the order of Accelerate's ProjectConfiguration.
struct ProjectConfiguration {
    std::string project_dir = {};
    std::string logging_dir = {};  // the folder of trackers; defaults to project_dir
    // Whether save_state() writes project_dir/checkpoints/checkpoint_<iteration>, and load_state()
    // without a folder loads the newest of these checkpoints. Needs project_dir (else ValueError).
    bool automatic_checkpoint_naming = false;
    // The number of checkpoints of this run that are kept, at least 1 (else ValueError); by
    // default, all are kept. Applies only with automatic_checkpoint_naming. Older checkpoints are
    // removed after a new checkpoint is complete. load_state() continues a run. Checkpoints of
    // other runs are not removed.
    std::optional<int> total_limit = {};
    // The number of checkpoints with the best SaveStateOptions::metric that are kept in addition to
    // the newest total_limit checkpoints, at least 0 (else ValueError). Has no effect without
    // total_limit.
    std::optional<int> best_limit = {};
    bool greater_is_better = false;  // whether a greater metric is better, such as an accuracy
    std::int64_t iteration = 0;      // number of the next checkpoint, at least 0 (else ValueError)
    // Whether the main process of each machine writes to its own project_dir. If false, only rank 0
    // writes, except with StateDictType::sharded.
    bool save_on_each_node = false;
    // The settings that define the run, as names and values, for example {"seed", "1"} and
    // {"model", "gpt2"}. They are saved in each checkpoint, and LoadStateOptions::check_identity
    // compares them.
    std::vector<std::pair<std::string, std::string>> identity = {};

    // Sets project_dir and logging_dir.
    void set_directories(const std::string& directory) { project_dir = logging_dir = directory; }
};

}  // namespace axle::accel
