// Models and tensors as files: what Accelerate's save_model, load_checkpoint_in_model, save and
// load do. Accelerator::save_model decides which process writes; load_checkpoint_in_model reads
// what any of Hugging Face's libraries or PyTorch has written.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "accel/process/partial_state.h"
#include "core/tree/tree.h"
#include "nn/files/shard_size.h"
#include "nn/module.h"

namespace axle::accel {

struct SaveModelOptions {
    nn::ShardSize max_shard_size = "10GB";
    bool safe_serialization = true;  // false: a UsageError, for pickles are only read
    bool save_on_each_node = false;  // the main process of each machine writes, not that of all
};

// Fields in the order of Accelerate's arguments.
struct LoadCheckpointOptions {
    // Weights on several devices, or beside them on disk: not there yet, a UsageError.
    std::map<std::string, std::string> device_map = {};
    std::string offload_folder = {};
    // The floating weights are converted to it; else each keeps the dtype that it has in the model.
    std::optional<DType> dtype = {};
    bool offload_state_dict = false;                     // as device_map
    bool offload_buffers = false;                        // as device_map
    std::vector<std::string> keep_in_fp32_modules = {};  // as device_map
    bool offload_8bit_bnb = false;                       // as device_map
    bool strict = false;                                 // other names than the model's are errors
    bool full_state_dict = true;                         // false: as device_map
    bool broadcast_from_rank0 = false;                   // as device_map
};

// Gives a model the weights of a file (.safetensors, or of torch.save), of the shards that an
// .index.json lists, or of a folder: its pytorch_model.bin, else its model.safetensors, else its
// only index (ValueError if there are several). Names that the checkpoint or the model lacks are
// warnings, or errors if `strict`; FileError for them, for other shapes, and for a damaged file,
// before a weight is changed. A model on the meta device gets memory on the CPU.
nn::LoadReport load_checkpoint_in_model(nn::Module& model, const std::string& checkpoint,
                                        const LoadCheckpointOptions& options = {});

// Without those that are another name of the same values: of such the first stays. Says so.
nn::StateDict clean_state_dict_for_safetensors(const nn::StateDict& state);

// Whether this process is to write: the main one of all, or that of each machine.
bool is_saving_process(const PartialState& state, bool save_on_each_node);

// Writes a map of tensors as safetensors, or a value without tensors as JSON, on that process of
// the program's PartialState. ValueError for what is partly tensors. The file is replaced as a
// whole.
void save(const nn::StateDict& state, const std::string& path, bool save_on_each_node = false);
void save(const Tree& object, const std::string& path, bool save_on_each_node = false);
// The same by one process that has been chosen.
void write_object(const nn::StateDict& state, const std::string& path);
void write_object(const Tree& object, const std::string& path);
// What is in a .safetensors file, a .json file, or else a file of torch.save.
Tree load(const std::string& path);

}  // namespace axle::accel
