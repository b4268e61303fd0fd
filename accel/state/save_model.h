// The functions save, load, load_checkpoint_in_model and clean_state_dict_for_safetensors of
// Accelerate, and the options of Accelerator::save_model(). Files of safetensors and of torch.save
// can be read; weights are written as safetensors.
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
    bool safe_serialization = true;  // false throws UsageError: Axle does not write pickles
    // Whether the main process of each machine writes, not only rank 0.
    bool save_on_each_node = false;
};

// The options of load_checkpoint_in_model(), in the order of Accelerate's arguments. The function
// throws UsageError if an option is set that is not implemented.
struct LoadCheckpointOptions {
    // The device of the whole model, as {{"", "cuda:0"}}: the model is moved to it after the
    // weights are loaded. The default is the device of the model. Names of modules, "disk" and
    // "meta" throw UsageError, because weights on several devices are not implemented.
    std::map<std::string, std::string> device_map = {};
    std::string offload_folder = {};  // not implemented
    // The dtype to which floating-point weights are converted; the default is the dtype of the
    // model.
    std::optional<DType> dtype = {};
    bool offload_state_dict = false;                     // not implemented
    bool offload_buffers = false;                        // not implemented
    std::vector<std::string> keep_in_fp32_modules = {};  // not implemented
    bool offload_8bit_bnb = false;                       // not implemented
    // Whether missing and unexpected names throw FileError.
    bool strict = false;
    bool full_state_dict = true;        // false is not implemented
    bool broadcast_from_rank0 = false;  // not implemented
};

// Loads weights into a model. `checkpoint` is a file (.safetensors, or written by torch.save), an
// .index.json that lists shards, or a folder. In a folder, loads pytorch_model.bin, else
// model.safetensors, else the shards of its only index; throws ValueError if there are several
// indices. Returns the names that only the checkpoint or only the model has. Logs warnings with the
// number of these names and the first few.
//
// Throws FileError if shapes differ, if a file is missing or damaged, if no weight of the model has
// a name in the checkpoint, or, with `strict`, if names differ. Throws ValueError or DeviceError
// for an invalid or missing device in `device_map`. All these errors are thrown before any weight
// changes. Throws DTypeError, after the weights were loaded, if `dtype` is not a floating dtype. A
// model on the meta device is placed on the CPU.
nn::LoadReport load_checkpoint_in_model(nn::Module& model, const std::string& checkpoint,
                                        const LoadCheckpointOptions& options = {});

// Returns the tensors without duplicates. If several names have tensors with the same memory,
// dtype, shape and strides, only the first name is kept. Logs a warning with the removed names.
// Throws UsageError if a tensor is undefined.
nn::StateDict clean_state_dict_for_safetensors(const nn::StateDict& state);

// Returns whether this process writes files: rank 0, or with save_on_each_node the main process of
// each machine.
bool is_saving_process(const PartialState& state, bool save_on_each_node);

// Write a map of tensors as safetensors, or a value without tensors as JSON. The main process of
// the program's PartialState writes (with save_on_each_node, the main process of each machine).
// Without a PartialState, this process writes. The file is replaced atomically. Throw ValueError
// for a value that contains tensors, but is not a map of tensors, UsageError for an undefined
// tensor, and FileError if the file can't be written.
void save(const nn::StateDict& state, const std::string& path, bool save_on_each_node = false);
void save(const Tree& object, const std::string& path, bool save_on_each_node = false);
// Write the same files as save(), but on any process that calls them.
void write_object(const nn::StateDict& state, const std::string& path);
void write_object(const Tree& object, const std::string& path);
// Returns the contents of a file that save() or torch.save has written. A suffix other than
// .safetensors and .json, such as .pkl or .bin, does not determine the format. Throws FileError if
// the file can't be read or is invalid.
Tree load(const std::string& path);

}  // namespace axle::accel
