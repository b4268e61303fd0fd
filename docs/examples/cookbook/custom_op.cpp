// Defines the op log_cosh(x) = log(cosh(x)) with its gradient, and checks the gradient.
#include <algorithm>
#include <cmath>
#include <iostream>
#include <numbers>

#include <axle/axle.h>
#include <axle/core/launch.h>

using axle::Tensor;

namespace {

// [kernel]
template <class T>
void log_cosh_kernel(const T* x, T* y, std::int64_t n) {
    axle::kernels::parallel_ranges(n, 4096, [=](std::int64_t i, std::int64_t end) {
        for (; i < end; ++i) {
            const T a = std::abs(x[i]);
            y[i] = a + std::log1p(std::exp(-2 * a)) - T(std::numbers::ln2);
        }
    });
}
// [/kernel]

// [op]
Tensor log_cosh(const Tensor& input) {
    const Tensor x = input.detach().contiguous();
    Tensor y = empty_like(x);
    axle::launch_cpu("log_cosh", x.device(), [&](axle::kernels::Cpu&) {
        if (x.dtype() == axle::f64)
            log_cosh_kernel(x.data<double>(), y.data<double>(), x.numel());
        else
            log_cosh_kernel(x.data<float>(), y.data<float>(), x.numel());  // throws unless f32
    });
    return axle::record("log_cosh", y, {input},
                        [x = axle::saved(input)](const axle::Grads& dy, axle::Needs) {
                            return axle::Grads{dy[0] * tanh(x)};
                        });
}
// [/op]

// [check]
// Returns the largest difference between the gradient of sum(f(x) * weights) and its estimate from
// finite differences.
template <class F>
double gradient_error(const F& f, const Tensor& point) {
    Tensor x = point.to(axle::f64).clone();
    x.set_requires_grad();
    const Tensor weights = axle::randn(f(x).shape()).to(axle::f64);
    const Tensor gradient = axle::autograd::grad({(f(x) * weights).sum()}, {x})[0];

    const axle::NoGrad no_grad;
    const double step = 1e-5;
    double error = 0;
    for (std::int64_t i = 0; i < x.numel(); ++i) {
        double* element = x.data<double>() + i;
        const double before = *element;
        const auto loss_at = [&](double value) {
            *element = value;
            return (f(x) * weights).sum().item();
        };
        const double estimate = (loss_at(before + step) - loss_at(before - step)) / (2 * step);
        *element = before;
        error = std::max(error, std::abs(estimate - gradient.data<double>()[i]));
    }
    return error;
}
// [/check]

}  // namespace

int main() {
    axle::manual_seed(1);
    const Tensor x = axle::randn({5, 7}) * 3.0f;
    const auto first = [](const Tensor& t) { return log_cosh(t); };
    const auto second = [](const Tensor& t) {
        Tensor leaf = t.requires_grad() ? t : t.detach().set_requires_grad();
        const axle::GradMode enabled(true);
        return axle::autograd::grad({log_cosh(leaf).sum()}, {leaf}, {}, {.create_graph = true})[0];
    };
    std::cout << "errors of the gradients: " << gradient_error(first, x) << ' '
              << gradient_error(second, x) << '\n';

    axle::nn::Sequential net{axle::nn::Linear(7, 16), log_cosh, axle::nn::Linear(16, 1)};
    net(x).sum().backward();
    return gradient_error(first, x) < 1e-6 && gradient_error(second, x) < 1e-6 &&
                   net.parameters()[0].grad().defined()
               ? 0
               : 1;
}
