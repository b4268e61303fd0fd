// Extension points of the BERT, GPT and Llama models, for models that are divided among processes
// (dist/tensor_parallel/). All policies are null by default. A clone of a model shares them.
#pragma once

#include <memory>
#include <string>

#include "core/tensor.h"

namespace axle::nn {

// Changes the hidden states before and after a stack of transformer blocks, for example to divide
// the sequence among processes.
struct BlockStackPolicy {
    virtual ~BlockStackPolicy() = default;
    // Returns the input of the first block, given the embeddings x [B, T, C].
    virtual Tensor enter(const Tensor& x) = 0;
    // Returns the final hidden state, given x, the normalized output of the last block.
    virtual Tensor leave(const Tensor& x) = 0;
};

// A module that calls a stack of transformer blocks.
struct BlockStack {
    virtual ~BlockStack() = default;
    std::shared_ptr<BlockStackPolicy> stack_policy;

  protected:
    BlockStack() = default;
    BlockStack(const BlockStack&) = default;
    BlockStack(BlockStack&&) = default;
    BlockStack& operator=(const BlockStack&) = default;
    BlockStack& operator=(BlockStack&&) = default;
    Tensor enter_blocks(const Tensor& x) const { return stack_policy ? stack_policy->enter(x) : x; }
    Tensor leave_blocks(const Tensor& x) const { return stack_policy ? stack_policy->leave(x) : x; }
};

// Replaces the product with the weight [vocab_size, C] of a LanguageHead.
struct HeadPolicy {
    virtual ~HeadPolicy() = default;
    // Returns logits [..., vocab_size] for x [..., C]. The bias may be undefined.
    virtual Tensor logits(const Tensor& x, const Tensor& weight, const Tensor& bias) = 0;
    // Returns the mean cross entropy of the logits of x [N, C] and targets [N], as cross_entropy()
    // does.
    virtual Tensor loss(const Tensor& x, const Tensor& weight, const Tensor& bias,
                        const Tensor& targets) = 0;
};

// The interface of modules that compute logits as a product with a weight [vocab_size, C].
struct LanguageHead {
    virtual ~LanguageHead() = default;
    std::shared_ptr<HeadPolicy> head_policy;
    // Returns the name of the head in the module, without ".weight".
    virtual const char* head_name() const = 0;
    // Return the weight [vocab_size, C] and the bias [vocab_size] of the head. The bias is
    // undefined if the head has none.
    virtual Tensor head_weight() const = 0;
    virtual Tensor head_bias() const { return {}; }

  protected:
    LanguageHead() = default;
    LanguageHead(const LanguageHead&) = default;
    LanguageHead(LanguageHead&&) = default;
    LanguageHead& operator=(const LanguageHead&) = default;
    LanguageHead& operator=(LanguageHead&&) = default;
    // Return logits [..., vocab_size] of x [..., C], and the mean cross entropy of the logits of x
    // [N, C] and targets [N]. Without a bias, the loss does not store all logits.
    Tensor head_logits(const Tensor& x) const;
    Tensor head_loss(const Tensor& x, const Tensor& targets) const;
};

}  // namespace axle::nn
