// Saves and loads models and tensors: Accelerate's save, load and load_checkpoint_in_model, which
// reads files of any Hugging Face library or of PyTorch. Accelerator::save_model() writes models.
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
    bool safe_serialization = true;  // false throws UsageError: Axle reads pickles, but writes none
    bool save_on_each_node = false;  // the main process of each machine writes, not only rank 0
};

// Fields are in the order of Accelerate's arguments. Throws UsageError for options that are not
// implemented.
struct LoadCheckpointOptions {
    // Not implemented: weights on several devices, or offloaded to disk.
    std::map<std::string, std::string> device_map = {};
    std::string offload_folder = {};
    // Floating-point weights are converted to it; by default they keep the dtype of the model.
    std::optional<DType> dtype = {};
    bool offload_state_dict = false;                     // not implemented
    bool offload_buffers = false;                        // not implemented
    std::vector<std::string> keep_in_fp32_modules = {};  // not implemented
    bool offload_8bit_bnb = false;                       // not implemented
    bool strict = false;                                 // names that differ are errors
    bool full_state_dict = true;                         // false: not implemented
    bool broadcast_from_rank0 = false;                   // not implemented
};

// Loads weights into a model from a file (.safetensors, or of torch.save), from the shards that an
// .index.json lists, or from a folder: its pytorch_model.bin, else its model.safetensors, else its
// only index (ValueError if there are several). Returns the names that only the checkpoint or only
// the model has: they are logged as warnings, and are errors if `strict`. Throws FileError for
// these, for shapes that differ, and for a damaged file, before any weight changes. A model on the
// meta device is placed on the CPU.
nn::LoadReport load_checkpoint_in_model(nn::Module& model, const std::string& checkpoint,
                                        const LoadCheckpointOptions& options = {});

// Returns the tensors without those that are another name of the same values; the first name is
// kept. Logs a warning with the names left out. Throws UsageError if a tensor is undefined.
nn::StateDict clean_state_dict_for_safetensors(const nn::StateDict& state);

// Returns whether this process writes: it is the main process of all, or of its machine.
bool is_saving_process(const PartialState& state, bool save_on_each_node);

// Write a map of tensors as safetensors, or a value without tensors as JSON, on the main process of
// the program's PartialState. The file is replaced atomically. Throw ValueError for values that
// have tensors and other values.
void save(const nn::StateDict& state, const std::string& path, bool save_on_each_node = false);
void save(const Tree& object, const std::string& path, bool save_on_each_node = false);
// Do the same on the calling process.
void write_object(const nn::StateDict& state, const std::string& path);
void write_object(const Tree& object, const std::string& path);
// Reads a .safetensors file, a .json file, or a file of torch.save. Throws FileError.
Tree load(const std::string& path);

}  // namespace axle::accel
