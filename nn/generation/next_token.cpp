#include "nn/generation/next_token.h"

#include <cmath>

#include "core/ops.h"

namespace axle::nn {
namespace {

TokenIds ids_of(const Tensor& tokens) {
    const Tensor on_host = tokens.cpu().contiguous();
    const auto* const begin = on_host.data<std::int64_t>();
    return {begin, begin + on_host.numel()};
}

}  // namespace

Tensor penalized(const Tensor& scores, const std::vector<TokenIds>& sequences,
                 const GenerateOptions& options) {
    if (options.repetition_penalty == 1) return scores;
    Tensor result = clone(scores);
    for (std::size_t i = 0; i < sequences.size(); ++i) {
        // A token that occurs twice is written twice with the same value.
        const TokenIds& seen = sequences[i];
        const Tensor tokens = tensor(seen, {std::ssize(seen)}).to(scores.device());
        Tensor row = result.select(0, static_cast<std::int64_t>(i));
        const Tensor old = index_select(row, 0, tokens);
        row.index_put_({tokens}, where(lt(old, 0), old * options.repetition_penalty,
                                       old / options.repetition_penalty));
    }
    return result;
}

TokenIds next_tokens(const Tensor& logits, const GenerateOptions& options) {
    if (options.temperature == 0) return ids_of(argmax(logits, -1));
    Tensor scores = logits / options.temperature;
    if (options.top_k > 0 && options.top_k < scores.size(-1)) {
        const Tensor least = topk(scores, options.top_k).first.slice(-1, -1);
        scores = masked_fill(scores, lt(scores, least), -INFINITY);
    }
    Tensor order;  // the token ids of the columns; undefined if they are 0, 1, ...
    if (options.top_p < 1) {
        std::tie(scores, order) = sort(scores, -1, true);
        const Tensor probabilities = softmax(scores);
        const Tensor before = cumsum(probabilities, -1) - probabilities;
        scores = masked_fill(scores, ge(before, options.top_p), -INFINITY);
    }
    if (options.min_p > 0) {
        const Tensor least = topk(scores, 1).first + std::log(options.min_p);
        scores = masked_fill(scores, lt(scores, least), -INFINITY);
    }
    const Tensor columns = multinomial(softmax(scores), 1);
    return ids_of(order.defined() ? gather(order, -1, columns) : columns);
}

}  // namespace axle::nn
