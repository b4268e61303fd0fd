#include "nn/layers/layers.h"

#include <cmath>

#include "core/random.h"
#include "gmock/gmock.h"
#include "nn/init.h"
#include "nn/layers/attention.h"
#include "nn/layers/linear.h"
#include "nn/layers/mlp.h"
#include "tests/close.h"
#include "tests/nn/golden.h"

namespace axle {
namespace {

using tests::expect_close;
using tests::expect_error;
using tests::expect_same_bits;
using tests::golden;

// --- initializers

Tensor filled(const Shape& shape, const std::function<void(Tensor&)>& fill) {
    manual_seed(11);
    Tensor t = nn::init::parameter(shape);
    fill(t);
    return t.detach();
}

void expect_uniform(const Tensor& t, double bound) {
    EXPECT_LE(t.abs().max().item(), bound * (1 + 1e-6));
    EXPECT_GT(t.abs().max().item(), bound * 0.999);
    EXPECT_NEAR(t.mean().item(), 0, 0.01 * bound);
    EXPECT_NEAR(var(t).item(), bound * bound / 3, 0.01 * bound * bound);
}

TEST(KaimingUniform, HasTheDocumentedVariance) {
    expect_uniform(filled({400, 250}, [](Tensor& t) { nn::init::kaiming_uniform_(t); }),
                   std::sqrt(6.0 / 250));
    expect_uniform(
        filled({200, 50, 10}, [](Tensor& t) { nn::init::kaiming_uniform_(t, std::sqrt(5.0)); }),
        std::sqrt(1.0 / 500));
}

TEST(XavierUniform, HasTheDocumentedVariance) {
    expect_uniform(filled({400, 250}, [](Tensor& t) { nn::init::xavier_uniform_(t, 2); }),
                   2 * std::sqrt(6.0 / 650));
    expect_uniform(filled({200, 50, 10}, [](Tensor& t) { nn::init::xavier_uniform_(t); }),
                   std::sqrt(6.0 / 2500));
}

TEST(InitFunctions, FillWithDocumentedDistributionsAndConstants) {
    const Tensor normal = filled({100000}, [](Tensor& t) { nn::init::normal_(t, 3, 0.5); });
    EXPECT_NEAR(normal.mean().item(), 3, 0.01);
    EXPECT_NEAR(std::sqrt(var(normal).item()), 0.5, 0.005);
    expect_uniform(filled({100000}, [](Tensor& t) { nn::init::uniform_(t, -2, 2); }), 2);
    expect_same_bits(filled({3}, [](Tensor& t) { nn::init::ones_(t); }), ones({3}));
    expect_same_bits(filled({3}, [](Tensor& t) { nn::init::zeros_(t); }), zeros({3}));
    expect_same_bits(filled({3}, [](Tensor& t) { nn::init::constant_(t, 7); }), full({3}, 7.0));
}

TEST(InitFunctions, GiveSameWeightsForSameSeed) {
    const auto weights = [](std::uint64_t seed) {
        manual_seed(seed);
        return nn::Mlp({5, 7, 3}).parameters();
    };
    const auto first = weights(1), again = weights(1), other = weights(2);
    for (std::size_t i = 0; i < first.size(); ++i) {
        expect_same_bits(first[i].detach(), again[i].detach());
        EXPECT_NE(first[i].to_vector(), other[i].to_vector());
    }
}

TEST(InitFunctions, RequireTwoDimensionsToComputeFan) {
    Tensor t = zeros({5});
    expect_error<ShapeError>({"kaiming_uniform_: ", "[5]"}, [&] { nn::init::kaiming_uniform_(t); });
    expect_error<ShapeError>({"xavier_uniform_: ", "[5]"}, [&] { nn::init::xavier_uniform_(t); });
}

// --- Linear, Mlp and LinearPolicy

TEST(Linear, InitializesWithinBoundsOfPyTorch) {
    manual_seed(3);
    const nn::Linear layer(250, 400);
    EXPECT_EQ(layer.weight.shape(), Shape({400, 250}));
    expect_uniform(layer.weight.detach(), 1 / std::sqrt(250.0));
    EXPECT_LE(layer.bias.detach().abs().max().item(), 1 / std::sqrt(250.0));
}

TEST(Linear, StoresWeightsOfShapeInByOutIfTransposedIsTrue) {
    nn::Linear plain(3, 4), transposed(3, 4, {.transposed = true});
    EXPECT_EQ(transposed.weight.shape(), Shape({3, 4}));
    transposed.weight = plain.weight.detach().t().contiguous();
    transposed.bias = plain.bias;
    const Tensor x = randn({2, 5, 3});
    expect_close(transposed(x, Activation::silu), plain(x, Activation::silu));
}

TEST(Linear, RejectsSizesThatAreNotPositive) {
    expect_error<ValueError>({"Linear: ", "in 0", "out 3"}, [] { nn::Linear(0, 3); });
}

TEST(Mlp, RequiresAtLeastTwoWidths) {
    expect_error<ValueError>({"Mlp: ", "1"}, [] { nn::Mlp({3}); });
}

struct Negated : nn::LinearPolicy {
    Tensor multiply(nn::Linear& layer, const Tensor& x, Activation activation) override {
        return -linear(x, layer.weight, layer.bias, activation);
    }
    std::shared_ptr<nn::LinearPolicy> clone() const override {
        return std::make_shared<Negated>(*this);
    }
};

TEST(Mlp, AppliesThePolicyOfEachLayer) {
    const Tensor x = randn({5, 3});
    for (std::size_t i = 0; i < 2; ++i) {
        nn::Mlp mlp({3, 4, 2});
        nn::Linear &first = mlp.layers[0], &second = mlp.layers[1];
        const Tensor before = mlp(x);
        expect_same_bits(before, second(first(x, Activation::relu)));
        mlp.layers[i].policy = std::make_shared<Negated>();
        expect_same_bits(mlp(x), second(first(x, Activation::relu)));
        EXPECT_NE(mlp(x)[0][0].item(), before[0][0].item());
    }
}

TEST(Mlp, RunsTheHooksOfAPreparedLayer) {
    for (std::size_t i = 0; i < 2; ++i) {
        nn::Mlp mlp({3, 4, 2});
        int calls = 0;
        mlp.layers[i].set_hooks(std::make_shared<nn::ForwardHooks>(
            nn::ForwardHooks{.autocast = {}, .before_forward = [&](nn::Module&) { ++calls; }}));
        mlp(randn({5, 3}));
        EXPECT_EQ(calls, 1);
    }
}

struct LowRank : nn::LinearPolicy {
    LowRank(std::int64_t in, std::int64_t out)
        : a(full({1, in}, 2.0, {.requires_grad = true})),
          b(full({out, 1}, 3.0, {.requires_grad = true})) {}
    Tensor multiply(nn::Linear& layer, const Tensor& x, Activation activation) override {
        EXPECT_EQ(activation, Activation::relu);
        return relu(linear(x, layer.weight, layer.bias) + linear(linear(x, a), b));
    }
    std::shared_ptr<nn::LinearPolicy> clone() const override {
        return std::make_shared<LowRank>(*this);
    }
    void visit(nn::Visitor& v) override { v("a", a), v("b", b); }

