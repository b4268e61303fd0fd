// Runs a training loop without and with the Accelerator. Checks that the trained weights are equal.
// Covers 25.base, 32.interactive.
#include <axle/axle.h>

using axle::Tensor;

namespace {

struct Data {
    Tensor x = axle::randn({64, 4}), y = x.sum({1}, true);
};

Tensor plain(const Data& data) {
    axle::manual_seed(3);
    // [plain]
    const axle::Device device = axle::Device::cpu();
    axle::nn::Linear model(4, 1);
    model.to(device);
    axle::optim::AdamW optimizer(model.parameters(), {.lr = 1e-2});
    axle::optim::StepLR scheduler(optimizer, 8, 0.5);
    axle::data::DataLoader loader(axle::data::TensorDataset({{"x", data.x}, {"y", data.y}}),
                                  {.batch_size = 8, .shuffle = true});

    for (int epoch = 0; epoch < 3; ++epoch)
        for (auto& batch : loader) {
            const Tensor inputs = batch["x"].tensor().to(device);
            const Tensor targets = batch["y"].tensor().to(device);
            optimizer.zero_grad();
            const Tensor loss = mse_loss(model(inputs), targets);
            loss.backward();
            optimizer.step();
            scheduler.step();
        }
    // [/plain]
    return model.weight.detach();
}

Tensor accelerated(const Data& data) {
    axle::manual_seed(3);
    // [accelerated]
    axle::Accelerator accelerator;
    axle::nn::Linear linear(4, 1);
    axle::optim::AdamW adamw(linear.parameters(), {.lr = 1e-2});
    axle::optim::StepLR step_lr(adamw, 8, 0.5);
    axle::data::DataLoader batches(axle::data::TensorDataset({{"x", data.x}, {"y", data.y}}),
                                   {.batch_size = 8, .shuffle = true});
    auto [model, optimizer, scheduler, loader] =
        accelerator.prepare(linear, adamw, step_lr, batches);

    for (int epoch = 0; epoch < 3; ++epoch)
        for (auto& batch : loader) {
            optimizer.zero_grad();
            const Tensor loss = mse_loss(model(batch["x"]), batch["y"]);
            accelerator.backward(loss);
            optimizer.step();
            scheduler.step();
        }
    // [/accelerated]
    return linear.weight.detach().to(axle::Device::cpu());
}

}  // namespace

int main() {
    const Data data;
    return (plain(data) - accelerated(data)).abs().max().item() < 1e-6 ? 0 : 1;
}
