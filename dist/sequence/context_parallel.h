// Context parallel training: the processes of a group share the sequences of a batch.
//
//     auto policy = std::make_shared<dist::ContextParallel>(mesh.get_group("cp"));
//     {
//         dist::ContextParallelScope scope(policy, {ids, labels}, {1, 1});
//         model.loss(ids, labels).backward();    // ids and labels are this process's part
//     }
//
// Each process passes its tokens through the model, and attention exchanges keys and values
// (nn/layers/sequence_policy.h). A process computes only a part of each gradient, so data parallel
// training must also average over the group. A loss that predicts the next token needs labels that
// were shifted before the sequences are divided, as the models of Axle expect.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "core/autograd/forward_context.h"
#include "core/tensor.h"
#include "dist/group/process_group.h"
#include "nn/layers/sequence_policy.h"

namespace axle::dist {

// The method by which attention gets the keys and values of other processes.
enum class ContextExchange : std::uint8_t {
    all_gather,  // gathers the keys and values of the whole sequence
    // Passes the parts around a ring, so that a process stores at most two of them. Second
    // derivatives are not supported (UsageError).
    ring,
};
// Returns the exchange for the name of Accelerate's cp_comm_strategy, "allgather" or "alltoall"
// (the ring). Throws ValueError for other names.
ContextExchange context_exchange_of(std::string_view name);

// Returns the positions of a rank's tokens. A sequence is divided into 2 * ranks chunks. A rank has
// one chunk counted from the front and one counted from the end, so that causal attention is
// equally expensive on all ranks. Throws ValueError, which calls the length `name`, unless `length`
// is a multiple of 2 * ranks.
std::vector<nn::PositionRange> head_tail_positions(
    std::int64_t length, int rank, int ranks,
    const char* name = "context parallel: the length of sequences");

// Computes attention of this process's tokens to whole sequences. The sequences are divided as
// head_tail_positions() specifies. Causal attention ignores padding masks, as in Accelerate, so the
// loss must ignore labels of padding tokens. With ContextExchange::all_gather, a mask [B or 1, 1,
// L, L] for the L tokens of whole sequences is applied; such a mask separates documents.
//
// attend() throws UsageError if attention that is not causal has a mask, if several ranks use a
// mask for whole sequences with ContextExchange::ring, and if queries and keys have different
// lengths. Throws ShapeError unless q is [B, H, T, D], and k and v are [B, G, T, D], and ValueError
// if T is odd. Also throws the errors of scaled_dot_product_attention().
class ContextParallel : public nn::SequencePolicy {
  public:
    explicit ContextParallel(std::shared_ptr<ProcessGroup> group,
                             ContextExchange exchange = ContextExchange::all_gather);

    Tensor attend(const Tensor& q, const Tensor& k, const Tensor& v,
                  const AttentionOptions& options) override;
    std::vector<nn::PositionRange> positions(std::int64_t time) const override;
    std::int64_t parts() const override { return group_->size(); }
    Tensor whole_sequences(const Tensor& x) const override;

    const std::shared_ptr<ProcessGroup>& group() const { return group_; }

  private:
    std::shared_ptr<ProcessGroup> group_;
    ContextExchange exchange_;
};

// A scope in which sequences are divided. The constructor replaces the contents of each buffer by
// this process's part along the given dimension. In the scope, the policy computes attention on
// this thread. The destructor restores all buffers except no_restore_buffers. The handles stay
// valid. The backward pass must run in the scope.
class [[nodiscard]] ContextParallelScope {
  public:
    // Throws ValueError if the numbers of buffers and dimensions differ, if a length is not a
    // multiple of twice the size of the group, or if no_restore_buffers has a tensor that is not in
    // `buffers`. Throws IndexError if a dimension is out of range. Throws UsageError for a tensor
    // that is undefined or requires a gradient, and for a nested scope. After an error, the buffers
    // are unchanged.
    ContextParallelScope(std::shared_ptr<ContextParallel> policy,
                         const std::vector<Tensor>& buffers,
                         const std::vector<std::int64_t>& buffer_seq_dims,
                         const std::vector<Tensor>& no_restore_buffers = {});
    ~ContextParallelScope();
    ContextParallelScope(const ContextParallelScope&) = delete;
    ContextParallelScope& operator=(const ContextParallelScope&) = delete;

  private:
    struct Saved {
        Tensor buffer, whole;
    };
    std::vector<Saved> saved_;
    std::optional<ForwardContextGuard> context_;
};

}  // namespace axle::dist
