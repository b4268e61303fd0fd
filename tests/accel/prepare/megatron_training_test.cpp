// Tests an Accelerator with MegatronLMPlugin: models that are divided into stages and slices.
#include <string>
#include <vector>

#include "accel/accelerator.h"
#include "core/autograd/local_part.h"
#include "core/autograd/tensor_slice.h"
#include "core/files/safetensors.h"
#include "core/memory/memory.h"
#include "gmock/gmock.h"
#include "tests/dist/pipeline/pipeline_models.h"
#include "tests/temporary_folder.h"

namespace axle {
namespace {

using accel::AcceleratorOptions;
using accel::MegatronLMPlugin;
using accel::ParallelismConfig;
using accel::ShortWindow;
using tests::at;
using tests::clones_of;
using tests::expect_error;
using tests::Group;
using tests::on_ranks;
using tests::pipeline_gpt;
using tests::TemporaryFolder;

constexpr std::int64_t kRows = 4, kBatches = 3, kTime = 4;

AcceleratorOptions options_of(const Group& group, MegatronLMPlugin plugin) {
    plugin.gradient_clipping = plugin.gradient_clipping.value_or(0.3);
    plugin.num_micro_batches = plugin.num_micro_batches.value_or(2);
    return {.cpu = true, .megatron_lm_plugin = std::move(plugin), .process_group = group};
}

// A model with its optimizer, loader and Accelerator. `replicas` processes divide a batch.
struct MegatronRun {
    MegatronRun(nn::Gpt&& model_, const AcceleratorOptions& options, std::int64_t replicas = 1)
        : model(std::move(model_)),
          dataset(tests::pipeline_batch(0, kRows * kBatches, kTime)),
          loader(dataset, {.batch_size = kRows / replicas}),
          accelerator(options) {
        accelerator.prepare(model, optimizer, loader);
    }
    std::vector<double> train(int passes = 1) {
        std::vector<double> losses;
        for (int pass = 0; pass < passes; ++pass)
            for (const Tree& batch : loader) {
                const auto scope = accelerator.accumulate(model);
                const Tensor ids = batch["input_ids"], labels = batch["labels"];
                const dist::DeviceMesh* const mesh = accelerator.torch_device_mesh();
                const bool shares = mesh != nullptr && mesh->has("cp");
                const auto part = shares ? accelerator.maybe_context_parallel({ids, labels}, {1, 1},
                                                                              {ids, labels})
                                         : accel::ContextParallelScope();
                losses.push_back(accelerator.pipeline_step(model, batch).item());
                optimizer.step();
                optimizer.zero_grad();
            }
        return losses;
    }
    // Expects that the main process has the weights of the model `expected`.
    void expect_weights(const nn::Gpt& expected) const {
        const nn::StateDict state = accelerator.get_state_dict(model);
        if (accelerator.is_main_process())
            tests::expect_same_state(state, expected.saved_state(), 1e-9);
    }

