#include "nn/layers/attention.h"

#include <initializer_list>

#include "core/random.h"
#include "gmock/gmock.h"
#include "tests/close.h"
#include "tests/nn/golden.h"

namespace axle {
namespace {

using tests::expect_close;
using tests::expect_error;
using tests::golden;

Tensor recorded_attention(const std::string& name) { return golden(name, "attention.safetensors"); }

nn::MultiheadAttention recorded_layer(bool batch_first = true) {
    nn::MultiheadAttention layer(8, 2, {.batch_first = batch_first});
    layer.to(f64);
    nn::StateDict state;
    for (const char* name : {"in_proj_weight", "in_proj_bias", "out_proj.weight", "out_proj.bias"})
        state.emplace_back(name, recorded_attention(std::string("layer.") + name));
    layer.load_state_dict(state);
    layer.eval();
    return layer;
}

nn::MultiheadAttentionMasks masks_of(const std::string& name) {
    const auto parts = load_safetensors(tests::golden_path("attention.safetensors")).tensors;
    nn::MultiheadAttentionMasks masks;
    for (const auto& [key, tensor] : parts) {
        if (key == name + ".attn_mask") masks.attn_mask = tensor;
        if (key == name + ".key_padding_mask") masks.key_padding_mask = tensor;
    }
    if (name == "causal_and_padding") {  // the recorded attn_mask masks all later keys
        masks.attn_mask = Tensor();
        masks.is_causal = true;
    }
    return masks;
}

class MultiheadAttentionMask : public testing::TestWithParam<const char*> {};

TEST_P(MultiheadAttentionMask, MatchesPyTorch) {
    const std::string name = GetParam();
    const Tensor q = recorded_attention("query"), k = recorded_attention("key"),
                 v = recorded_attention("value");
    const nn::MultiheadAttentionMasks masks = masks_of(name);
    nn::MultiheadAttention layer = recorded_layer();
    expect_close(layer(q, k, v, masks), recorded_attention(name + ".output"), 1e-12);

    const auto [y, weights] = layer.forward_with_weights(q, k, v, masks);
    expect_close(y, recorded_attention(name + ".output"), 1e-12);
    expect_close(weights, recorded_attention(name + ".weights"), 1e-12);
    const Tensor of_heads = layer.forward_with_weights(q, k, v, masks, false).second;
    expect_close(of_heads, recorded_attention(name + ".weights_of_heads"), 1e-12);

    // The masks have the same shapes if time is the first dimension of the inputs.
    nn::MultiheadAttention time_first = recorded_layer(false);
    const auto turn = [](const Tensor& x) { return x.transpose(0, 1); };
    expect_close(turn(time_first(turn(q), turn(k), turn(v), masks)),
                 recorded_attention(name + ".output"), 1e-12);
}

INSTANTIATE_TEST_SUITE_P(Recorded, MultiheadAttentionMask,
                         testing::Values("bool", "bool_of_heads", "float", "float_of_heads",
                                         "padding", "float_padding", "bool_and_padding",
                                         "float_and_padding", "bool_of_heads_and_padding",
                                         "causal_and_padding"),
                         [](const auto& test) { return std::string(test.param); });

TEST(MultiheadAttention, ComputesTheGradientOfAFloatingMask) {
    nn::MultiheadAttention layer(8, 2, {.dropout = 0});
    layer.to(f64);
    const Tensor x = randn({5, 3, 8}, {.dtype = f64});
    Tensor mask = randn({5, 5}, {.dtype = f64, .requires_grad = true});
    const Tensor target = randn({5, 3, 8}, {.dtype = f64});
    sum(layer(x, x, x, {.attn_mask = mask}) * target).backward();
    const Tensor gradient = mask.grad().clone();
    EXPECT_GT(max(abs(gradient)).item(), 1e-3);
    mask.zero_grad();
    // forward_with_weights() computes the weights with differentiable ops. The expected gradient is
    // the gradient of these ops.
    sum(layer.forward_with_weights(x, x, x, {.attn_mask = mask}).first * target).backward();
    expect_close(gradient, mask.grad(), 1e-12);
}

TEST(MultiheadAttention, GivesZeroWeightsToQueriesWithoutKeys) {
    nn::MultiheadAttention layer = recorded_layer();
    const Tensor x = recorded_attention("query");
    const nn::MultiheadAttentionMasks masks{.key_padding_mask = ones({3, 4}, {boolean})};
    const auto [y, weights] = layer.forward_with_weights(x, x, x, masks);
    expect_close(weights, zeros({3, 4, 4}, {f64}));
    expect_close(y, layer.out_proj.bias.detach().expand({3, 4, 8}));
    expect_close(layer(x, x, x, masks), y);
}

TEST(MultiheadAttention, ReturnsWeightsAfterDropoutInTrainingOnly) {
    manual_seed(3);
    nn::MultiheadAttention layer(8, 2, {.dropout = 0.5, .batch_first = true});
    const Tensor x = rand({2, 6, 8});
    const Tensor weights = layer.forward_with_weights(x, x, x, {}, false).second;
    EXPECT_NEAR(sum(eq(weights, 0)).item(), 72, 24);
    layer.eval();
    const Tensor kept = layer.forward_with_weights(x, x, x, {}, false).second;
    expect_close(sum(kept, {-1}), ones({2, 2, 6}), 1e-6);
}

TEST(MultiheadAttention, RejectsUnequalBatchSizesAndValuesOfAnotherLengthThanKeys) {
    nn::MultiheadAttention layer(8, 2, {.batch_first = true});
    const Tensor q = zeros({3, 4, 8}), k = zeros({1, 5, 8});
    const auto rejects = [&](const Tensor& key, const Tensor& value, const char* shape) {
        const std::initializer_list<const char*> expected = {
            "MultiheadAttention: query, key and value must have", shape};
        expect_error<ShapeError>(expected, [&] { layer(q, key, value); });
        expect_error<ShapeError>(expected, [&] { layer.forward_with_weights(q, key, value); });
    };
    rejects(k, k, "key [1, 5, 8]");
    rejects(k.expand({3, 5, 8}), k, "value [1, 5, 8]");
    rejects(k.expand({3, 5, 8}), zeros({3, 6, 8}), "value [3, 6, 8]");
}

TEST(MultiheadAttention, RejectsMasksOfInvalidShapeOrDType) {
    nn::MultiheadAttention layer(8, 2, {.batch_first = true});
    const Tensor q = zeros({3, 4, 8}), k = zeros({3, 5, 8});
    expect_error<ShapeError>({"MultiheadAttention: attn_mask", "[4, 5]", "[6, 4, 5]", "[5, 4]"},
                             [&] {
                                 layer(q, k, k, {.attn_mask = zeros({5, 4})});
                             });
    expect_error<ShapeError>({"MultiheadAttention: key_padding_mask", "[3, 5]", "[3, 4]"}, [&] {
        layer(q, k, k, {.key_padding_mask = zeros({3, 4})});
    });
    expect_error<DTypeError>({"MultiheadAttention: key_padding_mask", "boolean", "int64"}, [&] {
        layer(q, k, k, {.key_padding_mask = zeros({3, 5}, {i64})});
    });
}

}  // namespace
}  // namespace axle
