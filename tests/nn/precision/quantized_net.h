// A model for tests of quantized Linear layers and of LoRA adapters over them.
#pragma once

#include <string>
#include <vector>

#include "core/random.h"
#include "nn/adapters/lora.h"
#include "nn/init.h"
#include "nn/layers/layers.h"
#include "nn/precision/quantized_linear.h"

namespace axle::tests {

struct QuantizedNet : nn::Model<QuantizedNet> {
    nn::Embedding table{5, 48};
    nn::Linear query{48, 64}, value{48, 64, {.bias = false, .transposed = true}}, head{64, 3};

    Tensor forward(const Tensor& x) { return head(relu(query(x) + value(x))); }
    void visit(nn::Visitor& v) override {
        v("table", table), v("attn.query", query), v("attn.value", value), v("head", head);
    }
};

inline QuantizedNet seeded_net() {
    manual_seed(3);
    return QuantizedNet();
}

inline Tensor some_input() {
    manual_seed(4);
    return randn({4, 48});
}

// Returns a net whose weights are the values of the quantized layers of `net`.
inline QuantizedNet plain_net(const QuantizedNet& net) {
    QuantizedNet plain = net.clone();
    nn::dequantize_linears(plain);
    return plain;
}

inline nn::LoraLinear& lora_of(nn::Linear& layer) {
    return dynamic_cast<nn::LoraLinear&>(*layer.policy);
}

inline void add_adapter(QuantizedNet& net) {
    manual_seed(5);
    nn::add_lora(net, {.r = 4, .lora_alpha = 8, .target_modules = {"query", "value"}});
    for (nn::Linear* layer : {&net.query, &net.value})
        nn::init::normal_(lora_of(*layer).lora_B, 0, 0.1);
}

template <class State>
std::vector<std::string> names_of(const State& state) {
    std::vector<std::string> names;
    for (const auto& [name, tensor] : state) names.push_back(name);
    return names;
}

}  // namespace axle::tests
