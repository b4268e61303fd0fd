// Estimates the accuracy of a classifier by cross-validation with five folds.
#include <cmath>
#include <vector>

#include <axle/axle.h>

using axle::Tensor;
using axle::data::TensorDataset;

namespace {

struct Data {
    Tensor x = axle::randn({500, 4});
    Tensor y = gt(x.select(1, 0) + x.select(1, 1) * x.select(1, 2), 0).to(axle::i64);
};

// [fold]
double train_fold(axle::Accelerator& accelerator, const TensorDataset& train_rows,
                  const TensorDataset& test_rows) {
    axle::nn::Mlp net({4, 32, 2});
    axle::optim::AdamW adamw(net.parameters(), {.lr = 1e-2});
    axle::data::DataLoader train_loader(train_rows, {.batch_size = 32, .shuffle = true});
    axle::data::DataLoader test_loader(test_rows, {.batch_size = 100});
    auto [model, optimizer, loader, evaluation] =
        accelerator.prepare(net, adamw, train_loader, test_loader);
    for (int epoch = 0; epoch < 20; ++epoch)
        for (auto& batch : loader) {
            accelerator.backward(cross_entropy(model(batch["x"]), batch["y"]));
            optimizer.step();
            optimizer.zero_grad();
        }
    model.eval();
    const axle::NoGrad no_grad;
    axle::accel::Accuracy accuracy(accelerator);
    for (auto& batch : evaluation) accuracy.update(model(batch["x"]), batch["y"]);
    return accuracy.compute();
}
// [/fold]

}  // namespace

int main() {
    axle::manual_seed(1);
    const Data data;
    // [folds]
    const std::int64_t rows = data.y.size(0), folds = 5;
    const auto order = axle::data::RandomSampler(rows, {.seed = 1}).indices();
    const auto rows_of = [&](const std::vector<std::int64_t>& indices) {
        const Tensor index = axle::tensor(indices, {std::int64_t(indices.size())});
        return TensorDataset(
            {{"x", index_select(data.x, 0, index)}, {"y", index_select(data.y, 0, index)}});
    };
    axle::Accelerator accelerator({.mixed_precision = "bf16"});
    std::vector<double> accuracies;
    for (std::int64_t fold = 0; fold < folds; ++fold) {
        std::vector<std::int64_t> train, test;
        for (std::int64_t i = 0; i < rows; ++i)
            (i % folds == fold ? test : train).push_back(order[i]);
        axle::manual_seed(100 + fold);
        accuracies.push_back(train_fold(accelerator, rows_of(train), rows_of(test)));
    }
    // [/folds]
    double mean = 0, variance = 0;
    for (const double accuracy : accuracies) mean += accuracy / folds;
    for (const double accuracy : accuracies)
        variance += (accuracy - mean) * (accuracy - mean) / (folds - 1);
    accelerator.print("accuracy ", mean, " +- ", std::sqrt(variance));
    return mean > 0.9 && std::sqrt(variance) < 0.1 ? 0 : 1;
}
