#include "dist/pipeline/pipeline.h"

#include <algorithm>
#include <string>
#include <tuple>
#include <vector>

#include "dist/group/mesh.h"
#include "dist/pipeline/simulation.h"
#include "gmock/gmock.h"
#include "tests/dist/pipeline/pipeline_models.h"
#include "tests/sanitized.h"

namespace axle {
namespace {

using dist::MicroBatchAverage;
using dist::Pipeline;
using dist::PipelineOptions;
using dist::Recompute;
using dist::ScheduleKind;
using tests::at;
using tests::clones_of;
using tests::expect_close;
using tests::expect_same_pipeline;
using tests::Group;
using tests::on_ranks;
using tests::pipeline_batch;
using tests::pipeline_gpt;
using tests::pipeline_llama;
using tests::PipelineReference;
using tests::train_whole;

using enum ScheduleKind;

constexpr ScheduleKind kKinds[] = {gpipe, one_forward_one_backward, interleaved, zero_bubble};

PipelineOptions options_of(ScheduleKind kind, int ranks) {
    return {.schedule = kind, .micro_batches = 2 * ranks, .chunks = kind == interleaved ? 2 : 1};
}

class PipelineRanks : public testing::TestWithParam<std::tuple<int, ScheduleKind>> {
  protected:
    int ranks() const { return std::get<0>(GetParam()); }
    ScheduleKind kind() const { return std::get<1>(GetParam()); }

    // The interleaved schedule divides a model into 2 * ranks() chunks of at least one piece. A
    // model has two pieces besides its layers.
    std::int64_t layers() const { return ranks() > 4 ? 2 * ranks() - 2 : 6; }

