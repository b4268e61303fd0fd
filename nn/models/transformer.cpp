#include "nn/models/transformer.h"

#include <algorithm>
#include <string>
#include <vector>

#include "core/autograd/autograd.h"
#include "nn/init.h"
#include "nn/layers/sequence_policy.h"
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

TokenPositions token_positions(const char* who, const Tensor& position_ids, const Tensor& ids,
                               std::optional<std::int64_t> limit) {
    if (!position_ids.defined()) return {};
    if (position_ids.shape() != ids.shape() && position_ids.shape() != Shape{1, ids.size(1)})
        throw ShapeError(str(who, ": position_ids must have the shape of the ids or [1, time]: ",
                             "position_ids ", position_ids.shape(), ", ids ", ids.shape()));
    if (position_ids.dtype() != i64 && position_ids.dtype() != i32)
        throw DTypeError(
            str(who, ": position_ids must be i64 or i32: they are ", position_ids.dtype()));
    const NoGrad no_grad;
    const Tensor own = expand(position_ids.to(ids.device()).to(i64), ids.shape()).contiguous();
    const SequencePolicy* const policy = sequence_policy();
    const Tensor whole =
        (policy == nullptr ? own : policy->whole_sequences(own)).cpu().contiguous();
    const std::int64_t rows = whole.size(0), time = whole.size(1);
    const auto* const position = whole.data<std::int64_t>();
    std::vector<std::int64_t> documents;  // the number of each token's document in its sequence
    std::int64_t last = 0, length = 0;
    bool is_default = true;
    for (std::int64_t i = 0; i < rows * time; ++i) {
        if (position[i] < 0 || (limit && position[i] >= *limit))
            throw IndexError(str(who, ": position_ids must be ",
                                 limit ? str("from 0 to ", *limit - 1) : "at least 0", ": token ",
                                 i % time, " of sequence ", i / time, " has the position ",
                                 position[i]));
        const bool is_first = i % time == 0;
        const bool starts = !is_first && position[i] != position[i - 1] + 1;
        documents.push_back(is_first ? 0 : documents.back() + (starts ? 1 : 0));
        last = std::max(last, documents.back()), length = std::max(length, position[i] + 1);
        is_default = is_default && position[i] == i % time;
    }
    if (is_default) return {};
    TokenPositions result{.positions = own, .length = length, .documents = {}};
    if (last > 0) {
        const Tensor of = tensor(documents).reshape({rows, 1, time}).to(ids.device());
        result.documents = eq(of.unsqueeze(-1), of.unsqueeze(-2));
    }
    return result;
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
