// Trains a GPT whose parameters are sharded over two processes, and continues on one process.
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <string>

#include <axle/axle.h>

using axle::Tensor;

namespace {

axle::nn::Gpt make_gpt() {
    axle::manual_seed(1);
    return axle::nn::Gpt(
        {.vocab_size = 64, .block_size = 16, .n_layer = 4, .n_head = 2, .n_embd = 32});
}

axle::data::TensorDataset texts() {
    const Tensor ids = axle::randint(0, 64, {64, 17});
    return axle::data::TensorDataset({{"ids", ids.narrow(1, 0, 16).contiguous()},
                                      {"labels", ids.narrow(1, 1, 16).contiguous()}});
}

void train(const std::string&) {
    axle::nn::Gpt gpt = make_gpt();
    axle::optim::AdamW adamw(gpt.parameters(), {.lr = 1e-3});
    const auto data = texts();
    axle::data::DataLoader batches(data, {.batch_size = 4, .shuffle = true});
    // [train]
    axle::Accelerator accelerator({.fsdp_plugin = {{
                                       .reshard_after_forward = "FULL_SHARD",
                                       .auto_wrap_policy = "TRANSFORMER_BASED_WRAP",
                                       .sync_module_states = true,
                                   }}});
    auto [model, optimizer, loader] = accelerator.prepare(gpt, adamw, batches);
    for (auto& batch : loader) {
        accelerator.backward(model.loss(batch["ids"], batch["labels"]));
        accelerator.clip_grad_norm_(model.parameters(), 1.0);
        optimizer.step();
        optimizer.zero_grad();
    }
    accelerator.save_state("checkpoint");
    // [/train]
    // [read]
    {
        axle::dist::FullParameters full(model);  // on all processes
        if (accelerator.is_main_process() && std::isnan(sum(model.transformer.wte.weight).item()))
            std::exit(1);
    }
    // [/read]
}

}  // namespace

int main() {
    axle::dist::launch({.num_processes = 2}, train, "");
    axle::nn::Gpt gpt = make_gpt();
    axle::optim::AdamW adamw(gpt.parameters());
    // [resume]
    axle::Accelerator accelerator;  // one process, without a plugin
    accelerator.prepare(gpt, adamw);
    accelerator.load_state("checkpoint");
    // [/resume]
    return std::filesystem::exists("checkpoint/model.safetensors") ? 0 : 1;
}
