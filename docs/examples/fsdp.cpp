// Trains a small GPT with the options of FSDP.
#include <axle/axle.h>
#include <axle/nn/models/gpt.h>

using axle::Tensor;

int main() {
    axle::manual_seed(1);
    const Tensor ids = axle::arange(0, 32).reshape({2, 16}), labels = (ids + 1).to(axle::i64);
    double first = 0, last = 0;
    // [fsdp]
    axle::Accelerator accelerator({
        .fsdp_plugin = {{
            .fsdp_version = 2,
            .auto_wrap_policy = "TRANSFORMER_BASED_WRAP",  // each block is a unit
            .state_dict_type = "FULL_STATE_DICT",
        }},
    });
    axle::nn::Gpt gpt(
        {.vocab_size = 64, .block_size = 16, .n_layer = 2, .n_head = 2, .n_embd = 16});
    axle::optim::AdamW adamw(gpt.parameters(), {.lr = 1e-2});
    auto [model, optimizer] = accelerator.prepare(gpt, adamw);
    for (int step = 0; step < 20; ++step) {
        const Tensor loss = model.loss(ids, labels);
        accelerator.backward(loss);
        accelerator.clip_grad_norm_(model.parameters(), 1.0);
        optimizer.step();
        optimizer.zero_grad();
        (step == 0 ? first : last) = loss.item();
    }
    // [/fsdp]
    return last < first ? 0 : 1;
}
