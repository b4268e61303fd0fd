// Lists the checkpoints of a folder, finds the latest and the best ones, and removes old
// checkpoints.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace axle::accel {

// Returns the first number in a directory's name: 12 for "runs/3/checkpoint_12". Returns nullopt if
// the name has no number, or if the number exceeds int64.
std::optional<std::int64_t> checkpoint_number(const std::string& path);

// The checkpoints in a folder, but not in its subfolders. Symbolic links, temporary directories of
// writers, directories without Axle's manifest, and copied or renamed checkpoints (their manifest
// has another name) are not counted.
struct CheckpointList {
    struct Entry {
        std::string path;
        std::int64_t iteration;
        std::string run;               // the id of the run, "" if unknown
        std::optional<double> metric;  // SaveStateOptions::metric
    };
    struct Damaged {
        std::string path, reason;
        // The number in the directory's name. If it is nullopt, the age of the checkpoint is
        // unknown.
        std::optional<std::int64_t> number;
    };
    std::vector<Entry> entries;    // checkpoints with a valid manifest, sorted by iteration
    std::vector<Damaged> damaged;  // checkpoints whose manifest is damaged or can't be read

    // Returns a damaged checkpoint that may be newer than the iteration, or nullptr.
    const Damaged* newer_damaged(std::int64_t iteration) const;
};
// Returns the checkpoints in a folder, or an empty list if the folder does not exist. Throws
// FileError if the folder can't be read.
CheckpointList list_checkpoints(const std::string& folder);

// Returns one more than the highest number in the names of checkpoints, damaged or not, or 0
// without checkpoints. A run that starts without loading a checkpoint can pass this number to
// Accelerator::set_save_iteration() to continue the numbers of the folder.
std::int64_t next_iteration(const CheckpointList& list);

// Returns the path of the checkpoint in a folder whose manifest has the highest iteration, or
// nullopt if there is none. Throws FileError if a checkpoint that may be newer has a damaged
// manifest; the error names this checkpoint and the newest undamaged one. Also throws FileError if
// the folder can't be read.
std::optional<std::string> latest_checkpoint(const std::string& folder);
// Returns the newest checkpoint whose files are all undamaged, or nullopt if there is none. Logs a
// warning for each damaged checkpoint that may be newer than the result, or for each damaged one if
// the result is nullopt. Reads all files of the checkpoint. Throws FileError if the folder can't be
// read.
std::optional<std::string> latest_good_checkpoint(const std::string& folder);

// Returns the paths of the checkpoints of a run (nullopt: of all runs) with the best metrics, at
// most `count`, best first. Checkpoints without a metric are left out. If two metrics are equal,
// the older checkpoint is better. NaN is the worst metric. Throws FileError if the folder can't be
// read.
std::vector<std::string> best_checkpoints(const std::string& folder, std::size_t count,
                                          bool greater_is_better,
                                          const std::optional<std::string>& run = {});

// Removes the oldest checkpoints of a run (nullopt: of all runs) in a folder until `keep` of them
// remain. The checkpoints in `kept` are not counted and not removed; only the last parts of these
// paths are used. If `kept` is empty, at least one checkpoint remains. Does not remove checkpoints
// of other runs, checkpoints with a damaged manifest, or files that no manifest of the run lists.
// Handles failures to remove a checkpoint according to the error policy (core/system/log.h). Throws
// FileError if the folder can't be read.
void rotate_checkpoints(const std::string& folder, std::size_t keep,
                        const std::optional<std::string>& run = {},
                        const std::vector<std::string>& kept = {});

}  // namespace axle::accel
