// Trains with the options, the optimizer and the schedule of a DeepSpeed configuration.
#include <axle/accel/prepare/deepspeed_objects.h>
#include <axle/axle.h>

using axle::Tensor;
using axle::Tree;

int main() {
    axle::manual_seed(1);
    const Tensor x = axle::randn({8, 16}), y = x.tanh();
    double first = 0, last = 0;
    // [deepspeed]
    axle::accel::DeepSpeedConfig config(Tree{
        {"gradient_accumulation_steps", 1},
        {"zero_optimization", {{"stage", 2}}},
        {"optimizer", {{"type", "AdamW"}, {"params", {{"lr", "auto"}}}}},
        {"scheduler", {{"type", "WarmupLR"}, {"params", {{"warmup_num_steps", 5}}}}},
    });  // or the path of a JSON file
    axle::nn::Mlp mlp({16, 32, 16});
    axle::Accelerator accelerator({.deepspeed_plugin = {{.hf_ds_config = config}}});
    axle::accel::DummyOptim adamw(mlp.parameters(), 1e-2);  // 1e-2 replaces "auto"
    axle::accel::DummyScheduler warmup;
    auto [model, optimizer, schedule] = accelerator.prepare(mlp, adamw, warmup);
    for (int step = 0; step < 50; ++step) {
        const Tensor loss = mse_loss(model(x), y);
        accelerator.backward(loss);
        optimizer.step();
        schedule.step();
        optimizer.zero_grad();
        (step == 0 ? first : last) = loss.item();
    }
    // [/deepspeed]
    return last < first ? 0 : 1;
}
