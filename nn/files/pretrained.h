// Models as folders that Hugging Face's Hub takes: config.json, the weights as safetensors, whole
// or in shards, and README.md, the model card. The models of nn/models have member functions of the
// same names; these are for modules of a program's own:
//
//     nn::save_pretrained(model, "TinyNet", {{"model_type", "tiny"}, {"width", 64}}, "out",
//                         {.is_main_process = accelerator.is_main_process()});
//
//     TinyNet again(nn::pretrained_config("out")["width"].integer());
//     nn::load_pretrained(again, "out");
//
// To upload one is the business of the Hub's own client: hf upload user/name out
#pragma once

#include <string>

#include "core/tree/tree.h"
#include "nn/files/shard_size.h"
#include "nn/module.h"

namespace axle::inline v0::nn {

struct SavePretrainedOptions {
    bool is_main_process = true;  // false: nothing is written
    ShardSize max_shard_size = "50GB";
    // The text of README.md; empty is one that says what is in the folder. A README.md that is
    // there already stays, unless it is such a one.
    std::string model_card = {};
};

// Into a folder, creating it; `config` is a map, and gets "architectures" and "torch_dtype". A tied
// weight is written once, by its first name. Files of earlier calls are replaced, and others left
// alone. Errors as those of save_weights.
void save_pretrained(const Module& model, const std::string& architecture, const Tree& config,
                     const std::string& directory, const SavePretrainedOptions& options = {});

// The folder's config.json; FileError.
Tree pretrained_config(const std::string& directory);
// The folder's weights; FileError where names or shapes differ, before the first is changed.
void load_pretrained(Module& model, const std::string& directory);

}  // namespace axle::inline v0::nn
