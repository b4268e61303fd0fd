#include "core/ops/elementwise/promotion.h"
#include "core/ops/pointwise.h"

namespace axle {
namespace {

namespace formula = kernels::formula;

// Returns the two halves of x along dim. Throws ShapeError unless the size of dim is even.
std::pair<Tensor, Tensor> halves(const char* op, const Tensor& x, std::int64_t dim) {
    check_device(op, {&x});
    const int d = wrap_dim(op, dim, x.dim());
    const std::int64_t half = x.dim() == 0 ? 0 : x.size(d) / 2;
    if (x.dim() == 0 || x.size(d) % 2 != 0)
        throw ShapeError(str(op, ": the size of dimension ", dim, " must be even: x ", x.shape()));
    return {narrow(x, d, 0, half), narrow(x, d, half, half)};
}

}  // namespace

Tensor leaky_relu(const Tensor& x, double negative_slope) {
    return unary("leaky_relu", formula::LeakyRelu{negative_slope}, as_floating(x));
}

Tensor elu(const Tensor& x, double alpha) {
    return unary("elu", formula::Elu{.alpha = alpha, .scale = 1, .input_scale = 1}, as_floating(x));
}
// These constants give outputs with mean 0 and variance 1 for inputs with mean 0 and variance 1
// (arXiv:1706.02515).
Tensor selu(const Tensor& x) {
    return unary("selu",
                 formula::Elu{.alpha = 1.6732632423543772848170429916717,
                              .scale = 1.0507009873554804934193349852946,
                              .input_scale = 1},
                 as_floating(x));
}
Tensor celu(const Tensor& x, double alpha) {
    if (alpha == 0) throw ValueError("celu: alpha must not be 0");
    return unary("celu", formula::Elu{.alpha = alpha, .scale = 1, .input_scale = 1 / alpha},
                 as_floating(x));
}

Tensor softplus(const Tensor& x, double beta, double threshold) {
    return unary("softplus", formula::Softplus{beta, threshold}, as_wide(x));
}
Tensor logsigmoid(const Tensor& x) {
    return unary("logsigmoid", formula::LogSigmoid{}, as_floating(x));
}
Tensor mish(const Tensor& x) { return unary("mish", formula::Mish{}, as_floating(x)); }
Tensor hardswish(const Tensor& x) {
    return unary("hardswish", formula::Hardswish{}, as_floating(x));
}
Tensor hardsigmoid(const Tensor& x) {
    return unary("hardsigmoid", formula::Hardsigmoid{}, as_floating(x));
}

Tensor hardtanh(const Tensor& x, double low, double high) {
    if (low > high)
        throw ValueError(str("hardtanh: low must not be above high: low ", low, ", high ", high));
    return unary("hardtanh", formula::Clamp{low, high}, x);
}
Tensor relu6(const Tensor& x) { return unary("relu6", formula::Clamp{0, 6}, x); }

Tensor hardshrink(const Tensor& x, double lambda) {
    const profiler::OpScope scope("hardshrink");
    check_device("hardshrink", {&x});
    const Tensor y = as_floating(x);
    return masked_fill(y, le(abs(y.detach()), lambda), 0);
}
Tensor softshrink(const Tensor& x, double lambda) {
    if (lambda < 0) throw ValueError(str("softshrink: lambda must not be negative: ", lambda));
    return unary("softshrink", formula::Softshrink{lambda}, as_floating(x));
}
Tensor tanhshrink(const Tensor& x) {
    const profiler::OpScope scope("tanhshrink");
    check_device("tanhshrink", {&x});
    const Tensor y = as_floating(x);
    return sub(y, tanh(y));
}
Tensor threshold(const Tensor& x, double threshold, double value) {
    const profiler::OpScope scope("threshold");
    check_device("threshold", {&x});
    return masked_fill(x, le(x.detach(), threshold), value);
}

Tensor prelu(const Tensor& x, const Tensor& weight) {
    const profiler::OpScope scope("prelu");
    check_device("prelu", {&x, &weight});
    const std::int64_t channels = x.dim() == 0 ? 1 : x.dim() == 1 ? x.size(0) : x.size(1);
    if (weight.dim() > 1 || (weight.numel() != 1 && weight.numel() != channels))
        throw ShapeError(str("prelu: weight must be [1]",
                             channels == 1 ? "" : str(" or [", channels, "]"), ": x ", x.shape(),
                             ", weight ", weight.shape()));
    Tensor factor = weight;
    if (weight.numel() != 1 && x.dim() > 2) {
        Shape shape;
        for (int d = 0; d < x.dim(); ++d) shape.push_back(d == 1 ? channels : 1);
        factor = reshape(weight, shape);
    } else if (weight.numel() == 1) {
        factor = reshape(weight, {});
    }
    return where(gt(x.detach(), 0), x, mul(factor, x));
}

Tensor glu(const Tensor& x, std::int64_t dim) {
    const profiler::OpScope scope("glu");
    const auto [a, b] = halves("glu", x, dim);
    return mul(a, sigmoid(b));
}
Tensor swiglu(const Tensor& x, std::int64_t dim) {
    const profiler::OpScope scope("swiglu");
    const auto [a, b] = halves("swiglu", x, dim);
    return mul(a, silu(b));
}
Tensor geglu(const Tensor& x, std::int64_t dim) {
    const profiler::OpScope scope("geglu");
    const auto [a, b] = halves("geglu", x, dim);
    return mul(a, gelu(b));
}

Tensor softmin(const Tensor& x, std::int64_t dim) {
    const profiler::OpScope scope("softmin");
    check_device("softmin", {&x});
    check_floating("softmin", x);
    wrap_dim("softmin", dim, x.dim());
    return softmax(neg(x), dim);
}

Tensor gumbel_softmax(const Tensor& logits, double tau, bool hard, std::int64_t dim) {
    const profiler::OpScope scope("gumbel_softmax");
    check_device("gumbel_softmax", {&logits});
    check_floating("gumbel_softmax", logits);
    if (!(tau > 0)) throw ValueError(str("gumbel_softmax: tau must be positive: ", tau));
    wrap_dim("gumbel_softmax", dim, logits.dim());
    // If u is uniform in (0, 1), -log(u) has an exponential and -log(-log(u)) a Gumbel
    // distribution.
    Tensor u = Tensor::empty(logits.shape(), {.dtype = f32, .device = logits.device()});
    u.uniform_(std::numeric_limits<float>::min(), 1);
    if (logits.dtype() == f64) u = to(u, f64);
    const Tensor noise = to(neg(log(neg(log(u)))), logits.dtype());
    const Tensor soft = softmax(mul(add(logits, noise), 1 / tau), dim);
    if (!hard || logits.dim() == 0) return soft;
    const Tensor largest = argmax(soft.detach(), dim, true);
    const Tensor one = scatter(zeros_like(soft.detach()), dim, largest, 1.0);
    return add(sub(one, soft.detach()), soft);  // has the value of `one` and the gradient of `soft`
}

}  // namespace axle
