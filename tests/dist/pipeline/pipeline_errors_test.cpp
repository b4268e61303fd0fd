// Tests errors and states of pipelines, and the sizes of balanced stages.
#include <string>

#include "core/autograd/autograd.h"
#include "dist/pipeline/pipeline.h"
#include "dist/pipeline/stage_plan.h"
#include "gmock/gmock.h"
#include "nn/layers/layers.h"
#include "nn/layers/mlp.h"
#include "tests/dist/pipeline/pipeline_models.h"

namespace axle {
namespace {

using dist::Pipeline;
using dist::PipelineOptions;
using dist::ScheduleKind;
using testing::HasSubstr;
using testing::StartsWith;
using tests::at;
using tests::clones_of;
using tests::expect_error;
using tests::Group;
using tests::on_ranks;
using tests::outcomes;
using tests::pipeline_batch;
using tests::pipeline_gpt;
using tests::text_of;

// Constructs a pipeline on each of `ranks` ranks with options_of(rank). Expects that every rank
// throws a ValueError whose text contains `part`.
void expect_error_on_all(int ranks, const char* part,
                         const std::function<PipelineOptions(int rank)>& options_of) {
    auto models = clones_of(pipeline_gpt(), ranks);
    on_ranks(ranks, [&](const Group& group) {
        nn::Gpt& model = models[at(group)];
        expect_error<ValueError>({"", part}, [&] {
            const Pipeline pipeline(model, nn::pieces(model), group, options_of(group->rank()));
        });
    });
}

TEST(PipelineErrors, AreThrownOnAllRanksForDifferentSchedulesOrStages) {
    expect_error_on_all(
        2, "Pipeline: all ranks must have the same schedule: rank 0 has gpipe of 2", [](int rank) {
            return PipelineOptions{.schedule = rank == 0 ? ScheduleKind::gpipe
                                                         : ScheduleKind::one_forward_one_backward,
                                   .micro_batches = 2};
        });
    expect_error_on_all(2, "Pipeline: all ranks must have the same stages", [](int rank) {
        return PipelineOptions{.stage_sizes =
                                   rank == 0 ? std::vector<int>{3, 5} : std::vector<int>{4, 4}};
    });
}

TEST(PipelineErrors, AreThrownIfInterleavedMicroBatchesAreNotAMultipleOfTheRanks) {
    expect_error_on_all(4, "needs a multiple of 4 micro-batches", [](int) {
        return PipelineOptions{
            .schedule = ScheduleKind::interleaved, .micro_batches = 2, .chunks = 2};
    });
}

TEST(PipelineErrors, AreThrownOnAllRanksIfOneRankHasInvalidOptions) {
    expect_error_on_all(2, "micro_batches 0",
                        [](int rank) { return PipelineOptions{.micro_batches = rank}; });
}

TEST(PipelineErrors, AreThrownOnAllRanksForGradientsOfOtherStages) {
    auto models = clones_of(pipeline_gpt(), 2);
    for (nn::Gpt& model : models)
        model.transformer.ln_f.weight.set_grad(ones_like(model.transformer.ln_f.weight));
    on_ranks(2, [&](const Group& group) {
        nn::Gpt& model = models[at(group)];
        expect_error<UsageError>({"Pipeline: ", "transformer.ln_f.weight has a gradient"},
                                 [&] { const Pipeline pipeline(model, nn::pieces(model), group); });
        EXPECT_FALSE(model.transformer.wpe.weight.device().is_meta());
    });
}

TEST(PipelineErrors, AreThrownForStageSizesThatDoNotMatchTheModel) {
    expect_error_on_all(2, "stage_sizes must be 2 positive numbers whose sum is 8", [](int) {
        return PipelineOptions{.stage_sizes = {4, 5}};
    });
    expect_error_on_all(
        3, "each stage needs at least one piece of the model: 9 stages, 8 pieces", [](int) {
            return PipelineOptions{
                .schedule = ScheduleKind::interleaved, .micro_batches = 3, .chunks = 3};
        });
}

TEST(PipelineErrors, AreThrownForStagesWithoutParametersAndForUnusedParameters) {
    nn::Mlp mlp = tests::small_mlp();
    const Group alone = dist::ProcessGroup::alone();
    expect_error<ValueError>({"Pipeline: stage 0 has no parameters: its pieces are 'a' to 'a'"},
                             [&] {
                                 const Pipeline pipeline(mlp, {{"a", {}}}, alone);
                             });
    nn::Gpt gpt = pipeline_gpt();
    std::vector<nn::Piece> pieces = nn::pieces(gpt);
    pieces.pop_back();
    expect_error<ValueError>({"Pipeline: no piece uses the parameter 'transformer.ln_f.weight'"},
                             [&] { const Pipeline pipeline(gpt, pieces, alone); });
}

TEST(PipelineErrors, AreThrownOnAllRanksForDifferentOrInvalidBatches) {
    auto models = clones_of(pipeline_gpt(), 2);
    on_ranks(2, [&](const Group& group) {
        nn::Gpt& model = models[at(group)];
        Pipeline pipeline(model, nn::pieces(model), group, {.micro_batches = 4});
        expect_error<ValueError>(
            {"pipeline_step: all ranks must have the same micro-batches"},
            [&] { pipeline.step(pipeline_batch(0, 4 + group->rank()), nn::label_loss); });
        // Only rank 1 has too few rows.
        expect_error<ValueError>({"pipeline_step: ", "at least 4 rows", "it has 3"}, [&] {
            pipeline.step(pipeline_batch(0, 4 - group->rank()), nn::label_loss);
        });
        expect_error<ValueError>(
            {"pipeline_step: the schedule is for 4 micro-batches, not 1"},
            [&] { pipeline.step(std::vector<Tree>{pipeline_batch(0)}, nn::label_loss); });
        // The pipeline can be used after these errors.
        EXPECT_GT(pipeline.step(pipeline_batch(0), nn::label_loss).item(), 0);
    });
}

TEST(PipelineErrors, EndTheOtherStagesIfOneStageFails) {
    auto models = clones_of(pipeline_gpt(), 3);
    const auto errors = outcomes(3, [&](const Group& group) {
        nn::Gpt& model = models[at(group)];
        std::vector<nn::Piece> pieces = nn::pieces(model);
        pieces[4].forward = [](const Tensor&, const Tree&) -> Tensor {
            throw ValueError("a piece failed");
        };
        Pipeline pipeline(model, pieces, group, {.micro_batches = 4, .stage_sizes = {3, 2, 3}});
        pipeline.step(pipeline_batch(0), nn::label_loss);
    });
    EXPECT_EQ(text_of(errors[1]), "a piece failed");
    for (const int rank : {0, 2}) {
        EXPECT_THAT(text_of(errors[static_cast<std::size_t>(rank)]), HasSubstr("rank 1"));
        EXPECT_THROW(std::rethrow_exception(errors[static_cast<std::size_t>(rank)]), CommError);
    }
}

TEST(PipelineErrors, KeepEarlierGradients) {
    nn::Gpt gpt = pipeline_gpt();
    Pipeline pipeline(gpt, nn::pieces(gpt), dist::ProcessGroup::alone(), {.micro_batches = 2});
    pipeline.step(pipeline_batch(0), nn::label_loss);
    const std::vector<Tensor> expected = tests::gradients_of(gpt);
    int calls = 0;
    expect_error<ValueError>({"the second loss fails"}, [&] {
        pipeline.step(pipeline_batch(1), [&](const Tensor& y, const Tree& batch) {
            if (++calls == 2) throw ValueError("the second loss fails");
            return nn::label_loss(y, batch);
        });
    });
    const std::vector<Tensor> kept = tests::gradients_of(gpt);
    for (std::size_t i = 0; i < expected.size(); ++i) tests::expect_same_bits(kept[i], expected[i]);
    EXPECT_EQ(pipeline.steps(), 1);
    pipeline.step(pipeline_batch(0), nn::label_loss);
    const std::vector<Tensor> doubled = tests::gradients_of(gpt);
    for (std::size_t i = 0; i < expected.size(); ++i)
        tests::expect_close(doubled[i], expected[i] * 2, 1e-12);
}

TEST(PipelineErrors, AreThrownForSchedulesThatCannotTrainTheModel) {
    nn::Gpt gpt = pipeline_gpt();
    const Group alone = dist::ProcessGroup::alone();
    dist::Schedule deadlock = dist::make_schedule(ScheduleKind::gpipe, 1, 1);
    std::swap(deadlock.actions[0][0], deadlock.actions[0][1]);
    for (const auto& [schedule, part] :
         {std::pair{dist::make_schedule(ScheduleKind::gpipe, 2, 1), "is for 2 ranks"},
          {dist::make_forward_schedule(1, 1), "has no backward"},
          {deadlock, "there is no output"}})
        expect_error<ValueError>({"", part}, [&, &schedule = schedule] {
            const Pipeline pipeline(gpt, nn::pieces(gpt), alone, {.custom_schedule = schedule});
        });
}

TEST(PipelineErrors, AreThrownForLossesThatAreNotScalars) {
    nn::Gpt gpt = pipeline_gpt();
    Pipeline pipeline(gpt, nn::pieces(gpt), dist::ProcessGroup::alone());
    expect_error<ShapeError>({"pipeline_step: the loss must have one element"}, [&] {
        pipeline.step(pipeline_batch(0), [](const Tensor& y, const Tree&) { return y; });
    });
}

TEST(BalancedSizes, MinimizeTheLargestStageAndRejectMoreStagesThanPieces) {
    using Sizes = std::vector<int>;
    EXPECT_EQ(dist::balanced_sizes({1, 1, 1, 1, 1, 1}, 3), (Sizes{2, 2, 2}));
    EXPECT_EQ(dist::balanced_sizes({0, 1, 1, 1, 1, 5}, 2), (Sizes{5, 1}));
    EXPECT_EQ(dist::balanced_sizes({9, 1, 1, 9}, 3), (Sizes{1, 2, 1}));
    EXPECT_EQ(dist::balanced_sizes({3}, 1), (Sizes{1}));
    EXPECT_THROW(dist::balanced_sizes({1, 1}, 3), ValueError);
}

TEST(PipelineState, LoadsTheStateDictOfOneProcessAndRejectsOtherNames) {
    nn::Gpt other = pipeline_gpt();
    for (const Tensor& parameter : other.parameters()) {
        const NoGrad no_grad;
        parameter.detach().mul_(1.5);
    }
    auto models = clones_of(pipeline_gpt(), 3);
    on_ranks(3, [&](const Group& group) {
        nn::Gpt& model = models[at(group)];
        Pipeline pipeline(model, nn::pieces(model), group);
        pipeline.load_state_dict(other.saved_state());
        for (const Tensor& parameter : pipeline.parameters())
            EXPECT_FALSE(parameter.device().is_meta());
        EXPECT_EQ(model.transformer.h[0].ln_1.weight.device().is_meta(), group->rank() != 0);
        const nn::StateDict state = pipeline.full_state_dict();
        if (group->rank() == 0)
            tests::expect_same_state(state, other.saved_state(), 0);
        else
            EXPECT_TRUE(state.empty());
        nn::StateDict renamed = other.saved_state();
        renamed[0].first = "other";
        expect_error<ValueError>({"Pipeline: load_state_dict: names differ", "other"},
                                 [&] { pipeline.load_state_dict(renamed); });
    });
}

TEST(PipelineState, ResumesOptimizersWithAnotherNumberOfStages) {
    nn::Gpt whole = pipeline_gpt();
    const nn::Gpt original = whole.clone();
    const tests::PipelineReference expected = tests::train_whole(whole, 6);
    nn::StateDict state;
    Tree optimizer_state;
    const auto train = [&](int ranks, std::int64_t from, std::int64_t to) {
        auto models = clones_of(original, ranks);
        on_ranks(ranks, [&](const Group& group) {
            nn::Gpt& model = models[at(group)];
            Pipeline pipeline(model, nn::pieces(model), group, {.micro_batches = 4});
            optim::AdamW optimizer(model.parameters(), {.lr = 0.01});
            if (from > 0) {
                pipeline.load_state_dict(state);
                pipeline.load_state_dict(optimizer, optimizer_state);
            }
            for (std::int64_t step = from; step < to; ++step) {
                const Tensor loss = pipeline.step(pipeline_batch(step), nn::label_loss);
                EXPECT_NEAR(loss.item(), expected.losses[static_cast<std::size_t>(step)], 1e-9);
                pipeline.clip_grad_norm_(tests::kClip);
                optimizer.step();
                optimizer.zero_grad();
            }
            group->barrier();
            nn::StateDict full = pipeline.full_state_dict();
            Tree full_optimizer = pipeline.full_state_dict(optimizer);
            if (group->rank() != 0) return;
            state = std::move(full);
            optimizer_state = std::move(full_optimizer);
        });
    };
    train(2, 0, 3);
    EXPECT_EQ(optimizer_state["state"].size(), whole.parameters().size());
    train(4, 3, 6);
    tests::expect_same_state(state, expected.state, 1e-9);
}

TEST(PipelineState, RejectsKeysOfOptimizerStatesThatAreNotParameterNumbers) {
    auto models = clones_of(pipeline_gpt(), 2);
    on_ranks(2, [&](const Group& group) {
        nn::Gpt& model = models[at(group)];
        const Pipeline pipeline(model, nn::pieces(model), group);
        optim::AdamW optimizer(model.parameters(), {.lr = 0.01});
        for (const char* key : {"weight", "1x", "-1", "99999999999999999999"}) {
            SCOPED_TRACE(key);
            Tree state = optimizer.state_dict();
            state["state"].set(key, Tree::map());
            expect_error<ValueError>({"Pipeline: load_state_dict: the keys of", key},
                                     [&] { pipeline.load_state_dict(optimizer, state); });
        }
    });
}

}  // namespace
}  // namespace axle
