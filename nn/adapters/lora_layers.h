// Private to nn/adapters: the adapted layers of a model.
#pragma once

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

}  // namespace axle::nn
