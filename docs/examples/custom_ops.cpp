// Defines custom ops: one is composed of other ops, and one has two outputs and a gradient rule.
#include <cmath>

#include <axle/axle.h>

using axle::Tensor;

namespace {

// [composed]
// Returns the pinball loss, which is smallest if x is the given quantile of the targets.
Tensor pinball_loss(const Tensor& x, const Tensor& target, double quantile) {
    const Tensor difference = target - x;
    return maximum(difference * quantile, difference * (quantile - 1)).mean();
}
// [/composed]

// [two_outputs]
// Returns the sum and the difference of two tensors of the same shape.
std::pair<Tensor, Tensor> butterfly(const Tensor& a, const Tensor& b) {
    Tensor sum, difference;
    {
        const axle::NoGrad no_grad;  // the rule replaces the rules of these ops
        sum = a + b, difference = a - b;
    }
    const auto rule = [](const axle::Grads& dy, axle::Needs) -> axle::Grads {
        if (!dy[0].defined()) return {dy[1], -dy[1]};
        if (!dy[1].defined()) return {dy[0], dy[0]};
        return {dy[0] + dy[1], dy[0] - dy[1]};
    };
    axle::record_outputs("butterfly", {&sum, &difference}, {a, b}, rule);
    return {sum, difference};
}
// [/two_outputs]

bool is_near(const Tensor& a, const Tensor& b) { return (a - b).abs().max().item() < 1e-6; }

}  // namespace

int main() {
    axle::manual_seed(1);
    Tensor x = axle::randn({64}) * 2.0f;
    x.set_requires_grad();
    pinball_loss(x, axle::zeros({64}), 0.75).backward();
    const bool is_pinball = is_near(x.grad(), where(x.detach() > 0, 0.25, -0.75) / 64);

    Tensor a = axle::randn({4}), b = axle::randn({4});
    a.set_requires_grad(), b.set_requires_grad();
    const auto [sum, difference] = butterfly(a, b);
    (sum * sum + difference * 3.0f).sum().backward();
    const Tensor twice = 2.0f * (a + b).detach();
    const bool is_butterfly = is_near(a.grad(), twice + 3.0f) && is_near(b.grad(), twice - 3.0f);

    Tensor only = axle::randn({4});
    only.set_requires_grad();
    butterfly(only, axle::ones({4})).second.sum().backward();
    return is_pinball && is_butterfly && is_near(only.grad(), axle::ones({4})) ? 0 : 1;
}
