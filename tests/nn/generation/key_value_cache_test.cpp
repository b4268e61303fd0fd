// Tests the pages of the cache of keys and values: sharing, copies and reuse.
#include "nn/generation/key_value_cache.h"

#include <algorithm>
#include <vector>

#include <gtest/gtest.h>

#include "core/autograd/autograd.h"
#include "core/memory/memory.h"
#include "core/ops.h"
#include "core/random.h"
#include "nn/generation/decoding.h"
#include "nn/models/gpt.h"
#include "nn/models/llama.h"
#include "tests/close.h"

namespace axle {
namespace {

using nn::KeyValueCache;
using nn::TokenIds;
using tests::expect_error;

constexpr std::int64_t kHeads = 4, kGroups = 2, kDepth = 8, kLayers = 3, kPage = 16;

// A cache, and the same keys and values in contiguous tensors, one list per sequence and layer.
class Reference {
  public:
    explicit Reference(const std::vector<std::int64_t>& lengths) : cache(kPage) {
        const std::int64_t longest = *std::ranges::max_element(lengths);
        cache.begin_prompts(lengths);
        sequences_.resize(lengths.size());
        for (std::int64_t layer = 0; layer < kLayers; ++layer) {
            const std::int64_t batch = std::ssize(lengths);
            const Tensor q = random(batch, kHeads, longest), k = random(batch, kGroups, longest);
            const Tensor v = random(batch, kGroups, longest);
            const Tensor y = cache.attend(q, k, v, {.causal = true});
            EXPECT_TRUE(equal(y, scaled_dot_product_attention(q, k, v, {.causal = true})));
            for (std::size_t b = 0; b < lengths.size(); ++b) append(b, k, v, lengths[b]);
        }
        cache.check_complete();
    }

    // Adds a token to each sequence, and compares the attention to all tokens.
    void step() {
        cache.begin_tokens();
        const std::int64_t batch = std::ssize(sequences_);
        for (std::int64_t layer = 0; layer < kLayers; ++layer) {
            const Tensor q = random(batch, kHeads, 1), k = random(batch, kGroups, 1);
            const Tensor v = random(batch, kGroups, 1);
            const Tensor y = cache.attend(q, k, v, {.causal = true});
            for (std::size_t b = 0; b < sequences_.size(); ++b) {
                const auto [keys, values] = sequences_[b][static_cast<std::size_t>(layer)];
                const auto row = static_cast<std::int64_t>(b);
                auto& stored = sequences_[b][static_cast<std::size_t>(layer)];
                stored = {cat({keys, k.narrow(0, row, 1)}, 2),
                          cat({values, v.narrow(0, row, 1)}, 2)};
                const Tensor expected =
                    scaled_dot_product_attention(q.narrow(0, row, 1), stored.keys, stored.values);
                EXPECT_LE(max(abs(y.narrow(0, row, 1) - expected)).item(), 1e-13) << b;
            }
        }
        cache.check_complete();
    }
    void steps(int count) {
        for (int i = 0; i < count; ++i) step();
    }
    void select(const std::vector<std::int64_t>& indices) {
        cache.select(indices);
        std::vector<std::vector<Stored>> kept;
        for (const std::int64_t index : indices)
            kept.push_back(sequences_[static_cast<std::size_t>(index)]);
        sequences_ = std::move(kept);
    }

    KeyValueCache cache;

  private:
    struct Stored {
        Tensor keys, values;
    };
    static Tensor random(std::int64_t batch, std::int64_t heads, std::int64_t time) {
        return randn({batch, heads, time, kDepth}, {.dtype = f64});
    }
    void append(std::size_t b, const Tensor& k, const Tensor& v, std::int64_t length) {
        const auto row = static_cast<std::int64_t>(b);
        sequences_[b].push_back(
            {k.narrow(0, row, 1).narrow(2, 0, length), v.narrow(0, row, 1).narrow(2, 0, length)});
    }

