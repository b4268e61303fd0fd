// Compares Llama with scaled positions, Mixtral and T5 with Transformers
// (tests/golden/record_networks.py), and tests their configurations and errors.
#include "core/random.h"
#include "nn/models/llama.h"
#include "nn/models/text/mixtral.h"
#include "nn/models/text/t5.h"
#include "tests/nn/models/network.h"

namespace axle {
namespace {

using tests::expect_close;
using tests::expect_error;
using tests::integers;

template <class Config>
Config recorded_config(const std::string& network) {
    return Config::from_json(to_json(tests::recorded_network(network)["config"]));
}

Tensor tokens(std::int64_t batch) { return integers({2, 12}, str("tokens", batch), 29); }
Tensor next_tokens(std::int64_t batch) { return integers({2, 12}, str("labels", batch), 29); }

// --- scaled positions

class ScaledPositions : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Llama, ScaledPositions,
                         testing::Values("llama3_rope", "linear_rope", "dynamic_rope"));

TEST_P(ScaledPositions, TrainLikeTransformers) {
    for (const DType dtype : {f64, f32}) {
        nn::Llama model(recorded_config<nn::LlamaConfig>(GetParam()));
        tests::expect_recorded_training(
            GetParam(), model, dtype, tests::adamw(3e-3),
            [&](std::int64_t batch) { return model(tokens(batch)); },
            [](const Tensor& y, std::int64_t batch) {
                return cross_entropy(y.flatten(0, 1), next_tokens(batch).flatten());
            });
    }
}

TEST_P(ScaledPositions, AreReadAndWrittenInFilesOfTransformers) {
    tests::expect_recorded_files<nn::Llama>(GetParam());
}

TEST_P(ScaledPositions, GiveTheSameLogitsForExplicitPositions) {
    nn::Llama model(recorded_config<nn::LlamaConfig>(GetParam()));
    tests::fill(model);
    const Tensor ids = tokens(0), positions = arange(12).unsqueeze(0);
    tests::expect_same_bits(model(ids).detach(), model(ids, Tensor(), positions).detach());
    // Two consecutive documents give the logits of separate documents, because relative positions
    // do not change.
    if (std::string(GetParam()) == "dynamic_rope") return;  // logits depend on the largest position
    const Tensor twice = cat({ids, ids}, 1), again = cat({positions, positions}, 1);
    const Tensor packed = model(twice, Tensor(), again).detach();
    expect_close(packed.slice(1, 12), model(ids).detach(), 1e-5);
}

TEST(RopeScaling, ReadsOlderConfigurationsAndRoundTrips) {
    const auto scaling_of = [](const std::string& rope) {
        return nn::LlamaConfig::from_json("{\"rope_theta\": 5e5, \"rope_scaling\": " + rope + "}")
            .rope_scaling;
    };
    EXPECT_FALSE(scaling_of("null"));
    EXPECT_FALSE(scaling_of(R"({"rope_type": "default"})"));
    EXPECT_EQ(scaling_of(R"({"type": "linear", "factor": 2})")->factor, 2);
    const auto llama3 = scaling_of(
        R"({"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192, "rope_type": "llama3"})");
    EXPECT_EQ(llama3->type, "llama3");
    EXPECT_EQ(llama3->original_max_position_embeddings, 8192);
    nn::LlamaConfig config;
    config.rope_scaling = llama3;
    EXPECT_EQ(nn::LlamaConfig::from_json(config.to_json()).to_json(), config.to_json());
}

// --- Mixtral

TEST(Mixtral, TrainsLikeTransformers) {
    const auto config = recorded_config<nn::MixtralConfig>("mixtral");
    for (const DType dtype : {f64, f32}) {
        nn::Mixtral model(config);
        Tensor router_logits;
        tests::expect_recorded_training(
            "mixtral", model, dtype, tests::adamw(1e-3),
            [&](std::int64_t batch) {
                auto [hidden, logits] = model.model(tokens(batch));
                router_logits = logits;
                return linear(hidden, model.lm_head);
            },
            [&](const Tensor& y, std::int64_t batch) {
                return cross_entropy(y.flatten(0, 1), next_tokens(batch).flatten()) +
                       config.router_aux_loss_coef *
                           nn::load_balancing_loss(router_logits, config.num_experts_per_tok);
            });
    }
}

