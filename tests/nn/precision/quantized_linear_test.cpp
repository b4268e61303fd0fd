// Tests quantized Linear layers of models.
#include "nn/precision/quantized_linear.h"

#include <cmath>
#include <cstring>

#include "core/autograd/autograd.h"
#include "core/files/safetensors.h"
#include "core/random.h"
#include "gmock/gmock.h"
#include "nn/adapters/lora.h"
#include "nn/files/pretrained.h"
#include "nn/layers/layers.h"
#include "nn/layers/mixture.h"
#include "nn/precision/float8.h"
#include "tests/close.h"
#include "tests/log_capture.h"
#include "tests/nn/precision/quantized_net.h"
#include "tests/temporary_folder.h"

namespace axle {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using tests::add_adapter;
using tests::expect_close;
using tests::expect_error;
using tests::expect_same_bits;
using tests::names_of;
using tests::plain_net;
using tests::seeded_net;
using tests::some_input;
using tests::TemporaryFolder;
using Net = tests::QuantizedNet;

void expect_equal_states(const nn::Module& actual, const nn::Module& expected) {
    const nn::StateDict state = actual.state_dict(), other = expected.state_dict();
    ASSERT_EQ(names_of(state), names_of(other));
    for (std::size_t i = 0; i < state.size(); ++i) {
        SCOPED_TRACE(state[i].first);
        const Tensor &a = state[i].second, &b = other[i].second;
        ASSERT_EQ(a.dtype(), b.dtype());
        ASSERT_EQ(a.shape(), b.shape());
        EXPECT_EQ(std::memcmp(a.raw_data(), b.raw_data(),
                              static_cast<std::size_t>(a.numel() * size_of(a.dtype()))),
                  0);
    }
}

// Covers 18.BnbQuantizationConfig.
TEST(QuantizeLinears, ReplacesTheWeightsByBuffers) {
    Net net = seeded_net();
    EXPECT_EQ(nn::quantize_linears(net, {.exclude_modules = {"head"}}), 2);
    EXPECT_FALSE(net.query.weight.defined());
    EXPECT_THAT(names_of(net.named_parameters()),
                ElementsAre("table.weight", "attn.query.bias", "head.weight", "head.bias"));
    EXPECT_THAT(names_of(net.named_buffers()),
                ElementsAre("attn.query.policy.weight", "attn.query.policy.absmax",
                            "attn.query.policy.nested_absmax", "attn.query.policy.nested_offset",
                            "attn.value.policy.weight", "attn.value.policy.absmax",
                            "attn.value.policy.nested_absmax", "attn.value.policy.nested_offset"));
    EXPECT_TRUE(net.named_buffers({.include_constant = false}).empty());
}

TEST(QuantizeLinears, ReleasesTheMemoryOfTheWeights) {
    const auto bytes = [](const nn::Module& module) {
        std::int64_t total = 0;
        for (const auto& [name, tensor] : module.state_dict())
            total += tensor.numel() * size_of(tensor.dtype());
        return total;
    };
    Net net = seeded_net();
    const std::weak_ptr<Storage> storage = net.query.weight.impl()->storage;
    const std::int64_t elements = 2 * 48 * 64 + 64 * 3, others = bytes(net) - 4 * elements;
    nn::quantize_linears(net);
    EXPECT_TRUE(storage.expired());
    // The weights have 48, 48 and 3 blocks, and one nested absmax and offset each.
    EXPECT_EQ(bytes(net) - others, elements / 2 + 99 + 3 * 8);
    Net other = seeded_net();
    nn::quantize_linears(other, {.format = WeightFormat::int8});
    EXPECT_EQ(bytes(other) - others, elements + (64 + 64 + 3) * 4);
}

TEST(QuantizeLinears, SelectsLayersByNameOrPattern) {
    Net named = seeded_net(), matched = seeded_net();
    EXPECT_EQ(nn::quantize_linears(named, {.target_modules = {"query", "head"}}), 2);
    EXPECT_EQ(named.value.policy, nullptr);
    EXPECT_EQ(nn::quantize_linears(matched, {.target_pattern = "attn\\.v.*"}), 1);
    EXPECT_NE(nn::quantized_policy(matched.value), nullptr);
    EXPECT_EQ(nn::add_lora(matched, {.target_pattern = "attn\\.v.*"}), 1);
    Net outside = seeded_net();
    EXPECT_EQ(nn::quantize_linears(outside, {.exclude_modules = {"attn"}}), 1);
    tests::LogCapture log;
    Net net = seeded_net();
    nn::quantize_linears(net, {.target_modules = {"query", "q_proj"}, .exclude_modules = {"k"}});
    EXPECT_THAT(log.lines(),
                ElementsAre("quantize_linears: target_modules: the model has no module 'q_proj'",
                            "quantize_linears: exclude_modules: the model has no module 'k'"));
}

TEST(QuantizeLinears, QuantizesTransposedWeightsInRowsOfOutputs) {
    Net net = seeded_net();
    const Tensor weight = net.value.weight.detach().clone();
    nn::quantize_linears(net, {.format = WeightFormat::int8});
    const QuantizedWeight& quantized = nn::quantized_policy(net.value)->weight();
    EXPECT_EQ(quantized.absmax.shape(), (Shape{64}));
    expect_same_bits(quantized.absmax, amax(abs(weight), 0));
    nn::dequantize_linears(net);
    EXPECT_EQ(net.value.weight.shape(), (Shape{48, 64}));
    expect_close(net.value.weight, weight, 1e-3);
}

TEST(QuantizedLinearLayer, ComputesWithTheDequantizedWeight) {
    Net net = seeded_net();
    nn::quantize_linears(net);
    Net plain = plain_net(net);
    EXPECT_EQ(plain.query.policy, nullptr);
    expect_same_bits(net(some_input()).detach(), plain(some_input()).detach());
    expect_same_bits(net.query(some_input(), Activation::gelu).detach(),
                     gelu(plain.query(some_input())).detach());
}

TEST(QuantizedLinearLayer, ConvertsInputsToTheComputeDType) {
    Net net = seeded_net();
    nn::quantize_linears(net, {.compute_dtype = bf16});
    const Tensor weight = dequantize_weight(nn::quantized_policy(net.value)->weight(), bf16);
    expect_same_bits(net.value(some_input()), linear(some_input().to(bf16), weight).to(f32));
}

TEST(QuantizedLinearLayer, KeepsItsBuffersIfTheModelIsConverted) {
    Net net = seeded_net(), converted = seeded_net();
    nn::quantize_linears(net);
    nn::quantize_linears(converted);
    converted.to(bf16);
    EXPECT_EQ(converted.query.bias.dtype(), bf16);
    const QuantizedWeight& weight = nn::quantized_policy(converted.query)->weight();
    EXPECT_EQ(weight.nested_absmax.dtype(), f32);
    expect_same_bits(dequantize_weight(weight, f32),
                     dequantize_weight(nn::quantized_policy(net.query)->weight(), f32));
    EXPECT_EQ(converted(some_input().to(bf16)).dtype(), bf16);
}

TEST(QuantizedLinearLayer, IsClonedWithBuffersOfItsOwn) {
    for (const bool adapts : {false, true}) {
        Net net = seeded_net();
        nn::quantize_linears(net);
        if (adapts) add_adapter(net);
        Net copy = net.clone();
        expect_equal_states(copy, net);
        const Tensor before = copy(some_input()).detach();
        for (const auto& [name, buffer] : net.named_buffers()) Tensor(buffer).zero_();
        expect_same_bits(copy(some_input()).detach(), before);
    }
}

TEST(QuantizedLinearLayer, IsRestoredExactlyFromItsStateDict) {
    for (const WeightFormat format : {WeightFormat::int8, WeightFormat::nf4}) {
        Net net = seeded_net();
        nn::quantize_linears(net, {.format = format});
        add_adapter(net);
        const TemporaryFolder folder;
        save_safetensors(folder / "net.safetensors", net.saved_state());
        Net other;
        nn::quantize_linears(other, {.format = format});
        add_adapter(other);
        const auto tensors = load_safetensors(folder / "net.safetensors").tensors;
        other.load_state_dict({tensors.begin(), tensors.end()});
        expect_equal_states(other, net);
        expect_same_bits(other(some_input()).detach(), net(some_input()).detach());
    }
}

TEST(QuantizeLinears, RefusesLayersWithAPolicyAndPreparedModels) {
    Net quantized = seeded_net();
    nn::quantize_linears(quantized, {.target_modules = {"query"}});
    expect_error<UsageError>({"quantize_linears: the layer attn.query is already quantized"},
                             [&] { nn::quantize_linears(quantized); });
    EXPECT_FALSE(nn::use_float8(quantized.query, {}));
    EXPECT_EQ(quantized.value.policy, nullptr);
    Net adapted = seeded_net();
    nn::add_lora(adapted, {.target_modules = {"query"}});
    expect_error<UsageError>({"quantize_linears: the layer attn.query has an adapter", "add_lora"},
                             [&] { nn::quantize_linears(adapted); });
    Net float8 = seeded_net();
    ASSERT_TRUE(nn::use_float8(float8.query, {}));
    expect_error<UsageError>({"quantize_linears: the layer attn.query", "policy", "Float8Linear"},
                             [&] { nn::quantize_linears(float8); });
    Net prepared = seeded_net();
    prepared.set_hooks(std::make_shared<nn::ForwardHooks>());
    expect_error<UsageError>({"quantize_linears", "before prepare()"},
                             [&] { nn::quantize_linears(prepared); });
}

TEST(QuantizeLinears, RefusesTiedWeightsAndModulesOfOtherTypes) {
    struct TiedLayers : nn::Model<TiedLayers> {
        nn::Embedding table{5, 4};
        nn::Linear query{4, 4}, head{4, 5};
        TiedLayers() { head.weight = table.weight; }
        void visit(nn::Visitor& v) override {
            v("table", table), v("query", query), v("head", head);
        }
    };
    TiedLayers model;
    expect_error<ValueError>({"quantize_linears: the weight of the layer head is tied",
                              "table.weight", "head.weight", "exclude_modules"},
                             [&] { nn::quantize_linears(model); });
    EXPECT_EQ(model.query.policy, nullptr);
    EXPECT_EQ(nn::quantize_linears(model, {.exclude_modules = {"head"}}), 1);
    Net net;
    expect_error<ValueError>(
        {"quantize_linears: only Linear layers can be quantized: table", "Embedding"},
        [&] { nn::quantize_linears(net, {.target_modules = {"table"}}); });
    expect_error<ValueError>({"quantize_linears", "select no layer", "3 Linear layers"},
                             [&] { nn::quantize_linears(net, {.target_modules = {"key"}}); });
}

TEST(QuantizeLinears, RefusesInvalidConfigurationsAndWeightsWithoutFiniteValues) {
    Net net = seeded_net();
    expect_error<ValueError>({"QuantizationConfig: block_size", "[32, 4096]", "60"},
                             [&] { nn::quantize_linears(net, {.block_size = 60}); });
    expect_error<ValueError>({"QuantizationConfig: llm_int8_threshold needs the format int8"},
                             [&] { nn::quantize_linears(net, {.llm_int8_threshold = 6}); });
    expect_error<ValueError>({"QuantizationConfig: llm_int8_threshold", "-1"}, [&] {
        nn::quantize_linears(net, {.format = WeightFormat::int8, .llm_int8_threshold = -1});
    });
    expect_error<DTypeError>({"QuantizationConfig: compute_dtype must be floating", "int64"},
                             [&] { nn::quantize_linears(net, {.compute_dtype = i64}); });
    expect_error<ValueError>({"QuantizationConfig: at most one", "'b'"}, [&] {
        nn::quantize_linears(net, {.target_modules = {"a"}, .target_pattern = "b"});
    });
    expect_error<ValueError>({"QuantizationConfig: target_pattern"},
                             [&] { nn::quantize_linears(net, {.target_pattern = "("}); });
    EXPECT_EQ(net.query.policy, nullptr);
    const NoGrad no_grad;
    net.value.weight.fill_(INFINITY);
    expect_error<ValueError>({"quantize_linears: the layer attn.value", "infinite or NaN"},
                             [&] { nn::quantize_linears(net); });
    EXPECT_TRUE(net.value.weight.defined());
}

TEST(DequantizeLinears, RefusesModelsWithAdapters) {
    Net net = seeded_net();
    nn::quantize_linears(net);
    add_adapter(net);
    expect_error<UsageError>(
        {"dequantize_linears: the layer attn.query has an adapter", "merge_and_unload"},
        [&] { nn::dequantize_linears(net); });
    EXPECT_NE(nn::quantized_policy(net.head), nullptr);
}

TEST(SavePretrained, RefusesQuantizedModels) {
    Net net = seeded_net();
    nn::quantize_linears(net);
    const TemporaryFolder folder;
    expect_error<UsageError>(
        {"save_pretrained: the layer attn.query is quantized", "dequantize_linears"},
        [&] { nn::save_pretrained(net, "Net", Tree::map(), folder / "net"); });
}

TEST(QuantizedLinearLayer, CanBeTheRouterOfAMixtureOfExperts) {
    manual_seed(3);
    nn::MixtureOfExperts mixture(32, 16, {.experts = 4, .top_k = 2});
    nn::quantize_linears(mixture);
    EXPECT_EQ(mixture(randn({5, 32})).shape(), (Shape{5, 32}));
    EXPECT_THROW(mixture(randn({5, 16})), ShapeError);
}

}  // namespace
}  // namespace axle