    nn::Gpt model;
    data::TensorDataset dataset;
    optim::AdamW optimizer{model.parameters(), {.lr = 0.01}};
    data::DataLoader loader;
    Accelerator accelerator;
};

// Covers 16.tp_degree, 16.sequence_parallelism, 16.use_distributed_optimizer,
// 1.megatron_lm_plugin.
TEST(MegatronTraining, TrainsLikeOneProcess) {
    const nn::Gpt original = pipeline_gpt();
    MegatronRun alone(original.clone(), options_of(dist::ProcessGroup::alone(), {}));
    const std::vector<double> expected = alone.train(2);
    struct Case {
        MegatronLMPlugin plugin;
        int replicas = 1;
    };
    for (const Case& c : {Case{{.tp_degree = 2, .pp_degree = 2}}, Case{{.tp_degree = 2}, 2},
                          Case{{.pp_degree = 2, .use_distributed_optimizer = true}, 2},
                          Case{{.tp_degree = 2,
                          .pp_degree = 2,
                          .sequence_parallelism = true,
                          .recompute_activations = true,
                          .recompute_num_layers = 2,
                          .use_distributed_optimizer = true},
                               2}}) {
        const int ranks =
            c.plugin.tp_degree.value_or(1) * c.plugin.pp_degree.value_or(1) * c.replicas;
        auto models = clones_of(original, ranks);
        on_ranks(ranks, [&](const Group& group) {
            MegatronRun run(std::move(models[at(group)]), options_of(group, c.plugin), c.replicas);
            const bool is_divided = c.plugin.tp_degree.value_or(1) > 1;
            EXPECT_EQ(autograd::slice_of(run.model.transformer.wte.weight) != nullptr, is_divided);
            EXPECT_THAT(run.train(2), testing::Pointwise(testing::DoubleNear(1e-9), expected));
            run.expect_weights(alone.model);
        });
    }
}

// Covers 17.CP, 1.parallelism_config.
TEST(MegatronTraining, TrainsLikeOneProcessWithContextParallelism) {
    const nn::Gpt original = pipeline_gpt();
    MegatronRun alone(original.clone(), options_of(dist::ProcessGroup::alone(), {}));
    const std::vector<double> expected = alone.train(2);
    for (const auto& [strategy, replicas] :
         {std::pair{"allgather", 1}, {"alltoall", 1}, {"allgather", 2}}) {
        SCOPED_TRACE(testing::Message() << strategy << ", " << replicas << " replicas");
        const int ranks = 4 * replicas;
        auto models = clones_of(original, ranks);
        on_ranks(ranks, [&, strategy = strategy, replicas = replicas](const Group& group) {
            AcceleratorOptions options =
                options_of(group, {.pp_degree = 2, .schedule = "zero_bubble"});
            options.parallelism_config =
                ParallelismConfig{.dp_replicate_size = replicas,
                                  .cp_size = 2,
                                  .pp_size = 2,
                                  .cp_handler = {{.cp_comm_strategy = strategy}}};
            MegatronRun run(std::move(models[at(group)]), options, replicas);
            EXPECT_EQ(run.accelerator.context_parallel_rank(), group->rank() % 2);
            EXPECT_EQ(run.accelerator.pipeline_parallel_rank(), group->rank() / (2 * replicas));
            EXPECT_THAT(run.train(2), testing::Pointwise(testing::DoubleNear(1e-9), expected));
            run.expect_weights(alone.model);
        });
    }
}

// Micro-batches and parts of sequences have different numbers of labels.
TEST(MegatronTraining, AveragesOverTheTokensOfAllPartsOfSequences) {
    const auto batch_of = [] {
        Tree batch = tests::pipeline_batch(0, kRows, kTime);
        const Tensor labels = batch["labels"];
        labels.select(1, 3).fill_(-100);
        labels.select(0, 0).fill_(-100);
        return batch;
    };
    nn::Gpt whole = pipeline_gpt();
    const Tree batch = batch_of();
    const Tensor expected = nn::label_loss(whole(batch["input_ids"].tensor()), batch);
    auto models = clones_of(whole, 4);
    expected.backward();
    const double norm = optim::get_total_norm(whole.parameters()).item();
    on_ranks(4, [&](const Group& group) {
        nn::Gpt& model = models[at(group)];
        AcceleratorOptions options = options_of(group, {.pp_degree = 2, .average = "tokens"});
        options.parallelism_config = ParallelismConfig{.cp_size = 2, .pp_size = 2};
        Accelerator accelerator(options);
        accelerator.prepare(model);
        const Tree own = batch_of();
        const Tensor ids = own["input_ids"], labels = own["labels"];
        const auto part = accelerator.maybe_context_parallel({ids, labels}, {1, 1}, {ids, labels});
        EXPECT_NEAR(accelerator.pipeline_step(model, own).item(), expected.item(), 1e-9);
        EXPECT_NEAR(accelerator.pipeline(model).clip_grad_norm_(1e9).item(), norm, 1e-9);
    });
}

// Covers 16.recompute_activations.
TEST(MegatronTraining, StoresNoAttentionWeightsIfRecomputationIsSelective) {
    constexpr std::int64_t kLong = 1024, kHeads = 2;
    const Tree batch = tests::pipeline_batch(0, 1, kLong);
    double loss = 0;
    const auto peak_of = [&](const char* granularity) {
        manual_seed(7);
        nn::Gpt model({.vocab_size = tests::kPipelineVocabulary,
                       .block_size = kLong,
                       .n_layer = 4,
                       .n_head = kHeads,
                       .n_embd = 8});
        Accelerator accelerator(
            options_of(dist::ProcessGroup::alone(), {.num_micro_batches = 1,
                                                     .recompute_activations = true,
                                                     .recompute_granularity = granularity}));
        accelerator.prepare(model);
        const std::int64_t before = host_memory::stats().current;
        host_memory::reset_peak();
        loss = accelerator.pipeline_step(model, batch).item();
        return host_memory::stats().peak - before;
    };
    const std::int64_t full = peak_of("full");
    const double expected = loss;
    const std::int64_t selective = peak_of("selective");
    EXPECT_EQ(loss, expected);
    EXPECT_LT(full, selective);
    EXPECT_LT(selective, kHeads * kLong * kLong * size_of(f32));  // attention weights of one layer
}

// The ranks of a tensor parallel group are consecutive, and the ranks of a pipeline are farthest
// apart.
// Covers 2.tensor_parallel_rank, 2.pipeline_parallel_rank, 2.distributed_type.
TEST(MegatronTraining, DividesProcessesIntoStagesReplicasAndSlices) {
    auto models = clones_of(pipeline_gpt(), 8);
    on_ranks(8, [&](const Group& group) {
        MegatronRun run(std::move(models[at(group)]),
                        options_of(group, {.tp_degree = 2, .pp_degree = 2}), 2);
        const Accelerator& accelerator = run.accelerator;
        EXPECT_EQ(accelerator.tensor_parallel_rank(), group->rank() % 2);
        EXPECT_EQ(accelerator.data_parallel_rank(), group->rank() / 2 % 2);
        EXPECT_EQ(accelerator.pipeline_parallel_rank(), group->rank() / 4);
        EXPECT_EQ(accelerator.distributed_type(), accel::DistributedType::megatron_lm);
        EXPECT_EQ(run.model.transformer.h[0].mlp.c_fc.weight.device().is_meta(),
                  group->rank() >= 4);
        for (const Tree& batch : run.loader) {
            const auto all = group->all_gather_object(batch["input_ids"]);
            for (const int same : {1, 4, 5})
                tests::expect_same_bits(all[0].tensor(),
                                        all[static_cast<std::size_t>(same)].tensor());
            EXPECT_NE(all[0].tensor().to_vector(), all[2].tensor().to_vector());
        }
    });
}

// Covers 1.parallelism_config.
TEST(MegatronTraining, AcceptsSizesFromAParallelismConfig) {
    auto models = clones_of(pipeline_gpt(), 8);
    on_ranks(8, [&](const Group& group) {
        MegatronRun run(
            std::move(models[at(group)]),
            {.cpu = true,
             .parallelism_config = ParallelismConfig{.dp_replicate_size = 2,
                                                     .tp_size = 2,
                                                     .pp_size = 2,
                                                     .tp_handler = {{.sequence_parallel = true}}},
             .process_group = group},
            2);
        EXPECT_EQ(run.accelerator.options().megatron_lm_plugin->tp_degree, 2);
        EXPECT_NE(run.model.transformer.stack_policy, nullptr);
        EXPECT_EQ(run.train().size(), 3u);
    });
}

// Covers 10.Megatron.
TEST(MegatronTraining, SavesWholeModelsAndCheckpointsThatFewerProcessesLoad) {
    const TemporaryFolder folder;
    const nn::Gpt original = pipeline_gpt();
    MegatronRun alone(original.clone(), options_of(dist::ProcessGroup::alone(), {}));
    alone.train();
    auto models = clones_of(original, 8);
    on_ranks(8, [&](const Group& group) {
        MegatronRun run(
            std::move(models[at(group)]),
            options_of(group, {.tp_degree = 2, .pp_degree = 2, .use_distributed_optimizer = true}),
            2);
        run.train();
        run.accelerator.save_state(folder / "state");
        run.accelerator.save_model(run.model, folder / "model");
    });
    const auto saved = load_safetensors(folder / "model/model.safetensors").tensors;
    for (const auto& [name, tensor] : alone.model.saved_state()) {
        SCOPED_TRACE(name);
        tests::expect_close(saved.at(name), tensor, 1e-9);
    }
    alone.train();
    auto others = clones_of(original, 4);
    on_ranks(4, [&](const Group& group) {
        MegatronRun run(std::move(others[at(group)]),
                        options_of(group, {.pp_degree = 2, .use_distributed_optimizer = true}), 2);
        run.accelerator.load_state(folder / "state");
        run.train();
        run.expect_weights(alone.model);
    });
    MegatronRun one(original.clone(), options_of(dist::ProcessGroup::alone(), {}));
    one.accelerator.load_state(folder / "state");
    one.train();
    tests::expect_same_state(one.model.saved_state(), alone.model.saved_state(), 1e-9);
}

// A pass has three batches, in windows of two, so the last window has one batch.
TEST(MegatronTraining, DividesShortWindowsByTheirNumberOfBatches) {
    const nn::Gpt original = pipeline_gpt();
    const accel::GradientAccumulationPlugin plugin{.num_steps = 2,
                                                   .short_window = ShortWindow::actual};
    nn::Gpt whole = original.clone();
    data::TensorDataset dataset(tests::pipeline_batch(0, kRows * kBatches, kTime));
    data::DataLoader loader(dataset, {.batch_size = kRows});
    optim::AdamW optimizer(whole.parameters(), {.lr = 0.01});
    Accelerator accelerator({.cpu = true,
                             .gradient_accumulation_plugin = plugin,
                             .process_group = dist::ProcessGroup::alone()});
    accelerator.prepare(whole, optimizer, loader);
    for (const Tree& batch : loader) {
        const auto scope = accelerator.accumulate(whole);
        accelerator.backward(nn::label_loss(whole(batch["input_ids"].tensor()), batch));
        if (accelerator.sync_gradients()) accelerator.clip_grad_norm_(whole.parameters(), 0.3);
        optimizer.step();
        optimizer.zero_grad();
    }
    for (const bool shards : {false, true}) {
        auto models = clones_of(original, 4);
        on_ranks(4, [&](const Group& group) {
            AcceleratorOptions options =
                options_of(group, {.pp_degree = 2, .use_distributed_optimizer = shards});
            options.gradient_accumulation_plugin = plugin;
            MegatronRun run(std::move(models[at(group)]), options, 2);
            run.train();
            run.expect_weights(whole);
        });
    }
}

// Covers 16.pipeline_model_parallel_split_rank.
TEST(MegatronTraining, UsesTheGivenNumberOfLayersForTheLastStageAndRejectsItForOneStage) {
    auto models = clones_of(pipeline_gpt(), 2);
    on_ranks(2, [&](const Group& group) {
        MegatronRun run(std::move(models[at(group)]),
                        options_of(group, {.pp_degree = 2, .decoder_last_pipeline_num_layers = 2}));
        for (std::size_t layer = 0; layer < 6; ++layer)
            EXPECT_EQ(run.model.transformer.h[layer].ln_1.weight.device().is_meta(),
                      (layer >= 4) != (group->rank() == 1));
        EXPECT_EQ(run.train().size(), 3u);
    });
    const Group alone = dist::ProcessGroup::alone();
    nn::Gpt model = pipeline_gpt();
    Accelerator accelerator(options_of(alone, {.decoder_last_pipeline_num_layers = 2}));
    expect_error<ValueError>({"MegatronLMPlugin: the layers that are not on the last stage", "6 ",
                              "decoder_last_pipeline_num_layers 2"},
                             [&] { accelerator.prepare(model); });
}

TEST(MegatronTraining, RejectsSavingClonesWithoutTheStagesOfOtherProcesses) {
    const TemporaryFolder folder;
    auto models = clones_of(pipeline_gpt(), 2);
    on_ranks(2, [&](const Group& group) {
        MegatronRun run(std::move(models[at(group)]), options_of(group, {.pp_degree = 2}));
        nn::Gpt average = run.model.clone();
        run.accelerator.register_for_checkpointing(average);
        expect_error<UsageError>({"save_state: a registered module can't be saved", "meta device"},
                                 [&] { run.accelerator.save_state(folder / "state"); });
    });
}

}  // namespace
}  // namespace axle
