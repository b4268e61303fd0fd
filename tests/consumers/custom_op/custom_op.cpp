// An example of extending Axle in another project with a custom operation and a custom layer.
//
// The operation rounds weights to the values that n bits can represent. An operation composed of
// Axle's operations needs no gradient rule. The gradient of rounding, however, is zero almost
// everywhere, so the weights would not change; therefore this operation defines its own gradient.
#include <cmath>
#include <iostream>

#include <axle/axle.h>
#include <axle/core/launch.h>

using axle::Tensor;
namespace nn = axle::nn;

// --- an operation: check, allocate, launch, record

// Rounds x (f32) to a multiple of `step` (f32, 0-d) and clamps it to the range of n = `bits` bits,
// -2^(n-1) to 2^(n-1) - 1 steps. The gradient ignores the rounding and is zero where x was clamped.
// This is the straight-through estimator (Bengio et al., 2013).
Tensor fake_quantize(const Tensor& x, const Tensor& step, int bits) {
    axle::check_device("fake_quantize", {&x, &step});
    axle::check_same_dtype("fake_quantize", x, step, "x", "step");
    if (bits < 2 || bits > 8)
        throw axle::ValueError(axle::str("fake_quantize: bits must be 2 to 8: ", bits));
    const float low = -std::ldexp(1.0F, bits - 1);
    const float high = -low - 1;

    const Tensor row = x.detach().contiguous();  // the loop needs contiguous memory
    Tensor y = axle::empty_like(x);
    axle::launch_cpu("fake_quantize", x.device(), [&](axle::kernels::Cpu&) {
        const float* from = row.data<float>();  // throws DTypeError unless x is f32
        const float unit = *step.data<float>();
        float* to = y.data<float>();
        // Runs on all threads. The chunks do not depend on the number of threads.
        axle::kernels::parallel_ranges(x.numel(), 32768, [=](std::int64_t i, std::int64_t end) {
            for (; i < end; ++i)
                to[i] = unit * std::fmin(std::fmax(std::nearbyint(from[i] / unit), low), high);
        });
    });

    // The tensors captured by the rule stay in memory until backward.
    auto rule = [x = axle::saved(x), step = axle::saved(step), low, high](const axle::Grads& dy,
                                                                          axle::Needs) {
        const Tensor steps = axle::div(x, step);
        return axle::Grads{dy[0] * (axle::ge(steps, low) * axle::le(steps, high))};
    };
    return axle::record("fake_quantize", y, {x}, rule);
}

// --- a layer: tensors, child layers, forward() and visit()

// A linear layer with rounded weights: y = x quantized(W)^T + b. Training updates the
// full-precision weight; the product uses the rounded weight.
struct QuantizedLinear : nn::Model<QuantizedLinear> {
    nn::Linear linear;
    Tensor step;
    int bits;

    // Sets the step so that the largest absolute value of the initial weights is 2^(bits-1) steps.
    QuantizedLinear(int in, int out, int bits_) : linear(in, out), bits(bits_) {
        step = axle::abs(linear.weight.detach()).max() / (1 << (bits - 1));
    }
    Tensor forward(const Tensor& x) {
        return axle::linear(x, fake_quantize(linear.weight, step, bits), linear.bias);
    }
    // "linear.weight" and "linear.bias" are trained; "step" is saved and moved to devices with
    // them.
    void visit(nn::Visitor& v) override { v("linear", linear), v.buffer("step", step); }
};

// --- a program that trains the layer

int main() {
    axle::manual_seed(7);
    const Tensor x = axle::randn({256, 2});
    const Tensor target = axle::tanh(x.select(1, 0) * x.select(1, 1)).unsqueeze(1);

    nn::Sequential net{QuantizedLinear(2, 32, 4), axle::relu, QuantizedLinear(32, 1, 4)};
    for (const auto& [name, tensor] : net.state_dict())
        std::cout << name << ' ' << tensor.shape() << '\n';

    axle::optim::AdamW optimizer(net.parameters(), {.lr = 1e-2});
    double first = 0, last = 0;
    for (int i = 0; i < 300; ++i) {
        const Tensor loss = axle::mse_loss(net(x), target);
        loss.backward();
        optimizer.step();
        optimizer.zero_grad();
        last = loss.item();
        if (i == 0) first = last;
    }
    std::cout << "loss with 4-bit weights: " << first << " at first, " << last << " at last\n";
    return last < 0.1 * first ? 0 : 1;
}
