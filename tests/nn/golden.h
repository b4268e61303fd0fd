// Reads tensors in tests/golden/ that were recorded from PyTorch and Transformers, by default in
// nn.safetensors (record_nn.py).
#pragma once

#include <string>

#include "core/files/safetensors.h"
#include "nn/module.h"

namespace axle::tests {

inline std::string golden_path(const std::string& name) {
    return std::string(AXLE_TESTS_DIR) + "/golden/" + name;
}

inline Tensor golden(const std::string& name, const std::string& file = "nn.safetensors") {
    return SafetensorsFile(golden_path(file)).tensor(name);
}

// Returns the tensors whose names begin with `prefix` and a dot. Removes this beginning from the
// names.
inline nn::StateDict golden_state(const std::string& prefix) {
    nn::StateDict state;
    for (const auto& [name, tensor] : load_safetensors(golden_path("nn.safetensors")).tensors)
        if (name.starts_with(prefix + "."))
            state.emplace_back(name.substr(prefix.size() + 1), tensor);
    return state;
}

}  // namespace axle::tests
