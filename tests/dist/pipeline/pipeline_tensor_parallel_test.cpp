// Tests pipelines whose stages are divided among tensor parallel ranks, and whose replicas divide
// the states of optimizers.
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/autograd/local_part.h"
#include "core/autograd/tensor_slice.h"
#include "dist/group/mesh.h"
#include "dist/ops/collective_ops.h"
#include "dist/tensor_parallel/tensor_parallel.h"
#include "gmock/gmock.h"
#include "tests/dist/pipeline/pipeline_models.h"

namespace axle {
namespace {

using dist::Pipeline;
using dist::PipelineOptions;
using dist::ScheduleKind;
using tests::at;
using tests::clones_of;
using tests::expect_same_pipeline;
using tests::Group;
using tests::on_ranks;
using tests::pipeline_gpt;
using tests::pipeline_llama;
using tests::PipelineReference;

using enum ScheduleKind;

constexpr ScheduleKind kKinds[] = {gpipe, one_forward_one_backward, interleaved, zero_bubble};
constexpr std::int64_t kTime = 4;  // a multiple of the number of slices

// The sizes of a mesh, and how they divide the model.
struct Division {
    int pp = 1, dp = 1, tp = 1;
    bool sequence_parallel = false;
    bool shard_optimizer = false;

    int ranks() const { return pp * dp * tp; }
    std::string name() const {
        return str("pp ", pp, ", dp ", dp, ", tp ", tp,
                   sequence_parallel ? ", sequence parallel" : "",
                   shard_optimizer ? ", optimizer states in shards" : "");
    }
};

Tree batch_of(std::int64_t step) {
    return tests::pipeline_batch(step, tests::kPipelineRows, kTime);
}

// A model with its stages and slices on one rank.
template <class M>
struct DividedStages {
    DividedStages(M&& model_, const Group& group, const Division& division, PipelineOptions options)
        : model(std::move(model_)),
          mesh(group, {{"pp", division.pp}, {"dp", division.dp}, {"tp", division.tp}}) {
        dist::tensor_parallelize(model, mesh.get_group("tp"),
                                 {.sequence_parallel = division.sequence_parallel});
        options.data_parallel = mesh.get_group("dp");
        options.shard_optimizer = division.shard_optimizer;
        pipeline.emplace(model, nn::pieces(model), mesh.get_group("pp"), options);
    }
    // Returns the rows of this rank's replica.
    Tree rows_of(const Tree& batch) const {
        const std::int64_t rows = tests::kPipelineRows / mesh.size("dp");
        const std::int64_t begin = mesh.coordinate("dp") * rows;
        return slice_tensors(batch, begin, begin + rows);
    }

