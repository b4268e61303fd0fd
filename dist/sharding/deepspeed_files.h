// Private to dist: the names of the files in checkpoints of DeepSpeed
// (dist/sharding/deepspeed_checkpoint.h).
#pragma once

#include <string>
#include <vector>

namespace axle::dist {

struct DeepSpeedFiles {
    std::vector<std::string> models;      // *_model_states.pt; by rank in stage 3, otherwise one
    std::vector<std::string> optimizers;  // *_optim_states.pt, by rank
};

// Returns the folder with the files of a checkpoint: `folder`, or the subfolder named in its file
// "latest". Returns "" if neither contains the files.
std::string find_deepspeed_folder(const std::string& folder);
// Returns the names of the files in a folder. Throws FileError if a file is missing or exists
// twice, or if files are from stage 3 and from another stage, from tensor or pipeline parallel
// training, or from mixtures of experts.
DeepSpeedFiles deepspeed_files(const std::string& folder);

}  // namespace axle::dist
