#include "nn/layers/sequence_policy.h"

#include <memory>
#include <thread>

#include "core/autograd/autograd.h"
#include "core/random.h"
#include "nn/layers/attention.h"
#include "nn/layers/layers.h"
#include "nn/models/bert.h"
#include "nn/models/gpt.h"
#include "nn/models/llama.h"
#include "tests/close.h"

namespace axle {
namespace {

using tests::expect_close;

// A policy for the positions {4, 5, 0, 1} of sequences of 8 tokens, which counts the calls of
// attend().
struct HalfPolicy : nn::SequencePolicy {
    Tensor attend(const Tensor& q, const Tensor& k, const Tensor& v,
                  const AttentionOptions& options) override {
        ++calls;
        return scaled_dot_product_attention(q, k, v, options);
    }
    std::vector<nn::PositionRange> positions(std::int64_t time) const override {
        return {{4, time / 2}, {0, time / 2}};
    }
    std::int64_t parts() const override { return 2; }

    int calls = 0;
};

TEST(SequencePolicy, SelectsTheRowsAndRotationsOfItsPositions) {
    const Tensor table = arange(16).reshape({8, 2});
    const Tensor x = randn({2, 4, 6}, {.dtype = f64}), whole = randn({1, 8, 6}, {.dtype = f64});
    expect_close(nn::position_rows(table, 4), table.narrow(0, 0, 4));
    expect_close(nn::rotary_positions(x, 100), rotary_embedding(x, 100));
    EXPECT_EQ(nn::whole_length(4), 4);
    const ForwardContextGuard context(std::make_shared<HalfPolicy>());
    expect_close(nn::position_rows(table, 4), cat({table.narrow(0, 4, 2), table.narrow(0, 0, 2)}));
    const auto select = [](const Tensor& t) {
        return cat({t.narrow(1, 4, 2), t.narrow(1, 0, 2)}, 1);
    };
    expect_close(nn::rotary_positions(select(whole), 100), select(rotary_embedding(whole, 100)),
                 1e-12);
    EXPECT_EQ(nn::whole_length(4), 8);
}

TEST(SequencePolicy, DropsTheElementsThatAreDroppedInTheWholeSequence) {
    nn::Dropout layer(0.5);
    const Tensor whole = ones({3, 8, 5}, {.dtype = f64});
    manual_seed(5);
    const Tensor dropped = layer(whole);
    manual_seed(5);
    const ForwardContextGuard context(std::make_shared<HalfPolicy>());
    const Tensor part = layer(ones({3, 4, 5}, {.dtype = f64}));
    expect_close(part, cat({dropped.narrow(1, 4, 2), dropped.narrow(1, 0, 2)}, 1));
    layer.eval();
    expect_close(layer(whole), whole);
}

TEST(SequencePolicy, ComputesTheAttentionOfModels) {
    const auto policy = std::make_shared<HalfPolicy>();
    nn::Gpt gpt({.vocab_size = 5, .block_size = 8, .n_layer = 2, .n_head = 2, .n_embd = 4});
    nn::Llama llama({.vocab_size = 5,
                     .hidden_size = 8,
                     .intermediate_size = 8,
                     .num_hidden_layers = 3,
                     .num_attention_heads = 2});
    nn::MultiheadAttention attention(8, 2);
    const Tensor ids = zeros({1, 4}, {.dtype = i64});
    {
        const ForwardContextGuard context(policy);
        gpt(ids);
        EXPECT_EQ(policy->calls, 2);
        llama(ids);
        EXPECT_EQ(policy->calls, 5);
        const Tensor x = ones({1, 4, 8});
        attention(x, x, x);
        EXPECT_EQ(policy->calls, 6);
        tests::expect_error<ShapeError>({"gpt: ids must be [batch, time] with time at most"}, [&] {
            gpt(zeros({1, 6}, {.dtype = i64}));
        });
        std::thread([] { EXPECT_EQ(nn::sequence_policy(), nullptr); }).join();
    }
    gpt(ids);
    EXPECT_EQ(policy->calls, 6);
}

TEST(SequencePolicy, CannotBeUsedWithThePooledOutputOfBert) {
    nn::BertConfig config{.vocab_size = 11,
                          .hidden_size = 8,
                          .num_hidden_layers = 1,
                          .num_attention_heads = 2,
                          .intermediate_size = 16};
    nn::Bert bert(config, true);
    const Tensor hidden = ones({2, 4, 8});
    EXPECT_EQ(bert.pooled(hidden).shape(), (Shape{2, 8}));
    const ForwardContextGuard context(std::make_shared<HalfPolicy>());
    tests::expect_error<UsageError>({"bert: pooled() needs the first token of whole sequences"},
                                    [&] { bert.pooled(hidden); });
}

// The backward pass runs after the scope, but recomputes the blocks with the policy of the forward
// pass.
TEST(SequencePolicy, IsUsedWhenBlocksAreRecomputed) {
    const auto policy = std::make_shared<HalfPolicy>();
    nn::Gpt gpt({.vocab_size = 5,
                 .block_size = 8,
                 .n_layer = 2,
                 .n_head = 2,
                 .n_embd = 4,
                 .checkpoint_blocks = true});
    Tensor loss;
    {
        const ForwardContextGuard context(policy);
        const Tensor ids = zeros({1, 4}, {.dtype = i64});
        loss = gpt.loss(ids, ids);
    }
    EXPECT_EQ(policy->calls, 2);
    loss.backward();
    EXPECT_EQ(policy->calls, 4);
}

}  // namespace
}  // namespace axle
