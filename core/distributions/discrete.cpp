#include "core/distributions/discrete.h"

#include <limits>

#include "core/check.h"

namespace axle::distributions {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// Returns the parameter that is defined. Throws ValueError unless exactly one is defined, and
// DTypeError unless it is floating.
const Tensor& only_parameter(const char* distribution, const ProbsOrLogits& p) {
    if (p.probs.defined() == p.logits.defined())
        throw ValueError(str(distribution, ": exactly one of probs and logits must be given: ",
                             p.probs.defined() ? "both are given" : "neither is given"));
    const Tensor& x = p.probs.defined() ? p.probs : p.logits;
    check_floating(distribution, x, p.probs.defined() ? "probs" : "logits");
    return x;
}

// Returns the probabilities limited to [epsilon, 1 - epsilon], so that their logits are finite.
Tensor limited(const Tensor& probs) {
    const double epsilon = probs.dtype() == f64   ? 0x1p-52
                           : probs.dtype() == f32 ? 0x1p-23
                           : probs.dtype() == f16 ? 0x1p-10
                                                  : 0x1p-7;
    return clamp(probs, epsilon, 1 - epsilon);
}

// Returns the least finite number of f64, f16 or bf16. For f32, returns the number of bf16.
double lowest(DType dtype) {
    return dtype == f64   ? -std::numeric_limits<double>::max()
           : dtype == f16 ? -65504.0
                          : -3.3895313892515355e38;
}

}  // namespace

Categorical::Categorical(const ProbsOrLogits& p, bool validate_args)
    : Distribution("Categorical", validate_args) {
    const Tensor& x = only_parameter("Categorical", p);
    if (x.dim() == 0)
        throw ShapeError(
            str("Categorical: the parameter must have at least one dimension: its shape is ",
                x.shape()));
    if (p.probs.defined()) {
        if (validate_args) {
            const Tensor total = sum(x.detach(), -1);
            check_condition("Categorical", "probs", "at least 0", ge(x.detach(), 0), x);
            check_condition("Categorical", "the sum of probs", "positive", gt(total, 0), total);
        }
        probs = div(x, sum(x, -1, true));
        if (validate_args) check_not_nan("Categorical", "probs / (the sum of probs)", probs);
        logits = log(limited(probs));
    } else {
        if (validate_args) check_not_nan("Categorical", "logits", x);
        logits = sub(x, logsumexp(x, -1, true));
        // Infinite logits, or only logits of -infinity, give NaN.
        if (validate_args) check_not_nan("Categorical", "logits - logsumexp(logits)", logits);
        probs = softmax(logits, -1);
    }
    Shape batch = x.shape();
    batch.erase(batch.size() - 1);
    set_shapes(batch);
}

Tensor Categorical::draw(const Shape& sample_shape) const {
    const std::int64_t n = probs.size(-1), count = numel(sample_shape);
    const Shape shape = sample_size(sample_shape);
    if (numel(shape) == 0) return Tensor::empty(shape, {.dtype = i64, .device = probs.device()});
    const Tensor indices = multinomial(reshape(probs.detach(), {-1, n}), count, true);
    return reshape(contiguous(transpose(indices, 0, 1)), shape);
}

Tensor Categorical::log_prob(const Tensor& value) const {
    check_index_dtype("Categorical", value, "the value");
    const std::int64_t n = logits.size(-1);
    check_value(value, "at least 0 and below the number of probabilities",
                logical_and(ge(value, 0), lt(value, n)));
    const Shape shape = broadcast_shapes("Categorical", value.shape(), batch_shape());
    Shape rows = shape;
    rows.push_back(n);
    const Tensor index = unsqueeze(expand(value, shape), -1);
    return squeeze(gather(expand(logits, rows), -1, index), -1);
}

Tensor Categorical::entropy() const {
    return neg(sum(mul(clamp(logits, lowest(logits.dtype()), {}), probs), -1));
}

Tensor Categorical::mean() const {
    return full(batch_shape(), kNaN, {.dtype = probs.dtype(), .device = probs.device()});
}
Tensor Categorical::variance() const { return mean(); }

Bernoulli::Bernoulli(const ProbsOrLogits& p, bool validate_args)
    : Distribution("Bernoulli", validate_args) {
    const Tensor& x = only_parameter("Bernoulli", p);
    if (p.probs.defined()) {
        if (validate_args)
            check_condition("Bernoulli", "probs", "in [0, 1]",
                            logical_and(ge(x.detach(), 0), le(x.detach(), 1)), x);
        probs = x;
        const Tensor inner = limited(x);
        logits = sub(log(inner), log1p(neg(inner)));
    } else {
        if (validate_args) check_not_nan("Bernoulli", "logits", x);
        logits = x;
        probs = sigmoid(x);
    }
    set_shapes(x.shape());
}

Tensor Bernoulli::draw(const Shape& sample_shape) const {
    return bernoulli(expand(probs.detach(), sample_size(sample_shape)));
}

Tensor Bernoulli::log_prob(const Tensor& value) const {
    check_value(value, "0 or 1", logical_or(eq(value.detach(), 0), eq(value.detach(), 1)));
    const Shape shape = broadcast_shapes("Bernoulli", value.shape(), batch_shape());
    return neg(binary_cross_entropy_with_logits(expand(logits, shape), expand(value, shape),
                                                {.reduction = Reduction::none}));
}

Tensor Bernoulli::entropy() const {
    return binary_cross_entropy_with_logits(logits, probs, {.reduction = Reduction::none});
}

Tensor Bernoulli::variance() const { return mul(probs, sub(1, probs)); }

}  // namespace axle::distributions
