// Private to nn/generation: the keys and values of earlier tokens.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "nn/layers/sequence_policy.h"

namespace axle::nn {

// While a ForwardContextGuard holds this policy, calls of attention() store their keys and values,
// and queries attend to all stored keys of their sequence. The first call of a model stores whole
// prompts; each later call stores one token of each sequence.
class KeyValueCache : public SequencePolicy {
  public:
    // Begins a call of the model. The token of sequence b has position positions[b]. An empty list
    // is the first call, for whole prompts that begin at position 0.
    void begin(std::vector<std::int64_t> positions, Device device);
    // Returns whether the first call has stored keys.
    bool has_layers() const { return !layers_.empty(); }
    // Throws UsageError if this call stored the keys of fewer layers than the first call.
    void check_complete() const;
    // Keeps the sequences with these indices, in this order. An index can occur several times.
    void select(const std::vector<std::int64_t>& sequences);

    // q, k and v are [B, heads, T, D]; the numbers of heads of q and k can differ. Throws
    // UsageError for a mask in a later call, and if a later call has another number of layers or
    // tokens.
    Tensor attend(const Tensor& q, const Tensor& k, const Tensor& v,
                  const AttentionOptions& options) override;
    // Throws UsageError in later calls, because their sequences can have different lengths: the
    // model must use the given position_ids.
    std::vector<PositionRange> positions(std::int64_t time) const override;
    std::int64_t parts() const override { return 1; }
    Tensor whole_sequences(const Tensor& x) const override { return x; }

  private:
    // Tensors [B, capacity, heads, D]. The capacity is at least length_, and is doubled if needed.
    struct Layer {
        Tensor keys, values;
    };
    void store(Tensor& rows, const Tensor& x) const;

    std::int64_t length_ = 0;              // the number of tokens of the longest sequence
    std::vector<std::int64_t> positions_;  // empty in the first call
    Tensor indices_;                       // the positions as a tensor [B], if they differ
    Tensor mask_;                          // [B, 1, 1, length], if the positions differ
    std::vector<Layer> layers_;
    std::size_t layer_ = 0;  // the number of attention() calls in this call of the model
};

}  // namespace axle::nn
