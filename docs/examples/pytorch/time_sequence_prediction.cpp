// Trains two LSTM cells with LBFGS to predict the next value of sine waves, and continues the waves
// from the model's own predictions. The program of the same name in pytorch/examples continues
// waves of 1000 values by 1000 more.
#include <iostream>
#include <vector>

#include <axle/axle.h>

using axle::Tensor;
namespace nn = axle::nn;

// [model]
class Sequence : public nn::Model<Sequence> {
  public:
    // Returns predictions [waves, steps + future]: the next value after each value of x [waves,
    // steps], and `future` further values. The last `future` predictions depend on predicted
    // values.
    Tensor forward(const Tensor& x, std::int64_t future = 0) {
        std::vector<Tensor> outputs;
        nn::LSTMState first, second;
        for (std::int64_t t = 0; t < x.size(1) + future; ++t) {
            first = lstm1(t < x.size(1) ? x.slice(1, t, t + 1) : outputs.back(), first);
            second = lstm2(first.h, second);
            outputs.push_back(linear(second.h));
        }
        return cat(outputs, 1);
    }
    void visit(nn::Visitor& v) override {
        v("lstm1", lstm1), v("lstm2", lstm2), v("linear", linear);
    }

    nn::LSTMCell lstm1{1, 16}, lstm2{16, 16};
    nn::Linear linear{16, 1};
};
// [/model]

// Returns waves with the same period and random phases, [waves, steps].
Tensor sine_waves(std::int64_t waves, std::int64_t steps) {
    const Tensor phase = axle::randint(-80, 80, {waves, 1});
    return sin((axle::arange(steps) + phase).to(axle::f64) / 5.0);
}

int main() {
    axle::manual_seed(0);
    constexpr std::int64_t kSteps = 60, kFuture = 60;
    const Tensor waves = sine_waves(24, kSteps + 1);
    const Tensor input = waves.slice(1, 0, kSteps), target = waves.slice(1, 1, kSteps + 1);

    Sequence model;
    model.to(axle::f64);
    // [step]
    axle::optim::LBFGS optimizer(model.parameters(), {.lr = 0.8});
    double loss = 0;
    for (int step = 0; step < 10; ++step) {
        const Tensor first = optimizer.step([&] {
            optimizer.zero_grad();
            Tensor error = mse_loss(model(input), target);
            error.backward();
            return error;
        });
        loss = first.item();
        std::cout << "step " << step << ": loss " << loss << '\n';
    }
    // [/step]

    const axle::NoGrad no_grad;
    const Tensor unseen = sine_waves(8, kSteps + kFuture);
    const Tensor predicted = model(unseen.slice(1, 0, kSteps), kFuture - 1);
    const double error = mse_loss(predicted.slice(1, kSteps - 1), unseen.slice(1, kSteps)).item();
    std::cout << "error of the continued waves: " << error << '\n';
    return loss < 1e-2 && error < 0.1 ? 0 : 1;
}
