// Sequence parallel training with Ulysses (Jacobs et al., "DeepSpeed Ulysses", 2023): the processes
// of a group share the sequences of a batch, and exchange parts of sequences for parts of the heads
// before and after attention.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/tensor.h"
#include "core/tree/tree.h"
#include "dist/group/process_group.h"
#include "nn/layers/sequence_policy.h"

namespace axle::dist {

// Computes attention of the whole sequences for a part of the heads. Rank r has the r-th of equal
// parts of each sequence. An all-to-all exchange gives each process the whole sequences of its
// heads before attention, and another one returns its part of the sequence for all heads.
class Ulysses : public nn::SequencePolicy {
  public:
    explicit Ulysses(std::shared_ptr<ProcessGroup> group) : group_(std::move(group)) {}

    // A mask can be [B or 1, 1, 1, T] for this process's part of the keys, such as the padding
    // masks of the models, or [B or 1, 1, L, L] for the L tokens of whole sequences, equal on all
    // processes. Throws ShapeError for other masks, UsageError if queries and keys have different
    // lengths, and ValueError if the heads cannot be divided: the number of query heads must be a
    // multiple of the size of the group, and the number of key-value heads a multiple or a divisor.
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

// Throws ValueError unless the batch is a map with "input_ids" [B, T, ...], T is a multiple of the
// size of the group, and T is the size of dimension 1 of all tensors with at least two dimensions.
void check_ulysses_batch(const Tree& batch, const ProcessGroup& group);

// Gathers the batches of all ranks, which are maps, and returns this rank's part of each, in rank
// order. Tensors with at least two dimensions are divided along dimension 1. A batch with "labels"
// gets "shift_labels": labels[b, t + 1] at position t, and -100 at the end of the whole sequence. A
// batch without "position_ids" gets positions that count from 0. The result for a null batch is
// null. All ranks must call this function. Throws the errors of check_ulysses_batch() on all ranks.
std::vector<Tree> ulysses_batches(const Tree& batch, ProcessGroup& group);

// Returns the mean of the losses of all ranks, weighted by their numbers of tokens: the loss of the
// whole sequences if `loss` is the mean over `tokens` tokens on this rank. Losses of ranks without
// tokens are ignored, even if they are not finite. The result can be differentiated on every rank,
// and its gradients, averaged over the ranks, are the gradients of the whole loss. All ranks must
// call this function. Throws ShapeError unless `loss` and `tokens` have one element each.
Tensor mean_over_tokens(const Tensor& loss, const Tensor& tokens,
                        const std::shared_ptr<ProcessGroup>& group);

}  // namespace axle::dist
