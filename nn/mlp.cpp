#include "nn/mlp.h"

namespace axle::inline v0::nn {

Mlp::Mlp(const std::vector<std::int64_t>& widths, Activation activation) : activation_(activation) {
    if (widths.size() < 2) throw ValueError(str("Mlp: needs at least two widths: ", widths.size()));
    for (std::size_t i = 0; i + 1 < widths.size(); ++i)
        layers.push_back(Linear(widths[i], widths[i + 1]));
}

Tensor Mlp::forward(Tensor x) {
    for (std::size_t i = 0; i < layers.size(); ++i)
        x = layers[i](x, i + 1 < layers.size() ? activation_ : Activation::none);
    return x;
}

}  // namespace axle::inline v0::nn
