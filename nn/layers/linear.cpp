#include "nn/layers/linear.h"

#include <cmath>

#include "nn/init.h"

namespace axle::nn {

Linear::Linear(std::int64_t in, std::int64_t out, LinearOptions options) : options_(options) {
    if (in < 1 || out < 1)
        throw ValueError(str("Linear: sizes must be positive: in ", in, ", out ", out));
    const double bound = 1 / std::sqrt(static_cast<double>(in));
    weight = init::parameter(options.transposed ? Shape{in, out} : Shape{out, in});
    init::uniform_(weight, -bound, bound);
    if (!options.bias) return;
    bias = init::parameter({out});
    init::uniform_(bias, -bound, bound);
}

Linear::Linear(const Linear& other)
    : Model(other),
      weight(other.weight),
      bias(other.bias),
      policy(other.policy == nullptr ? nullptr : other.policy->clone()),
      options_(other.options_) {}

namespace {

// Returns the weight as [out, in].
Tensor matrix_of(const Linear& layer) {
    return layer.options().transposed ? layer.weight.t() : layer.weight;
}

}  // namespace

Tensor Linear::forward(const Tensor& x, Activation activation) {
    if (policy != nullptr) return policy->multiply(*this, x, activation);
    return linear(x, matrix_of(*this), bias, activation);
}

void Linear::visit(Visitor& v) {
    v("weight", weight);
    v("bias", bias);
    if (policy != nullptr) v("policy", *policy);
}

Tensor apply_activation(const Tensor& x, Activation activation) {
    switch (activation) {
        case Activation::none:
            return x;
        case Activation::relu:
            return relu(x);
        case Activation::gelu:
            return gelu(x);
        case Activation::gelu_tanh:
            return gelu(x, Gelu::tanh);
        case Activation::silu:
            return silu(x);
    }
    return x;
}

Tensor feed_forward(Linear& first, Linear& second, const Tensor& x, Activation activation) {
    const auto is_extended = [](const Linear& layer) {
        return layer.policy || layer.hooks() || layer.call_hooks() || layer.layer_cast() ||
               layer.has_registered_hooks();
    };
    if (is_extended(first) || is_extended(second)) return second(first(x, activation));
    return axle::feed_forward(x, matrix_of(first), first.bias, matrix_of(second), second.bias,
                              activation);
}

}  // namespace axle::nn