    M model;
    dist::DeviceMesh mesh;
    std::optional<Pipeline> pipeline;
};

template <class M>
void expect_same_training(const M& original, const Division& division,
                          const PipelineOptions& options, std::int64_t steps = 3) {
    SCOPED_TRACE(division.name());
    M whole = original.clone();
    const PipelineReference expected = tests::train_whole(whole, steps, batch_of);
    auto models = clones_of(original, division.ranks());
    on_ranks(division.ranks(), [&](const Group& group) {
        DividedStages<M> stages(std::move(models[at(group)]), group, division, options);
        expect_same_pipeline(stages.model, *stages.pipeline, expected, 1e-9,
                             [&](std::int64_t step) { return stages.rows_of(batch_of(step)); });
    });
}

PipelineOptions options_of(ScheduleKind kind, int stages) {
    return {.schedule = kind, .micro_batches = stages, .chunks = kind == interleaved ? 2 : 1};
}

// Covers 16.tp_degree, 16.sequence_parallelism.
TEST(PipelineWithTensorParallelism, TrainsGptLikeOneProcess) {
    for (const ScheduleKind kind : kKinds)
        for (const bool sequence_parallel : {false, true})
            expect_same_training(pipeline_gpt(),
                                 {.pp = 2, .tp = 2, .sequence_parallel = sequence_parallel},
                                 options_of(kind, 2));
}

// The query heads are divided, and the only key-value head is copied.
TEST(PipelineWithTensorParallelism, TrainsLlamaLikeOneProcess) {
    for (const ScheduleKind kind : {one_forward_one_backward, zero_bubble})
        for (const bool tied : {false, true})
            expect_same_training(pipeline_llama(f64, tied),
                                 {.pp = 2, .tp = 2, .sequence_parallel = tied},
                                 options_of(kind, 2));
}

TEST(PipelineWithTensorParallelism, TrainsBertLikeOneProcess) {
    manual_seed(7);
    const nn::BertConfig config{.vocab_size = tests::kPipelineVocabulary,
                                .hidden_size = 8,
                                .num_hidden_layers = 3,
                                .num_attention_heads = 2,
                                .intermediate_size = 12,
                                .max_position_embeddings = 8,
                                .hidden_dropout_prob = 0,
                                .attention_probs_dropout_prob = 0};
    nn::BertForMaskedLM masked(config);
    masked.to(f64);
    for (const bool sequence_parallel : {false, true})
        expect_same_training(masked, {.pp = 2, .tp = 2, .sequence_parallel = sequence_parallel},
                             options_of(zero_bubble, 2));
}

TEST(PipelineWithTensorParallelism, TrainsOnSixAndEightRanksLikeOneProcess) {
    expect_same_training(pipeline_gpt(), {.pp = 3, .tp = 2}, options_of(zero_bubble, 3));
    for (const bool shard_optimizer : {false, true})
        expect_same_training(pipeline_gpt(),
                             {.pp = 2,
                              .dp = 2,
                              .tp = 2,
                              .sequence_parallel = true,
                              .shard_optimizer = shard_optimizer},
                             options_of(one_forward_one_backward, 2));
}

TEST(PipelineWithTensorParallelism, TrainsLikeOneProcessWithRecomputation) {
    for (const auto& [recompute, pieces] : {std::pair{dist::Recompute::pieces, 1},
                                            {dist::Recompute::pieces, 3},
                                            {dist::Recompute::first_pieces, 2},
                                            {dist::Recompute::stages, 1}}) {
        PipelineOptions options = options_of(zero_bubble, 2);
        options.recompute = recompute;
        options.recompute_pieces = pieces;
        expect_same_training(pipeline_gpt(), {.pp = 2, .tp = 2, .sequence_parallel = true},
                             options);
    }
}

// A custom loss needs all logits, so the ranks gather them. label_loss() needs two numbers of each
// rank for each token.
TEST(PipelineWithTensorParallelism, ExchangesTwoNumbersPerTokenAndRankInsteadOfLogitsForLabelLoss) {
    auto models = clones_of(pipeline_gpt(), 4);
    on_ranks(4, [&](const Group& group) {
        const Division division{.pp = 2, .tp = 2};
        DividedStages<nn::Gpt> stages(std::move(models[at(group)]), group, division,
                                      options_of(one_forward_one_backward, 2));
        const Tree batch = batch_of(0);
        const auto bytes_of = [&](const dist::PipelineLoss& loss) {
            dist::reset_collective_counts();
            stages.pipeline->step(batch, loss);
            return dist::collective_counts().bytes;
        };
        const std::int64_t of_labels = bytes_of(nn::label_loss);
        const std::int64_t of_logits = bytes_of([](const Tensor& logits, const Tree& part) {
            EXPECT_EQ(logits.size(-1), tests::kPipelineVocabulary);
            return nn::label_loss(logits, part);
        });
        // The vocabulary of 13 is padded to 14.
        const std::int64_t tokens = tests::kPipelineRows * kTime, number = size_of(f64);
        const bool is_last = stages.mesh.coordinate("pp") == 1;
        EXPECT_EQ(of_logits - of_labels, is_last ? tokens * (14 - 2 * 2) * number : 0);
    });
}

// Covers 16.use_distributed_optimizer.
TEST(PipelineWithReplicas, DividesOptimizerStates) {
    for (const bool tied : {false, true})
        expect_same_training(pipeline_llama(f64, tied), {.pp = 2, .dp = 2, .shard_optimizer = true},
                             options_of(zero_bubble, 3));
    auto models = clones_of(pipeline_gpt(), 4);
    on_ranks(4, [&](const Group& group) {
        const Division division{.pp = 2, .dp = 2, .shard_optimizer = true};
        DividedStages<nn::Gpt> stages(std::move(models[at(group)]), group, division,
                                      {.micro_batches = 2});
        optim::AdamW optimizer(stages.model.parameters());
        for (int step = 0; step < 2; ++step) {
            stages.pipeline->step(stages.rows_of(batch_of(step)), nn::label_loss);
            optimizer.step();
            optimizer.zero_grad();
        }
        std::int64_t own = 0, whole = 0;
        for (const Tensor& parameter : stages.pipeline->parameters()) {
            EXPECT_TRUE(autograd::is_sharded(parameter));
            own += autograd::local_part(parameter).numel();
            whole += parameter.numel();
        }
        const Tensor all = tensor({own});
        stages.mesh.get_group("dp")->all_reduce(all);
        EXPECT_EQ(all.item_int(), whole);
        // The first moments of AdamW have the sizes of the parts.
        std::int64_t moments = 0;
        const Tree saved = optimizer.state_dict();
        for (const auto& [number, state] : saved["state"].entries())
            moments += state["exp_avg"].tensor().numel();
        EXPECT_EQ(moments, own);
    });
}

// A step that throws must not leave gradients, and the next steps are not affected.
TEST(PipelineWithReplicas, KeepsTheNormOfShardedGradientsIfAStepFails) {
    auto models = clones_of(pipeline_gpt(), 2);
    on_ranks(2, [&](const Group& group) {
        const Division division{.dp = 2, .shard_optimizer = true};
        DividedStages<nn::Gpt> stages(std::move(models[at(group)]), group, division,
                                      {.micro_batches = 2});
        const Tree batch = stages.rows_of(batch_of(0));
        stages.pipeline->step(batch, nn::label_loss);
        const double norm = stages.pipeline->clip_grad_norm_(1e9).item();
        int calls = 0;
        tests::expect_error<ValueError>({"the second loss fails"}, [&] {
            stages.pipeline->step(batch, [&](const Tensor& y, const Tree& part) {
                if (++calls == 2) throw ValueError("the second loss fails");
                return nn::label_loss(y, part);
            });
        });
        EXPECT_NEAR(stages.pipeline->clip_grad_norm_(1e9).item(), norm, 1e-12);
        stages.pipeline->step(batch, nn::label_loss);  // doubles the gradients
        EXPECT_NEAR(stages.pipeline->clip_grad_norm_(1e9).item(), 2 * norm, 1e-12);
    });
}

// One process and another mesh load a state that was saved with slices, stages and shards.
TEST(PipelineWithTensorParallelism, ReturnsStateDictsThatOtherMeshesCanLoad) {
    const nn::Gpt original = pipeline_gpt();
    nn::Gpt whole = original.clone();
    const PipelineReference expected = tests::train_whole(whole, 4, batch_of);
    nn::StateDict state;
    Tree optimizer_state;
    const auto train = [&](const Division& division, std::int64_t from, std::int64_t to) {
        auto models = clones_of(original, division.ranks());
        on_ranks(division.ranks(), [&](const Group& group) {
            DividedStages<nn::Gpt> stages(std::move(models[at(group)]), group, division,
                                          {.micro_batches = 2});
            optim::AdamW optimizer(stages.model.parameters(), {.lr = 0.01});
            if (from > 0) {
                stages.pipeline->load_state_dict(state);
                stages.pipeline->load_state_dict(optimizer, optimizer_state);
            }
            for (std::int64_t step = from; step < to; ++step) {
                const Tensor loss =
                    stages.pipeline->step(stages.rows_of(batch_of(step)), nn::label_loss);
                EXPECT_NEAR(loss.item(), expected.losses[static_cast<std::size_t>(step)], 1e-9);
                stages.pipeline->clip_grad_norm_(tests::kClip);
                optimizer.step();
                optimizer.zero_grad();
            }
            group->barrier();
            nn::StateDict full = stages.pipeline->full_state_dict();
            Tree full_optimizer = stages.pipeline->full_state_dict(optimizer);
            if (group->rank() != 0) return;
            state = std::move(full);
            optimizer_state = std::move(full_optimizer);
        });
    };
    train({.pp = 2, .dp = 2, .tp = 2, .shard_optimizer = true}, 0, 2);
    EXPECT_EQ(optimizer_state["state"].size(), whole.parameters().size());
    train({}, 2, 3);
    train({.pp = 2, .tp = 2}, 3, 4);
    tests::expect_same_state(state, expected.state, 1e-9);
}

TEST(PipelineWithTensorParallelism, DrawsTheSameDropoutAsOneProcess) {
    const nn::Gpt original = pipeline_gpt(f64, 0.2);
    manual_seed(11);
    const auto losses_of = [](Pipeline& pipeline) {
        std::vector<double> losses;
        for (std::int64_t step = 0; step < 3; ++step)
            losses.push_back(pipeline.step(batch_of(step), nn::label_loss).item());
        return losses;
    };
    nn::Gpt whole = original.clone();
    Pipeline alone(whole, nn::pieces(whole), dist::ProcessGroup::alone(), {.micro_batches = 2});
    const std::vector<double> expected = losses_of(alone);
    for (const bool sequence_parallel : {false, true}) {
        auto models = clones_of(original, 4);
        on_ranks(4, [&](const Group& group) {
            DividedStages<nn::Gpt> stages(
                std::move(models[at(group)]), group,
                {.pp = 2, .tp = 2, .sequence_parallel = sequence_parallel}, {.micro_batches = 2});
            EXPECT_THAT(losses_of(*stages.pipeline),
                        testing::Pointwise(testing::DoubleNear(1e-10), expected));
        });
    }
}

TEST(PipelineWithTensorParallelism, GeneratesAndComputesLogitsLikeOneProcess) {
    nn::Gpt whole = pipeline_gpt();
    auto models = clones_of(whole, 4);
    const Tree batch = batch_of(0);
    const Tensor logits = whole(batch["input_ids"].tensor());
    const auto ids = whole.generate({1, 2, 3}, 3, {.temperature = 0});
    on_ranks(4, [&](const Group& group) {
        DividedStages<nn::Gpt> stages(std::move(models[at(group)]), group, {.pp = 2, .tp = 2},
                                      {.micro_batches = 2});
        tests::expect_close(stages.pipeline->forward(batch), logits.detach(), 1e-12);
        EXPECT_EQ(stages.pipeline->generate(6, {1, 2, 3}, 3, {.temperature = 0}), ids);
    });
}

}  // namespace
}  // namespace axle
