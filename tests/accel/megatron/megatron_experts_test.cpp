// Tests expert parallelism: the replicas of a pipeline, or of data parallel training, divide the
// experts of a mixture.
#include <string>
#include <utility>
#include <vector>

#include "accel/accelerator.h"
#include "core/ops.h"
#include "core/random.h"
#include "gmock/gmock.h"
#include "nn/layers/layers.h"
#include "nn/layers/mixture.h"
#include "tests/dist/pipeline/pipeline_models.h"
#include "tests/environment_variable.h"
#include "tests/temporary_folder.h"

namespace axle {
namespace {

using accel::AcceleratorOptions;
using accel::MegatronLMPlugin;
using accel::NotImplementedError;
using accel::ParallelismConfig;
using testing::DoubleNear;
using testing::Pointwise;
using tests::at;
using tests::clones_of;
using tests::expect_error;
using tests::Group;
using tests::on_ranks;

constexpr std::int64_t kExperts = 4, kRows = 8, kSteps = 4, kTime = 5;
constexpr std::int64_t kVocabulary = tests::kPipelineVocabulary;

// A language model whose second block is a mixture of experts.
struct SparseLm : nn::Model<SparseLm> {
    SparseLm()
        : embed(kVocabulary, 6),
          in(6, 6),
          block(6, 5, {.experts = kExperts, .top_k = 2}),
          out(6, kVocabulary) {}
    Tensor forward(const Tensor& ids) {
        const Tensor h = tanh(in(embed(ids)));
        return out(h + block(h));
    }
    void visit(nn::Visitor& v) override {
        v("embed", embed), v("in", in), v("block", block), v("out", out);
    }
    nn::Embedding embed;
    nn::Linear in;
    nn::MixtureOfExperts block;
    nn::Linear out;
};

SparseLm sparse_lm() {
    manual_seed(5);
    SparseLm model;
    model.to(f64);
    return model;
}

std::vector<nn::Piece> pieces_of(nn::Module& module) {
    auto& model = dynamic_cast<SparseLm&>(module);
    return {{.name = "in",
             .modules = {&model.embed, &model.in},
             .forward =
                 [&model](const Tensor&, const Tree& batch) {
                     return tanh(model.in(model.embed(batch["input_ids"].tensor())));
                 }},
            {.name = "block",
             .modules = {&model.block},
             .forward = [&model](const Tensor& h, const Tree&) { return h + model.block(h); }},
            {.name = "out",
             .modules = {&model.out},
             .forward = [&model](const Tensor& h, const Tree&) { return model.out(h); }}};
}

AcceleratorOptions options_of(const Group& group, MegatronLMPlugin plugin) {
    plugin.gradient_clipping = 0.1;
    plugin.num_micro_batches = 2;
    plugin.pieces = pieces_of;
    return {.cpu = true, .megatron_lm_plugin = std::move(plugin), .process_group = group};
}

// A model with its optimizer, loader and Accelerator. `replicas` processes divide a batch.
struct SparseRun {
    SparseRun(SparseLm&& model_, const AcceleratorOptions& options, int replicas = 1)
        : model(std::move(model_)),
          dataset(tests::pipeline_batch(0, kRows * kSteps, kTime)),
          loader(dataset, {.batch_size = kRows / replicas}),
          accelerator(options) {
        accelerator.prepare(model, optimizer, loader);
    }
    std::vector<double> train() {
        std::vector<double> losses;
        for (const Tree& batch : loader) {
            losses.push_back(accelerator.pipeline_step(model, batch).item());
            optimizer.step();
            optimizer.zero_grad();
        }
        return losses;
    }

