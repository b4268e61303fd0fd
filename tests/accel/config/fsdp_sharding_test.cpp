// Tests how the options of FullyShardedDataParallelPlugin change the sharding of models.
#include <memory>
#include <string>
#include <vector>

#include "accel/config/resolve_fsdp.h"
#include "accel/config/resolve_options.h"
#include "dist/sharding/sharded_data_parallel.h"
#include "gmock/gmock.h"
#include "nn/layers/norm.h"
#include "nn/models/bert.h"
#include "nn/models/gpt.h"
#include "nn/models/llama.h"
#include "tests/close.h"
#include "tests/dist/ranks.h"
#include "tests/dist/sharding/sharded_models.h"
#include "tests/log_capture.h"

namespace axle {
namespace {

using accel::MixedPrecisionPolicy;
using accel::sharding_options_of;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using tests::expect_error;
using tests::Gpt64;
using tests::LogCapture;
using tests::on_ranks;
using Plugin = accel::FullyShardedDataParallelPlugin;
using Group = std::shared_ptr<dist::ProcessGroup>;

Plugin resolved(const Plugin& plugin) {
    return *accel::resolved({.fsdp_plugin = plugin}).fsdp_plugin;
}

dist::ShardingOptions options_of(const Plugin& plugin, nn::Module& model) {
    return sharding_options_of(resolved(plugin), model);
}

// Returns one text for each unit: the names of its modules, joined with '+', and '!' at the end if
// the unit stays gathered after forward.
std::vector<std::string> units_of(const Plugin& plugin, nn::Module& model) {
    std::vector<std::string> result;
    for (const dist::ShardUnit& unit : options_of(plugin, model).units) {
        std::string text;
        for (const std::string& name : unit.modules) text += (text.empty() ? "" : "+") + name;
        if (unit.reshard_after_forward == false) text += "!";
        result.push_back(text);
    }
    return result;
}

nn::Llama make_llama(bool tied) {
    return nn::Llama({.vocab_size = 13,
                      .hidden_size = 8,
                      .intermediate_size = 12,
                      .num_hidden_layers = 2,
                      .num_attention_heads = 2,
                      .tie_word_embeddings = tied});
}

nn::BertConfig small_bert() {
    return {.vocab_size = 13,
            .hidden_size = 8,
            .num_hidden_layers = 2,
            .num_attention_heads = 2,
            .intermediate_size = 12,
            .max_position_embeddings = 16};
}

// A model whose output head is a separate layer, not tied to the embedding.
struct Classifier : nn::Model<Classifier> {
    nn::Embedding embedding{13, 4};
    nn::ModuleList<nn::Linear> blocks;
    nn::LayerNorm norm{4};
    nn::Linear head{4, 13, {.bias = false}};
    nn::BatchNorm1d batch_norm{4};
    Tensor scale = ones({4});

