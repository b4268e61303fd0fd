#include "nn/layers/mlp.h"

namespace axle::nn {

Mlp::Mlp(const std::vector<std::int64_t>& widths, Activation activation) : activation_(activation) {
    if (widths.size() < 2)
        throw ValueError(str("Mlp: at least 2 widths are required: the number is ", widths.size()));
    for (std::size_t i = 0; i + 1 < widths.size(); ++i)
        layers.push_back(Linear(widths[i], widths[i + 1]));
}

Tensor Mlp::forward(Tensor x) {
    const std::size_t count = layers.size();
    if (count == 1) return layers[0](x);
    for (std::size_t i = 0; i + 2 < count; ++i) x = layers[i](x, activation_);
    return feed_forward(layers[count - 2], layers[count - 1], x, activation_);
}

}  // namespace axle::nn
