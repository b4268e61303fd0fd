// The training loop of the README with a few batches, and the same loop with a compiled step.
#include <axle/axle.h>

int main() {
    axle::manual_seed(1);
    const axle::Tensor ids = axle::randint(0, 65, {48, 65});
    const axle::data::TensorDataset train_set(
        {{"input_ids", ids.narrow(1, 0, 64)}, {"labels", ids.narrow(1, 1, 64)}});
    // [loop]
    axle::nn::Gpt gpt(
        {.vocab_size = 65, .block_size = 64, .n_layer = 4, .n_head = 4, .n_embd = 128});
    axle::optim::AdamW adamw(gpt.parameters(), {.lr = 1e-3, .weight_decay = 0.1});
    axle::data::DataLoader train_loader(train_set, {.batch_size = 12, .shuffle = true});
    // The schedule has 2000 steps, of which 100 are warmup. Each update advances it by one step per
    // process.
    auto cosine = axle::optim::get_cosine_schedule_with_warmup(adamw, 100, 2000);

    axle::Accelerator accelerator({.mixed_precision = "bf16", .gradient_accumulation_steps = 4});
    auto [model, optimizer, loader, scheduler] =
        accelerator.prepare(gpt, adamw, train_loader, cosine);
    for (auto& batch : loader) {
        auto scope = accelerator.accumulate(model);
        auto loss = model.loss(batch["input_ids"], batch["labels"]);
        accelerator.backward(loss);
        if (accelerator.sync_gradients()) accelerator.clip_grad_norm_(model.parameters(), 1.0);
        optimizer.step();
        scheduler.step();
        optimizer.zero_grad();
    }
    accelerator.save_state("runs/a/checkpoint");
    // [/loop]
    axle::Tensor last;
    // [compile]
    auto step = accelerator.compile([&](axle::Tree& batch) {
        auto scope = accelerator.accumulate(model);
        auto loss = model.loss(batch["input_ids"], batch["labels"]);
        accelerator.backward(loss);
        if (accelerator.sync_gradients()) accelerator.clip_grad_norm_(model.parameters(), 1.0);
        optimizer.step();
        scheduler.step();
        optimizer.zero_grad();
        return loss;
    });
    for (auto& batch : loader) last = step(batch);
    // [/compile]
    return last.item() < 6 ? 0 : 1;
}
