// A recorded call of a PyTorch module: weights, arguments, results and gradients.
#pragma once

#include <map>
#include <string>

#include "core/ops.h"
#include "tests/close.h"
#include "tests/nn/golden.h"

namespace axle::tests {

// The names of the tensors in the file begin with "<case>.", followed by "in.<name>" (arguments),
// "state.<name>" (weights) or "out.<name>" (results). The gradients "grad.<parameter>" and
// "grad_in.<argument>" belong to a loss: the sum of the products of "out.<name>" and
// "factor.<name>", for every result with a factor.
struct RecordedCase {
    RecordedCase(const std::string& name, const std::string& file) {
        for (const auto& [key, value] : load_safetensors(golden_path(file)).tensors)
            if (key.starts_with(name + ".")) tensors[key.substr(name.size() + 1)] = value;
        for (auto& [key, tensor] : tensors)
            if (key.starts_with("in.") && tensors.contains("grad_in." + key.substr(3)))
                tensor.set_requires_grad();
    }

    // Returns an argument, or an undefined tensor if it was not recorded.
    Tensor in(const std::string& name) const {
        const auto found = tensors.find("in." + name);
        return found == tensors.end() ? Tensor() : found->second;
    }
    // Loads the recorded weights into a module and converts it to f64.
    template <class Layer>
    void load(Layer& layer) const {
        layer.to(f64);
        nn::StateDict state;
        for (const auto& [key, tensor] : tensors)
            if (key.starts_with("state.")) state.emplace_back(key.substr(6), tensor);
        layer.load_state_dict(state);
    }
    // Compares results, and the gradients of parameters and arguments. `outputs` contains the
    // results under their recorded names.
    void check(const nn::Module& layer, const std::map<std::string, Tensor>& outputs,
               double tolerance = 1e-12) const {
        Tensor loss = zeros({}, {f64});
        for (const auto& [name, y] : outputs) {
            SCOPED_TRACE(name);
            expect_close(y.detach(), tensors.at("out." + name), tolerance);
            if (tensors.contains("factor." + name))
                loss = loss + sum(y * tensors.at("factor." + name));
        }
        if (!loss.requires_grad()) return;
        loss.backward();
        for (const auto& [name, parameter] : layer.named_parameters()) {
            SCOPED_TRACE(name);
            const auto expected = tensors.find("grad." + name);
            if (expected == tensors.end()) continue;
            expect_close(parameter.grad(), expected->second, tolerance);
        }
        for (const auto& [key, tensor] : tensors) {
            if (!key.starts_with("grad_in.")) continue;
            SCOPED_TRACE(key);
            expect_close(in(key.substr(8)).grad(), tensor, tolerance);
        }
    }

    std::map<std::string, Tensor> tensors;
};

}  // namespace axle::tests
