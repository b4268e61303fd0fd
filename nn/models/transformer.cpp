#include "nn/models/transformer.h"

#include "core/autograd/autograd.h"
#include "nn/init.h"
#include "nn/models/extension_points.h"

namespace axle::nn {

Linear normal_linear(std::int64_t in, std::int64_t out, double std, LinearOptions options) {
    Linear layer(in, out, options);
    init::normal_(layer.weight, 0, std);
    if (options.bias) init::zeros_(layer.bias);
    return layer;
}

Embedding normal_embedding(std::int64_t rows, std::int64_t width, double std,
                           std::optional<std::int64_t> padding_idx) {
    Embedding table(rows, width, padding_idx);
    init::normal_(table.weight, 0, std);
    if (!padding_idx) return table;
    const NoGrad no_grad;
    Tensor row = table.weight.select(0, *padding_idx);
    init::zeros_(row);
    return table;
}

Tensor padding_mask(const char* who, const Tensor& attention_mask, const Tensor& ids) {
    if (!attention_mask.defined()) return {};
    if (attention_mask.shape() != ids.shape())
        throw ShapeError(str(who, ": shapes differ: attention_mask ", attention_mask.shape(),
                             ", ids ", ids.shape()));
    const Tensor attends =
        attention_mask.dtype() == boolean ? attention_mask : ne(attention_mask, 0);
    return attends.unsqueeze(1).unsqueeze(1);
}

Tensor LanguageHead::head_logits(const Tensor& x) const {
    if (head_policy) return head_policy->logits(x, head_weight(), head_bias());
    return linear(x, head_weight(), head_bias());
}

Tensor LanguageHead::head_loss(const Tensor& x, const Tensor& targets) const {
    if (head_policy) return head_policy->loss(x, head_weight(), head_bias(), targets);
    if (!head_bias().defined()) return linear_cross_entropy(x, head_weight(), targets);
    return cross_entropy(linear(x, head_weight(), head_bias()), targets);
}

}  // namespace axle::nn
