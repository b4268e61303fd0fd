// EmbeddingBag: sums, means or maxima of bags of rows of a table.
#pragma once

#include <cstdint>
#include <optional>

#include "nn/module.h"

namespace axle::nn {

enum class BagMode : std::uint8_t { sum, mean, max };

struct EmbeddingBagOptions {
    BagMode mode = BagMode::mean;
    // If true, offsets have one more element, the end of the last bag.
    bool include_last_offset = false;
    // Ids that are equal to padding_idx are not part of a bag. Their row is initially zero and gets
    // no gradient.
    std::optional<std::int64_t> padding_idx = {};
};

// Maps bags of ids to [bags, width] with a table `weight` [rows, width]. The result of an empty bag
// is zero. Each row of ids [bags, n] is a bag. If ids are [n], offsets [bags] (i64 or i32) has the
// position in ids of the first id of each bag. Offsets begin with 0 and do not decrease.
// per_sample_weights have the shape of ids and are multiplied with the rows in mode sum. In mode
// max, the host waits for the offsets. Throws ShapeError for other shapes, DTypeError unless ids
// and offsets are i64 or i32 and weight is floating, the errors of axle::embedding() for ids,
// UsageError for offsets of 2-d ids, missing offsets, or per_sample_weights in other modes, and
// ValueError if offsets do not begin with 0, decrease or exceed n (on a GPU, only in mode max).
Tensor embedding_bag(const Tensor& ids, const Tensor& weight, const Tensor& offsets = {},
                     const Tensor& per_sample_weights = {},
                     const EmbeddingBagOptions& options = {});

// Calls embedding_bag() with a table that is initialized, as in PyTorch, from a standard normal
// distribution; the row of padding_idx is zero.
class EmbeddingBag : public Model<EmbeddingBag> {
  public:
    // Throws ValueError unless rows and width are positive, and IndexError unless padding_idx is in
    // [0, rows).
    EmbeddingBag(std::int64_t rows, std::int64_t width, EmbeddingBagOptions options = {});
    Tensor forward(const Tensor& ids, const Tensor& offsets = {},
                   const Tensor& per_sample_weights = {}) {
        return embedding_bag(ids, weight, offsets, per_sample_weights, options_);
    }
    void visit(Visitor& v) override { v("weight", weight); }

    Tensor weight;  // [rows, width]
    const EmbeddingBagOptions& options() const { return options_; }

  private:
    EmbeddingBagOptions options_;
};

}  // namespace axle::nn