    Tensor a, b;
};

TEST(LinearPolicy, ReplacesTheProductAndExposesItsParameters) {
    nn::Linear layer(3, 2);
    layer.requires_grad_(false);
    layer.policy = std::make_shared<LowRank>(3, 2);
    const Tensor x = ones({1, 3});
    const Tensor y = layer(x, Activation::relu);
    expect_close(y, relu(linear(x, layer.weight, layer.bias) + 18));
    std::vector<std::string> names;
    for (const auto& [name, tensor] : layer.state_dict()) names.push_back(name);
    EXPECT_THAT(names, testing::ElementsAre("weight", "bias", "policy.a", "policy.b"));
    sum(y).backward();
    EXPECT_FALSE(layer.weight.grad().defined());
    EXPECT_TRUE(layer.parameters()[2].grad().defined());
    layer.eval();
    EXPECT_FALSE(layer.policy->is_training());
}

TEST(LinearPolicy, IsClonedWithItsLayer) {
    nn::Linear layer(3, 2);
    const auto policy = std::make_shared<LowRank>(3, 2);
    layer.policy = policy;
    const Tensor a = policy->a;
    nn::Linear copy = layer.clone();
    EXPECT_TRUE(policy->a.is_same(a));
    EXPECT_NE(copy.policy, layer.policy);
    EXPECT_FALSE(copy.parameters()[2].is_same(a));
    expect_same_bits(copy.parameters()[2].detach(), a.detach());
}

// --- Embedding and Dropout

TEST(Embedding, LimitsNormsAndDividesGradientsByFrequencyAsPyTorchAndRejectsInvalidNorms) {
    const auto table_of = [](std::optional<std::int64_t> padding_idx,
                             const nn::EmbeddingOptions& options) {
        nn::Embedding table(4, 3, padding_idx, options);
        table.to(f64);
        table.load_state_dict({{"weight", arange(12, {f64}).reshape({4, 3}) / 4.0 - 1.0}});
        return table;
    };
    const Tensor ids = tensor({0, 2, 2, 3, 0, 2}, {2, 3});
    // The values were computed with PyTorch 2.15.
    const Tensor limited =
        tensor({-0.8913375570429573, -0.668503167782218, -0.4456687785214786, -0.25, 0.0, 0.25,
                0.4456687785214786, 0.668503167782218, 0.8913375570429573, 0.5720775317291744,
                0.6864930380750094, 0.8009085444208442},
               {4, 3}, {f64});
    nn::Embedding table = table_of(3, {.max_norm = 1.2, .scale_grad_by_freq = true});
    const Tensor rows = table(ids);
    expect_close(table.weight.detach(), limited, 1e-14);
    expect_close(rows.detach(), index_select(limited, 0, flatten(ids)).reshape({2, 3, 3}), 1e-14);
    sum(rows * (arange(18, {f64}).reshape({2, 3, 3}) / 8.0 - 1.0)).backward();
    expect_close(
        table.weight.grad(),
        tensor({-0.25, -0.125, 0.0, 0.0, 0.0, 0.0, 0.0, 0.125, 0.25, 0.0, 0.0, 0.0}, {4, 3}, {f64}),
        1e-14);
    nn::Embedding sums = table_of({}, {.max_norm = 1.2, .norm_type = 1});
    sums(ids);
    expect_close(sums.weight.detach(),
                 tensor({-0.5333333096296307, -0.399999982222223, -0.26666665481481533, -0.25, 0.0,
                         0.25, 0.26666665481481533, 0.399999982222223, 0.5333333096296307,
                         0.33333332592592607, 0.3999999911111113, 0.4666666562962965},
                        {4, 3}, {f64}),
                 1e-14);
    expect_error<ValueError>({"Embedding: max_norm must be at least 0: -1"},
                             [] { nn::Embedding(4, 3, {}, {.max_norm = -1}); });
    expect_error<ValueError>({"Embedding: norm_type must be positive: 0"},
                             [] { nn::Embedding(4, 3, {}, {.norm_type = 0}); });
}

TEST(Embedding, MatchesPyTorchAndGivesPaddingNoGradient) {
    nn::Embedding table(7, 6, 2);
    EXPECT_EQ(table.weight.select(0, 2).detach().abs().max().item(), 0);
    table.to(f64);
    table.load_state_dict({{"weight", golden("layers.table")}});
    const Tensor rows = table(golden("layers.ids"));
    expect_close(rows, golden("layers.rows"), 1e-15);
    sum(rows * rows).backward();
    expect_close(table.weight.grad(), golden("layers.table_grad"), 1e-12);
    manual_seed(1);
    EXPECT_NEAR(var(nn::Embedding(300, 100).weight.detach()).item(), 1, 0.03);
}

TEST(DropoutLayer, DropsElementsInTrainingOnlyAndRejectsInvalidProbabilities) {
    nn::Dropout half(0.5);
    const Tensor x = ones({1000});
    EXPECT_NEAR(sum(eq(half(x), 0)).item(), 500, 100);
    half.eval();
    expect_same_bits(half(x), x);
    expect_error<ValueError>({"Dropout: ", "1.5"}, [] { nn::Dropout(1.5); });
}

// --- MultiheadAttention, compared with PyTorch

nn::MultiheadAttention recorded_attention(bool batch_first) {
    nn::MultiheadAttention layer(8, 2, {.batch_first = batch_first});
    layer.to(f64);
    nn::StateDict state;
    for (const char* name : {"in_proj_weight", "in_proj_bias", "out_proj.weight", "out_proj.bias"})
        state.emplace_back(name, golden(std::string("mha.") + name));
    layer.load_state_dict(state);
    return layer;
}

TEST(MultiheadAttention, MatchesPyTorchWithAndWithoutBatchFirst) {
    const Tensor q = golden("mha.query"), k = golden("mha.key"), v = golden("mha.value");
    for (const bool batch_first : {false, true}) {
        nn::MultiheadAttention layer = recorded_attention(batch_first);
        const auto turn = [&](const Tensor& x) { return batch_first ? x.transpose(0, 1) : x; };
        const Tensor plain = layer(turn(q), turn(k), turn(v));
        const Tensor cross = layer(turn(q), turn(k), turn(v), {.attn_mask = golden("mha.added")});
        const Tensor causal = layer(turn(q), turn(q), turn(q), {.is_causal = true});
        expect_close(turn(plain), golden("mha.plain"), 1e-12);
        expect_close(turn(cross), golden("mha.cross"), 1e-12);
        expect_close(turn(causal), golden("mha.causal"), 1e-12);
    }
}

TEST(MultiheadAttention, MatchesGradientsOfPyTorch) {
    nn::MultiheadAttention layer = recorded_attention(false);
    Tensor q = golden("mha.query");
    q.set_requires_grad();
    const Tensor y = layer(q, golden("mha.key"), golden("mha.value"));
    sum(y * y).backward();
    expect_close(q.grad(), golden("mha.query_grad"), 1e-11);
    for (const auto& [name, parameter] : layer.named_parameters())
        expect_close(parameter.grad(), golden("mha.grad." + name), 1e-11);
}

TEST(MultiheadAttention, RejectsInvalidSizesAndShapes) {
    for (const std::int64_t heads : {0, 3})
        expect_error<ValueError>({"MultiheadAttention: ", "8", str(heads).c_str()},
                                 [&] { nn::MultiheadAttention(8, heads); });
    nn::MultiheadAttention layer(8, 2);
    const Tensor x = zeros({5, 3, 6});
    expect_error<ShapeError>({"MultiheadAttention: ", "8", "[5, 3, 6]"}, [&] { layer(x, x, x); });
}

}  // namespace
}  // namespace axle