    SparseLm model;
    data::TensorDataset dataset;
    optim::AdamW optimizer{model.parameters(), {.lr = 0.01}};
    data::DataLoader loader;
    Accelerator accelerator;
};

// Covers 16.use_custom_fsdp, 16.model.
TEST(MegatronExperts, TrainLikeOneProcess) {
    const SparseLm original = sparse_lm();
    SparseRun whole(original.clone(), options_of(dist::ProcessGroup::alone(), {}));
    const std::vector<double> expected = whole.train();
    struct Case {
        int ranks, stages, experts;
        bool shards = false;
    };
    for (const Case& c : {Case{2, 1, 2}, {4, 1, 2}, {4, 2, 2}, {2, 1, 2, true}, {4, 1, 4, true}}) {
        SCOPED_TRACE(testing::Message() << c.ranks << " ranks, " << c.stages << " stages");
        auto models = clones_of(original, c.ranks);
        on_ranks(c.ranks, [&](const Group& group) {
            SparseRun run(std::move(models[at(group)]),
                          options_of(group, {.pp_degree = c.stages,
                                             .use_distributed_optimizer = c.shards,
                                             .expert_model_parallel_size = c.experts,
                                             .num_experts = kExperts}),
                          c.ranks / c.stages);
            EXPECT_EQ(run.model.block.experts.up.size(0), kExperts / c.experts);
            EXPECT_THAT(run.train(), Pointwise(DoubleNear(1e-9), expected));
            const nn::StateDict state = run.accelerator.get_state_dict(run.model);
            if (group->rank() == 0)
                tests::expect_same_state(state, whole.model.saved_state(), 1e-9);
        });
    }
}

TEST(MegatronExperts, ResumeOnOneProcessFromACheckpointOfTwoProcesses) {
    const tests::TemporaryFolder folder;
    const SparseLm original = sparse_lm();
    SparseRun whole(original.clone(), options_of(dist::ProcessGroup::alone(), {}));
    whole.train();
    auto models = clones_of(original, 2);
    on_ranks(2, [&](const Group& group) {
        SparseRun run(std::move(models[at(group)]),
                      options_of(group, {.expert_model_parallel_size = 2}), 2);
        run.train();
        run.accelerator.save_state(folder / "state");
    });
    whole.train();
    SparseRun loaded(original.clone(), options_of(dist::ProcessGroup::alone(), {}));
    loaded.accelerator.load_state(folder / "state");
    loaded.train();
    tests::expect_same_state(loaded.model.saved_state(), whole.model.saved_state(), 1e-9);
}

// Covers 17.dp_replicate_size.
TEST(ParallelismConfigExperts, TrainLikeOneProcess) {
    const auto train = [](SparseLm& model, const AcceleratorOptions& options, int replicas) {
        Accelerator accelerator(options);
        const data::TensorDataset dataset(tests::pipeline_batch(0, kRows * kSteps, kTime));
        data::DataLoader loader(dataset, {.batch_size = kRows / replicas});
        optim::AdamW optimizer(model.parameters(), {.lr = 0.01});
        accelerator.prepare(model, optimizer, loader);
        for (const Tree& batch : loader) {
            accelerator.backward(nn::label_loss(model(batch["input_ids"].tensor()), batch));
            accelerator.clip_grad_norm_(model.parameters(), 0.1);
            optimizer.step();
            optimizer.zero_grad();
        }
        return accelerator.get_state_dict(model);
    };
    const SparseLm original = sparse_lm();
    SparseLm whole = original.clone();
    const nn::StateDict expected =
        train(whole, {.cpu = true, .process_group = dist::ProcessGroup::alone()}, 1);
    for (const int ranks : {2, 4}) {
        auto models = clones_of(original, ranks);
        on_ranks(ranks, [&](const Group& group) {
            SparseLm& model = models[at(group)];
            const nn::StateDict state =
                train(model,
                      {.cpu = true,
                       .parallelism_config = ParallelismConfig{.ep_size = 2},
                       .process_group = group},
                      ranks);
            EXPECT_EQ(model.block.experts.up.size(0), kExperts / 2);
            if (group->rank() == 0) tests::expect_same_state(state, expected, 1e-9);
        });
    }
}

// Covers 16.use_custom_fsdp, 17.dp_replicate_size.
TEST(ParallelismConfigExperts, RejectInvalidSizesAndUnsupportedCombinations) {
    const auto make = [](AcceleratorOptions options) {
        return [options = std::move(options)] { const Accelerator accelerator(options); };
    };
    const auto config = [](const ParallelismConfig& sizes) {
        return AcceleratorOptions{.cpu = true, .parallelism_config = sizes};
    };
    EXPECT_THAT((ParallelismConfig{.ep_size = 2}.to_json()), testing::HasSubstr("\"ep_size\""));
    expect_error<ValueError>({"ParallelismConfig: ep_size: must be at least 1: 0"},
                             make(config({.ep_size = 0})));
    expect_error<ValueError>(
        {"ParallelismConfig: ep_size must divide the number of replicas: 1 replicas, ep_size 2"},
        make(config({.ep_size = 2})));
    expect_error<ValueError>(
        {"MegatronLMPlugin: the number of replicas must be a multiple of "
         "expert_model_parallel_size: 1 replicas, expert_model_parallel_size 2"},
        make({.cpu = true, .megatron_lm_plugin = {{.expert_model_parallel_size = 2}}}));
    {
        const tests::EnvironmentVariable use("ACCELERATE_USE_PARALLELISM_CONFIG", "true"),
            size("PARALLELISM_CONFIG_EP_SIZE", "3");
        expect_error<ValueError>({"ParallelismConfig: ep_size must ", "1 replicas, ep_size 3"},
                                 make({.cpu = true}));
    }
    on_ranks(2, [](const Group& group) {
        expect_error<NotImplementedError>(
            {"Accelerator: megatron_lm_plugin.expert_model_parallel_size: ", "use tp_degree 1"},
            [&] {
                const Accelerator accelerator(
                    options_of(group, {.tp_degree = 2, .expert_model_parallel_size = 2}));
            });
        expect_error<NotImplementedError>(
            {"Accelerator: parallelism_config.ep_size: ", "use it with dp_replicate_size"}, [&] {
                const Accelerator accelerator(
                    {.cpu = true,
                     .parallelism_config = ParallelismConfig{.tp_size = 2, .ep_size = 2},
                     .process_group = group});
            });
        SparseLm model = sparse_lm();
        Accelerator accelerator(
            options_of(group, {.expert_model_parallel_size = 2, .num_experts = 3}));
        expect_error<ValueError>({"MegatronLMPlugin: num_experts is 3, but the model has 4"},
                                 [&] { accelerator.prepare(model); });
    });
}

}  // namespace
}  // namespace axle
