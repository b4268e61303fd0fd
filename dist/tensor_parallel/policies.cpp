#include "dist/tensor_parallel/policies.h"

#include <algorithm>
#include <vector>

#include "core/autograd/autocast.h"
#include "core/autograd/autograd.h"
#include "core/check.h"
#include "core/ops.h"
#include "core/ops/index_checks.h"
#include "core/profiler/profiler.h"
#include "dist/ops/collective_ops.h"
#include "dist/tensor_parallel/vocabulary_loss.h"

namespace axle::dist {
namespace {

// Returns the weight as [out, in].
Tensor matrix_of(const nn::Linear& layer, const Tensor& weight) {
    return layer.options().transposed ? weight.t() : weight;
}

// Returns a tensor [..., segments * features] in which the gathered parts of each segment are
// adjacent.
Tensor in_segments(const Tensor& gathered, std::int64_t ranks, std::int64_t segments) {
    if (segments == 1) return gathered;
    Dims sizes, order;
    for (int d = 0; d + 1 < gathered.dim(); ++d)
        sizes.push_back(gathered.size(d)), order.push_back(d);
    const int d = gathered.dim() - 1;
    for (const std::int64_t size : {ranks, segments, gathered.size(-1) / ranks / segments})
        sizes.push_back(size);
    for (const int from : {d + 1, d, d + 2}) order.push_back(from);
    return gathered.reshape(sizes).permute(order).reshape(gathered.shape());
}

}  // namespace

Tensor SharedInput::whole(const Tensor& x) {
    const auto known = whole_.lock();
    if (known != nullptr && x_.lock() == x.impl() && version_ == x.version() &&
        is_recorded_ == grad_enabled())
        return Tensor(known);
    const Tensor y = division_.by_sequence
                         ? all_gather_along(x, -2, division_.group, GradientKind::partial)
                         : copy_to_group(x, division_.group);
    x_ = x.impl(), whole_ = y.impl(), version_ = x.version(), is_recorded_ = grad_enabled();
    return y;
}

Tensor ColumnPolicy::multiply(nn::Linear& layer, const Tensor& x, Activation activation) {
    Tensor weight = layer.weight, bias = layer.bias;
    if (options_.copies != nullptr) {
        const std::vector<Tensor> shared = copy_to_group({weight, bias}, options_.copies);
        weight = shared[0], bias = shared[1];
    }
    const Tensor y = linear(input_->whole(x), matrix_of(layer, weight), bias, activation);
    if (!options_.gathers_output) return y;
    return in_segments(all_gather_along(y, -1, division_.group, GradientKind::same),
                       division_.group->size(), options_.segments);
}

Tensor RowPolicy::multiply(nn::Linear& layer, const Tensor& x, Activation activation) {
    Tensor y = linear(x, matrix_of(layer, layer.weight));
    y = division_.by_sequence ? reduce_scatter_along(y, -2, division_.group)
                              : reduce_from_group(y, division_.group);
    if (layer.bias.defined()) {
        // If the sequence is divided, each rank adds the bias only to its part, so copy_to_group()
        // sums the gradients of the bias over the ranks.
        const Tensor bias =
            division_.by_sequence ? copy_to_group(layer.bias, division_.group) : layer.bias;
        y = y + autocast(bias);
    }
    return nn::apply_activation(y, activation);
}

Tensor VocabularyEmbedding::look_up(const nn::Embedding& layer, const Tensor& ids) {
    const Tensor& weight = layer.weight;
    const std::int64_t rows = weight.size(0), begin = group_->rank() * rows;
    {
        const profiler::OpScope scope("embedding");
        check_device("embedding", {&ids, &weight});
        check_index_dtype("embedding", ids, "ids");
        check_index_range("embedding", ids, vocabulary_);
    }
    const Tensor own = to(ids, i64) - Scalar(begin);
    const Tensor is_elsewhere = eq(mul(ge(own, Scalar(0)), lt(own, Scalar(rows))), Scalar(0));
    std::optional<std::int64_t> padding;
    if (layer.padding_idx && *layer.padding_idx >= begin && *layer.padding_idx < begin + rows)
        padding = *layer.padding_idx - begin;
    const Tensor y = embedding(masked_fill(own, is_elsewhere, 0), weight, padding);
    return reduce_from_group(masked_fill(y, is_elsewhere.unsqueeze(-1), 0), group_);
}

Tensor VocabularyHead::logits(const Tensor& x, const Tensor& weight, const Tensor& bias) {
    const Tensor y = linear(copy_to_group(x, group_), weight, bias);
    return narrow(all_gather_along(y, -1, group_, GradientKind::same), -1, 0, vocabulary_);
}

Tensor VocabularyHead::loss(const Tensor& x, const Tensor& weight, const Tensor& bias,
                            const Tensor& targets) {
    return vocabulary_cross_entropy(copy_to_group(x, group_), weight, bias, targets, vocabulary_,
                                    group_);
}

std::pair<Tensor, Tensor> SequenceNorm::parameters(const Tensor& weight, const Tensor& bias) {
    const std::vector<Tensor> summed = copy_to_group({weight, bias}, group_);
    return {summed[0], summed[1]};
}

Tensor SequenceBlocks::enter(const Tensor& x) { return split_along(x, 1, group_); }

Tensor SequenceBlocks::leave(const Tensor& x) {
    return all_gather_along(x, 1, group_, GradientKind::same);
}

}  // namespace axle::dist
