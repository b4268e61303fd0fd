// Embedding, with its options and its extension point EmbeddingPolicy, and Dropout.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "core/autograd/random_part.h"
#include "nn/module.h"

namespace axle::nn {

class Embedding;

// Replaces the lookup of an Embedding, for example if its table is divided among processes. A clone
// of an Embedding shares the policy with the original module.
struct EmbeddingPolicy {
    virtual ~EmbeddingPolicy() = default;
    // Returns the rows [..., width] for ids [...].
    virtual Tensor look_up(const Embedding& layer, const Tensor& ids) = 0;
};

// An optional limit of the norms of rows, such as 1.0. A limit contains a pointer to the code that
// applies it, so that the linker drops this code from programs without a limit.
class MaxNorm {
  public:
    MaxNorm() = default;
    MaxNorm(double limit)  // NOLINT(google-explicit-constructor): options are numbers
        : limit_(limit), apply_(&scale_rows) {}

    explicit operator bool() const { return apply_ != nullptr; }
    double operator*() const { return limit_; }
    // Scales the rows of the table [rows, width] whose index is in `ids` and whose p-norm exceeds
    // the limit, in place, so that their p-norm is the limit. Does nothing without a limit.
    void apply(const Tensor& table, const Tensor& ids, double p) const {
        if (apply_ != nullptr) apply_(table, ids, p, limit_);
    }

  private:
    static void scale_rows(const Tensor& table, const Tensor& ids, double p, double limit);

    double limit_ = 0;
    void (*apply_)(const Tensor&, const Tensor&, double, double) = nullptr;
};

struct EmbeddingOptions {
    // Before a lookup, the rows that it reads are scaled to the norm max_norm if their norm is
    // larger, in place and without a gradient.
    MaxNorm max_norm = {};
    double norm_type = 2;  // the p of the norm
    // Divides the gradient of a row by the number of times that it occurs in ids.
    bool scale_grad_by_freq = false;
};

// Maps ids [...] to rows [..., width] of a table. The table is initialized from a standard normal
// distribution, as in PyTorch. The row padding_idx is initially zero, and lookups add nothing to
// its gradient.
class Embedding : public Model<Embedding> {
  public:
    // Throws ValueError unless rows and width are positive, max_norm is not negative and norm_type
    // is positive, and IndexError unless padding_idx is in [0, rows).
    Embedding(std::int64_t rows, std::int64_t width, std::optional<std::int64_t> padding_idx = {},
              const EmbeddingOptions& options = {});
    // Throws UsageError if a policy replaces the lookup of a layer with max_norm or
    // scale_grad_by_freq. Without a policy, throws the errors of axle::embedding().
    Tensor forward(const Tensor& ids);
    void visit(Visitor& v) override { v("weight", weight); }

    Tensor weight;  // [rows, width]
    std::optional<std::int64_t> padding_idx;
    EmbeddingOptions options;
    std::shared_ptr<EmbeddingPolicy> policy;  // replaces the lookup; null by default
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
    // Set if x is a part of a larger tensor, whose other parts are on other processes. forward()
    // then drops the elements that dropout of the larger tensor would drop.
    RandomPart random_part = {};
};

}  // namespace axle::nn
