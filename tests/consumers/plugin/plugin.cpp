// A shared library that contains a model. It exports plain functions, but no symbols of Axle or
// yaml-cpp.
#include <exception>

#include <axle/accel/config/config.h>
#include <axle/axle.h>

extern "C" {

// Fits a line to the points (0, 1), (1, 3), (2, 5) with `steps` updates. Returns the mean squared
// error before the last update, or -1 on error.
[[gnu::visibility("default")]] double plugin_fit(int steps) try {
    axle::nn::Linear line(1, 1);
    axle::optim::SGD sgd(line.parameters(), {.lr = 0.1});
    const axle::Tensor x = axle::tensor({0.0, 1, 2}, {3, 1}), y = axle::tensor({1.0, 3, 5}, {3, 1});
    double last = 0;
    for (int i = 0; i < steps; ++i) {
        const axle::Tensor loss = axle::mse_loss(line(x), y);
        sgd.zero_grad();
        loss.backward();
        sgd.step();
        last = loss.item();
    }
    return last;
} catch (const std::exception&) {
    return -1;
}

// Returns the number of settings in a YAML file, or -1 if it cannot be read.
[[gnu::visibility("default")]] int plugin_settings(const char* path) try {
    return static_cast<int>(axle::accel::read_config(path).size());
} catch (const std::exception&) {
    return -1;
}
}
