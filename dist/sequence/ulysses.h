// Sequence parallel training with Ulysses (Jacobs et al., "DeepSpeed Ulysses", 2023). The processes
// of a group share the sequences of a batch. Before and after attention, they exchange parts of
// sequences for parts of the heads.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/tensor.h"
#include "core/tree/tree.h"
#include "dist/group/process_group.h"
#include "nn/layers/sequence_policy.h"

namespace axle::dist {

// Computes attention of whole sequences for a part of the heads. Sequences are divided into equal
// parts, and rank r has part r. Before attention, an all-to-all exchange gives each process whole
// sequences for its heads. After attention, another exchange returns its part of the sequence for
// all heads.
class Ulysses : public nn::SequencePolicy {
  public:
    explicit Ulysses(std::shared_ptr<ProcessGroup> group) : group_(std::move(group)) {}

    // A mask can be [B or 1, 1, 1, T] for this process's part of the keys, such as the padding
    // masks of the models. It can also be [B or 1, 1, L, L] for the L tokens of whole sequences,
    // equal on all processes. Throws ShapeError for other masks, and unless q is [B, H, T, D], and
    // k and v are [B, G, T, D]. Throws UsageError if queries and keys have different lengths.
    // Throws ValueError if the heads cannot be divided. The number of query heads must be a
    // multiple of the size of the group. The number of key-value heads must be a multiple or a
    // divisor of this size. Also throws the errors of scaled_dot_product_attention().
    Tensor attend(const Tensor& q, const Tensor& k, const Tensor& v,
                  const AttentionOptions& options) override;
    std::vector<nn::PositionRange> positions(std::int64_t time) const override {
        return {{group_->rank() * time, time}};
    }
    std::int64_t parts() const override { return group_->size(); }
    Tensor whole_sequences(const Tensor& x) const override;

  private:
    std::shared_ptr<ProcessGroup> group_;
};

// Throws ValueError unless the batch is a map with "input_ids" [B, T, ...], and T is a multiple of
// the size of the group. Also throws ValueError unless dimension 1 of all its tensors with at least
// two dimensions has size T.
void check_ulysses_batch(const Tree& batch, const ProcessGroup& group);

// Gathers the batches of all ranks and returns this rank's part of each batch, in rank order and on
// the CPU. A batch is a map, or null; the result for a null batch is null. Tensors with at least
// two dimensions are divided along dimension 1. A batch with "labels" [B, T, ...] gets
// "shift_labels": labels[b, t + 1] at position t, and -100 at the end of the whole sequence. A
// batch without "position_ids" gets positions that count from 0. All ranks must call this function.
// Throws the errors of check_ulysses_batch() on all ranks.
std::vector<Tree> ulysses_batches(const Tree& batch, ProcessGroup& group);

// Returns the mean of the losses of all ranks, weighted by their numbers of tokens, as a 0-d tensor
// (NaN if no rank has tokens). If `loss` is the mean over `tokens` tokens of this rank, the result
// is the loss of the whole sequences. Losses of ranks without tokens are ignored, even if they are
// not finite. The result can be differentiated on every rank. The mean of its gradients over the
// ranks is the gradient of the whole loss. All ranks must call this function. Throws ShapeError
// unless `loss` and `tokens` have one element each.
Tensor mean_over_tokens(const Tensor& loss, const Tensor& tokens,
                        const std::shared_ptr<ProcessGroup>& group);

}  // namespace axle::dist
