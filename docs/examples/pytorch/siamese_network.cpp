// Trains a network to predict whether two drawings show the same kind of shape. Both drawings pass
// through one network. The program of the same name in pytorch/examples compares digits of MNIST.
#include <axle/axle.h>

#include "drawings.h"

using axle::Tensor;
namespace nn = axle::nn;

constexpr std::int64_t kSize = 16;

// [model]
class SiameseNetwork : public nn::Model<SiameseNetwork> {
  public:
    // Returns the probability that the images of a pair show the same kind of drawing, as [N].
    Tensor forward(const Tensor& first, const Tensor& second) {
        return sigmoid(head(abs(features(first) - features(second)))).squeeze(-1);
    }
    void visit(nn::Visitor& v) override { v("features", features), v("head", head); }

    nn::Sequential features{nn::Conv2d(1, 16, 3, {.stride = 2, .padding = 1}),
                            nn::BatchNorm2d(16),
                            axle::relu,
                            nn::Conv2d(16, 32, 3, {.stride = 2, .padding = 1}),
                            nn::BatchNorm2d(32),
                            axle::relu,
                            nn::AdaptiveAvgPool2d(2),
                            nn::Flatten()};
    nn::Sequential head{nn::Linear(128, 64), axle::relu, nn::Linear(64, 1)};
};
// [/model]

// [pairs]
// Returns random pairs of drawings. The target is 1 if both show the same shape, and otherwise 0.
axle::data::TensorDataset make_pairs(std::int64_t count) {
    const auto [first, first_kind] = drawings(count, kSize);
    const auto [second, second_kind] = drawings(count, kSize);
    return axle::data::TensorDataset({{"first", first},
                                      {"second", second},
                                      {"same", (first_kind == second_kind).to(axle::f32)}});
}
// [/pairs]

int main() {
    axle::manual_seed(1);
    axle::Accelerator accelerator;
    SiameseNetwork network;
    axle::optim::Adadelta adadelta(network.parameters(), {.lr = 1});
    axle::optim::StepLR step_lr(adadelta, 1, 0.7);
    axle::data::DataLoader train_batches(make_pairs(2048), {.batch_size = 64, .shuffle = true});
    axle::data::DataLoader test_batches(make_pairs(512), {.batch_size = 64});
    auto [model, optimizer, scheduler, train_loader, test_loader] =
        accelerator.prepare(network, adadelta, step_lr, train_batches, test_batches);

    double accuracy = 0;
    for (int epoch = 0; epoch < 6; ++epoch) {
        // [epoch]
        model.train();
        for (auto& batch : train_loader) {
            optimizer.zero_grad();
            const Tensor probability = model(batch["first"], batch["second"]);
            accelerator.backward(binary_cross_entropy(probability, batch["same"]));
            optimizer.step();
        }
        scheduler.step();
        model.eval();
        const axle::NoGrad no_grad;
        double correct = 0;
        for (auto& batch : test_loader) {
            const Tensor same = model(batch["first"], batch["second"]) > 0.5;
            correct += (same == (batch["same"].tensor() > 0.5)).sum().item();
        }
        // [/epoch]
        accuracy = correct / 512;
        accelerator.print("epoch ", epoch, ": accuracy ", accuracy);
    }
    return accuracy > 0.9 ? 0 : 1;
}
