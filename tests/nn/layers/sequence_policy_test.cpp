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

// A policy for the positions {4, 5, 0, 1} of sequences of 8 tokens. Counts the calls of attend().
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
    // The part of the other process consists of zeros.
    Tensor whole_sequences(const Tensor& x) const override {
        const Tensor zero = zeros_like(x.narrow(1, 0, 2));
        return cat({x.narrow(1, 2, 2), zero, x.narrow(1, 0, 2), zero}, 1);
    }

    int calls = 0;
};

TEST(SequencePolicy, SelectsTheRowsAndRotationsOfItsPositions) {
    const Tensor table = arange(16).to(f32).reshape({8, 2});
    const Tensor x = randn({2, 4, 6}, {.dtype = f64}), whole = randn({1, 8, 6}, {.dtype = f64});
    expect_close(nn::position_rows(table, 4), table.narrow(0, 0, 4));
    expect_close(nn::rotary_positions(x, 100), rotary_embedding(x, 100));
    expect_close(nn::position_rows(table, 2, tensor({7, 1}, {1, 2}, {i64})),
                 cat({table.narrow(0, 7, 1), table.narrow(0, 1, 1)}).reshape({1, 2, 2}));
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

// Token t of sequence b has the position positions[b, t].
TEST(RotaryPositions, RotateByTheGivenPositions) {
    const Tensor x = randn({2, 3, 4, 6}, {.dtype = f64}).set_requires_grad();
    const Tensor positions = tensor({3, 0, 1, 1, 6, 7, 2, 0}, {2, 4}, {i64});
    const Tensor rotation = nn::rotary_rotation(positions, 8, 6, 100, f64);
    EXPECT_EQ(rotation.shape(), Shape({2, 1, 4, 6}));
    const Tensor y = nn::rotary_positions(x, 100, rotation);
    for (std::int64_t b = 0; b < 2; ++b)
        for (std::int64_t t = 0; t < 4; ++t) {
            const auto at = static_cast<std::int64_t>(positions.select(0, b).select(0, t).item());
            const auto token = [&](const Tensor& all) {
                return all.narrow(0, b, 1).narrow(2, t, 1);
            };
            expect_close(token(y), rotary_embedding(token(x), 100, at), 1e-14);
        }
    y.pow(2).sum().backward();
    expect_close(x.grad(), 2 * x.detach(), 1e-13);  // a rotation does not change norms
    const Tensor half = nn::rotary_positions(x.detach().to(bf16), 100, rotation);
    EXPECT_EQ(half.dtype(), bf16);
    expect_close(half.to(f64), y.detach(), 0.03);
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

TEST(SequencePolicy, ComputesTheAttentionOfModelsInItsScopeAndThreadOnly) {
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