    template <class M>
    void expect_same_training(M whole, std::int64_t steps, double tolerance) const {
        auto models = clones_of(whole, ranks());
        const auto batch_of = [&](std::int64_t step) {
            return pipeline_batch(step, std::max(tests::kPipelineRows, std::int64_t{2} * ranks()));
        };
        const PipelineReference expected = train_whole(whole, steps, batch_of);
        on_ranks(ranks(), [&](const Group& group) {
            M& model = models[at(group)];
            Pipeline pipeline(model, nn::pieces(model), group, options_of(kind(), ranks()));
            expect_same_pipeline(model, pipeline, expected, tolerance, batch_of);
            EXPECT_EQ(pipeline.counters().peak_stored, pipeline.schedule().bound[at(group)]);
        });
    }
};
const std::vector<int> kRanks =
    tests::kSanitized ? std::vector<int>{1, 2, 3, 4} : std::vector<int>{1, 2, 3, 4, 6, 8};
INSTANTIATE_TEST_SUITE_P(Schedules, PipelineRanks,
                         testing::Combine(testing::ValuesIn(kRanks), testing::ValuesIn(kKinds)),
                         [](const auto& suffix) {
                             return std::to_string(std::get<0>(suffix.param)) + "_" +
                                    name_of(std::get<1>(suffix.param));
                         });

constexpr std::int64_t kPipelineSteps = tests::kSanitized ? 3 : 20;

// Covers 16.pipeline_model_parallel_split_rank, 16.tp_degree.
TEST_P(PipelineRanks, TrainGptLikeOneProcess) {
    expect_same_training(pipeline_gpt(f64, 0, layers()), kPipelineSteps, 1e-9);
}

TEST_P(PipelineRanks, TrainLlamaLikeOneProcess) {
    expect_same_training(pipeline_llama(f64, false, layers()), kPipelineSteps, 1e-9);
}

TEST_P(PipelineRanks, TrainInSinglePrecisionLikeOneProcess) {
    expect_same_training(pipeline_gpt(f32, 0, layers()), kPipelineSteps, 1e-4);
    expect_same_training(pipeline_llama(f32, false, layers()), kPipelineSteps, 1e-4);
}

TEST(Pipeline, AddsGradientsOfTiedWeightsOnce) {
    nn::Llama whole = pipeline_llama(f64, true);
    auto models = clones_of(whole, 3);
    const PipelineReference expected = train_whole(whole, 5);
    on_ranks(3, [&](const Group& group) {
        nn::Llama& model = models[at(group)];
        Pipeline pipeline(model, nn::pieces(model), group, {.micro_batches = 4});
        expect_same_pipeline(model, pipeline, expected, 1e-9);
        EXPECT_EQ(pipeline.counters().tied_sums, group->rank() == 0 ? 5 : 0);
    });
}

TEST(Pipeline, FreesParametersOfOtherStages) {
    auto models = clones_of(pipeline_gpt(), 2);
    on_ranks(2, [&](const Group& group) {
        nn::Gpt& model = models[at(group)];
        const Pipeline pipeline(model, nn::pieces(model), group, {.stage_sizes = {3, 5}});
        const bool is_first = group->rank() == 0;
        EXPECT_EQ(model.transformer.h[0].mlp.c_fc.weight.device().is_meta(), !is_first);
        EXPECT_EQ(model.transformer.h[5].mlp.c_fc.weight.device().is_meta(), is_first);
        EXPECT_FALSE(model.transformer.wte.weight.device().is_meta());
        // Rank 0 has the two embeddings and two blocks. Rank 1 has the tied weight, the last norm
        // and four blocks.
        EXPECT_EQ(pipeline.parameters().size(), is_first ? 2 + 2 * 12 : 1 + 2 + 4 * 12);
    });
}

TEST(Pipeline, TrainsUnevenStagesLikeOneProcess) {
    nn::Gpt whole = pipeline_gpt();
    auto models = clones_of(whole, 3);
    const PipelineReference expected = train_whole(whole, 4);
    on_ranks(3, [&](const Group& group) {
        nn::Gpt& model = models[at(group)];
        Pipeline pipeline(model, nn::pieces(model), group,
                          {.micro_batches = 5, .stage_sizes = {1, 6, 1}});
        expect_same_pipeline(model, pipeline, expected, 1e-9);
    });
}

TEST(Pipeline, TrainsLikeOneProcessWithFewerMicroBatchesThanStages) {
    nn::Gpt whole = pipeline_gpt();
    const auto original = whole.clone();
    const PipelineReference expected = train_whole(whole, 2);
    for (const ScheduleKind kind : {gpipe, one_forward_one_backward, zero_bubble}) {
        auto models = clones_of(original, 3);
        on_ranks(3, [&](const Group& group) {
            nn::Gpt& model = models[at(group)];
            Pipeline pipeline(model, nn::pieces(model), group,
                              {.schedule = kind, .micro_batches = 2});
            expect_same_pipeline(model, pipeline, expected, 1e-9);
        });
    }
}

// Covers 16.avg_losses_across_data_parallel_group.
TEST(Pipeline, AveragesOverDataParallelRanks) {
    nn::Gpt whole = pipeline_gpt();
    auto models = clones_of(whole, 4);
    const PipelineReference expected = train_whole(whole, 10);
    on_ranks(4, [&](const Group& group) {
        nn::Gpt& model = models[at(group)];
        const dist::DeviceMesh mesh(group, {{"pp", 2}, {"dp", 2}});
        Pipeline pipeline(model, nn::pieces(model), mesh.get_group("pp"),
                          {.micro_batches = 3, .data_parallel = mesh.get_group("dp")});
        expect_same_pipeline(model, pipeline, expected, 1e-9, [&](std::int64_t step) {
            const Tree batch = pipeline_batch(step);
            const std::int64_t half = tests::kPipelineRows / 2,
                               begin = mesh.coordinate("dp") * half;
            return slice_tensors(batch, begin, begin + half);
        });
    });
}

TEST(Pipeline, AccumulatesGradientsOfSeveralStepsAndReturnsTheirNorm) {
    nn::Gpt whole = pipeline_gpt();
    auto models = clones_of(whole, 4);
    for (std::int64_t step = 0; step < 2; ++step) {
        const Tree batch = pipeline_batch(step);
        nn::label_loss(whole(batch["input_ids"].tensor()), batch).backward();
    }
    const std::vector<Tensor> expected = tests::gradients_of(whole);
    on_ranks(4, [&](const Group& group) {
        nn::Gpt& model = models[at(group)];
        const dist::DeviceMesh mesh(group, {{"pp", 2}, {"dp", 2}});
        Pipeline pipeline(model, nn::pieces(model), mesh.get_group("pp"),
                          {.micro_batches = 4, .data_parallel = mesh.get_group("dp")});
        for (std::int64_t step = 0; step < 2; ++step)
            pipeline.step(pipeline_batch(step), nn::label_loss);
        const std::vector<Tensor> actual = tests::gradients_of(model);
        for (std::size_t i = 0; i < expected.size(); ++i)
            if (actual[i].defined()) expect_close(actual[i], expected[i], 1e-12);
        EXPECT_NEAR(pipeline.clip_grad_norm_(1e9).item(),
                    optim::get_total_norm(whole.parameters()).item(), 1e-12);
        EXPECT_NEAR(pipeline.clip_grad_norm_(1e9, INFINITY).item(),
                    optim::get_total_norm(whole.parameters(), INFINITY).item(), 1e-12);
    });
}

// Rows have different numbers of labels.
TEST(Pipeline, AveragesOverTheTokensOfAllMicroBatches) {
    const auto batch_of = [](std::int64_t step) {
        Tree batch = pipeline_batch(step);
        Tensor labels = batch["labels"].tensor().clone();
        for (std::int64_t row = 0; row < tests::kPipelineRows; ++row)
            if (row % 3 != 0) labels[row].slice(0, 5 - row % 5).fill_(-100);
        labels[4].fill_(-100), labels[5].fill_(-100);  // the third of six micro-batches
        batch.set("labels", labels);
        return batch;
    };
    nn::Gpt whole = pipeline_gpt();
    auto models = clones_of(whole, 2);
    const PipelineReference expected = train_whole(whole, 5, batch_of);
    on_ranks(2, [&](const Group& group) {
        nn::Gpt& model = models[at(group)];
        Pipeline pipeline(model, nn::pieces(model), group,
                          {.micro_batches = 6, .average = MicroBatchAverage::tokens});
        expect_same_pipeline(model, pipeline, expected, 1e-9, batch_of);
    });
}

// The last of four micro-batches has one row instead of two, but the same weight as the other
// micro-batches.
TEST(Pipeline, AveragesMicroBatchesLikeGradientAccumulation) {
    nn::Gpt whole = pipeline_gpt();
    auto models = clones_of(whole, 2);
    const Tree batch = pipeline_batch(0, 7);  // 2, 2, 2 and 1 rows
    double expected = 0;
    for (const auto& [begin, end] : {std::pair{0, 2}, {2, 4}, {4, 6}, {6, 7}}) {
        const Tree part = slice_tensors(batch, begin, end);
        const Tensor loss = nn::label_loss(whole(part["input_ids"].tensor()), part) / 4;
        loss.backward();
        expected += loss.item();
    }
    const std::vector<Tensor> gradients = tests::gradients_of(whole);
    on_ranks(2, [&](const Group& group) {
        nn::Gpt& model = models[at(group)];
        Pipeline pipeline(model, nn::pieces(model), group,
                          {.micro_batches = 4, .average = MicroBatchAverage::equal});
        EXPECT_NEAR(pipeline.step(batch, nn::label_loss).item(), expected, 1e-12);
        const std::vector<Tensor> actual = tests::gradients_of(model);
        for (std::size_t i = 0; i < gradients.size(); ++i)
            if (actual[i].defined()) expect_close(actual[i], gradients[i], 1e-12);
    });
}

TEST(Pipeline, AgreesOnShapesWhenTheyChange) {
    const auto batch_of = [](std::int64_t step) {
        return pipeline_batch(step, step % 2 == 0 ? 12 : 7, 3 + step % 3);
    };
    for (const ScheduleKind kind : kKinds) {
        nn::Gpt whole = pipeline_gpt();
        auto models = clones_of(whole, 2);
        const PipelineReference expected = train_whole(whole, 12, batch_of);
        on_ranks(2, [&](const Group& group) {
            nn::Gpt& model = models[at(group)];
            Pipeline pipeline(model, nn::pieces(model), group, options_of(kind, 2));
            expect_same_pipeline(model, pipeline, expected, 1e-9, batch_of);
            // Micro-batches have 1, 2 or 3 rows and 3, 4 or 5 tokens, so there are 9 shapes.
            const int inputs =
                group->rank() == 0 ? (kind == interleaved ? 1 : 0) : (kind == interleaved ? 2 : 1);
            EXPECT_EQ(pipeline.counters().agreed_shapes, 9 * inputs);
        });
    }
}

TEST(Pipeline, AveragesGivenMicroBatchesOfSeveralShapes) {
    nn::Gpt whole = pipeline_gpt();
    auto models = clones_of(whole, 2);
    const std::vector<Tree> batches = {pipeline_batch(0, 2, 5), pipeline_batch(1, 3, 4),
                                       pipeline_batch(2, 2, 5), pipeline_batch(3, 1, 2)};
    for (const Tree& batch : batches)
        (nn::label_loss(whole(batch["input_ids"].tensor()), batch) / 4).backward();
    const std::vector<Tensor> expected = tests::gradients_of(whole);
    on_ranks(2, [&](const Group& group) {
        nn::Gpt& model = models[at(group)];
        Pipeline pipeline(model, nn::pieces(model), group,
                          {.micro_batches = 4, .average = MicroBatchAverage::equal});
        pipeline.step(batches, nn::label_loss);
        const std::vector<Tensor> actual = tests::gradients_of(model);
        for (std::size_t i = 0; i < expected.size(); ++i)
            if (actual[i].defined()) expect_close(actual[i], expected[i], 1e-12);
    });
}

// Covers 16.recompute_activations.
TEST(Pipeline, TrainsLikeOneProcessIfItRecomputesPiecesOrStages) {
    for (const ScheduleKind kind : {one_forward_one_backward, zero_bubble})
        for (const Recompute recompute : {Recompute::pieces, Recompute::stages}) {
            nn::Gpt whole = pipeline_gpt();
            auto models = clones_of(whole, 2);
            const PipelineReference expected = train_whole(whole, 3);
            on_ranks(2, [&](const Group& group) {
                nn::Gpt& model = models[at(group)];
                Pipeline pipeline(model, nn::pieces(model), group,
                                  {.schedule = kind, .micro_batches = 4, .recompute = recompute});
                expect_same_pipeline(model, pipeline, expected, 1e-9);
            });
        }
}

TEST(Pipeline, DropsTheSameElementsAsOneProcess) {
    const nn::Gpt original = pipeline_gpt(f64, 0.2);
    manual_seed(11);
    const auto train = [](nn::Gpt& model, const Group& group, PipelineOptions options) {
        Pipeline pipeline(model, nn::pieces(model), group, options);
        optim::AdamW optimizer(model.parameters(), {.lr = 0.01});
        std::vector<double> losses;
        for (std::int64_t step = 0; step < 5; ++step) {
            losses.push_back(pipeline.step(pipeline_batch(step), nn::label_loss).item());
            optimizer.step();
            optimizer.zero_grad();
        }
        return losses;
    };
    nn::Gpt whole = original.clone();
    const std::vector<double> expected =
        train(whole, dist::ProcessGroup::alone(), {.micro_batches = 6});
    for (const ScheduleKind kind : kKinds)
        for (const Recompute recompute : {Recompute::none, Recompute::stages}) {
            SCOPED_TRACE(name_of(kind));
            auto models = clones_of(original, 3);
            on_ranks(3, [&](const Group& group) {
                PipelineOptions options = options_of(kind, 3);
                options.recompute = recompute;
                EXPECT_THAT(train(models[at(group)], group, options),
                            testing::Pointwise(testing::DoubleNear(1e-10), expected));
            });
        }
    // Another step draws different random numbers.
    Pipeline again(whole, nn::pieces(whole), dist::ProcessGroup::alone());
    const double first = again.step(pipeline_batch(0), nn::label_loss).item();
    EXPECT_NE(again.step(pipeline_batch(0), nn::label_loss).item(), first);
    again.set_steps(0);
    EXPECT_EQ(again.step(pipeline_batch(0), nn::label_loss).item(), first);
}

TEST(Pipeline, QueuesGradientsOfWeightsInZeroBubbleSchedulesButNotIn1F1B) {
    for (const ScheduleKind kind : {one_forward_one_backward, zero_bubble}) {
        auto models = clones_of(pipeline_gpt(), 2);
        on_ranks(2, [&](const Group& group) {
            nn::Gpt& model = models[at(group)];
            Pipeline pipeline(model, nn::pieces(model), group, options_of(kind, 2));
            pipeline.step(pipeline_batch(0), nn::label_loss);
            EXPECT_EQ(pipeline.counters().peak_queued_bytes > 0, kind == zero_bubble);
        });
    }
}

TEST(Pipeline, CountsMessagesAndBytes) {
    auto models = clones_of(pipeline_gpt(f32), 2);
    on_ranks(2, [&](const Group& group) {
        nn::Gpt& model = models[at(group)];
        Pipeline pipeline(model, nn::pieces(model), group, {.micro_batches = 4});
        for (std::int64_t step = 0; step < 3; ++step)
            pipeline.step(pipeline_batch(step), nn::label_loss);
        EXPECT_EQ(pipeline.counters().messages, 3 * 4);
        EXPECT_EQ(pipeline.counters().bytes,
                  3 * tests::kPipelineRows * tests::kPipelineTime * 8 * 4);
        EXPECT_EQ(pipeline.steps(), 3);
    });
}

}  // namespace
}  // namespace axle
