#include "dist/pipeline/schedule.h"

#include <algorithm>
#include <string>
#include <vector>

#include "core/files/file.h"
#include "dist/pipeline/drawing.h"
#include "dist/pipeline/simulation.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/error.h"

namespace axle {
namespace {

using dist::Action;
using dist::ActionCosts;
using dist::ActionKind;
using dist::make_schedule;
using dist::Schedule;
using dist::ScheduleKind;
using dist::ScheduleReport;
using dist::simulate;
using testing::HasSubstr;

using enum ScheduleKind;
using enum ActionKind;

std::string error_of(const Schedule& schedule) {
    try {
        simulate(schedule);
    } catch (const ValueError& error) {
        return error.what();
    }
    return {};
}

// Returns a schedule for two ranks and one micro-batch, with bounds that no test exceeds.
Schedule two_ranks(std::vector<Action> first, std::vector<Action> second) {
    return {.name = "lists",
            .ranks = 2,
            .chunks = 1,
            .micro_batches = 1,
            .actions = {std::move(first), std::move(second)},
            .bound = {9, 9}};
}

// Covers 16.pipeline_model_parallel_split_rank.
TEST(PipelineSchedule, NeitherDeadlocksNorStoresMoreActivationsThanItsBound) {
    for (const ScheduleKind kind : {gpipe, one_forward_one_backward, interleaved, zero_bubble})
        for (const int ranks : {1, 2, 3, 4, 7})
            for (const int micro_batches : {1, 2, 3, 4, 8, 21, 28})
                for (const int chunks : {1, 2, 3}) {
                    const bool is_interleaved = kind == interleaved;
                    if (!is_interleaved && chunks > 1) continue;
                    if (is_interleaved && micro_batches % ranks != 0) continue;
                    SCOPED_TRACE(testing::Message() << name_of(kind) << ' ' << ranks << ' '
                                                    << micro_batches << ' ' << chunks);
                    const Schedule schedule = make_schedule(kind, ranks, micro_batches, chunks);
                    const ScheduleReport report = simulate(schedule, {.link_delay = 0.25});
                    EXPECT_EQ(report.peak_stored, schedule.bound);
                    const int crossings = ranks == 1 ? 0 : ranks * chunks - 1;
                    EXPECT_EQ(report.messages, 2 * crossings * micro_batches);
                }
}

TEST(PipelineSchedule, HasTheIdleTimeThatItsPaperReports) {
    constexpr int kRanks = 4, kBatches = 8;
    const auto time_of = [](ScheduleKind kind, int chunks = 1) {
        // A chunk has 1 / chunks of the work of a rank.
        const std::vector<double> factors(static_cast<std::size_t>(kRanks * chunks), 1.0 / chunks);
        return simulate(make_schedule(kind, kRanks, kBatches, chunks), {.stage_factors = factors})
            .time;
    };
    constexpr double kWork = 3 * kBatches;
    EXPECT_DOUBLE_EQ(time_of(gpipe), kWork + 3 * (kRanks - 1));
    EXPECT_DOUBLE_EQ(time_of(one_forward_one_backward), kWork + 3 * (kRanks - 1));
    EXPECT_DOUBLE_EQ(time_of(interleaved, 2), kWork + 3 * (kRanks - 1) / 2.0);
    EXPECT_DOUBLE_EQ(time_of(interleaved, 3), kWork + 3 * (kRanks - 1) / 3.0);
    EXPECT_DOUBLE_EQ(time_of(zero_bubble), kWork + (kRanks - 1));
}

TEST(SimulateSchedule, IncludesLinkDelaysInTimeAndIdleShare) {
    const Schedule schedule = make_schedule(gpipe, 2, 1);
    const ScheduleReport report = simulate(schedule, {.link_delay = 0.5});
    EXPECT_DOUBLE_EQ(report.time, 7);  // two forwards and backwards, and two messages
    EXPECT_DOUBLE_EQ(report.idle_share, 1 - 6.0 / 14);
}

TEST(PipelineSchedule, StoresFewerActivationsOnLaterRanksIn1F1BButNotInGPipeOrZeroBubble) {
    const auto peaks = [](ScheduleKind kind) {
        return simulate(make_schedule(kind, 4, 8)).peak_stored;
    };
    using Peaks = std::vector<std::int64_t>;
    EXPECT_EQ(peaks(gpipe), (Peaks{8, 8, 8, 8}));
    EXPECT_EQ(peaks(one_forward_one_backward), (Peaks{4, 3, 2, 1}));
    EXPECT_EQ(peaks(zero_bubble), (Peaks{4, 4, 4, 4}));
}

TEST(SimulateSchedule, ComputesTheTimeOf1024Ranks) {
    const Schedule schedule = make_schedule(one_forward_one_backward, 1024, 1024);
    EXPECT_DOUBLE_EQ(simulate(schedule).time, 3 * (1024 + 1023));
}

TEST(ForwardPipelineSchedule, StoresNoActivations) {
    for (const int chunks : {1, 2})
        for (const int micro_batches : {1, 3, 8}) {
            const ScheduleReport report =
                simulate(dist::make_forward_schedule(4, micro_batches, chunks));
            EXPECT_EQ(report.peak_stored, (std::vector<std::int64_t>{0, 0, 0, 0}));
        }
}

TEST(PipelineSchedule, RejectsInvalidSizesAndNames) {
    EXPECT_THROW(make_schedule(gpipe, 0, 1), ValueError);
    EXPECT_THROW(make_schedule(gpipe, 1, 0), ValueError);
    EXPECT_THROW(make_schedule(gpipe, 2, 2, 2), ValueError);
    EXPECT_THROW(make_schedule(interleaved, 4, 6, 2), ValueError);
    EXPECT_THROW(dist::make_forward_schedule(2, 0), ValueError);
    EXPECT_THROW(dist::schedule_kind_of("2f2b"), ValueError);
    EXPECT_EQ(dist::schedule_kind_of("1f1b"), one_forward_one_backward);
}

TEST(PipelineSchedule, HasAFingerprintThatDependsOnItsActions) {
    Schedule schedule = make_schedule(zero_bubble, 2, 4);
    EXPECT_EQ(schedule.fingerprint(), make_schedule(zero_bubble, 2, 4).fingerprint());
    EXPECT_NE(schedule.fingerprint(), make_schedule(zero_bubble, 2, 5).fingerprint());
    std::swap(schedule.actions[1].front(), schedule.actions[1].back());
    EXPECT_NE(schedule.fingerprint(), make_schedule(zero_bubble, 2, 4).fingerprint());
}

TEST(SimulateSchedule, RejectsDeadlock) {
    // Rank 0 waits for a gradient before it sends the activation that rank 1 needs for it.
    const Schedule schedule = two_ranks(
        {{forward, 0, 0}, {receive_gradient, 0, 0}, {send_activation, 0, 0}, {backward, 0, 0}},
        {{receive_activation, 1, 0}, {forward, 1, 0}, {backward, 1, 0}, {send_gradient, 1, 0}});
    EXPECT_EQ(error_of(schedule),
              "simulate: schedule lists: deadlock: rank 0 waits in receive_gradient of micro-batch "
              "0 on stage 0, rank 1 waits in receive_activation of micro-batch 0 on stage 1");
}

TEST(SimulateSchedule, RejectsSchedulesWithoutRanksOrChunks) {
    Schedule empty;
    empty.ranks = 0;
    EXPECT_EQ(error_of(empty),
              "simulate: a schedule must have at least one rank and one chunk, and not a negative "
              "number of micro-batches: 0 ranks, 1 chunks, 1 micro-batches");
    Schedule schedule = make_schedule(gpipe, 2, 4);
    schedule.chunks = 0;
    EXPECT_THAT(error_of(schedule), HasSubstr("0 chunks"));
}

TEST(SimulateSchedule, RejectsSchedulesAboveTheirBound) {
    Schedule schedule = make_schedule(gpipe, 2, 4);
    schedule.bound[1] = 3;
    EXPECT_EQ(error_of(schedule),
              "simulate: schedule gpipe: rank 1, forward of micro-batch 3 on stage 1: stores the "
              "activations of 4 micro-batches, but the bound is 3");
}

TEST(SimulateSchedule, CountsQueuedWeightGradientsAgainstTheBound) {
    Schedule schedule = make_schedule(zero_bubble, 2, 4);
    std::vector<Action>& last = schedule.actions[1];
    // Moves all gradients of weights to the end.
    std::ranges::stable_partition(last, [](const Action& a) { return a.kind != backward_weight; });
    EXPECT_THAT(error_of(schedule), HasSubstr("but the bound is 2"));
}

TEST(SimulateSchedule, RejectsActionsInTheWrongPlace) {
    const std::vector<Action> second = {
        {receive_activation, 1, 0}, {forward, 1, 0}, {backward, 1, 0}, {send_gradient, 1, 0}};
    const std::vector<Action> first = {
        {forward, 0, 0}, {send_activation, 0, 0}, {receive_gradient, 0, 0}, {backward, 0, 0}};
    const auto error_with = [&](std::size_t at, Action action) {
        std::vector<Action> changed = first;
        changed[at] = action;
        return error_of(two_ranks(changed, second));
    };
    EXPECT_EQ(error_of(two_ranks(first, second)), "");
    EXPECT_THAT(error_with(0, {forward, 1, 0}), HasSubstr("the stage is not on this rank"));
    EXPECT_THAT(error_with(0, {forward, 0, 1}), HasSubstr("the micro-batch must be in [0, 1)"));
    EXPECT_THAT(error_with(0, {send_activation, 0, 0}), HasSubstr("there is no output to send"));
    EXPECT_THAT(error_with(0, {receive_gradient, 0, 0}),
                HasSubstr("there is no output whose gradient can be received"));
    EXPECT_THAT(error_with(3, {backward_input, 0, 0}),
                HasSubstr("stage 0 does not complete micro-batch 0"));
    EXPECT_THAT(error_with(3, {backward_weight, 0, 0}), HasSubstr("no gradients of weights"));
    EXPECT_THAT(error_with(3, {forward, 0, 0}), HasSubstr("the action is repeated"));
    EXPECT_THAT(error_of(two_ranks({{forward, 0, 0}, {backward, 0, 0}}, {})),
                HasSubstr("its gradient was not received"));
    EXPECT_THAT(error_of(two_ranks({{forward, 0, 0}, {send_activation, 0, 0}}, {})),
                HasSubstr("stage 1 does not complete micro-batch 0"));
}

TEST(SimulateSchedule, RejectsMessagesInDifferentOrders) {
    Schedule schedule = dist::make_forward_schedule(2, 2);
    std::vector<Action>& actions = schedule.actions[1];  // receive 0, forward 0, receive 1, ...
    std::swap(actions[0], actions[2]);
    std::swap(actions[1], actions[3]);
    EXPECT_THAT(error_of(schedule), HasSubstr("the next one belongs to micro-batch 0"));
}

TEST(DrawSchedules, DrawsOneBoxForEachComputation) {
    const std::string svg = dist::draw_schedules({make_schedule(zero_bubble, 2, 4)});
    EXPECT_THAT(svg, testing::StartsWith("<svg "));
    EXPECT_THAT(svg, HasSubstr("zero_bubble: 8% idle, at most 2 stored micro-batches"));
    std::size_t boxes = 0;
    for (std::size_t at = svg.find("<rect x="); at != std::string::npos;
         at = svg.find("<rect x=", at + 1))
        ++boxes;
    EXPECT_EQ(boxes, 2 * 4 * 3 + 3);  // the legend has 3 boxes
}

// docs/examples/parallelism_pipeline.cpp draws the image.
TEST(DrawSchedules, DrawsTheImageInTheDocumentation) {
    EXPECT_EQ(dist::draw_schedules(
                  {make_schedule(gpipe, 4, 8), make_schedule(one_forward_one_backward, 4, 8),
                   make_schedule(interleaved, 4, 8, 2), make_schedule(zero_bubble, 4, 8)}),
              read_file(AXLE_TESTS_DIR "/../docs/parallelism_schedules.svg"));
}

}  // namespace
}  // namespace axle
