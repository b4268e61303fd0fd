// Private to nn/adapters: the adapted layers of a model.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "nn/adapters/lora.h"

namespace axle::nn {

struct LoraLayer {
    std::string name;  // the name of the layer in the model
    Linear* layer;
    LoraLinear* lora;  // the layer's policy
};

// Returns the adapted layers. Throws UsageError, with a message that begins with `who`, if there
// are none.
std::vector<LoraLayer> lora_layers(Module& model, const char* who);

// Implements add_lora(). If `largest_rank` is given, the adapter is read from a file with this
// largest rank: its values are undefined, and a larger rank throws ValueError before memory is
// allocated for it.
std::int64_t install_lora(Module& model, const LoraConfig& config,
                          std::optional<std::int64_t> largest_rank);

}  // namespace axle::nn
