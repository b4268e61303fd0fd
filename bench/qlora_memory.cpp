// Usage: bench_qlora_memory [nf4|int8|none] [STEPS] [LAYERS]
//
// Trains a LoRA adapter of rank 16 of all Linear layers of a Llama with the sizes of TinyLlama (1.1
// billion parameters) and random weights, in f32, on one sample of 256 tokens. The weights are
// quantized to the given format (nf4 with double quantization by default). Weights get memory only
// while they are quantized, one layer after the other. STEPS is 1 and LAYERS is 22 by default.
//
// Prints JSON: the bytes of the quantized layers, of all parameters and buffers, and of the largest
// resident memory after the quantization and at the end, the losses, and the seconds of each phase.
#include <chrono>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <optional>
#include <string>

#include <sys/resource.h>

#include "core/autograd/autograd.h"
#include "core/ops.h"
#include "core/random.h"
#include "core/tree/tree.h"
#include "nn/adapters/lora.h"
#include "nn/init.h"
#include "nn/models/llama.h"
#include "optim/adam.h"

namespace axle::bench {
namespace {

// Returns the largest resident memory of this process so far, in bytes.
std::int64_t peak_resident() {
    rusage usage = {};
    getrusage(RUSAGE_SELF, &usage);
    return static_cast<std::int64_t>(usage.ru_maxrss) * 1024;
}

std::int64_t bytes_of(const nn::StateDict& tensors) {
    std::int64_t total = 0;
    for (const auto& [name, tensor] : tensors) total += tensor.numel() * size_of(tensor.dtype());
    return total;
}

int run(const std::string& format, int steps, int layers) {
    using Clock = std::chrono::steady_clock;
    auto start = Clock::now();
    const auto seconds = [&] {
        const auto now = Clock::now();
        return std::chrono::duration<double>(now - std::exchange(start, now)).count();
    };
    manual_seed(1);
    std::optional<nn::Llama> model;
    {
        const nn::init::DeferredWeights scope;
        model.emplace(nn::LlamaConfig{.vocab_size = 32000,
                                      .hidden_size = 2048,
                                      .intermediate_size = 5632,
                                      .num_hidden_layers = layers,
                                      .num_attention_heads = 32,
                                      .num_key_value_heads = 4});
    }
    const std::int64_t parameters = model->num_parameters();
    if (format != "none")
        nn::quantize_linears(*model,
                             {.format = format == "nf4" ? WeightFormat::nf4 : WeightFormat::int8});
    Tree result{{"format", format}, {"parameters", parameters}, {"quantize_s", seconds()}};
    result.set("quantized_bytes", bytes_of(model->named_buffers()));
    result.set("quantized_peak_bytes", peak_resident());
    nn::add_lora(*model, {.r = 16, .lora_alpha = 32, .target_modules = {"all-linear"}});
    optim::AdamW adamw(nn::trainable_parameters(*model), {.lr = 2e-4});
    const Tensor ids = randint(0, 32000, {1, 257});
    Tree losses = Tree::list();
    for (int i = 0; i < steps; ++i) {
        const Tensor loss = model->loss(ids.slice(1, 0, -1), ids.slice(1, 1));
        loss.backward();
        adamw.step();
        adamw.zero_grad();
        losses.push_back(loss.item());
    }
    result.set("steps_s", seconds());
    result.set("losses", losses);
    result.set("state_bytes", bytes_of(model->state_dict()));
    result.set("peak_bytes", peak_resident());
    std::cout << to_json(result) << '\n';
    return 0;
}

int main(int argc, char** argv) {
    try {
        const std::string format = argc > 1 ? argv[1] : "nf4";
        const int steps = argc > 2 ? std::atoi(argv[2]) : 1;
        const int layers = argc > 3 ? std::atoi(argv[3]) : 22;
        const bool is_known = format == "nf4" || format == "int8" || format == "none";
        if (!is_known || steps < 1 || layers < 1) {
            std::cerr << "usage: bench_qlora_memory [nf4|int8|none] [STEPS] [LAYERS]\n";
            return 2;
        }
        return run(format, steps, layers);
    } catch (const std::exception& error) {
        std::cerr << "bench_qlora_memory: " << error.what() << '\n';
        return 1;
    }
}

}  // namespace
}  // namespace axle::bench

int main(int argc, char** argv) { return axle::bench::main(argc, argv); }
