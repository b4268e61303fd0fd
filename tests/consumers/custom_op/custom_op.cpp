// How to extend Axle from outside: an operation and a layer of your own.
//
// The operation rounds weights to the few values that n bits can hold. An operation composed of
// Axle's needs no rule of its own; but rounding has slope zero almost everywhere, and nothing would
// ever be learned through it. So this one says what its gradient is to be.
#include <cmath>
#include <iostream>

#include <axle/axle.h>

using axle::Tensor;
namespace nn = axle::nn;

// --- an operation: check, allocate, launch, record

// x (f32) rounded to a multiple of step (f32, 0-d) and clamped to what n bits hold, -2^(n-1) to
// 2^(n-1) - 1 steps. The gradient passes through the rounding as if it weren't there, and stops at
// what was clamped: the straight-through estimator (Bengio et al., 2013).
Tensor fake_quantize(const Tensor& x, const Tensor& step, int bits) {
    axle::check_device("fake_quantize", {&x, &step});
    axle::check_same_dtype("fake_quantize", x, step);
    if (bits < 2 || bits > 8)
        throw axle::ValueError(axle::str("fake_quantize: bits must be 2 to 8: ", bits));
    const float low = -std::ldexp(1.0F, bits - 1);
    const float high = -low - 1;

    const Tensor row = x.detach().contiguous();  // a view may be strided, the loop is not
    Tensor y = axle::empty_like(x);
    axle::launch_cpu("fake_quantize", x.device(), [&](axle::kernels::Cpu&) {
        const float* from = row.data<float>();  // DTypeError unless it is f32
        const float unit = *step.data<float>();
        float* to = y.data<float>();
        // Spread over the threads, in pieces that do not depend on their number.
        axle::kernels::parallel_ranges(x.numel(), 32768, [=](std::int64_t i, std::int64_t end) {
            for (; i < end; ++i)
                to[i] = unit * std::fmin(std::fmax(std::nearbyint(from[i] / unit), low), high);
        });
    });

    // What the rule captures is what stays in memory until backward.
    auto rule = [x = axle::saved(x), step = axle::saved(step), low, high](const axle::Grads& dy,
                                                                          axle::Needs) {
        const Tensor steps = axle::div(x, step);
        return axle::Grads{dy[0] * (axle::ge(steps, low) * axle::le(steps, high))};
    };
    return axle::record("fake_quantize", y, {x}, rule);
}

// --- a layer: its tensors and children, one forward, one visit

// y = x quantized(W)^T + b. Training moves the full weight; the product sees the rounded one.
struct QuantizedLinear : nn::Model<QuantizedLinear> {
    nn::Linear linear;
    Tensor step;
    int bits;

    // The largest weight gets the last of the steps.
    QuantizedLinear(int in, int out, int bits_) : linear(in, out), bits(bits_) {
        step = axle::abs(linear.weight.detach()).max() / (1 << (bits - 1));
    }
    Tensor forward(const Tensor& x) {
        return axle::linear(x, fake_quantize(linear.weight, step, bits), linear.bias);
    }
    // "linear.weight" and "linear.bias" are trained; "step" is saved with them and moves with them.
    void visit(nn::Visitor& v) override { v("linear", linear), v.buffer("step", step); }
};

// --- and they go with everything else

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
