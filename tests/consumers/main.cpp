// The program of the consumer projects, which use Axle as a library. Trains a two-layer network to
// predict the distance from the origin.
#include <iostream>

#include <axle/axle.h>

#include "core/shape.h"  // this project's header, not Axle's

int main() {
    axle::manual_seed(1);
    const axle::Tensor points = axle::rand({256, host::kDimensions}) * 2 - 1;
    const axle::Tensor distances = (points * points).sum({1}, true).sqrt();
    const axle::data::TensorDataset samples({{"point", points}, {"distance", distances}});

    axle::nn::Sequential net{axle::nn::Linear(host::kDimensions, 32), axle::tanh,
                             axle::nn::Linear(32, 1)};
    axle::optim::AdamW adamw(net.parameters(), {.lr = 1e-2});
    axle::data::DataLoader batches(samples, {.batch_size = 32, .shuffle = true});

    axle::Accelerator accelerator;
    auto [model, optimizer, loader] = accelerator.prepare(net, adamw, batches);
    double last = 0;
    for (int epoch = 0; epoch < 60; ++epoch)
        for (auto& batch : loader) {
            const axle::Tensor loss = axle::mse_loss(model(batch["point"]), batch["distance"]);
            accelerator.backward(loss);
            optimizer.step();
            optimizer.zero_grad();
            last = loss.item();
        }

    std::cout << "axle " << axle::kVersion << ": loss " << last << '\n';
    return last < 0.01 ? 0 : 1;
}
