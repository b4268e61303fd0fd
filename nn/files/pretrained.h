// Saves and loads models as folders that can be uploaded to the Hugging Face Hub: config.json, the
// weights as safetensors (one file or several shards) and README.md, the model card. The BERT, GPT,
// Llama, Mixtral, T5 and ViT models (nn/models) have their own member functions save_pretrained()
// and from_pretrained(), which also keep the fields of config.json that Axle does not read;
// from_pretrained() returns a model in evaluation mode. The functions in this file are for
// user-defined modules:
//
//     nn::save_pretrained(model, "TinyNet", {{"model_type", "tiny"}, {"width", 64}}, "out",
//                         {.is_main_process = accelerator.is_main_process()});
//
//     TinyNet loaded(nn::pretrained_config("out")["width"].integer());
//     nn::load_pretrained(loaded, "out");
//
// To upload the folder `out`, run `hf upload user/name out`, a command of the Hugging Face Hub.
#pragma once

#include <string>

#include "core/tree/tree.h"
#include "nn/files/shard_size.h"
#include "nn/module.h"

namespace axle::nn {

struct SavePretrainedOptions {
    bool is_main_process = true;  // if false, nothing is written
    // The largest size of a file of weights. A larger weight gets its own file.
    ShardSize max_shard_size = "50GB";
    // The text of README.md. If it is empty, a default text is written, except if the folder has a
    // README.md that Axle has not generated.
    std::string model_card = {};
};

// Writes a model into a folder, which is created if necessary. config.json contains the map
// `config` and the entries "architectures" (`architecture`, unless `config` has this entry) and
// "torch_dtype" (the dtype of the first weight). A tied weight is written once, under its first
// name. Files of earlier calls are replaced; all other files are kept. Throws ValueError if the
// directory is "", or if `config` is not a map or contains a tensor or text that is not UTF-8.
// Throws UsageError if visit() of a module omits a member (Module::check_visit()), or if a layer
// has an adapter (LinearPolicy::is_adapter()) or is quantized. Throws DeviceError if a weight is on
// the meta device, and FileError if a file cannot be written.
void save_pretrained(const Module& model, const std::string& architecture, const Tree& config,
                     const std::string& directory, const SavePretrainedOptions& options = {});

// Returns the contents of the folder's config.json. Throws FileError if the file cannot be read,
// has more than 2 MiB or is not JSON.
Tree pretrained_config(const std::string& directory);
// Loads the weights of a folder into the module. Does not change the module's training mode.
// `directory` can also be a .safetensors file in a folder with config.json. Throws FileError if a
// file is missing or invalid, if names or shapes differ, or if a dtype cannot be converted; the
// module is then unchanged.
void load_pretrained(Module& model, const std::string& directory);

}  // namespace axle::nn
