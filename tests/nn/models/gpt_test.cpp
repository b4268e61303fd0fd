#include "nn/models/gpt.h"

#include <cmath>
#include <set>

#include "core/autograd/autograd.h"
#include "core/random.h"
#include "tests/close.h"

namespace axle {
namespace {

using tests::expect_close;
using tests::expect_error;
using tests::expect_same_bits;
using Ids = std::vector<std::int64_t>;

const nn::GptConfig kSmall = {
    .vocab_size = 13, .block_size = 8, .n_layer = 3, .n_head = 2, .n_embd = 8};

// Returns a GPT with large weights, so that the probabilities of tokens differ clearly.
nn::Gpt small_gpt(nn::GptConfig config = kSmall) {
    manual_seed(5);
    nn::Gpt model(config);
    for (Tensor& parameter : model.parameters()) {
        const NoGrad no_grad;
        parameter.add_(0.3 * randn(parameter.shape()));
    }
    return model;
}

TEST(Gpt, HasTheDocumentedInitialWeights) {
    manual_seed(6);
    const nn::Gpt model(
        {.vocab_size = 200, .block_size = 100, .n_layer = 8, .n_head = 2, .n_embd = 64});
    for (const auto& [name, parameter] : model.named_parameters()) {
        const Tensor p = parameter.detach();
        const bool is_norm = name.find("ln_") != std::string::npos;
        if (name.ends_with("bias")) {
            EXPECT_EQ(p.abs().max().item(), 0) << name;
        } else if (is_norm) {
            EXPECT_EQ((p - 1).abs().max().item(), 0) << name;
        } else {
            const double expected = name.ends_with("c_proj.weight") ? 0.02 / 4 : 0.02;
            EXPECT_NEAR(std::sqrt(var(p).item()), expected, 0.05 * expected) << name;
            EXPECT_NEAR(p.mean().item(), 0, 0.05 * expected) << name;
        }
    }
}

TEST(Gpt, CountsParametersOfItsTiedHeadOnce) {
    const nn::Gpt model(kSmall);
    EXPECT_EQ(model.num_parameters(), (13 + 8) * 8 + 3 * (12 * 64 + 13 * 8) + 2 * 8);
}

TEST(Gpt, ComputesTheLossFromItsLogits) {
    nn::Gpt model = small_gpt();
    const Tensor ids = randint(0, 13, {3, 7});
    const Tensor labels = masked_fill(randint(0, 13, {3, 7}), eq(ids, 4), -100);
    expect_close(model.loss(ids, labels),
                 cross_entropy(model(ids).reshape({21, 13}), labels.reshape({21})));
}

TEST(Gpt, DoesNotAttendToLaterPositions) {
    nn::Gpt model = small_gpt();
    const Tensor ids = randint(0, 13, {2, 8});
    expect_close(model(ids).narrow(1, 0, 5).detach(), model(ids.narrow(1, 0, 5)).detach());
}

TEST(Gpt, DisablesAllDropoutInEvaluation) {
    nn::GptConfig config = kSmall;
    config.dropout = 0.5;
    nn::Gpt model = small_gpt(config);
    const Tensor ids = randint(0, 13, {2, 8});
    EXPECT_NE(model(ids).to_vector(), model(ids).to_vector());
    model.eval();
    expect_same_bits(model(ids).detach(), model(ids).detach());
    nn::Gpt without = small_gpt();
    without.load_state_dict(model.state_dict());
    expect_same_bits(model(ids).detach(), without(ids).detach());
}

TEST(Gpt, AppliesEachKindOfDropout) {
    const Tensor ids = randint(0, 13, {2, 8});
    const auto is_random = [&](nn::GptConfig config) {
        nn::Gpt model = small_gpt(config);
        return model(ids).to_vector() != model(ids).to_vector();
    };
    nn::GptConfig embeddings = kSmall, attention = kSmall, plain = kSmall;
    embeddings.embd_dropout = attention.attn_dropout = 0.5;
    EXPECT_TRUE(is_random(embeddings));
    EXPECT_TRUE(is_random(attention));
    EXPECT_FALSE(is_random(plain));
    plain.dropout = 0.5;  // affects only the residual dropout; the next line sets the other two
    plain.embd_dropout = plain.attn_dropout = 0;
    EXPECT_TRUE(is_random(plain));
}

TEST(Gpt, RejectsInvalidIdsLabelsAndHeads) {
    nn::Gpt model(kSmall);
    expect_error<ShapeError>({"gpt: ", "8", "[1, 9]"}, [&] { model(zeros({1, 9}, {i64})); });
    expect_error<ShapeError>({"gpt: ", "[8]"}, [&] { model(zeros({8}, {i64})); });
    expect_error<ShapeError>({"gpt: ", "[1, 3]", "[1, 4]"}, [&] {
        model.loss(zeros({1, 4}, {i64}), zeros({1, 3}, {i64}));
    });
    expect_error<ValueError>({"GptConfig: n_embd", "8", "3"}, [] {
        nn::GptConfig config = kSmall;
        config.n_head = 3;
        nn::Gpt{config};
    });
}

// --- comparison with an untied model

class GptGradients : public testing::TestWithParam<double> {};

TEST_P(GptGradients, MatchModelWithoutTyingFreezingOrCheckpointing) {
    nn::GptConfig config = kSmall;
    config.dropout = GetParam();
    config.checkpoint_blocks = true;
    nn::Gpt model = small_gpt(config);
    model.to(f64);
    nn::Gpt copy = model.clone();
    copy.transformer.checkpoint_blocks = false;
    Tensor head = copy.transformer.wte.weight.detach().clone().set_requires_grad();
    model.transformer.wpe.requires_grad_(false);
    model.transformer.h[1].attn.requires_grad_(false);

    const Tensor ids = randint(0, 13, {2, 8}), labels = randint(0, 13, {2, 8});
    manual_seed(9);
    const Tensor loss = model.loss(ids, labels);
    loss.backward();
    manual_seed(9);
    const Tensor logits = linear(copy.transformer(ids), head);
    const Tensor expected = cross_entropy(logits.reshape({16, 13}), labels.reshape({16}));
    expected.backward();

    expect_close(loss.detach(), expected.detach(), 1e-12);
    const nn::StateDict copies = copy.named_parameters();
    std::size_t i = 0;
    for (const auto& [name, parameter] : model.named_parameters()) {
        SCOPED_TRACE(name);
        const Tensor& other = copies[i++].second;
        if (name == "transformer.wte.weight")
            expect_close(parameter.grad(), other.grad() + head.grad(), 1e-9);
        else if (name.find("wpe") != std::string::npos ||
                 name.find("h.1.attn") != std::string::npos)
            EXPECT_FALSE(parameter.grad().defined());
        else
            expect_close(parameter.grad(), other.grad(), 1e-9);
    }
}

INSTANTIATE_TEST_SUITE_P(WithoutAndWithDropout, GptGradients, testing::Values(0.0, 0.2));

TEST(Gpt, GivesSameGradientBitsWithCheckpointing) {
    nn::GptConfig config = kSmall;
    config.dropout = 0.3;
    nn::Gpt kept = small_gpt(config), recomputed = kept.clone();
    recomputed.transformer.checkpoint_blocks = true;
    const Tensor ids = randint(0, 13, {2, 8});
    for (nn::Gpt* model : {&kept, &recomputed}) {
        manual_seed(2);
        model->loss(ids, ids).backward();
    }
    const std::vector<Tensor> a = kept.parameters(), b = recomputed.parameters();
    for (std::size_t i = 0; i < a.size(); ++i) expect_same_bits(a[i].grad(), b[i].grad());
}

// --- generate

std::int64_t likeliest(nn::Gpt& model, const Ids& ids) {
    const Ids window(ids.end() - std::min<std::ptrdiff_t>(8, std::ssize(ids)), ids.end());
    const Tensor logits = model(tensor(window, {1, std::ssize(window)})).detach();
    return argmax(logits.select(1, -1), -1).item_int();
}

TEST(GptGenerate, ReturnsTheMostLikelyTokensAtTemperatureZeroOrWithTopKOne) {
    nn::Gpt model = small_gpt();
    model.eval();
    Ids expected = {1, 2};
    for (int i = 0; i < 14; ++i) expected.push_back(likeliest(model, expected));
    EXPECT_EQ(model.generate({1, 2}, 14, {.temperature = 0}), expected);
    EXPECT_EQ(model.generate({1, 2}, 14, {.temperature = 0}), expected);
    EXPECT_EQ(model.generate({1, 2}, 14, {.top_k = 1}), expected);
    EXPECT_EQ(model.generate({1, 2}, 0), Ids({1, 2}));
}

TEST(GptGenerate, SamplesOnlyFromTheKMostLikelyTokens) {
    nn::Gpt model = small_gpt();
    const Ids prompt = {3, 1, 4};
    const Tensor logits = model(tensor(prompt, {1, 3})).detach().select(1, -1);
    std::set<std::int64_t> best, seen, all;
    for (const double id : topk(logits, 3).second.to_vector())
        best.insert(static_cast<std::int64_t>(id));
    for (int i = 0; i < 300; ++i) {
        seen.insert(model.generate(prompt, 1, {.temperature = 3, .top_k = 3}).back());
        all.insert(model.generate(prompt, 1, {.temperature = 3}).back());
    }
    EXPECT_EQ(seen, best);
    EXPECT_GT(all.size(), 3U);
}

TEST(GptGenerate, IsReproducibleWithTheSameSeed) {
    nn::Gpt model = small_gpt();
    const auto sample = [&](std::uint64_t seed) {
        manual_seed(seed);
        return model.generate({1}, 30);
    };
    EXPECT_EQ(sample(1), sample(1));
    EXPECT_NE(sample(1), sample(2));
}

TEST(GptGenerate, DisablesDropoutAndRestoresTrainingModes) {
    nn::GptConfig config = kSmall;
    config.dropout = 0.5;
    nn::Gpt model = small_gpt(config);
    model.transformer.h[0].eval();
    EXPECT_EQ(model.generate({1}, 20, {.temperature = 0}),
              model.generate({1}, 20, {.temperature = 0}));
    EXPECT_THROW(model.generate({99}, 1), Error);
    EXPECT_TRUE(model.is_training());
    EXPECT_TRUE(model.transformer.h[1].attn.is_training());
    EXPECT_FALSE(model.transformer.h[0].attn.is_training());
}

TEST(GptGenerate, RejectsInvalidArguments) {
    nn::Gpt model(kSmall);
    expect_error<ValueError>({"generate: "}, [&] { model.generate({}, 1); });
    expect_error<ValueError>({"generate: ", "-1"},
                             [&] { model.generate({1}, 1, {.temperature = -1}); });
    expect_error<ValueError>({"generate: ", "-2"}, [&] { model.generate({1}, -2); });
    expect_error<ValueError>({"generate: ", "-3"}, [&] { model.generate({1}, 1, {.top_k = -3}); });
}

}  // namespace
}  // namespace axle
