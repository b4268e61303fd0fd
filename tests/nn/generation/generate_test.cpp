// Compares generated sequences with Transformers (tests/golden/record_generation.py), and tests the
// options of nn::generate().
#include "nn/generation/generate.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "core/autograd/autograd.h"
#include "core/files/file.h"
#include "core/random.h"
#include "core/tree/tree.h"
#include "gmock/gmock.h"
#include "nn/layers/layers.h"
#include "nn/layers/sequence_policy.h"
#include "nn/models/gpt.h"
#include "nn/models/llama.h"
#include "nn/models/text/mixtral.h"
#include "tests/close.h"
#include "tests/nn/golden.h"

namespace axle {
namespace {

using nn::TokenIds;
using testing::ElementsAre;
using testing::UnorderedElementsAre;
using tests::expect_error;

TokenIds ids_of(const Tree& list) {
    TokenIds ids;
    for (const Tree& id : list.elements()) ids.push_back(id.integer());
    return ids;
}
std::vector<TokenIds> sequences_of(const Tree& list) {
    std::vector<TokenIds> sequences;
    for (const Tree& ids : list.elements()) sequences.push_back(ids_of(ids));
    return sequences;
}

nn::GenerateOptions options_of(const Tree& fields) {
    nn::GenerateOptions options{.temperature = 0};
    for (const auto& [name, value] : fields.entries()) {
        if (name == "num_beams") options.num_beams = value.integer();
        if (name == "repetition_penalty") options.repetition_penalty = value.number();
        if (name == "length_penalty") options.length_penalty = value.number();
        if (name == "early_stopping") options.early_stopping = value.boolean();
        if (name == "eos_token_id") options.eos_token_id = ids_of(value);
    }
    return options;
}

// Generates every recorded sequence with one model.
template <class Model>
void expect_recorded_sequences(const std::string& name, bool use_cache) {
    Model model = Model::from_pretrained(tests::golden_path(name));
    model.to(f64);
    int compared = 0;
    for (const Tree& entry :
         from_json(read_file(tests::golden_path("generation.json"))).elements()) {
        if (entry["model"].string() != name) continue;
        nn::GenerateOptions options = options_of(entry["options"]);
        options.use_cache = use_cache;
        EXPECT_EQ(model.generate_batch(sequences_of(entry["prompts"]), 10, options),
                  sequences_of(entry["sequences"]))
            << to_json(entry["options"]);
        ++compared;
    }
    EXPECT_EQ(compared, 11);
}

TEST(Generate, GivesTheSequencesOfTransformersForGpt) {
    expect_recorded_sequences<nn::Gpt>("gpt2_tiny", true);
}
TEST(Generate, GivesTheSequencesOfTransformersForLlama) {
    expect_recorded_sequences<nn::Llama>("llama_tiny", true);
}
TEST(Generate, GivesTheSequencesOfTransformersWithoutACache) {
    expect_recorded_sequences<nn::Gpt>("gpt2_tiny", false);
    expect_recorded_sequences<nn::Llama>("llama_tiny", false);
}

nn::Gpt tiny_gpt() { return nn::Gpt::from_pretrained(tests::golden_path("gpt2_tiny")); }

// A model whose next token has the same probabilities after every sequence.
struct FixedModel : nn::Model<FixedModel> {
    explicit FixedModel(std::vector<double> probabilities) {
        for (double& p : probabilities) p = std::log(p);
        logits = tensor(probabilities).to(f32);
    }
    Tensor forward(const Tensor& ids) {
        const std::int64_t tokens = logits.numel();
        return expand(logits.reshape({1, 1, tokens}), {ids.size(0), ids.size(1), tokens});
    }
    void visit(nn::Visitor& v) override { v.buffer("logits", logits); }

