// The small layers: embedding, dropout.
#pragma once

#include <cstdint>
#include <optional>

#include "nn/module.h"

namespace axle::inline v0::nn {

// Ids [...] to rows [..., width] of a table drawn from N(0, 1), as PyTorch.
class Embedding : public Model<Embedding> {
  public:
    Embedding(std::int64_t rows, std::int64_t width, std::optional<std::int64_t> padding_idx = {});
    Tensor forward(const Tensor& ids) { return embedding(ids, weight, padding_idx); }
    void visit(Visitor& v) override { v("weight", weight); }

    Tensor weight;
    std::optional<std::int64_t> padding_idx;
};

// The identity outside training.
class Dropout : public Model<Dropout> {
  public:
    // p in [0, 1] (ValueError).
    explicit Dropout(double p = 0.5);
    Tensor forward(const Tensor& x) { return dropout(x, p, is_training()); }
    void visit(Visitor&) override {}

    double p;
};

}  // namespace axle::inline v0::nn