TEST(Mixtral, ReadsAndWritesFilesOfTransformers) {
    tests::expect_recorded_files<nn::Mixtral>("mixtral");
}

TEST(Mixtral, ReturnsTheRecordedLossFromOutputsAndLoss) {
    nn::Mixtral model(recorded_config<nn::MixtralConfig>("mixtral"));
    tests::fill(model);
    const Tensor ids = tokens(0), labels = next_tokens(0);
    const nn::ModelOutput output = model.outputs(Tree{{"input_ids", ids}, {"labels", labels}});
    tests::expect_same_bits(output.logits.detach(), model(ids).detach());
    expect_close(output.loss.detach(), model.loss(ids, labels).detach(), 1e-6);
    EXPECT_NEAR(output.loss.item(), tests::numbers(tests::recorded_network("mixtral")["f64"])[0],
                1e-5);
}

TEST(Mixtral, RejectsLabelsOfAnotherShape) {
    nn::Mixtral model(recorded_config<nn::MixtralConfig>("mixtral"));
    expect_error<ShapeError>({"mixtral: shapes differ: labels [2, 11], ids [2, 12]"},
                             [&] { model.loss(tokens(0), next_tokens(0).slice(1, 1)); });
}

TEST(Mixtral, AppendsTheRequestedNumberOfTokens) {
    nn::Mixtral model(recorded_config<nn::MixtralConfig>("mixtral"));
    EXPECT_EQ(model.generate({1, 2}, 3, {.temperature = 0}).size(), 5u);
}

TEST(LoadBalancingLoss, IgnoresPaddingIsTopKForEqualProbabilitiesAndRejectsOtherMaskShapes) {
    manual_seed(1);
    const Tensor logits = randn({3, 8, 4}, {f64});  // 3 layers, 2 sequences of 4 tokens
    const Tensor mask = tensor({1, 1, 1, 0, 1, 1, 0, 0}, {2, 4});
    const Tensor kept = index_select(logits, 1, tensor({0, 1, 2, 4, 5}));
    expect_close(nn::load_balancing_loss(logits, 2, mask), nn::load_balancing_loss(kept, 2), 1e-12);
    // With equal probabilities, the loss is top_k.
    EXPECT_DOUBLE_EQ(nn::load_balancing_loss(zeros({3, 8, 4}), 2).item(), 2);
    expect_error<ShapeError>(
        {"load_balancing_loss: attention_mask must have one element for each of the 8 tokens"},
        [&] {
            nn::load_balancing_loss(logits, 2, ones({2, 3}));
        });
}

TEST(MixtralConfig, ReportsInvalidOrUnsupportedFields) {
    const auto refused = [](const std::string& text, std::initializer_list<const char*> parts) {
        expect_error<ValueError>(parts, [&] { nn::MixtralConfig::from_json(text); });
    };
    refused(R"({"sliding_window": 4096})", {"MixtralConfig: sliding_window: must be null", "4096"});
    refused(R"({"router_jitter_noise": 0.1})", {"MixtralConfig: router_jitter_noise: must be 0"});
    refused(R"({"num_experts_per_tok": 9})",
            {"MixtralConfig: num_experts_per_tok 9", "num_local_experts 8"});
    refused(R"({"num_key_value_heads": 5})", {"MixtralConfig: ", "num_key_value_heads 5"});
    refused(R"({"model_type": "llama"})", {"MixtralConfig: model_type", "mixtral"});
}

// --- T5

class T5 : public testing::TestWithParam<const char*> {
  protected:
    nn::T5ForConditionalGeneration model() const {
        return nn::T5ForConditionalGeneration(recorded_config<nn::T5Config>(GetParam()));
    }
    static Tensor source(std::int64_t batch) { return integers({2, 9}, str("tokens", batch), 29); }
    static Tensor target(std::int64_t batch) { return integers({2, 7}, str("labels", batch), 29); }
    // The second source has six tokens.
    static Tensor mask() { return cat({ones({1, 9}), (arange(9) < 6).to(f32).unsqueeze(0)}); }
};
INSTANTIATE_TEST_SUITE_P(Variants, T5, testing::Values("t5_relu", "t5_gated"));

