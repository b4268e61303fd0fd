// Embedding and Dropout.
#pragma once

#include <cstdint>
#include <optional>

#include "nn/module.h"

namespace axle::nn {

// Maps ids [...] to rows [..., width] of a table. The table is initialized from a standard normal
// distribution, as in PyTorch. The row padding_idx is initially zero and gets no gradient.
class Embedding : public Model<Embedding> {
  public:
    // Throws ValueError unless rows and width are positive, and IndexError unless padding_idx is in
    // [0, rows).
    Embedding(std::int64_t rows, std::int64_t width, std::optional<std::int64_t> padding_idx = {});
    Tensor forward(const Tensor& ids) { return embedding(ids, weight, padding_idx); }
    void visit(Visitor& v) override { v("weight", weight); }

    Tensor weight;  // [rows, width]
    std::optional<std::int64_t> padding_idx;
};

// Dropout: in training mode, sets each element to zero with probability p and multiplies the kept
// elements by 1 / (1 - p). In evaluation mode, returns the input.
class Dropout : public Model<Dropout> {
  public:
    // Throws ValueError unless p is in [0, 1].
    explicit Dropout(double p = 0.5);
    Tensor forward(const Tensor& x);
    void visit(Visitor&) override {}

    double p;
};

}  // namespace axle::nn
