// Private to dist: the policies of modules that the ranks of a group divide.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "dist/group/process_group.h"
#include "nn/layers/layers.h"
#include "nn/layers/linear.h"
#include "nn/layers/norm.h"
#include "nn/models/extension_points.h"

namespace axle::dist {

// The group, and whether activations between divided layers are parts of the sequence (dimension
// -2). Such activations are gathered before a divided layer and scattered after it.
struct Division {
    std::shared_ptr<ProcessGroup> group;
    bool by_sequence = false;
};

// The input that several layers share, such as the projections to queries, keys and values. The
// layers get it from whole(). They use one copy or gather, and thus one collective in the backward
// pass.
class SharedInput {
  public:
    explicit SharedInput(Division division) : division_(std::move(division)) {}
    // Returns the whole input for x. Its gradient is summed over the ranks. Returns the same tensor
    // as the last call if x is the same, was not changed, and the result is still in use.
    Tensor whole(const Tensor& x);

  private:
    Division division_;
    std::weak_ptr<Impl> x_, whole_;
    std::uint32_t version_ = 0;
    bool is_recorded_ = false;
};

// A Linear with a part of the output features.
class ColumnPolicy : public nn::LinearPolicy {
  public:
    struct Options {
        bool gathers_output = false;
        std::int64_t segments = 1;  // the number of segments of a gathered output
        // The ranks with the same slice of the weight; the gradients of the slice are summed over
        // these ranks. nullptr if only this rank has the slice.
        std::shared_ptr<ProcessGroup> copies = {};
    };
    ColumnPolicy(Division division, std::shared_ptr<SharedInput> input, Options options)
        : division_(std::move(division)), input_(std::move(input)), options_(std::move(options)) {}
    Tensor multiply(nn::Linear& layer, const Tensor& x, Activation activation) override;
    std::shared_ptr<nn::LinearPolicy> clone() const override {
        return std::make_shared<ColumnPolicy>(division_, std::make_shared<SharedInput>(division_),
                                              options_);
    }
    // Returns whether each rank gets the whole output.
    bool gathers_output() const { return options_.gathers_output; }

  private:
    Division division_;
    std::shared_ptr<SharedInput> input_;
    Options options_;
};

// A Linear with a part of the input features. Ranks add their products before the bias is added.
class RowPolicy : public nn::LinearPolicy {
  public:
    explicit RowPolicy(Division division) : division_(std::move(division)) {}
    Tensor multiply(nn::Linear& layer, const Tensor& x, Activation activation) override;
    std::shared_ptr<nn::LinearPolicy> clone() const override {
        return std::make_shared<RowPolicy>(division_);
    }

  private:
    Division division_;
};

// An Embedding with n rows of a table of `vocabulary` rows: rank r has the rows [r * n, (r + 1) *
// n). An id of another rank's row gives zeros, and the results of all ranks are added.
class VocabularyEmbedding : public nn::EmbeddingPolicy {
  public:
    VocabularyEmbedding(std::shared_ptr<ProcessGroup> group, std::int64_t vocabulary)
        : group_(std::move(group)), vocabulary_(vocabulary) {}
    Tensor look_up(const nn::Embedding& layer, const Tensor& ids) override;

  private:
    std::shared_ptr<ProcessGroup> group_;
    std::int64_t vocabulary_;
};

// The policy of a LanguageHead whose weight [vocab_size, C] is divided by rows over the ranks.
class VocabularyHead : public nn::HeadPolicy {
  public:
    VocabularyHead(std::shared_ptr<ProcessGroup> group, std::int64_t vocabulary)
        : group_(std::move(group)), vocabulary_(vocabulary) {}
    Tensor logits(const Tensor& x, const Tensor& weight, const Tensor& bias) override;
    Tensor loss(const Tensor& x, const Tensor& weight, const Tensor& bias,
                const Tensor& targets) override;

  private:
    std::shared_ptr<ProcessGroup> group_;
    std::int64_t vocabulary_;
};

// A norm of a part of the sequence. The gradients of its parameters are summed over the ranks.
class SequenceNorm : public nn::NormPolicy {
  public:
    explicit SequenceNorm(std::shared_ptr<ProcessGroup> group) : group_(std::move(group)) {}
    std::pair<Tensor, Tensor> parameters(const Tensor& weight, const Tensor& bias) override;

  private:
    std::shared_ptr<ProcessGroup> group_;
};

// Divides the sequence (dimension 1) before the blocks, and gathers it after them.
class SequenceBlocks : public nn::BlockStackPolicy {
  public:
    explicit SequenceBlocks(std::shared_ptr<ProcessGroup> group) : group_(std::move(group)) {}
    Tensor enter(const Tensor& x) override;
    Tensor leave(const Tensor& x) override;

  private:
    std::shared_ptr<ProcessGroup> group_;
};

}  // namespace axle::dist