TEST_P(T5, TrainsLikeTransformers) {
    for (const DType dtype : {f64, f32}) {
        nn::T5ForConditionalGeneration own = model();
        tests::expect_recorded_training(
            GetParam(), own, dtype, tests::adamw(1e-3),
            [&](std::int64_t batch) {
                return own(source(batch), own.shift_right(target(batch)), mask());
            },
            [](const Tensor& y, std::int64_t batch) {
                return cross_entropy(y.flatten(0, 1), target(batch).flatten());
            });
    }
}

TEST_P(T5, ReadsAndWritesFilesOfTransformers) {
    tests::expect_recorded_files<nn::T5ForConditionalGeneration>(GetParam());
}

TEST_P(T5, GeneratesTheMostLikelyIdsUntilTheEndToken) {
    nn::T5ForConditionalGeneration own = model();
    tests::fill(own);
    own.config.eos_token_id = {};
    const std::vector<std::int64_t> ids = own.generate({3, 4, 5}, 4);
    ASSERT_EQ(ids.size(), 4u);
    own.eval();
    const Tensor decoder_ids = tensor({own.config.decoder_start_token_id, ids[0], ids[1], ids[2]});
    const Tensor logits = own(tensor({3, 4, 5}, {1, 3}), decoder_ids.unsqueeze(0));
    for (std::int64_t i = 0; i < 4; ++i)
        EXPECT_EQ(argmax(logits[0][i], -1).item_int(), ids[static_cast<std::size_t>(i)]);
    own.config.eos_token_id = {ids[0]};
    EXPECT_EQ(own.generate({3, 4, 5}, 4), std::vector<std::int64_t>({ids[0]}));
}

TEST_P(T5, ShiftsLabelsAndIgnoresPadding) {
    nn::T5ForConditionalGeneration own = model();
    const Tensor labels = tensor({5, 6, -100, 7}, {2, 2});
    EXPECT_EQ(own.shift_right(labels).to_vector(), std::vector<double>({0, 5, 0, 0}));
    own.eval();
    const nn::ModelOutput output = own.outputs(
        Tree{{"input_ids", source(0)}, {"labels", target(0)}, {"attention_mask", mask()}});
    const Tensor alone =
        own(source(0)[1].slice(0, 0, 6).unsqueeze(0), own.shift_right(target(0))[1].unsqueeze(0));
    expect_close(output.logits[1].detach(), alone[0].detach(), 1e-5);
}

TEST_P(T5, RejectsTargetIdsAndLabelsOfOtherBatchSizes) {
    nn::T5ForConditionalGeneration own = model();
    expect_error<ShapeError>(
        {"t5: ids and decoder_ids must have the same batch size", "[2, 5]", "[1, 4]"}, [&] {
            own.forward(zeros({2, 5}, {i64}), zeros({1, 4}, {i64}));
        });
    expect_error<ShapeError>({"t5: ids and labels", "[3, 7]"}, [&] {
        own.loss(source(0), zeros({3, 7}, {i64}));
    });
}

TEST(T5Config, ReportsInvalidOrUnsupportedFields) {
    const auto refused = [](const std::string& text, std::initializer_list<const char*> parts) {
        expect_error<ValueError>(parts, [&] { nn::T5Config::from_json(text); });
    };
    refused(R"({"feed_forward_proj": "gated-tanh"})",
            {"T5Config: feed_forward_proj", "gated-tanh"});
    refused(R"({"relative_attention_num_buckets": 2})",
            {"T5Config: relative_attention_num_buckets"});
    refused(R"({"is_encoder_decoder": false})", {"T5Config: is_encoder_decoder"});
    refused(R"({"decoder_start_token_id": 40000})", {"T5Config: decoder_start_token_id"});
}

TEST(T5Files, KeepTiedEmbeddingsIfTheConfigurationDoesNotTieThem) {
    nn::T5Config config = recorded_config<nn::T5Config>("t5_gated");
    nn::T5ForConditionalGeneration model(config);
    model.lm_head = model.shared;
    const tests::TemporaryFolder folder;
    model.save_pretrained(folder.path());
    const auto loaded = nn::T5ForConditionalGeneration::from_pretrained(folder.path());
    EXPECT_TRUE(loaded.lm_head.is_same(loaded.shared));
}

}  // namespace
}  // namespace axle
