// Implements the command `axle merge-weights`.
#include "accel/state/merge_weights.h"

#include <iostream>
#include <utility>

#include "tools/axle/commands.h"
#include "tools/options/options.h"

namespace axle::launcher {

int run_merge_weights(std::vector<std::string> arguments) {
    tools::Options options(
        "Merges the parts of a sharded model into model.safetensors. CHECKPOINT_DIRECTORY is a "
        "distributed checkpoint of PyTorch or of Axle, such as the folder pytorch_model_fsdp_0 in "
        "the directory of save_state, or a checkpoint of DeepSpeed, such as global_step100.",
        "axle merge-weights");
    std::string checkpoint, output, max_shard_size = "10GB";
    bool unsafe_serialization = false, remove_checkpoint_dir = false;
    options.add("checkpoint_directory", checkpoint, "The folder with the parts").required();
    options.add("output_path", output, "The folder to which model.safetensors is written")
        .required();
    options.add_flag("--unsafe_serialization", unsafe_serialization,
                     "Not supported: Axle does not write PyTorch's pickles");
    options.add_flag("--remove_checkpoint_dir", remove_checkpoint_dir,
                     "Remove the files of the checkpoint when the weights are written");
    options.add("--max_shard_size", max_shard_size,
                "Largest size of a file; larger weights are divided; default: 10GB");
    if (!options.parse(std::move(arguments))) return 0;
    accel::merge_fsdp_weights(checkpoint, output, !unsafe_serialization, remove_checkpoint_dir,
                              max_shard_size);
    std::cout << "Wrote the weights to " << output << ".\n";
    return 0;
}

}  // namespace axle::launcher