    std::vector<std::vector<Stored>> sequences_;
};

TEST(KeyValueCache, HasOnePagePerSequenceAndPageSizeOfTokens) {
    Reference x({40, 3, 16});
    EXPECT_EQ(x.cache.pages(), 3 + 1 + 1);  // no pages for the padding of the shorter prompts
    EXPECT_EQ(x.cache.bytes(), 5 * kLayers * kGroups * kPage * 2 * kDepth * 8);
    x.step();
    EXPECT_EQ(x.cache.pages(), 3 + 1 + 2);
    x.steps(13);  // the lengths are 54, 17 and 30
    EXPECT_EQ(x.cache.pages(), 4 + 2 + 2);
    EXPECT_EQ(x.cache.used_pages(), x.cache.pages());
    EXPECT_EQ(x.cache.bytes(), 8 * kLayers * kGroups * kPage * 2 * kDepth * 8);
}

TEST(KeyValueCache, GrowsByPagesWithoutACopyOfTheOthers) {
    Reference x({64});
    host_memory::reset_peak();
    const std::int64_t before = host_memory::stats().current;
    x.cache.begin_tokens();
    for (std::int64_t layer = 0; layer < kLayers; ++layer) {
        const Tensor q = zeros({1, kHeads, 1, kDepth}, {.dtype = f64});
        const Tensor k = zeros({1, kGroups, 1, kDepth}, {.dtype = f64});
        x.cache.attend(q, k, k, {});
    }
    // One page per layer, and less than half a page for the operands of a layer.
    const std::int64_t page = kGroups * kPage * 2 * kDepth * 8;
    EXPECT_LE(host_memory::stats().peak - before, kLayers * page + page / 2);
}

TEST(KeyValueCache, SharesPagesOfCopiedSequencesUntilTheyGrow) {
    Reference x({40});
    x.select({0, 0, 0, 0});
    EXPECT_EQ(x.cache.pages(), 3);
    x.step();  // copies the third page, which is not full, for all sequences except the last one
    EXPECT_EQ(x.cache.pages(), 3 + 3);
    x.steps(8);  // a fourth page for each sequence
    EXPECT_EQ(x.cache.pages(), 2 + 4 + 4);
    EXPECT_EQ(x.cache.used_pages(), 2 + 4 + 4);
}

TEST(KeyValueCache, DoesNotCopyFullSharedPages) {
    Reference x({32});
    x.select({0, 0});
    x.steps(2);
    EXPECT_EQ(x.cache.pages(), 2 + 2);
}

TEST(KeyValueCache, UsesPagesOfRemovedSequencesAgain) {
    Reference x({40, 3, 16});
    x.select({2, 1});
    EXPECT_EQ(x.cache.used_pages(), 2);
    const std::int64_t bytes = x.cache.bytes();
    x.steps(20);  // the lengths are 36 and 23
    EXPECT_EQ(x.cache.used_pages(), 3 + 2);
    EXPECT_EQ(x.cache.pages(), 5);
    EXPECT_EQ(x.cache.bytes(), bytes);
}

TEST(KeyValueCache, KeepsTheNumberOfPagesOfBeamsThatReplaceEachOther) {
    manual_seed(3);
    Reference x({33});
    x.select({0, 0, 0});
    const std::vector<std::vector<std::int64_t>> origins = {{0, 0, 2}, {1, 0, 1}, {2, 2, 2}};
    for (int i = 0; i < 30; ++i) {
        x.step();
        x.select(origins[static_cast<std::size_t>(i) % origins.size()]);
    }
    // A beam of 63 tokens has 4 pages; a step can need a copy for each beam before pages are freed.
    EXPECT_LE(x.cache.pages(), 3 * 4);
}

TEST(KeyValueCache, RejectsCallsWithAnotherNumberOfTokensOrSequences) {
    Reference x({4, 5});
    const auto attend = [&](std::int64_t batch, std::int64_t time) {
        x.cache.begin_tokens();
        const Tensor q = zeros({batch, kHeads, time, kDepth}, {.dtype = f64});
        const Tensor k = zeros({batch, kGroups, time, kDepth}, {.dtype = f64});
        x.cache.attend(q, k, k, {});
    };
    expect_error<UsageError>({"generate: use_cache must be false", "2 tokens", "layer 0 of 3"},
                             [&] { attend(2, 2); });
    expect_error<UsageError>({"generate: use_cache must be false", "3 sequences"},
                             [&] { attend(3, 1); });
}

// Models with a vocabulary of 50 and two layers, whose sequences can have 300 tokens.
nn::Gpt long_gpt() {
    manual_seed(4);
    nn::Gpt model({.vocab_size = 50, .block_size = 300, .n_layer = 2, .n_head = 2, .n_embd = 16});
    model.to(f64);
    return model;
}
nn::Llama long_llama() {
    manual_seed(5);
    nn::Llama model({.vocab_size = 50,
                     .hidden_size = 32,
                     .intermediate_size = 48,
                     .num_hidden_layers = 2,
                     .num_attention_heads = 4,
                     .num_key_value_heads = 2,
                     .max_position_embeddings = 300});
    model.to(f64);
    return model;
}

template <class Model>
void expect_same_sequences_without_cache(Model model, std::vector<TokenIds> prompts,
                                         std::int64_t count, nn::GenerateOptions options) {
    const auto generate = [&](bool use_cache) {
        manual_seed(6);
        options.use_cache = use_cache;
        return model.generate_batch(prompts, count, options);
    };
    EXPECT_EQ(generate(true), generate(false));
}

TokenIds counted(std::int64_t count) {
    TokenIds ids;
    for (std::int64_t i = 0; i < count; ++i) ids.push_back(7 * i % 50);
    return ids;
}

TEST(Generate, GivesTheSameSequencesBeyondSeveralPages) {
    const std::vector<TokenIds> prompts = {counted(60), counted(3), counted(130)};
    expect_same_sequences_without_cache(long_gpt(), prompts, 80, {.temperature = 0});
    expect_same_sequences_without_cache(long_llama(), prompts, 80, {.temperature = 0});
}

TEST(Generate, DrawsTheSameSamplesWithAndWithoutTheCache) {
    const std::vector<TokenIds> prompts = {counted(60), counted(3), counted(60), counted(60)};
    expect_same_sequences_without_cache(long_gpt(), prompts, 70, {.top_k = 20});
    expect_same_sequences_without_cache(long_llama(), prompts, 70, {.top_p = 0.9});
}

TEST(Generate, FindsTheSameBeamsBeyondSeveralPages) {
    expect_same_sequences_without_cache(long_gpt(), {counted(50)}, 90, {.num_beams = 4});
    expect_same_sequences_without_cache(long_llama(), {counted(60)}, 20,
                                        {.num_beams = 3, .eos_token_id = {3, 14, 15}});
}

TEST(Generate, ComputesEqualPromptsOnce) {
    nn::Gpt model = long_gpt();
    std::vector<std::int64_t> tokens;
    const auto handle = model.transformer.register_forward_pre_hook(
        [&](nn::Module&, std::vector<Tensor>& inputs) { tokens.push_back(inputs[0].numel()); });
    const std::vector<TokenIds> prompts = {counted(20), counted(7), counted(20), counted(20)};
    const auto sequences = model.generate_batch(prompts, 2, {.temperature = 0});
    EXPECT_EQ(tokens, (std::vector<std::int64_t>{2 * 20, 4}));
    EXPECT_EQ(sequences[0], sequences[3]);
    EXPECT_EQ(sequences[1], model.generate(counted(7), 2, {.temperature = 0}));
}

// Returns the bytes that a long generation of several sequences keeps at its peak.
std::int64_t peak_of(const std::vector<TokenIds>& prompts) {
    nn::Gpt model = long_gpt();
    host_memory::reset_peak();
    const std::int64_t before = host_memory::stats().current;
    model.generate_batch(prompts, 2, {.temperature = 0});
    return host_memory::stats().peak - before;
}

TEST(Generate, NeedsLittleMoreMemoryForMoreSamplesOfAPrompt) {
    EXPECT_LE(peak_of({counted(290), counted(290), counted(290), counted(290)}),
              1.3 * static_cast<double>(peak_of({counted(290)})));
}

}  // namespace
}  // namespace axle
