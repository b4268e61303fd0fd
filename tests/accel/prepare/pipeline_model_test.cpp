// Tests models that prepare() divides into the stages of a pipeline, and the options of
// MegatronLMPlugin for stages.
#include <string>
#include <vector>

#include "accel/accelerator.h"
#include "core/autograd/autograd.h"
#include "gmock/gmock.h"
#include "nn/layers/layers.h"
#include "tests/dist/pipeline/pipeline_models.h"
#include "tests/environment_variable.h"
#include "tests/temporary_folder.h"

namespace axle {
namespace {

using accel::AcceleratorOptions;
using accel::MegatronLMPlugin;
using accel::NotImplementedError;
using accel::ParallelismConfig;
using tests::at;
using tests::clones_of;
using tests::EnvironmentVariable;
using tests::expect_error;
using tests::Group;
using tests::on_ranks;
using tests::pipeline_gpt;
using tests::TemporaryFolder;

constexpr std::int64_t kBatch = 4, kBatches = 6;

data::TensorDataset texts() {
    const Tree all = tests::pipeline_batch(0, kBatch * kBatches);
    return data::TensorDataset(all);
}

// Trains a model for one pass over the texts, saves the state in `folder` unless it is empty, and
// returns the losses. `rows` is the number of rows of the batches of this process.
std::vector<double> train(nn::Gpt& model, const AcceleratorOptions& options, std::int64_t rows,
                          const std::string& folder = {}) {
    Accelerator accelerator(options);
    const auto data = texts();
    data::DataLoader loader(data, {.batch_size = rows});
    optim::AdamW optimizer(model.parameters(), {.lr = 0.01});
    accelerator.prepare(model, optimizer, loader);
    std::vector<double> losses;
    for (const Tree& batch : loader) {
        const auto scope = accelerator.accumulate(model);
        losses.push_back(accelerator.pipeline_step(model, batch).item());
        if (accelerator.sync_gradients()) accelerator.clip_grad_norm_(model.parameters(), 0.3);
        optimizer.step();
        optimizer.zero_grad();
    }
    if (!folder.empty()) accelerator.save_state(folder);
    return losses;
}

AcceleratorOptions options_of(const Group& group, MegatronLMPlugin plugin) {
    plugin.gradient_clipping = plugin.gradient_clipping.value_or(0);
    return {.cpu = true, .megatron_lm_plugin = std::move(plugin), .process_group = group};
}

// Covers 16.tp_degree, 16.MegatronEngine.forward, 1.megatron_lm_plugin.
TEST(PipelineModel, TrainsLikeOneProcessWithSeveralStagesAndReplicas) {
    const nn::Gpt original = pipeline_gpt();
    nn::Gpt whole = original.clone();
    const std::vector<double> expected =
        train(whole, options_of(dist::ProcessGroup::alone(), {.num_micro_batches = 2}), kBatch);
    const nn::StateDict state = whole.saved_state();
    for (const auto& [ranks, stages] : {std::pair{2, 2}, {2, 1}, {4, 2}, {3, 3}}) {
        SCOPED_TRACE(testing::Message() << ranks << " ranks, " << stages << " stages");
        const int replicas = ranks / stages;
        auto models = clones_of(original, ranks);
        on_ranks(ranks, [&, stages = stages](const Group& group) {
            nn::Gpt& model = models[at(group)];
            const MegatronLMPlugin plugin{.pp_degree = stages, .num_micro_batches = 2};
            const std::vector<double> losses =
                train(model, options_of(group, plugin), kBatch / replicas);
            EXPECT_THAT(losses, testing::Pointwise(testing::DoubleNear(1e-9), expected));
            for (const auto& [name, tensor] : model.named_parameters())
                if (!tensor.device().is_meta())
                    for (const auto& [other, value] : state)
                        if (other == name) tests::expect_close(tensor.detach(), value, 1e-9);
        });
    }
}

TEST(PipelineModel, DividesGradientsByTheAccumulationSteps) {
    const nn::Gpt original = pipeline_gpt();
    nn::Gpt whole = original.clone();
    AcceleratorOptions alone = options_of(dist::ProcessGroup::alone(), {.num_micro_batches = 4});
    train(whole, alone, 2 * kBatch);
    auto models = clones_of(original, 2);
    on_ranks(2, [&](const Group& group) {
        nn::Gpt& model = models[at(group)];
        AcceleratorOptions options = options_of(group, {.pp_degree = 2, .num_micro_batches = 2});
        options.gradient_accumulation_steps = 2;
        train(model, options, kBatch);
        const auto expected = whole.parameters();
        for (std::size_t i = 0; i < expected.size(); ++i)
            if (const Tensor actual = model.parameters()[i]; !actual.device().is_meta())
                tests::expect_close(actual.detach(), expected[i].detach(), 1e-9);
    });
}

// Covers 16.gradient_clipping.
TEST(PipelineModel, ClipsGradientsOfAllStagesInTheOptimizerStep) {
    auto models = clones_of(pipeline_gpt(), 2);
    on_ranks(2, [&](const Group& group) {
        nn::Gpt& model = models[at(group)];
        Accelerator accelerator(options_of(group, {.pp_degree = 2, .gradient_clipping = 0.125}));
        optim::AdamW optimizer(model.parameters());
        accelerator.prepare(model, optimizer);
        accelerator.pipeline_step(model, tests::pipeline_batch(0));
        optimizer.step();
        EXPECT_NEAR(accelerator.pipeline(model).clip_grad_norm_(1e9).item(), 0.125, 1e-6);
    });
}

// Covers 2.pipeline_parallel_rank, 1.parallelism_config.
TEST(PipelineModel, IsDividedIntoTheStagesOfAParallelismConfig) {
    auto models = clones_of(pipeline_gpt(), 4);
    on_ranks(4, [&](const Group& group) {
        nn::Gpt& model = models[at(group)];
        Accelerator accelerator(
            {.cpu = true,
             .parallelism_config = ParallelismConfig{.dp_replicate_size = 2, .pp_size = 2},
             .process_group = group});
        const auto data = texts();
        data::DataLoader loader(data, {.batch_size = 2});
        accelerator.prepare(model, loader);
        EXPECT_EQ(accelerator.pipeline_parallel_rank(), group->rank() / 2);
        EXPECT_EQ(accelerator.data_parallel_rank(), group->rank() % 2);
        EXPECT_EQ(accelerator.pipeline(model).schedule().micro_batches, 2);
        // The processes of a pipeline read the same batches.
        for (const Tree& batch : loader) {
            const auto all = group->all_gather_object(batch["input_ids"]);
            tests::expect_same_bits(all[at(group)].tensor(), all[(at(group) + 2) % 4].tensor());
            EXPECT_FALSE(all[0].tensor().to_vector() == all[1].tensor().to_vector());
        }
        EXPECT_GT(accelerator.pipeline_step(model, tests::pipeline_batch(0)).item(), 0);
    });
}

// Covers 10.Megatron.
TEST(PipelineModel, SavesCheckpointsThatOneOrThreeProcessesLoad) {
    const nn::Gpt original = pipeline_gpt();
    const TemporaryFolder folder;
    nn::Gpt whole = original.clone();
    train(whole, options_of(dist::ProcessGroup::alone(), {.num_micro_batches = 2}), kBatch);
    auto models = clones_of(original, 2);
    const std::string path = folder.path() + "/state";
    on_ranks(2, [&](const Group& group) {
        nn::Gpt& model = models[at(group)];
        train(model, options_of(group, {.pp_degree = 2, .num_micro_batches = 2}), kBatch, path);
    });
    nn::Gpt loaded = original.clone();
    optim::AdamW optimizer(loaded.parameters());
    Accelerator accelerator({.cpu = true, .process_group = dist::ProcessGroup::alone()});
    const auto data = texts();
    data::DataLoader loader(data, {.batch_size = kBatch});
    accelerator.prepare(loaded, optimizer, loader);
    accelerator.load_state(path);
    tests::expect_same_state(loaded.saved_state(), whole.saved_state(), 1e-9);
    EXPECT_EQ(optimizer.state_dict()["state"].size(), loaded.parameters().size());
    // Three stages load the same checkpoint.
    auto again = clones_of(original, 3);
    on_ranks(3, [&](const Group& group) {
        nn::Gpt& model = again[at(group)];
        Accelerator divided(options_of(group, {.pp_degree = 3}));
        optim::AdamW adamw(model.parameters());
        data::DataLoader batches(data, {.batch_size = kBatch});
        divided.prepare(model, adamw, batches);
        divided.load_state(path);
        EXPECT_EQ(divided.pipeline(model).steps(), kBatches);
        const nn::StateDict state = divided.get_state_dict(model);
        if (group->rank() == 0) tests::expect_same_state(state, whole.saved_state(), 1e-9);
        EXPECT_EQ(state.empty(), group->rank() != 0);
    });
}

TEST(PipelineModel, AcceptsAModelOfUnknownTypeOnlyIfThePluginReturnsItsPieces) {
    on_ranks(2, [&](const Group& group) {
        manual_seed(2);
        nn::Mlp mlp = tests::small_mlp();
        MegatronLMPlugin plugin{.pp_degree = 2, .num_micro_batches = 2};
        {
            Accelerator accelerator(options_of(group, plugin));
            expect_error<ValueError>({"pieces_of: the pieces of this type of model are unknown"},
                                     [&] { accelerator.prepare(mlp); });
        }
        plugin.pieces = [](nn::Module& model) {
            std::vector<nn::Piece> pieces;
            for (auto& [name, layer] : model.named_modules())
                if (auto* const linear = dynamic_cast<nn::Linear*>(layer))
                    pieces.push_back({.name = name,
                                      .modules = {linear},
                                      .forward = [linear](const Tensor& x, const Tree& batch) {
                                          return (*linear)(x.defined() ? x : batch["x"].tensor());
                                      }});
            return pieces;
        };
        Accelerator accelerator(options_of(group, plugin));
        accelerator.prepare(mlp);
        const Tensor loss =
            accelerator.pipeline_step(mlp, Tree{{"x", ones({4, 5}, {.dtype = f64})}},
                                      [](const Tensor& y, const Tree&) { return mean(y); });
        EXPECT_TRUE(std::isfinite(loss.item()));
    });
}

// Covers 16.pipeline_model_parallel_split_rank, 16.recompute_activations.
TEST(MegatronPlugin, InterleavesStagesIfLayersPerVirtualStageAreSetAndRejectsUnevenLayers) {
    auto models = clones_of(pipeline_gpt(), 2);
    on_ranks(2, [&](const Group& group) {
        nn::Gpt& model = models[at(group)];
        Accelerator accelerator(options_of(group, {.pp_degree = 2,
                                                   .num_micro_batches = 2,
                                                   .recompute_activations = true,
                                                   .num_layers_per_virtual_pipeline_stage = 1}));
        accelerator.prepare(model);
        const dist::Schedule& schedule = accelerator.pipeline(model).schedule();
        EXPECT_EQ(schedule.name, "interleaved");
        EXPECT_EQ(schedule.chunks, 3);
        EXPECT_GT(accelerator.pipeline_step(model, tests::pipeline_batch(0)).item(), 0);
    });
    on_ranks(2, [&](const Group& group) {
        nn::Gpt model = pipeline_gpt();
        Accelerator accelerator(
            options_of(group, {.pp_degree = 2, .num_layers_per_virtual_pipeline_stage = 2}));
        expect_error<ValueError>({"MegatronLMPlugin: the number of layers must be a multiple of ",
                                  "6 layers, pp_degree 2, layers per stage 2"},
                                 [&] { accelerator.prepare(model); });
    });
}

// Covers 1.megatron_lm_plugin, 27.ACCELERATE_USE_FSDP.
TEST(MegatronPlugin, IsReadFromTheEnvironmentAndRejectsInvalidVariables) {
    const EnvironmentVariable degree("MEGATRON_LM_PP_DEGREE", "1"),
        micro_batches("MEGATRON_LM_NUM_MICRO_BATCHES", "3"),
        clipping("MEGATRON_LM_GRADIENT_CLIPPING", "0.5");
    EXPECT_FALSE(Accelerator().options().megatron_lm_plugin);
    const EnvironmentVariable use("ACCELERATE_USE_MEGATRON_LM", "1");
    {
        const Accelerator accelerator;
        const MegatronLMPlugin& plugin = *accelerator.options().megatron_lm_plugin;
        EXPECT_EQ(plugin.tp_degree, 1);
        EXPECT_EQ(plugin.pp_degree, 1);
        EXPECT_EQ(plugin.num_micro_batches, 3);
        EXPECT_EQ(plugin.gradient_clipping, 0.5);
        EXPECT_EQ(plugin.schedule, "1f1b");
    }
    const EnvironmentVariable wrong("MEGATRON_LM_GRADIENT_CLIPPING", "much");
    expect_error<ValueError>({"MEGATRON_LM_GRADIENT_CLIPPING: must be a number: 'much'"},
                             [] { const Accelerator accelerator; });
}

TEST(MegatronPlugin, RejectsInvalidAndUnsupportedOptions) {
    const auto make = [](MegatronLMPlugin plugin) {
        const Accelerator accelerator({.megatron_lm_plugin = std::move(plugin)});
    };
    const auto invalid = [&](const MegatronLMPlugin& plugin, const char* text) {
        expect_error<ValueError>({text}, [&] { make(plugin); });
    };
    invalid({.pp_degree = 0}, "MegatronLMPlugin: pp_degree must be at least 1: 0");
    invalid({.num_micro_batches = 0}, "MegatronLMPlugin: num_micro_batches must be at least 1: 0");
    invalid({.context_parallel_size = 0},
            "MegatronLMPlugin: context_parallel_size must be at least 1: 0");
    invalid({.gradient_clipping = -1}, "MegatronLMPlugin: gradient_clipping must be finite");
    invalid({.schedule = "2f2b"}, "schedule: must be one of gpipe, 1f1b");
    invalid({.average = "sum"}, "MegatronLMPlugin: average must be one of rows, equal, tokens");
    invalid(
        {.pp_degree = 2},
        "MegatronLMPlugin: the number of processes must be a multiple of pp_degree * tp_degree: "
        "1 processes, pp_degree 2, tp_degree 1");
    invalid({.recompute_granularity = "half"},
            "MegatronLMPlugin: recompute_granularity must be full or selective: 'half'");
    invalid({.recompute_method = "none"},
            "MegatronLMPlugin: recompute_method must be uniform or block: 'none'");
    invalid({.recompute_num_layers = 0},
            "MegatronLMPlugin: recompute_num_layers must be at least 1: 0");
    invalid({.decoder_last_pipeline_num_layers = 0},
            "MegatronLMPlugin: decoder_last_pipeline_num_layers must be at least 1: 0");
    invalid({.decoder_last_pipeline_num_layers = 1, .stage_sizes = {2, 2}},
            "MegatronLMPlugin: decoder_last_pipeline_num_layers can't be combined with");
    const auto unsupported = [&](const MegatronLMPlugin& plugin, const char* option) {
        expect_error<NotImplementedError>({"Accelerator: megatron_lm_plugin.", option},
                                          [&] { make(plugin); });
    };
    unsupported({.context_parallel_size = 2}, "context_parallel_size: ");
    expect_error<UsageError>(
        {"Accelerator: fsdp_plugin cannot be combined with megatron_lm_plugin"}, [] {
            const Accelerator accelerator({.fsdp_plugin = accel::FullyShardedDataParallelPlugin{},
                                           .megatron_lm_plugin = MegatronLMPlugin{}});
        });
    expect_error<UsageError>(
        {"Accelerator: megatron_lm_plugin and parallelism_config contradict"}, [] {
            const Accelerator accelerator({.megatron_lm_plugin = MegatronLMPlugin{.pp_degree = 2},
                                           .parallelism_config = ParallelismConfig{}});
        });
    expect_error<UsageError>({"", "tp_degree is 2, tp_size is 1"}, [] {
        const Accelerator accelerator({.megatron_lm_plugin = MegatronLMPlugin{.tp_degree = 2},
                                       .parallelism_config = ParallelismConfig{}});
    });
}

TEST(PipelineModel, KeepsLogitsAndGradientsInF32WithMixedPrecisionBf16) {
    AcceleratorOptions options = options_of(dist::ProcessGroup::alone(), {.num_micro_batches = 2});
    options.mixed_precision = "bf16";
    Accelerator accelerator(options);
    nn::Gpt model = pipeline_gpt(f32);
    accelerator.prepare(model);
    DType dtype = f64;
    const Tensor loss = accelerator.pipeline_step(model, tests::pipeline_batch(0),
                                                  [&](const Tensor& logits, const Tree& batch) {
                                                      dtype = logits.dtype();
                                                      return nn::label_loss(logits, batch);
                                                  });
    EXPECT_NEAR(loss.item(), std::log(13), 0.5);
    EXPECT_EQ(dtype, f32);
    EXPECT_EQ(model.transformer.wte.weight.grad().dtype(), f32);
}

TEST(PipelineModel, RejectsModelsWithoutPipelineAndMovedModels) {
    nn::Gpt model = pipeline_gpt();
    Accelerator plain({.cpu = true});
    plain.prepare(model);
    expect_error<UsageError>({"pipeline_step: the model has no pipeline"},
                             [&] { plain.pipeline_step(model, tests::pipeline_batch(0)); });
    nn::Gpt other = pipeline_gpt();
    Accelerator accelerator(options_of(dist::ProcessGroup::alone(), {}));
    accelerator.prepare(other);
    nn::Gpt moved = std::move(other);
    expect_error<UsageError>({"pipeline: the model was moved after prepare()"},
                             [&] { accelerator.pipeline_step(moved, tests::pipeline_batch(0)); });
}

TEST(DataRank, IsTheSameForAllStagesOfAPipeline) {
    on_ranks(4, [](const Group& group) {
        const dist::DeviceMesh mesh(group, {{"pp", 2}, {"dp_replicate", 2}});
        const accel::DataRank place = accel::data_rank(mesh);
        EXPECT_EQ(place.index, group->rank() % 2);
        EXPECT_EQ(place.count, 2);
        EXPECT_EQ(place.is_first, group->rank() < 2);
    });
}

}  // namespace
}  // namespace axle