    Tensor logits;
};

// Returns the share of each token in 2,000 draws.
std::map<std::int64_t, double> shares(const std::vector<double>& probabilities,
                                      const nn::GenerateOptions& options) {
    manual_seed(1);
    FixedModel model(probabilities);
    constexpr int kDraws = 2000;
    const TokenIds ids = nn::generate(
        model, [&](const Tensor& window) { return model(window); }, 1, {0}, kDraws, options);
    std::map<std::int64_t, double> result;
    for (std::size_t i = 1; i < ids.size(); ++i) result[ids[i]] += 1.0 / kDraws;
    return result;
}

// Expects the given shares, within four standard deviations, and no other tokens.
void expect_shares(const std::map<std::int64_t, double>& actual,
                   const std::map<std::int64_t, double>& expected) {
    EXPECT_EQ(actual.size(), expected.size());
    for (const auto& [token, share] : expected) {
        ASSERT_TRUE(actual.contains(token)) << token;
        EXPECT_NEAR(actual.at(token), share, 0.045) << token;
    }
}

const std::vector<double> kProbabilities = {0.05, 0.5, 0.15, 0.3};

TEST(GenerateSampling, DrawsTokensWithTheirProbabilities) {
    expect_shares(shares(kProbabilities, {}), {{0, 0.05}, {1, 0.5}, {2, 0.15}, {3, 0.3}});
}

TEST(GenerateSampling, DividesLogitsByTheTemperature) {
    // With temperature 0.5, probabilities are squared and normalized.
    const double total = 0.0025 + 0.25 + 0.0225 + 0.09;
    const auto drawn = shares(kProbabilities, {.temperature = 0.5});
    EXPECT_NEAR(drawn.at(1), 0.25 / total, 0.045);
    EXPECT_NEAR(drawn.at(3), 0.09 / total, 0.045);
}

TEST(GenerateSampling, KeepsTheTopKMostProbableTokens) {
    expect_shares(shares(kProbabilities, {.top_k = 2}), {{1, 0.625}, {3, 0.375}});
}

TEST(GenerateSampling, KeepsTheSmallestSetWithTheProbabilityTopP) {
    expect_shares(shares(kProbabilities, {.top_p = 0.7}), {{1, 0.625}, {3, 0.375}});
    expect_shares(shares(kProbabilities, {.top_p = 0.82}),
                  {{1, 0.5 / 0.95}, {3, 0.3 / 0.95}, {2, 0.15 / 0.95}});
    expect_shares(shares(kProbabilities, {.top_p = 1e-6}), {{1, 1}});
}

TEST(GenerateSampling, KeepsTokensWithAtLeastMinPTimesTheHighestProbability) {
    expect_shares(shares(kProbabilities, {.min_p = 0.29}),
                  {{1, 0.5 / 0.95}, {3, 0.3 / 0.95}, {2, 0.15 / 0.95}});
    expect_shares(shares(kProbabilities, {.min_p = 0.31}), {{1, 0.625}, {3, 0.375}});
}

TEST(GenerateSampling, CombinesTopPAndMinP) {
    expect_shares(shares(kProbabilities, {.top_p = 0.7, .min_p = 0.61}), {{1, 1}});
}

TEST(GenerateSampling, DrawsTheSameTokensAgainAfterSeeding) {
    nn::Gpt model = tiny_gpt();
    const auto draw = [&](std::uint64_t seed) {
        manual_seed(seed);
        return model.generate_batch({{1, 2}, {3}}, 9, {.top_p = 0.9});
    };
    EXPECT_EQ(draw(4), draw(4));
    EXPECT_NE(draw(4), draw(5));
}

TEST(Generate, ContinuesBeyondTheBlockSizeFromTheLastTokens) {
    nn::Gpt model = tiny_gpt();
    const std::int64_t longest = model.config.block_size;
    TokenIds expected = {1, 2};
    const NoGrad no_grad;
    while (std::ssize(expected) < longest + 6) {
        const auto count = std::min(std::ssize(expected), longest);
        const TokenIds window(expected.end() - count, expected.end());
        expected.push_back(argmax(model(tensor(window, {1, count})).select(1, -1), -1).item_int());
    }
    EXPECT_EQ(model.generate({1, 2}, longest + 4, {.temperature = 0}), expected);
}

// Returns the number of tokens in each call of the part of a model below its head.
template <class Model, class Body>
std::vector<std::int64_t> tokens_per_call(Model& model, Body& body, bool use_cache) {
    std::vector<std::int64_t> counts;
    const auto handle = body.register_forward_pre_hook(
        [&](nn::Module&, std::vector<Tensor>& inputs) { counts.push_back(inputs[0].numel()); });
    model.generate_batch({{1, 2, 3}, {4}}, 4, {.temperature = 0, .use_cache = use_cache});
    return counts;
}

nn::Mixtral seeded_mixtral() {
    manual_seed(2);
    nn::Mixtral model({.vocab_size = 40,
                       .hidden_size = 16,
                       .intermediate_size = 20,
                       .num_hidden_layers = 2,
                       .num_attention_heads = 4,
                       .num_key_value_heads = 2,
                       .num_local_experts = 3});
    model.to(f64);
    return model;
}

TEST(Generate, ComputesOneTokenOfEachSequenceInAStepWithACache) {
    nn::Gpt gpt = tiny_gpt();
    nn::Llama llama = nn::Llama::from_pretrained(tests::golden_path("llama_tiny"));
    nn::Mixtral mixtral = seeded_mixtral();
    EXPECT_THAT(tokens_per_call(gpt, gpt.transformer, true), ElementsAre(6, 2, 2, 2));
    EXPECT_THAT(tokens_per_call(llama, llama.model, true), ElementsAre(6, 2, 2, 2));
    EXPECT_THAT(tokens_per_call(mixtral, mixtral.model, true), ElementsAre(6, 2, 2, 2));
    EXPECT_THAT(tokens_per_call(gpt, gpt.transformer, false), ElementsAre(6, 8, 10, 12));
}

TEST(Generate, CallsTheHooksOfTheModel) {
    nn::Gpt model = tiny_gpt();
    const TokenIds expected = model.generate({1, 2}, 3, {.temperature = 0});
    int calls = 0;
    const auto handle = model.register_forward_hook(
        [&](nn::Module&, const std::vector<Tensor>&, std::vector<Tensor>&) { ++calls; });
    EXPECT_EQ(model.generate({1, 2}, 3, {.temperature = 0}), expected);
    EXPECT_EQ(calls, 3);
}

// A model that attends only in calls with several tokens, or that ignores position_ids.
struct IrregularModel : nn::Model<IrregularModel> {
    nn::Embedding table{8, 4};
    bool uses_positions = true;