    Classifier() {
        blocks.push_back(nn::Linear(4, 4));
        blocks.push_back(nn::Linear(4, 4));
    }
    Tensor forward(const Tensor& ids) {
        Tensor x = embedding(ids);
        for (nn::Linear& block : blocks) x = x + block(x);
        return head(norm(x));
    }
    void visit(nn::Visitor& v) override {
        v("embedding", embedding), v("blocks", blocks), v("norm", norm), v("head", head);
        v("batch_norm", batch_norm), v.buffer("scale", scale);
    }
};

const Plugin kBlocks{.auto_wrap_policy = "TRANSFORMER_BASED_WRAP"};
const Plugin kBlocks2{.fsdp_version = 2, .auto_wrap_policy = "TRANSFORMER_BASED_WRAP"};

// Covers 14.transformer_cls_names_to_wrap.
TEST(NoSplitModules, AreTheBlockTypesOfTransformersAndTheEmbeddingsOfBert) {
    EXPECT_THAT(Gpt64().make().no_split_modules(), ElementsAre("GPT2Block"));
    EXPECT_THAT(make_llama(false).no_split_modules(), ElementsAre("LlamaDecoderLayer"));
    const auto of_bert = ElementsAre("BertEmbeddings", "BertLayer");
    EXPECT_THAT(nn::Bert(small_bert()).no_split_modules(), of_bert);
    EXPECT_THAT(nn::BertForMaskedLM(small_bert()).no_split_modules(), of_bert);
    EXPECT_THAT(nn::BertForSequenceClassification(small_bert()).no_split_modules(), of_bert);
    EXPECT_THAT(nn::Linear(1, 1).no_split_modules(), IsEmpty());
}

// Covers 14.auto_wrap_policy, 14.transformer_cls_names_to_wrap, 14.min_num_params.
TEST(FsdpPlugin, SetsItsWrapPolicyForTheModelAndRejectsMissingTypes) {
    nn::Gpt model = Gpt64().make();
    Plugin plugin = resolved({.auto_wrap_policy = "transformer_based_wrap"});
    plugin.set_auto_wrap_policy(model);
    EXPECT_THAT(*plugin.transformer_cls_names_to_wrap, ElementsAre("GPT2Block"));
    plugin.transformer_cls_names_to_wrap = {{"GPT2Block", "Block"}};
    expect_error<ValueError>({"transformer_cls_names_to_wrap: the model has no module of type "
                              "'Block'"},
                             [&] { plugin.set_auto_wrap_policy(model); });
    Plugin by_size = resolved({.auto_wrap_policy = "SIZE_BASED_WRAP"});
    EXPECT_EQ(by_size.min_num_params, 0);
    by_size.set_auto_wrap_policy(model);
    EXPECT_EQ(std::get<std::string>(by_size.auto_wrap_policy), "NO_WRAP");
    Classifier plain;
    LogCapture log;
    resolved(kBlocks).set_auto_wrap_policy(plain);
    EXPECT_THAT(log.lines(), ElementsAre(HasSubstr("no_split_modules() of the model) is empty: ")));
}

// Covers 14.auto_wrap_policy, 14.transformer_cls_names_to_wrap, 14.min_num_params.
TEST(FsdpUnits, AreTheModulesThatTheWrapPolicySelects) {
    nn::Gpt model = Gpt64().make();
    const auto blocks = ElementsAre("transformer.h.0", "transformer.h.1", "transformer.h.2");
    EXPECT_THAT(units_of({}, model), IsEmpty());
    EXPECT_THAT(units_of(kBlocks, model), blocks);
    EXPECT_THAT(units_of({.auto_wrap_policy = "SIZE_BASED_WRAP", .min_num_params = 800}, model),
                blocks);
    EXPECT_THAT(units_of({.auto_wrap_policy = "SIZE_BASED_WRAP"}, model), IsEmpty());
    const auto is_block = [](const nn::Module& module) {
        return dynamic_cast<const nn::GptBlock*>(&module) != nullptr;
    };
    EXPECT_THAT(units_of({.auto_wrap_policy = is_block}, model), blocks);
    // Modules without parameters are not units.
    const auto is_dropout = [](const nn::Module& module) {
        return dynamic_cast<const nn::Dropout*>(&module) != nullptr;
    };
    EXPECT_THAT(units_of({.auto_wrap_policy = is_dropout}, model), IsEmpty());
    // The token embedding is tied to the head, so its unit would have no parameters.
    EXPECT_THAT(
        units_of({.auto_wrap_policy = "TRANSFORMER_BASED_WRAP",
                  .transformer_cls_names_to_wrap = {{"GPT2Block", "Embedding"}}},
                 model),
        ElementsAre("transformer.wpe", "transformer.h.0", "transformer.h.1", "transformer.h.2"));
}

// Covers 14.fsdp2.
TEST(FsdpUnits, IncludeUntiedEmbeddingsLastNormsAndLinearHeadsInVersion2) {
    nn::Gpt gpt = Gpt64{.layers = 1}.make();  // has a tied head
    EXPECT_THAT(units_of(kBlocks2, gpt), ElementsAre("transformer.h.0", "transformer.ln_f!"));
    nn::Llama llama = make_llama(false);
    EXPECT_THAT(units_of(kBlocks2, llama), ElementsAre("model.layers.0", "model.layers.1",
                                                       "model.embed_tokens", "model.norm!"));
    nn::Llama tied = make_llama(true);
    EXPECT_THAT(units_of(kBlocks2, tied),
                ElementsAre("model.layers.0", "model.layers.1", "model.norm!"));
    nn::Bert bert(small_bert());
    EXPECT_THAT(units_of(kBlocks2, bert),
                ElementsAre("embeddings", "encoder.layer.0", "encoder.layer.1",
                            "embeddings.word_embeddings"));
    Classifier model;
    const Plugin linears{.fsdp_version = 2,
                         .auto_wrap_policy = "TRANSFORMER_BASED_WRAP",
                         .transformer_cls_names_to_wrap = {{"Linear"}}};
    EXPECT_THAT(units_of(linears, model),
                ElementsAre("blocks.0", "blocks.1", "head", "embedding", "batch_norm!"));
    const auto is_block = [&](const nn::Module& module) { return &module == &model.blocks[1]; };
    EXPECT_THAT(units_of({.fsdp_version = 2, .auto_wrap_policy = is_block}, model),
                ElementsAre("blocks.1", "embedding", "norm+head!"));
    EXPECT_THAT(units_of({.auto_wrap_policy = is_block}, model), ElementsAre("blocks.1"));
}

// Covers 14.ignored_modules.
TEST(FsdpUnits, LeaveOutIgnoredModules) {
    nn::Gpt model = Gpt64().make();
    Plugin plugin = kBlocks2;
    plugin.ignored_modules = R"(transformer\.(h\.1|ln_f))";
    EXPECT_THAT(options_of(plugin, model).ignored_modules,
                ElementsAre("transformer.h.1", "transformer.ln_f"));
    EXPECT_THAT(units_of(plugin, model), ElementsAre("transformer.h.0", "transformer.h.2"));
    plugin.ignored_modules = std::vector<std::string>{"transformer.h.2"};
    EXPECT_THAT(options_of(plugin, model).ignored_modules, ElementsAre("transformer.h.2"));
    plugin.ignored_modules = "lm_heads";
    LogCapture log;
    EXPECT_THAT(options_of(plugin, model).ignored_modules, IsEmpty());
    EXPECT_THAT(log.lines(),
                ElementsAre(HasSubstr("ignored_modules: no module matches 'lm_heads'")));
}

// Covers 14.sharding_strategy, 14.reshard_after_forward.
TEST(FsdpSharding, MapsPluginStrategiesToShardingStrategiesAndRejectsNoShard) {
    nn::Gpt model = Gpt64().make();
    using dist::ShardingStrategy;
    const auto of = [&](const Plugin& plugin) { return options_of(plugin, model).strategy; };
    EXPECT_EQ(of({}), ShardingStrategy::full_shard);
    EXPECT_EQ(of({.reshard_after_forward = "HYBRID_SHARD"}), ShardingStrategy::full_shard);
    EXPECT_EQ(of({.reshard_after_forward = "SHARD_GRAD_OP"}), ShardingStrategy::shard_grad_op);
    EXPECT_EQ(of({.reshard_after_forward = "HYBRID_SHARD_ZERO2"}), ShardingStrategy::shard_grad_op);
    EXPECT_EQ(of({.fsdp_version = 2}), ShardingStrategy::full_shard);
    EXPECT_EQ(of({.fsdp_version = 2, .reshard_after_forward = false}),
              ShardingStrategy::shard_grad_op);
    expect_error<UsageError>({"sharding_options_of: the strategy must shard the model: NO_SHARD"},
                             [&] { of({.reshard_after_forward = "NO_SHARD"}); });
}

// Covers 14.backward_prefetch, 14.forward_prefetch, 14.limit_all_gathers, 14.sync_module_states,
// 14.cpu_ram_efficient_loading.
TEST(FsdpSharding, TakesPrefetchingAndSyncOptionsFromThePlugin) {
    nn::Gpt model = Gpt64().make();
    using dist::BackwardPrefetch;
    const dist::ShardingOptions one = options_of({}, model);
    EXPECT_EQ(one.backward_prefetch, BackwardPrefetch::none);
    EXPECT_FALSE(one.forward_prefetch);
    EXPECT_TRUE(one.limit_all_gathers);
    EXPECT_FALSE(one.sync_module_states);
    EXPECT_EQ(one.replicas, nullptr);
    const dist::ShardingOptions other = options_of({.backward_prefetch = "BACKWARD_POST",
                                                    .forward_prefetch = true,
                                                    .limit_all_gathers = false,
                                                    .sync_module_states = true},
                                                   model);
    EXPECT_EQ(other.backward_prefetch, BackwardPrefetch::backward_post);
    EXPECT_TRUE(other.forward_prefetch);
    EXPECT_FALSE(other.limit_all_gathers);
    EXPECT_TRUE(other.sync_module_states);
    EXPECT_EQ(options_of({.backward_prefetch = "BACKWARD_PRE"}, model).backward_prefetch,
              BackwardPrefetch::backward_pre);
    EXPECT_TRUE(options_of({.cpu_ram_efficient_loading = true}, model).sync_module_states);
    const dist::ShardingOptions two = options_of({.fsdp_version = 2}, model);
    EXPECT_EQ(two.backward_prefetch, BackwardPrefetch::backward_pre);
    EXPECT_TRUE(two.forward_prefetch);
    EXPECT_TRUE(two.sync_module_states);
    const Group alone = dist::ProcessGroup::alone();
    EXPECT_EQ(sharding_options_of(resolved({}), model, Device::cpu(), alone).replicas, alone);
}

// Covers 14.mixed_precision_policy.
TEST(FsdpSharding, TakesThePrecisionFromThePlugin) {
    nn::Gpt model = Gpt64().make();
    EXPECT_EQ(options_of({}, model).precision, dist::ShardingPrecision{});
    const MixedPrecisionPolicy policy{.param_dtype = bf16, .reduce_dtype = f32};
    EXPECT_EQ(options_of({.mixed_precision_policy = policy}, model).precision,
              (dist::ShardingPrecision{bf16, f32}));
    const auto automatic =
        *accel::resolved({.mixed_precision = "fp16", .fsdp_plugin = Plugin{}}).fsdp_plugin;
    EXPECT_EQ(sharding_options_of(automatic, model).precision, (dist::ShardingPrecision{f16, f16}));
}

// Covers 14.mixed_precision_policy.
TEST(FsdpBuffers, HaveTheBufferDTypeOfThePolicyExceptInBatchNorm) {
    const Plugin plugin =
        resolved({.mixed_precision_policy = MixedPrecisionPolicy{.buffer_dtype = bf16}});
    Classifier model;
    const Tensor scale = model.scale;
    accel::convert_buffers(resolved({}), model);
    EXPECT_EQ(model.scale.dtype(), f32);
    accel::convert_buffers(plugin, model);
    EXPECT_EQ(scale.dtype(), bf16);  // the tensor stays the same object
    for (const auto& [name, buffer] : model.batch_norm.named_buffers())
        EXPECT_NE(buffer.dtype(), bf16) << name;
    EXPECT_EQ(model.head.weight.dtype(), f32);
}

// Covers 14.upcast.
TEST(FsdpParameters, AreConvertedToF32IfTheyAreTrained) {
    Classifier model;
    model.to(bf16);
    model.embedding.requires_grad_(false);
    const Tensor weight = model.head.weight;
    LogCapture log;
    accel::upcast_trained_parameters(model);
    EXPECT_EQ(weight.dtype(), f32);
    EXPECT_EQ(model.norm.weight.dtype(), f32);
    EXPECT_EQ(model.embedding.weight.dtype(), bf16);
    EXPECT_THAT(log.lines(), ElementsAre(HasSubstr("9 trained parameters are converted to f32")));
    accel::upcast_trained_parameters(model);
    EXPECT_EQ(log.lines().size(), 1U);
}

// Covers 14.param_init_fn, 14.cpu_ram_efficient_loading.
TEST(FsdpSharding, CreatesOptionsForModelsOnTheMetaDevice) {
    Classifier model;
    model.to(Device::meta());
    EXPECT_TRUE(options_of({.cpu_ram_efficient_loading = true}, model).sync_module_states);
    int calls = 0;
    const dist::ShardingOptions options =
        options_of({.param_init_fn = [&](nn::Module&) { ++calls; }}, model);
    options.param_init_fn(model);
    EXPECT_EQ(calls, 1);
}

// Covers 14.fsdp_version, 14.fsdp2.
TEST(FsdpSharding, TrainsLikeOneProcess) {
    nn::Gpt alone = Gpt64().make();
    const tests::ReferenceRun expected = tests::train_alone(alone);
    for (const Plugin& plugin : {kBlocks, kBlocks2}) {
        std::vector<nn::Gpt> models;
        for (int rank = 0; rank < 2; ++rank) models.push_back(Gpt64().make());
        on_ranks(2, [&](const Group& group) {
            nn::Gpt& model = models[static_cast<std::size_t>(group->rank())];
            const dist::ShardedDataParallel sharded(model, group, options_of(plugin, model));
            tests::expect_same_training(model, group, expected);
        });
    }
}

}  // namespace
}  // namespace axle
