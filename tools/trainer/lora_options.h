// Private to tools: the options of programs that can train a LoRA adapter.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "nn/adapters/lora.h"
#include "nn/init.h"
#include "tools/trainer/command_line.h"

namespace axle::trainer {

struct LoraOptions {
    std::int64_t r = 0;  // the rank; 0: no adapter
    double alpha = 0;    // 0: twice the rank
    double dropout = 0;
    std::string targets;  // comma-separated names of layers, or "all-linear"
    // The format of the base model's weights: "", "int8", "llm-int8" or "nf4".
    std::string quantize = {};

    // Declares the options with their current values as defaults.
    void add_to(CommandLine& line);
    // Throws UsageError for an unknown format of --quantize, and for --quantize without --lora-r.
    void check() const;
    bool is_used() const { return r > 0; }
    // Returns the result of from_pretrained(). With --quantize, weights are read when they are
    // used, so that quantize_base() does not need memory for all of them.
    template <class F>
    auto load_base(F&& from_pretrained) const {
        std::optional<nn::init::DeferredWeights> deferred;
        if (!quantize.empty()) deferred.emplace();
        return from_pretrained();
    }
    // Quantizes the Linear layers of the model, but not the modules in `excluded`, if --quantize is
    // given. Returns the number of quantized weights, which are not parameters any more.
    std::int64_t quantize_base(nn::Module& model, std::vector<std::string> excluded = {}) const;
    // Returns the rank and the format of the base model for the identity of a run, such as "8 over
    // nf4".
    std::string identity() const;
    // Returns the configuration of the adapter, without modules_to_save.
    nn::LoraConfig config(const std::string& base_model, const std::string& task_type) const;
};

}  // namespace axle::trainer