    nn::DecoderFunctions decoder() {
        return {.logits =
                    [this](const Tensor& ids, const Tensor& position_ids,
                           const nn::DecoderFunctions::LastTokens& last) {
                        const Tensor x = table(ids).unsqueeze(1);
                        if (!uses_positions) return last(nn::rotary_positions(x, 100).squeeze(1));
                        const bool is_prompt = !position_ids.defined();
                        return last(
                            (is_prompt ? nn::attention(x, x, x, {.causal = true}) : x).squeeze(1));
                    },
                .longest = 16};
    }
    void visit(nn::Visitor& v) override { v("table", table); }
};

TEST(Generate, RefusesModelsThatCannotUseTheCache) {
    IrregularModel model;
    expect_error<UsageError>({"generate: use_cache must be false", "no attention", "layer 0 of 1"},
                             [&] {
                                 nn::generate(model, model.decoder(), {{1, 2}}, 2);
                             });
    EXPECT_EQ(nn::generate(model, model.decoder(), {{1, 2}}, 2, {.use_cache = false})[0].size(),
              4u);
    model.uses_positions = false;  // without attention, there is no cache
    EXPECT_EQ(nn::generate(model, model.decoder(), {{1, 2}}, 2)[0].size(), 4u);
}

TEST(Generate, EndsEachSequenceAtItsFirstEosToken) {
    nn::Gpt model = tiny_gpt();
    const std::vector<TokenIds> prompts = {{1, 2}, {3}, {4, 5, 6}};
    const auto whole = model.generate_batch(prompts, 8, {.temperature = 0});
    const std::int64_t end = whole[1][4];  // the fourth new token of the second sequence
    const auto ended = model.generate_batch(prompts, 8, {.temperature = 0, .eos_token_id = {end}});
    for (std::size_t i = 0; i < prompts.size(); ++i) {
        const auto first_new = whole[i].begin() + std::ssize(prompts[i]);
        const auto at = std::find(first_new, whole[i].end(), end);
        const auto stop = at == whole[i].end() ? at : at + 1;
        EXPECT_EQ(ended[i], TokenIds(whole[i].begin(), stop)) << i;
    }
    EXPECT_EQ(ended[1].size(), 5u);
}

TEST(Generate, CallsOnTokenWithEachNewTokenUntilItReturnsFalse) {
    nn::Gpt model = tiny_gpt();
    const auto whole = model.generate_batch({{1, 2}, {3}}, 5, {.temperature = 0});
    std::vector<TokenIds> seen = {{1, 2}, {3}};
    const auto ended = model.generate_batch(
        {{1, 2}, {3}}, 5,
        {.temperature = 0, .on_token = [&](std::int64_t sequence, std::int64_t token) {
             TokenIds& ids = seen[static_cast<std::size_t>(sequence)];
             ids.push_back(token);
             return !(sequence == 1 && ids.size() == 3);
         }});
    EXPECT_EQ(ended, seen);
    EXPECT_EQ(ended[0], whole[0]);
    EXPECT_EQ(ended[1], TokenIds(whole[1].begin(), whole[1].begin() + 3));
}

TEST(Generate, GivesTheSameSequencesWithAndWithoutTheCacheOfMixtral) {
    nn::Mixtral model = seeded_mixtral();
    const std::vector<TokenIds> prompts = {{1, 2}, {3}, {4, 5, 6}};
    EXPECT_EQ(model.generate_batch(prompts, 8, {.temperature = 0}),
              model.generate_batch(prompts, 8, {.temperature = 0, .use_cache = false}));
}

TEST(Generate, ReturnsThePromptsForCountZero) {
    nn::Gpt model = tiny_gpt();
    EXPECT_THAT(model.generate_batch({{1}, {2, 3}}, 0), ElementsAre(TokenIds{1}, TokenIds{2, 3}));
}

TEST(Generate, RestoresTheTrainingModeAfterAnException) {
    nn::Gpt model = tiny_gpt();
    model.train();
    const auto fail = [](std::int64_t, std::int64_t) -> bool { throw ValueError("stop"); };
    expect_error<ValueError>({"stop"}, [&] { model.generate({1}, 3, {.on_token = fail}); });
    EXPECT_TRUE(model.is_training());
    EXPECT_EQ(model.generate({1}, 3, {.temperature = 0}).size(), 4u);
}

TEST(Generate, RejectsOptionsOutOfRangeAndOptionsThatBeamSearchDoesNotSupport) {
    nn::Gpt model = tiny_gpt();
    const auto rejects = [&](std::initializer_list<const char*> parts,
                             const nn::GenerateOptions& options) {
        expect_error<ValueError>(parts, [&] { model.generate({1}, 2, options); });
    };
    rejects({"generate: temperature", "at least 0", "-1"}, {.temperature = -1});
    rejects({"generate: temperature", "nan"}, {.temperature = NAN});
    rejects({"generate: top_k", "at least 0", "-3"}, {.top_k = -3});
    rejects({"generate: top_p", "(0, 1]", "0"}, {.top_p = 0});
    rejects({"generate: top_p", "(0, 1]", "1.5"}, {.top_p = 1.5});
    rejects({"generate: min_p", "[0, 1]", "2"}, {.min_p = 2});
    rejects({"generate: repetition_penalty", "positive", "0"}, {.repetition_penalty = 0});
    rejects({"generate: repetition_penalty", "finite", "inf"}, {.repetition_penalty = INFINITY});
    rejects({"generate: length_penalty", "finite", "nan"}, {.length_penalty = NAN});
    rejects({"generate: num_beams", "from 1 to 65536", "0"}, {.num_beams = 0});
    rejects({"generate: num_beams", "65537"}, {.num_beams = 65537});
    rejects({"generate: temperature", "beam search", "0.5"}, {.temperature = 0.5, .num_beams = 2});
    rejects({"generate: top_k", "beam search", "5"}, {.top_k = 5, .num_beams = 2});
    rejects({"generate: top_p", "beam search", "0.5"}, {.top_p = 0.5, .num_beams = 2});
    rejects({"generate: on_token", "beam search"},
            {.num_beams = 2, .on_token = [](std::int64_t, std::int64_t) { return true; }});
}

TEST(Generate, RejectsEmptyPromptsAndNegativeCounts) {
    nn::Gpt model = tiny_gpt();
    expect_error<ValueError>({"generate: ", "at least one prompt"},
                             [&] { model.generate_batch({}, 1); });
    expect_error<ValueError>({"generate: ", "prompts[1] of 2 is empty"}, [&] {
        model.generate_batch({{1}, {}}, 1);
    });
    expect_error<ValueError>({"generate: ", "-2"}, [&] { model.generate({1}, -2); });
}

}  // namespace
}  // namespace axle
