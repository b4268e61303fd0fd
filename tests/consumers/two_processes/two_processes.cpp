// A program of another project that uses Axle. The installed `axle launch` starts it. The processes
// train one model on different data; the result must be the same as with one process and all data.
#include <cmath>
#include <exception>
#include <iostream>

#include <axle/axle.h>

namespace {

// Returns the weight of y = w x after one step of SGD from w = 0. The samples have x = `begin` to
// `end` - 1 and y = 3 x.
double reference(int begin, int end) {
    double gradient = 0;
    for (int x = begin; x < end; ++x) gradient += 2.0 * x * (0 - 3.0 * x);
    return -0.01 * gradient / (end - begin);
}

bool train() {
    axle::Accelerator accelerator({.cpu = true});
    axle::nn::Linear line(1, 1, {.bias = false});
    {
        const axle::NoGrad no_grad;
        line.weight.zero_();
    }
    axle::optim::SGD sgd(line.parameters(), {.lr = 0.01});
    const axle::Tensor x = axle::arange(1, 9, 1, {.dtype = axle::f32}).unsqueeze(1);
    const axle::data::TensorDataset rows({{"x", x}, {"y", x * 3}});
    axle::data::DataLoader batches(rows, {.batch_size = 4});
    auto [model, optimizer, loader] = accelerator.prepare(line, sgd, batches);

    int steps = 0;
    for (auto& batch : loader) {
        accelerator.backward(axle::mse_loss(model(batch["x"]), batch["y"]));
        optimizer.step();
        optimizer.zero_grad();
        ++steps;
    }
    const axle::Tensor ranks = accelerator.gather(
        axle::full({1}, double(accelerator.process_index()), {.dtype = axle::f32}));
    const double weight = line.weight.item(), expected = reference(1, 9);
    const bool is_right = accelerator.num_processes() == 2 && steps == 1 && ranks.numel() == 2 &&
                          ranks.sum().item() == 1 && std::abs(weight - expected) < 1e-5;
    accelerator.print(is_right ? "right" : "wrong", ": ", accelerator.num_processes(),
                      " processes, ", steps, " step, weight ", weight, ", expected ", expected);
    return is_right;
}

}  // namespace

int main() {
    try {
        return train() ? 0 : 1;
    } catch (const std::exception& error) {
        std::cerr << error.what() << '\n';
        return 1;
    }
}
