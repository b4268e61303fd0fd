// Models and optimizers on a GPU take the way that they take on the CPU.
#include "core/autograd.h"
#include "core/numerics.h"
#include "core/ops.h"
#include "core/random.h"
#include "nn/models/bert.h"
#include "nn/models/gpt.h"
#include "nn/models/lenet.h"
#include "nn/models/llama.h"
#include "nn/models/resnet.h"
#include "optim/adam.h"
#include "optim/clip.h"
#include "optim/sgd.h"
#include "tests/close.h"
#include "tests/cuda/gpu.h"

namespace axle::tests {
namespace {

struct Way {
    std::vector<double> losses;
    std::vector<Tensor> weights;
};

// steps of loss(model) in f64 on a device, from the same weights and the same dropout.
template <class Model, class Optimizer, class Options, class Loss>
Way way(Device device, const Model& from, const Options& options, int steps, const Loss& loss) {
    Model model = from.clone();
    model.to(f64);
    model.to(device);
    Optimizer optimizer(model.parameters(), options);
    manual_seed(77);
    Way result;
    for (int i = 0; i < steps; ++i) {
        const Tensor value = loss(model, device);
        value.backward();
        optim::clip_grad_norm_(model.parameters(), 1.0);
        optimizer.step();
        optimizer.zero_grad();
        result.losses.push_back(value.item());
    }
    for (const Tensor& p : model.parameters())
        result.weights.push_back(to(p.detach(), Device::cpu()));
    return result;
}

void expect_alike(const Way& gpu, const Way& cpu) {
    for (std::size_t i = 0; i < cpu.losses.size(); ++i)
        EXPECT_NEAR(gpu.losses[i], cpu.losses[i], 1e-9 * std::max(1.0, cpu.losses[i])) << i;
    for (std::size_t i = 0; i < cpu.weights.size(); ++i)
        expect_close(gpu.weights[i], cpu.weights[i], 1e-8);
}

class GpuTraining : public GpuTest {};

TEST_F(GpuTraining, GptTakesTheWayOfTheCpu) {
    manual_seed(1);
    const nn::Gpt gpt({.vocab_size = 19,
                       .block_size = 8,
                       .n_layer = 2,
                       .n_head = 2,
                       .n_embd = 16,
                       .dropout = 0.1});
    const Tensor ids = randint(0, 19, {3, 8}), labels = randint(0, 19, {3, 8});
    const auto loss = [&](nn::Gpt& model, Device device) {
        return model.loss(to(ids, device), to(labels, device));
    };
    const optim::AdamWOptions options{.lr = 1e-2};
    expect_alike(way<nn::Gpt, optim::AdamW>(kGpu, gpt, options, 4, loss),
                 way<nn::Gpt, optim::AdamW>(Device::cpu(), gpt, options, 4, loss));
}

TEST_F(GpuTraining, LeNetTakesTheWayOfTheCpu) {
    manual_seed(2);
    const nn::LeNet lenet;
    const Tensor images = randn({2, 1, 28, 28}, {f64}), labels = randint(0, 10, {2});
    const auto loss = [&](nn::LeNet& model, Device device) {
        return cross_entropy(model(to(images, device)), to(labels, device));
    };
    const optim::SGDOptions options{.lr = 0.05, .momentum = 0.9, .nesterov = true};
    expect_alike(way<nn::LeNet, optim::SGD>(kGpu, lenet, options, 3, loss),
                 way<nn::LeNet, optim::SGD>(Device::cpu(), lenet, options, 3, loss));
}

}  // namespace
}  // namespace axle::tests
