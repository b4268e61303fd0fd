// Tests the options of MegatronLMPlugin that a model's configuration sets, and the options that
// Axle rejects.
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "accel/accelerator.h"
#include "accel/megatron/megatron_network.h"
#include "gmock/gmock.h"
#include "nn/layers/mixture.h"
#include "tests/dist/pipeline/pipeline_models.h"
#include "tests/environment_variable.h"
#include "tests/log_capture.h"

namespace axle {
namespace {

using accel::MegatronLMPlugin;
using accel::MegatronNetwork;
using accel::NotImplementedError;
using tests::EnvironmentVariable;
using tests::expect_error;

accel::AcceleratorOptions alone(MegatronLMPlugin plugin) {
    return {.cpu = true,
            .megatron_lm_plugin = std::move(plugin),
            .process_group = dist::ProcessGroup::alone()};
}

// Prepares a model and returns the plugin.
template <class Model>
MegatronLMPlugin prepared(Model model, MegatronLMPlugin plugin = {}) {
    Accelerator accelerator(alone(std::move(plugin)));
    accelerator.prepare(model);
    return *accelerator.options().megatron_lm_plugin;
}

nn::BertConfig small_bert() {
    return {.vocab_size = 13,
            .hidden_size = 8,
            .num_hidden_layers = 3,
            .num_attention_heads = 2,
            .intermediate_size = 12,
            .max_position_embeddings = 6};
}

// Covers 16.model.
TEST(MegatronPlugin, TakesTheSizesOfAModelFromItsConfiguration) {
    const MegatronLMPlugin gpt = prepared(tests::pipeline_gpt());
    ASSERT_TRUE(gpt.network);
    EXPECT_EQ(gpt.network->model_type_name, "gpt");
    EXPECT_EQ(gpt.network->num_layers, 6);
    EXPECT_EQ(gpt.network->hidden_size, 8);
    EXPECT_EQ(gpt.network->ffn_hidden_size, 32);
    EXPECT_EQ(gpt.network->num_attention_heads, 2);
    EXPECT_EQ(gpt.network->max_position_embeddings, 6);
    EXPECT_EQ(gpt.network->orig_vocab_size, 13);
    EXPECT_EQ(gpt.network->padded_vocab_size, 13);
    EXPECT_TRUE(gpt.network->pretraining_flag);
    EXPECT_FALSE(gpt.network->use_rotary_position_embeddings);
    EXPECT_EQ(gpt.seq_length, 6);
    EXPECT_EQ(gpt.eod_token, std::nullopt);  // the token of GPT-2 is not in the vocabulary

    nn::Llama llama = tests::pipeline_llama();
    const MegatronNetwork network = *accel::network_of(llama, 4);
    EXPECT_EQ(network.model_type_name, "llama");
    EXPECT_EQ(network.num_query_groups, 1);
    EXPECT_EQ(network.ffn_hidden_size, 12);
    EXPECT_EQ(network.padded_vocab_size, 16);
    EXPECT_TRUE(network.use_rotary_position_embeddings);
    EXPECT_EQ(network.eos_token_id, 2);
    const MegatronLMPlugin masked = prepared(tests::pipeline_llama(), {.eod_mask_loss = true});
    EXPECT_EQ(masked.eod_token, 2);

    nn::BertForMaskedLM bert(small_bert());
    EXPECT_TRUE(accel::network_of(bert)->pretraining_flag);
    const MegatronLMPlugin classifier =
        prepared(nn::BertForSequenceClassification(small_bert()), {.encoder_seq_length = 4});
    EXPECT_EQ(classifier.network->model_type_name, "bert");
    EXPECT_FALSE(classifier.network->pretraining_flag);
    EXPECT_EQ(classifier.network->num_labels, 2);
    EXPECT_EQ(classifier.network->hidden_dropout, 0.1);
    EXPECT_EQ(classifier.seq_length, 4);
    nn::Mlp mlp = tests::small_mlp();
    EXPECT_FALSE(accel::network_of(mlp));
}

TEST(MegatronPlugin, WarnsIfSeqLengthDiffersFromTheLengthOfTheEncoderOrDecoder) {
    tests::LogCapture log;
    EXPECT_EQ(
        prepared(tests::pipeline_gpt(), {.seq_length = 5, .decoder_seq_length = 4}).seq_length, 4);
    EXPECT_THAT(log.lines(), testing::Contains(testing::HasSubstr(
                                 "both seq_length and decoder_seq_length are set: seq_length is 5, "
                                 "decoder_seq_length is 4; decoder_seq_length is used")));
    const nn::BertForSequenceClassification bert(small_bert());
    const auto of_encoder = testing::Contains(testing::HasSubstr("both seq_length and encoder"));
    EXPECT_EQ(prepared(bert.clone(), {.seq_length = 4, .encoder_seq_length = 4}).seq_length, 4);
    EXPECT_THAT(log.lines(), testing::Not(of_encoder));
    prepared(bert.clone(), {.seq_length = 5, .encoder_seq_length = 4});
    EXPECT_THAT(log.lines(), of_encoder);
}

TEST(MegatronPlugin, KeepsTheSizesOfTheFirstModel) {
    nn::Gpt first = tests::pipeline_gpt();
    nn::Gpt second({.vocab_size = 13, .block_size = 4, .n_layer = 1, .n_head = 1, .n_embd = 8});
    Accelerator accelerator(alone({}));
    accelerator.prepare(first, second);
    EXPECT_EQ(accelerator.options().megatron_lm_plugin->network->num_layers, 6);
    EXPECT_EQ(accelerator.options().megatron_lm_plugin->seq_length, 6);
}

// Covers 16.model, 16.use_custom_fsdp, 16.megatron_dataset_flag.
TEST(MegatronPlugin, RejectsModelsThatContradictIt) {
    const auto reject = [](MegatronLMPlugin plugin, std::initializer_list<const char*> texts) {
        expect_error<ValueError>(texts,
                                 [&] { prepared(tests::pipeline_gpt(), std::move(plugin)); });
    };
    reject({.attention_dropout = 0.25},
           {"MegatronLMPlugin: attention_dropout is 0.25, but the model has 0; set it in the "});
    reject({.hidden_dropout = 0.25}, {"MegatronLMPlugin: hidden_dropout is 0.25"});
    reject({.use_rotary_position_embeddings = true},
           {"MegatronLMPlugin: use_rotary_position_embeddings is true, but the model has false"});
    reject({.num_experts = 4}, {"MegatronLMPlugin: num_experts is 4, but the model has 0"});
    reject({.seq_length = 7},
           {"MegatronLMPlugin: seq_length must be at most max_position_embeddings", "7", "6"});
    reject({.eod_mask_loss = true}, {"MegatronLMPlugin: eod_mask_loss needs eod_token"});
    prepared(
        tests::pipeline_gpt(),
        {.attention_dropout = 0, .hidden_dropout = 0, .use_rotary_position_embeddings = false});
    prepared(tests::pipeline_llama(), {.use_rotary_position_embeddings = true});
}

// Each error names what to use instead.
// Covers 16.use_custom_fsdp, 16.megatron_dataset_flag, 16.is_train_batch_min.
TEST(MegatronPlugin, ReportsReplacementsOfOptionsThatItRejects) {
    const auto refuse = [](MegatronLMPlugin plugin, const char* option, const char* fix) {
        expect_error<NotImplementedError>({"Accelerator: megatron_lm_plugin.", option, fix}, [&] {
            const Accelerator accelerator(alone(std::move(plugin)));
        });
    };
    refuse({.consumed_samples = {4}}, "consumed_samples: ", "resume with load_state()");
    refuse({.megatron_dataset_flag = true}, "megatron_dataset_flag: ", "data::DataLoader");
    refuse({.use_custom_fsdp = true}, "use_custom_fsdp: ", "set use_distributed_optimizer");
    refuse({.optimizer_cpu_offload = true}, "optimizer_cpu_offload: ", "fsdp_plugin with cpu_off");
    refuse({.overlap_cpu_optimizer_d2h_h2d = true},
           "overlap_cpu_optimizer_d2h_h2d: ", "deepspeed_plugin");
    refuse({.use_precision_aware_optimizer = true},
           "use_precision_aware_optimizer: ", "stochastic_rounding");
    refuse({.no_load_optim = true}, "no_load_optim: ", "save_model()");
    refuse({.no_save_optim = true}, "no_save_optim: ", "use save_model() instead of save_state()");
    refuse({.attention_backend = false}, "attention_backend: ", "leave it out");
    refuse({.attention_softmax_in_fp32 = false}, "attention_softmax_in_fp32: ", "leave it out");
    refuse({.expert_tensor_parallel_size = 2},
           "expert_tensor_parallel_size: ", "use expert_model_parallel_size");
    const Accelerator accepted(alone(
        {.attention_backend = true, .attention_softmax_in_fp32 = true, .use_custom_fsdp = false}));
}

// Covers 16.use_custom_fsdp.
TEST(MegatronPlugin, ReadsOptionsFromTheEnvironmentUnlessTheProgramSetsThem) {
    const EnvironmentVariable per_token("MEGATRON_LM_CALCULATE_PER_TOKEN_LOSS", "true"),
        mask("MEGATRON_LM_EOD_MASK_LOSS", "true"), dropout("MEGATRON_LM_HIDDEN_DROPOUT", "0.5"),
        backend("MEGATRON_LM_ATTENTION_BACKEND", "true");
    {
        const Accelerator accelerator(alone({.hidden_dropout = 0.25}));
        const MegatronLMPlugin& plugin = *accelerator.options().megatron_lm_plugin;
        EXPECT_EQ(plugin.average, "tokens");
        EXPECT_EQ(plugin.eod_mask_loss, true);
        EXPECT_EQ(plugin.hidden_dropout, 0.25);
        EXPECT_EQ(plugin.attention_backend, true);
    }
    const EnvironmentVariable sharding("MEGATRON_LM_USE_CUSTOM_FSDP", "true");
    expect_error<NotImplementedError>({"Accelerator: megatron_lm_plugin.use_custom_fsdp"},
                                      [] { const Accelerator accelerator(alone({})); });
}

// Micro-batches with different numbers of labels have different weights in the two means.
// Covers 16.use_custom_fsdp.
TEST(MegatronPlugin, AveragesOverLabelsOrMicroBatchesAndRejectsContradictions) {
    Tree batch = tests::pipeline_batch(0, 4);
    const Tensor labels = batch["labels"].tensor().clone();
    labels.narrow(0, 0, 2).narrow(1, 0, 4).fill_(-100);
    batch.set("labels", labels);
    nn::Gpt whole = tests::pipeline_gpt();
    const auto loss_of = [&](std::int64_t begin, std::int64_t rows) {
        const Tree part{{"labels", labels.narrow(0, begin, rows)}};
        return nn::label_loss(whole(batch["input_ids"].tensor().narrow(0, begin, rows)), part)
            .item();
    };
    const auto step = [&](MegatronLMPlugin plugin) {
        plugin.num_micro_batches = 2;
        nn::Gpt model = tests::pipeline_gpt();
        Accelerator accelerator(alone(std::move(plugin)));
        accelerator.prepare(model);
        return accelerator.pipeline_step(model, batch).item();
    };
    EXPECT_NEAR(step({.calculate_per_token_loss = true}), loss_of(0, 4), 1e-12);
    EXPECT_NEAR(step({.calculate_per_token_loss = false}), (loss_of(0, 2) + loss_of(2, 2)) / 2,
                1e-12);
    MegatronLMPlugin contradiction{.calculate_per_token_loss = true};
    contradiction.average = "rows";
    expect_error<ValueError>(
        {"MegatronLMPlugin: average contradicts calculate_per_token_loss: 'rows', expected "},
        [&] { step(contradiction); });
}

}  // namespace
}  // namespace axle
