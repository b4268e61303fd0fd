// Checks of training, which compare several processes with one process that reads all data.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/ops.h"
#include "core/random.h"
#include "data/dataset.h"
#include "data/loading/loader.h"
#include "kernels/error.h"
#include "nn/layers/linear.h"
#include "nn/module.h"
#include "optim/sgd.h"
#include "tools/axle/self_checks.h"

namespace axle::launcher {
namespace {

struct Net : nn::Model<Net> {
    nn::Linear hidden{4, 16}, out{16, 1};
    Tensor forward(const Tensor& x) { return out(tanh(hidden(x))); }
    void visit(nn::Visitor& v) override { v("hidden", hidden), v("out", out); }
};

constexpr std::int64_t kSteps = 5, kEpochs = 2, kTrainingBatch = 4;
constexpr std::uint64_t kSeed = 42;
constexpr optim::SGDOptions kOptions = {.lr = 0.1, .momentum = 0.9};

data::TensorDataset samples(std::int64_t n) {
    std::vector<double> x, y;
    for (std::int64_t i = 0; i < n; ++i) {
        for (std::int64_t j = 0; j < 4; ++j) x.push_back(std::sin(static_cast<double>(i * 4 + j)));
        y.push_back(std::cos(static_cast<double>(i)));
    }
    return data::TensorDataset(Tree{{"x", tensor(x, {n, 4})}, {"y", tensor(y, {n, 1})}});
}

template <class Backward>
void train(Net& net, optim::SGD& optimizer, data::DataLoader& loader, Backward&& backward) {
    for (std::int64_t epoch = 0; epoch < kEpochs; ++epoch)
        for (auto& batch : loader) {
            backward(mse_loss(net(batch["x"]), batch["y"]));
            optimizer.step();
            optimizer.zero_grad();
        }
}

std::vector<double> weights(const Net& net) {
    std::vector<double> all;
    for (const Tensor& parameter : net.parameters())
        for (const double value : numbers(parameter)) all.push_back(value);
    return all;
}

std::vector<double> trained_alone(std::int64_t processes, bool shuffle) {
    manual_seed(3);
    Net net;
    optim::SGD optimizer(net.parameters(), kOptions);
    data::DataLoader loader(
        samples(kSteps * kTrainingBatch * processes),
        {.batch_size = kTrainingBatch * processes, .shuffle = shuffle, .seed = kSeed});
    train(net, optimizer, loader, [](const Tensor& loss) { loss.backward(); });
    return weights(net);
}

struct Setting {
    bool split_batches = false, seedable_sampler = false;
    std::string precision = "no";
    double tolerance = 1e-4;
};

// Trains on all processes and returns the weights. Ranks start with different weights, so that the
// result is right only if prepare() broadcasts the weights of rank 0.
std::vector<double> trained_together(const PartialState& state, const Setting& setting) {
    const std::int64_t processes = state.num_processes();
    accel::AcceleratorOptions options = options_for(state);
    options.mixed_precision = setting.precision;
    options.dataloader_config =
        accel::DataLoaderConfiguration{.split_batches = setting.split_batches,
                                       .use_seedable_sampler = setting.seedable_sampler,
                                       .data_seed = kSeed};
    // The scale is so small that no step is skipped.
    options.grad_scaler_kwargs = accel::GradScalerKwargs{.init_scale = 128};
    Accelerator trainer(std::move(options));

    manual_seed(3 + static_cast<std::uint64_t>(state.process_index()));
    Net net;
    optim::SGD optimizer(net.parameters(), kOptions);
    data::DataLoader loader(
        samples(kSteps * kTrainingBatch * processes),
        {.batch_size = setting.split_batches ? kTrainingBatch * processes : kTrainingBatch,
         .shuffle = setting.seedable_sampler,
         .seed = 5});
    trainer.prepare(net, optimizer, loader);
    train(net, optimizer, loader, [&](const Tensor& loss) { trainer.backward(loss); });
    return weights(net);
}

void check_training(const PartialState& state, const Setting& setting) {
    const std::vector<double> wanted =
        trained_alone(state.num_processes(), setting.seedable_sampler);
    const std::vector<double> got = trained_together(state, setting);
    double worst = 0;
    for (std::size_t i = 0; i < wanted.size(); ++i)
        worst = std::max(worst, std::abs(wanted[i] - got[i]));
    expect(worst < setting.tolerance,
           str("weights must differ by less than ", setting.tolerance,
               " from the weights of one process: they differ by ", worst));
    const std::vector<double> all = of_all(state, got);
    for (std::size_t i = 0; i < all.size(); ++i)
        expect(all[i] == got[i % got.size()],
               str("all processes must have the same weights: weight ", i % got.size(), " is ",
                   got[i % got.size()], " on this process and ", all[i], " on process ",
                   i / got.size()));
}

}  // namespace

std::vector<Check> training_checks() {
    const auto check = [](const char* name, Setting setting) {
        return Check{name, [setting](const PartialState& s) { check_training(s, setting); }};
    };
    return {check("training like one process", {}),
            check("training with split_batches", {.split_batches = true}),
            check("training with a seedable sampler", {.seedable_sampler = true}),
            check("training with split_batches and a seedable sampler",
                  {.split_batches = true, .seedable_sampler = true}),
            check("training in fp16", {.precision = "fp16", .tolerance = 0.02}),
            check("training in bf16", {.precision = "bf16", .tolerance = 0.1})};
}

}  // namespace axle::launcher
