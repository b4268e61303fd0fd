// Private to tools: the options of train_gpt and their defaults.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "nn/models/gpt.h"
#include "tools/trainer/language_data.h"
#include "tools/trainer/lora_options.h"
#include "tools/trainer/run.h"

namespace axle::trainer {

struct GptSettings : Options {
    LanguageDataOptions text;
    LoraOptions lora{.targets = "all-linear"};
    nn::GptConfig model;     // of a model that starts with random weights
    bool has_block = false;  // whether --block-size was given
    double min_lr = 1e-4, beta2 = 0.99;
    // The learning rate of Muon, which trains the weights of the layers if it is not 0. AdamW then
    // trains the other parameters. It ends at the same fraction as the learning rate of AdamW.
    double muon_lr = 0;
    std::int64_t warmup = 100, sample = 0;
};

// Returns the settings of a command line, or nullopt after --help or --version. Throws UsageError
// for invalid arguments.
std::optional<GptSettings> parse_gpt_settings(std::vector<std::string> arguments);

}  // namespace axle::trainer
