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

Embedding::Embedding(std::int64_t rows, std::int64_t width,
                     std::optional<std::int64_t> padding_idx_)
    : weight(init::parameter(
          {positive("Embedding", "rows", rows), positive("Embedding", "width", width)})),
      padding_idx(padding_idx_) {
    if (padding_idx && (*padding_idx < 0 || *padding_idx >= rows))
        throw IndexError(str("Embedding: padding_idx must be in [0, ", rows, "): ", *padding_idx));
    init::normal_(weight);
    if (!padding_idx) return;
    const NoGrad no_grad;
    Tensor row = weight.select(0, *padding_idx);
    init::zeros_(row);
}

Dropout::Dropout(double p_) : p(p_) {
    if (!(p >= 0 && p <= 1)) throw ValueError(str("Dropout: p must be in [0, 1]: ", p));
}

Tensor Dropout::forward(const Tensor& x) {
    return is_training() ? sequence_dropout(x, p, random_part) : dropout(x, p, false);
}

}  // namespace axle::nn
