#include "nn/layers/layers.h"

#include "core/autograd/autograd.h"
#include "nn/init.h"
#include "nn/layers/sequence_policy.h"

namespace axle::nn {
namespace {

std::int64_t positive(const char* who, const char* name, std::int64_t size) {
    if (size < 1) throw ValueError(str(who, ": ", name, " must be positive: ", size));
    return size;
}

}  // namespace

void MaxNorm::scale_rows(const Tensor& table, const Tensor& ids, double p, double limit) {
    const NoGrad no_grad;
    const Tensor used = flatten(ids), rows = index_select(table.detach(), 0, used);
    // A row that occurs several times is written several times with the same values.
    table.detach().index_put_({used}, renorm(rows, p, 0, limit));
}

Embedding::Embedding(std::int64_t rows, std::int64_t width,
                     std::optional<std::int64_t> padding_idx_, const EmbeddingOptions& options_)
    : weight(init::parameter(
          {positive("Embedding", "rows", rows), positive("Embedding", "width", width)})),
      padding_idx(padding_idx_),
      options(options_) {
    if (options.max_norm && !(*options.max_norm >= 0))
        throw ValueError(str("Embedding: max_norm must be at least 0: ", *options.max_norm));
    if (!(options.norm_type > 0))
        throw ValueError(str("Embedding: norm_type must be positive: ", options.norm_type));
    if (padding_idx && (*padding_idx < 0 || *padding_idx >= rows))
        throw IndexError(str("Embedding: padding_idx must be in [0, ", rows, "): ", *padding_idx));
    init::normal_(weight);
    if (!padding_idx) return;
    const NoGrad no_grad;
    Tensor row = weight.select(0, *padding_idx);
    init::zeros_(row);
}

Tensor Embedding::forward(const Tensor& ids) {
    if (policy) {
        if (options.max_norm || options.scale_grad_by_freq)
            throw UsageError(
                "Embedding: max_norm and scale_grad_by_freq need the whole table, but a policy "
                "replaces the lookup, for example because processes divide the table; set neither");
        return policy->look_up(*this, ids);
    }
    options.max_norm.apply(weight, ids, options.norm_type);
    const Tensor rows = embedding(ids, weight, padding_idx);
    if (!options.scale_grad_by_freq) return rows;
    const Tensor used = flatten(ids);
    const TensorOptions like = {.dtype = f32, .device = used.device()};
    const Tensor counts =
        scatter_add(zeros({weight.size(0)}, like), 0, used, ones(used.shape(), like));
    Shape shape = ids.shape();
    shape.push_back(1);
    const Tensor times = reshape(index_select(counts, 0, used), shape).to(rows.dtype());
    return record("embedding", rows.detach(), {rows},
                  [times](const Grads& dy, Needs) { return Grads{dy[0] / times}; });
}

Dropout::Dropout(double p_) : p(p_) {
    if (!(p >= 0 && p <= 1)) throw ValueError(str("Dropout: p must be in [0, 1]: ", p));
}

Tensor Dropout::forward(const Tensor& x) {
    return is_training() ? sequence_dropout(x, p, random_part) : dropout(x, p, false);
}

}  // namespace axle::nn
