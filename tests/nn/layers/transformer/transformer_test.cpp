// Compares attention and transformer layers with results and gradients recorded from PyTorch by
// tests/golden/record_transformer.py, and tests their defaults, clones and errors.
#include "nn/layers/transformer/transformer.h"

#include <limits>

#include "core/random.h"
#include "gmock/gmock.h"
#include "nn/init.h"
#include "tests/nn/recorded_case.h"

namespace axle {
namespace {

using testing::ElementsAre;
using tests::expect_close;
using tests::expect_error;
using tests::expect_same_bits;
using tests::RecordedCase;

std::vector<std::string> names(const nn::StateDict& state) {
    std::vector<std::string> result;
    for (const auto& [name, tensor] : state) result.push_back(name);
    return result;
}

// --- MultiheadAttention

nn::MultiheadAttentionOptions options_of(const std::string& name) {
    nn::MultiheadAttentionOptions options;
    options.add_bias_kv = name == "bias_kv" || name.starts_with("both") ||
                          name == "sizes_no_bias" || name == "unbatched_heads";
    options.add_zero_attn = name == "zero_attn" || name.starts_with("both");
    options.bias = name != "sizes_no_bias";
    if (name.starts_with("sizes")) options.kdim = 3, options.vdim = 5;
    return options;
}

class MultiheadAttentionOption : public testing::TestWithParam<const char*> {};

TEST_P(MultiheadAttentionOption, MatchesPyTorch) {
    const std::string name = GetParam();
    const RecordedCase recorded(name, "transformer.safetensors");
    nn::MultiheadAttention layer(4, 2, options_of(name));
    recorded.load(layer);
    const Tensor q = recorded.in("query"), k = recorded.in("key"), v = recorded.in("value");
    nn::MultiheadAttentionMasks masks{recorded.in("attn_mask"), recorded.in("key_padding_mask")};
    expect_close(layer(q, k, v, masks).detach(), recorded.tensors.at("out.y"), 1e-12);
    if (name == "both_causal") {
        masks = {.is_causal = true};
        expect_close(layer(q, k, v, masks).detach(), recorded.tensors.at("out.y"), 1e-12);
    }
    const auto [y, weights] = layer.forward_with_weights(q, k, v, masks, false);
    recorded.check(layer, {{"y", y}, {"weights", weights}});
    const Tensor average = layer.forward_with_weights(q, k, v, masks).second;
    expect_close(average.detach(), mean(recorded.tensors.at("out.weights"), {-3}), 1e-12);
}

INSTANTIATE_TEST_SUITE_P(Recorded, MultiheadAttentionOption,
                         testing::Values("bias_kv", "zero_attn", "both", "both_float",
                                         "both_causal", "sizes", "sizes_no_bias", "unbatched",
                                         "unbatched_heads"),
                         [](const auto& test) { return std::string(test.param); });

TEST(MultiheadAttention, MatchesParametersOfPyTorchWithBiasKvAndKdimAndRejectsInvalidSizes) {
    manual_seed(3);
    const nn::MultiheadAttention layer(64, 2, {.add_bias_kv = true, .kdim = 30});
    EXPECT_THAT(names(layer.state_dict()),
                ElementsAre("q_proj_weight", "k_proj_weight", "v_proj_weight", "in_proj_bias",
                            "bias_k", "bias_v", "out_proj.weight", "out_proj.bias"));
    EXPECT_EQ(layer.k_proj_weight.shape(), Shape({64, 30}));
    EXPECT_NEAR(layer.k_proj_weight.abs().max().item(), std::sqrt(6.0 / 94), 0.01);
    EXPECT_NEAR(std::sqrt(var(layer.bias_k.detach()).item()), std::sqrt(2.0 / 128), 0.03);
    expect_error<ValueError>({"MultiheadAttention: kdim and vdim must be positive"},
                             [] { nn::MultiheadAttention(4, 2, {.kdim = 0}); });
    nn::MultiheadAttention sized(4, 2, {.kdim = 3});
    expect_error<ShapeError>({"MultiheadAttention: key must be [time, batch, 3]", "[5, 1, 4]"},
                             [&] {
                                 sized(zeros({5, 1, 4}), zeros({5, 1, 4}), zeros({5, 1, 4}));
                             });
}

// --- encoder and decoder

nn::TransformerLayerOptions layer_options(const std::string& name) {
    nn::TransformerLayerOptions options{.dim_feedforward = 6, .dropout = 0};
    if (name == "pre") {
        options.norm_first = options.batch_first = true;
        options.activation = Activation::gelu;
    }
    if (name == "no_bias") options.bias = false, options.layer_norm_eps = 1e-2;
    return options;
}

TEST(TransformerEncoderLayer, MatchesPyTorch) {
    for (const std::string name : {"plain", "pre", "no_bias"}) {
        SCOPED_TRACE(name);
        const RecordedCase recorded("encoder_" + name, "transformer.safetensors");
        nn::TransformerEncoderLayer layer(4, 2, layer_options(name));
        recorded.load(layer);
        const Tensor src = recorded.in("src"), padding = recorded.in("padding_mask");
        const Tensor causal = layer(src, {.src_key_padding_mask = padding, .is_causal = true});
        expect_close(causal.detach(), recorded.tensors.at("out.y"), 1e-12);
        recorded.check(layer, {{"y", layer(src, {recorded.in("mask"), padding})}});
        layer.eval();
        const Tensor y = layer(src, {recorded.in("mask"), padding});
        expect_close(y.detach(), recorded.tensors.at("out.y"), 1e-12);
    }
}

TEST(TransformerDecoderLayer, MatchesPyTorch) {
    for (const std::string name : {"plain", "pre", "no_bias"}) {
        SCOPED_TRACE(name);
        const RecordedCase recorded("decoder_" + name, "transformer.safetensors");
        nn::TransformerDecoderLayer layer(4, 2, layer_options(name));
        recorded.load(layer);
        const Tensor y = layer(recorded.in("tgt"), recorded.in("memory"),
                               {.memory_mask = recorded.in("memory_mask"),
                                .memory_key_padding_mask = recorded.in("padding_mask"),
                                .tgt_is_causal = true});
        recorded.check(layer, {{"y", y}});
    }
}

nn::TransformerOptions small_options() {
    return {.d_model = 4, .nhead = 2, .dim_feedforward = 6, .dropout = 0};
}

TEST(Transformer, MatchesPyTorch) {
    const RecordedCase recorded("transformer", "transformer.safetensors");
    nn::TransformerOptions options = small_options();
    options.num_encoder_layers = options.num_decoder_layers = 2;
    nn::Transformer model(options);
    recorded.load(model);
    const Tensor padding = recorded.in("padding_mask");
    const Tensor y = model(recorded.in("src"), recorded.in("tgt"),
                           {.tgt_mask = recorded.in("tgt_mask"),
                            .src_key_padding_mask = padding,
                            .memory_key_padding_mask = padding});
    recorded.check(model, {{"y", y}});
}

TEST(Transformer, AcceptsSequencesWithoutBatch) {
    const RecordedCase recorded("transformer_unbatched", "transformer.safetensors");
    nn::TransformerOptions options = small_options();
    options.num_encoder_layers = options.num_decoder_layers = 1;
    options.activation = Activation::gelu;
    options.norm_first = options.batch_first = true;
    nn::Transformer model(options);
    recorded.load(model);
    recorded.check(model, {{"y", model(recorded.in("src"), recorded.in("tgt"))}});
}

TEST(Transformer, HasTheDefaultsOfPyTorch) {
    const nn::init::EmptyWeights empty;
    const nn::Transformer model;
    EXPECT_EQ(model.num_parameters(), 44140544);
    EXPECT_EQ(model.state_dict().size(), 184U);
    EXPECT_EQ(model.state_dict()[0].first, "encoder.layers.0.self_attn.in_proj_weight");
}

TEST(Transformer, GeneratesACausalMask) {
    const double none = -std::numeric_limits<double>::infinity();
    expect_same_bits(nn::Transformer::generate_square_subsequent_mask(3),
                     tensor({0.0, none, none, 0, 0, none, 0, 0, 0}, {3, 3}));
    EXPECT_EQ(nn::Transformer::generate_square_subsequent_mask(2, {f64}).dtype(), f64);
}

TEST(TransformerEncoder, CopiesItsLayerDropsOnlyInTrainingAndIsCloned) {
    manual_seed(7);
    nn::TransformerEncoderLayer layer(4, 2, {.dim_feedforward = 6, .dropout = 0.5});
    nn::TransformerEncoder encoder(layer, 2);
    expect_same_bits(encoder.layers[0].linear1.weight.detach(), layer.linear1.weight.detach());
    expect_same_bits(encoder.layers[1].linear1.weight.detach(), layer.linear1.weight.detach());
    EXPECT_FALSE(encoder.layers[0].linear1.weight.is_same(encoder.layers[1].linear1.weight));
    const Tensor x = randn({3, 2, 4});
    EXPECT_NE(encoder(x).to_vector(), encoder(x).to_vector());
    encoder.eval();
    EXPECT_EQ(encoder(x).to_vector(), encoder(x).to_vector());
    nn::TransformerEncoder copy = encoder.clone();
    expect_same_bits(copy(x).detach(), encoder(x).detach());
    const nn::TransformerEncoder with_norm(layer, 1, nn::LayerNorm(4));
    EXPECT_EQ(with_norm.state_dict().back().first, "norm.bias");
}

TEST(TransformerDecoder, AppliesItsLayersAndNorm) {
    nn::TransformerDecoderLayer layer(4, 2, {.dim_feedforward = 6, .dropout = 0});
    nn::TransformerDecoder decoder(layer, 2, nn::LayerNorm(4));
    const Tensor tgt = randn({5, 2, 4}), memory = randn({3, 2, 4});
    const Tensor y = layer(layer(tgt, memory), memory);
    expect_same_bits(decoder(tgt, memory).detach(), layer_norm(y.detach()));
    nn::TransformerDecoder without_norm(layer, 1);
    expect_same_bits(without_norm(tgt, memory).detach(), layer(tgt, memory).detach());
}

TEST(Transformer, RejectsInvalidShapesAndOptions) {
    nn::TransformerOptions options = small_options();
    options.num_encoder_layers = options.num_decoder_layers = 1;
    nn::Transformer model(options);
    expect_error<ShapeError>({"Transformer: src and tgt", "[5, 2, 4]", "[3, 1, 4]"}, [&] {
        model(zeros({5, 2, 4}), zeros({3, 1, 4}));
    });
    expect_error<ValueError>({"TransformerEncoder: num_layers", "-1"},
                             [] { nn::TransformerEncoder(nn::TransformerEncoderLayer(4, 2), -1); });
}

}  // namespace
}  // namespace axle
