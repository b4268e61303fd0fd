// Private to tools: the options of programs that can train a LoRA adapter.
#pragma once

#include <cstdint>
#include <string>

#include "nn/adapters/lora.h"
#include "tools/trainer/command_line.h"

namespace axle::trainer {

struct LoraOptions {
    std::int64_t r = 0;  // the rank; 0: no adapter
    double alpha = 0;    // 0: twice the rank
    double dropout = 0;
    std::string targets;  // comma-separated names of layers, or "all-linear"

    // Declares the options with their current values as defaults.
    void add_to(CommandLine& line);
    bool is_used() const { return r > 0; }
    // Returns the configuration of the adapter, without modules_to_save.
    nn::LoraConfig config(const std::string& base_model, const std::string& task_type) const;
};

}  // namespace axle::trainer
