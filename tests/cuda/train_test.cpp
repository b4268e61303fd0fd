// Tests that models and optimizers train on a GPU as they do on the CPU.
#include "core/autograd/autograd.h"
#include "core/ops.h"
#include "core/random.h"
#include "core/system/numerics.h"
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

struct TrainingRun {
    std::vector<double> losses;
    std::vector<Tensor> weights;
};

// Trains a clone of `from` to minimize loss(model, device), in f64. All calls use the same
// random seed, so that runs on several devices can be compared.
template <class Model, class Optimizer, class Options, class Loss>
TrainingRun train(Device device, const Model& from, const Options& options, int steps,
                  const Loss& loss) {
    Model model = from.clone();
    model.to(f64);
    model.to(device);
    Optimizer optimizer(model.parameters(), options);
    manual_seed(77);
    TrainingRun result;
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

void expect_alike(const TrainingRun& gpu, const TrainingRun& cpu) {
    for (std::size_t i = 0; i < cpu.losses.size(); ++i)
        EXPECT_NEAR(gpu.losses[i], cpu.losses[i], 1e-9 * std::max(1.0, cpu.losses[i])) << i;
    for (std::size_t i = 0; i < cpu.weights.size(); ++i)
        expect_close(gpu.weights[i], cpu.weights[i], 1e-8);
}

class GpuTraining : public GpuTest {};

TEST_F(GpuTraining, TrainsGptLikeTheCpu) {
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
    expect_alike(train<nn::Gpt, optim::AdamW>(kGpu, gpt, options, 4, loss),
                 train<nn::Gpt, optim::AdamW>(Device::cpu(), gpt, options, 4, loss));
}

TEST_F(GpuTraining, TrainsLeNetLikeTheCpu) {
    manual_seed(2);
    const nn::LeNet lenet;
    const Tensor images = randn({2, 1, 28, 28}, {f64}), labels = randint(0, 10, {2});
    const auto loss = [&](nn::LeNet& model, Device device) {
        return cross_entropy(model(to(images, device)), to(labels, device));
    };
    const optim::SGDOptions options{.lr = 0.05, .momentum = 0.9, .nesterov = true};
    expect_alike(train<nn::LeNet, optim::SGD>(kGpu, lenet, options, 3, loss),
                 train<nn::LeNet, optim::SGD>(Device::cpu(), lenet, options, 3, loss));
}

TEST_F(GpuTraining, TrainsBertLikeTheCpu) {
    manual_seed(3);
    const nn::BertForMaskedLM bert({.vocab_size = 23,
                                    .hidden_size = 16,
                                    .num_hidden_layers = 2,
                                    .num_attention_heads = 2,
                                    .intermediate_size = 24,
                                    .max_position_embeddings = 9});
    const Tensor ids = randint(1, 23, {3, 9}), types = randint(0, 2, {3, 9});
    Tensor labels = randint(0, 23, {3, 9}), mask = ones({3, 9}, {i64});
    labels.select(1, 4).fill_(-100);
    mask.select(0, 1).narrow(0, 5, 4).fill_(0);
    const auto loss = [&](nn::BertForMaskedLM& model, Device device) {
        return model.loss(to(ids, device), to(labels, device), to(mask, device), to(types, device));
    };
    const optim::AdamWOptions options{.lr = 1e-2, .amsgrad = true};
    expect_alike(train<nn::BertForMaskedLM, optim::AdamW>(kGpu, bert, options, 3, loss),
                 train<nn::BertForMaskedLM, optim::AdamW>(Device::cpu(), bert, options, 3, loss));
}

TEST_F(GpuTraining, TrainsLlamaLikeTheCpu) {
    manual_seed(4);
    const nn::Llama llama({.vocab_size = 19,
                           .hidden_size = 16,
                           .intermediate_size = 20,
                           .num_hidden_layers = 2,
                           .num_attention_heads = 4,
                           .num_key_value_heads = 2,
                           .attention_dropout = 0.1,
                           .checkpoint_layers = true});
    const Tensor ids = randint(0, 19, {2, 11}), labels = randint(0, 19, {2, 11});
    const auto loss = [&](nn::Llama& model, Device device) {
        return model.loss(to(ids, device), to(labels, device));
    };
    const optim::AdamOptions options{.lr = 1e-2};
    expect_alike(train<nn::Llama, optim::Adam>(kGpu, llama, options, 3, loss),
                 train<nn::Llama, optim::Adam>(Device::cpu(), llama, options, 3, loss));
}

TEST_F(GpuTraining, TrainsResNetLikeTheCpu) {
    manual_seed(5);
    const nn::ResNet resnet({.layers = {1, 1, 1, 1}, .num_classes = 10, .small_images = true});
    const Tensor images = randn({2, 3, 12, 12}, {f64}), labels = randint(0, 10, {2});
    const auto loss = [&](nn::ResNet& model, Device device) {
        return cross_entropy(model(to(images, device)), to(labels, device));
    };
    const optim::SGDOptions options{.lr = 0.01, .momentum = 0.9};
    expect_alike(train<nn::ResNet, optim::SGD>(kGpu, resnet, options, 2, loss),
                 train<nn::ResNet, optim::SGD>(Device::cpu(), resnet, options, 2, loss));
}

TEST_F(GpuTraining, MovesOptimizerStateWithItsParameters) {
    manual_seed(6);
    const nn::LeNet lenet;
    const Tensor images = randn({2, 1, 28, 28}, {f64}), labels = randint(0, 10, {2});
    const auto trained = [&](const std::vector<Device>& devices) {
        nn::LeNet model = lenet.clone();
        model.to(f64);
        optim::AdamW adamw(model.parameters(), {.lr = 0.01});
        for (const Device device : devices) {
            model.to(device);
            cross_entropy(model(to(images, device)), to(labels, device)).backward();
            adamw.step();
            adamw.zero_grad();
            for (const Tensor& p : model.parameters())
                EXPECT_EQ(adamw.state(p)->buffers[0].device(), device);
        }
        model.to(Device::cpu());
        return model.state_dict();
    };
    const Device cpu = Device::cpu();
    const auto moved = trained({cpu, kGpu, kGpu, cpu, kGpu}),
               still = trained({cpu, cpu, cpu, cpu, cpu});
    for (std::size_t i = 0; i < still.size(); ++i)
        expect_close(moved[i].second, still[i].second, 1e-9);
}

TEST_F(GpuTraining, IsReproducibleWithDeterministicAlgorithms) {
    manual_seed(7);
    const nn::Gpt gpt(
        {.vocab_size = 31, .block_size = 64, .n_layer = 1, .n_head = 2, .n_embd = 32});
    const nn::LeNet lenet;
    const Tensor ids = randint(0, 31, {4, 64}, {i64, kGpu});
    const Tensor images = randn({3, 1, 28, 28}, {.device = kGpu});
    const Tensor index = randint(0, 50, {2352}, {i64, kGpu});
    const Tensor labels = randint(0, 10, {3}, {i64, kGpu});
    const auto bits = [&] {
        nn::Gpt text = gpt.clone();
        nn::LeNet vision = lenet.clone();
        text.to(kGpu), vision.to(kGpu);
        text.loss(ids, ids).backward();
        cross_entropy(vision(images), labels).backward();
        std::vector<Tensor> all = {
            scatter_add(zeros({50}, {.device = kGpu}), 0, index, images.flatten())};
        for (const Tensor& p : text.parameters()) all.push_back(p.grad());
        for (const Tensor& p : vision.parameters()) all.push_back(p.grad());
        return all;
    };
    use_deterministic_algorithms(true);
    const std::vector<Tensor> once = bits(), again = bits();
    use_deterministic_algorithms(false);
    for (std::size_t i = 0; i < once.size(); ++i)
        expect_same_bits(to(again[i], Device::cpu()), to(once[i], Device::cpu()));
}

}  // namespace
}  // namespace axle::tests
