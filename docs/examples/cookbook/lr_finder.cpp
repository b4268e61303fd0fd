// Finds a learning rate by a short run with increasing rates, then trains with it.
#include <cmath>
#include <vector>

#include <axle/axle.h>

using axle::Tensor;

namespace {

axle::data::TensorDataset samples() {
    const Tensor x = axle::randn({1024, 8});
    const Tensor y = axle::tanh(x.select(1, 0) * x.select(1, 1)) + x.select(1, 2);
    return axle::data::TensorDataset({{"x", x}, {"y", y.unsqueeze(1)}});
}

}  // namespace

int main() {
    axle::manual_seed(1);
    axle::Accelerator accelerator;
    axle::nn::Mlp net({8, 64, 1});
    axle::data::DataLoader batches(samples(), {.batch_size = 64, .shuffle = true});
    auto [model, loader] = accelerator.prepare(net, batches);

    // [find]
    // Returns a tenth of the rate with the lowest smoothed loss. Does not change the model.
    const auto find_lr = [&](double lowest, double highest, int steps) {
        axle::nn::Mlp trial = model.clone();
        axle::optim::AdamW optimizer(trial.parameters());
        double smoothed = 0, best_loss = INFINITY, best_rate = lowest;
        for (int step = 0; step < steps;)
            for (auto& batch : loader) {
                const double rate = lowest * std::pow(highest / lowest, double(step) / steps);
                optimizer.param_groups()[0].lr = rate;
                const Tensor loss = mse_loss(trial(batch["x"]), batch["y"]);
                smoothed = step == 0 ? loss.item() : 0.9 * smoothed + 0.1 * loss.item();
                if (smoothed < best_loss) best_loss = smoothed, best_rate = rate;
                if (++step == steps || !(smoothed < 4 * best_loss)) return best_rate / 10;
                loss.backward();
                optimizer.step();
                optimizer.zero_grad();
            }
        return best_rate / 10;
    };
    const double rate = find_lr(1e-5, 10, 200);
    // [/find]
    accelerator.print("learning rate ", rate);

    axle::optim::AdamW adamw(net.parameters(), {.lr = rate});
    auto& optimizer = accelerator.prepare(adamw);
    Tensor loss;
    for (int epoch = 0; epoch < 20; ++epoch)
        for (auto& batch : loader) {
            loss = mse_loss(model(batch["x"]), batch["y"]);
            accelerator.backward(loss);
            optimizer.step();
            optimizer.zero_grad();
        }
    accelerator.print("loss ", loss.item());
    return rate > 1e-4 && rate < 0.3 && loss.item() < 0.1 ? 0 : 1;
}
