// Tests mixed precision in f16 on ranks with different numbers of batches.
#include <cstddef>
#include <exception>
#include <limits>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/autograd/autograd.h"
#include "nn/layers/mlp.h"
#include "optim/grad_scaler.h"
#include "optim/sgd.h"
#include "tests/accel/training.h"
#include "tests/dist/parallel/replicas.h"

namespace axle {
namespace {

using testing::ElementsAre;
using tests::Group;

// A rank that trains in f16.
class Rank {
  public:
    Rank(const Group& group, nn::Mlp& model, accel::GradScalerKwargs scaler)
        : accelerator({.mixed_precision = "fp16",
                       .cpu = true,
                       .grad_scaler_kwargs = scaler,
                       .process_group = group}),
          model_(model) {
        accelerator.prepare(model_, sgd_);
    }
    // Trains with one batch. If `overflows` is true, sets a gradient of this rank to infinity.
    // Returns whether the step was skipped.
    bool step(int batch, bool overflows = false) {
        sgd_.zero_grad();
        accelerator.backward(model_(full({2, 4}, 0.1 * batch + 0.2)).sum());
        if (overflows) {
            const NoGrad no_grad;
            model_.parameters()[0].grad().fill_(std::numeric_limits<double>::infinity());
        }
        sgd_.step();
        return accelerator.optimizer_step_was_skipped();
    }
    std::string scaler() { return to_json(accelerator.scaler()->state_dict()); }

    Accelerator accelerator;

  private:
    nn::Mlp& model_;
    optim::SGD sgd_{model_.parameters(), {.lr = 0.05}};
};

void expect_equal_models(const std::vector<nn::Mlp>& models) {
    const auto first = models[0].parameters();
    for (const nn::Mlp& model : models)
        for (std::size_t p = 0; p < first.size(); ++p)
            tests::expect_same_bits(model.parameters()[p].detach(), first[p].detach());
}

// In one step, rank 0 has no data and rank 1 has an infinite gradient. Rank 2 must skip this step,
// although its own gradients are finite.
TEST(JoinUnevenInputs, SkipsTheSameStepsInFp16OnRanksWithData) {
    auto models = tests::clones_of(nn::Mlp({4, 3, 1}), 3);
    std::vector<std::vector<bool>> skipped(3);
    tests::on_ranks(3, [&](const Group& group) {
        const auto index = static_cast<std::size_t>(group->rank());
        Rank rank(group, models[index],
                  {.init_scale = 4096, .backoff_factor = 0.25, .growth_interval = 2});
        const auto joined = rank.accelerator.join_uneven_inputs({&models[index]});
        const int batches = group->rank() == 0 ? 1 : 4;
        for (int i = 0; i < batches; ++i)
            skipped[index].push_back(rank.step(i, group->rank() == 1 && i == 2));
    });
    EXPECT_THAT(skipped[0], ElementsAre(false));
    EXPECT_THAT(skipped[1], ElementsAre(false, false, true, false));
    EXPECT_THAT(skipped[2], ElementsAre(false, false, true, false));
    expect_equal_models(models);
}

// The scale grows after two steps. Rank 0 makes one step, and rank 1 makes no step.
TEST(JoinUnevenInputs, GivesAllRanksTheLossScaleOfTheRankThatTrainedLongest) {
    auto models = tests::clones_of(nn::Mlp({4, 3, 1}), 3);
    std::vector<std::string> after_scope(3), after_step(3);
    std::vector<double> scales(3);
    tests::on_ranks(3, [&](const Group& group) {
        const auto index = static_cast<std::size_t>(group->rank());
        Rank rank(group, models[index], {.init_scale = 4096, .growth_interval = 2});
        {
            const auto joined = rank.accelerator.join_uneven_inputs({&models[index]});
            const int batches[] = {1, 0, 3};
            for (int i = 0; i < batches[index]; ++i) rank.step(i);
        }
        after_scope[index] = rank.scaler();
        scales[index] = rank.accelerator.scaler()->get_scale();
        rank.step(group->rank());
        after_step[index] = rank.scaler();
    });
    EXPECT_THAT(scales, testing::Each(8192));
    EXPECT_THAT(after_scope[2], testing::HasSubstr("\"_growth_tracker\": 1"));
    EXPECT_THAT(after_scope, testing::Each(after_scope[2]));
    EXPECT_THAT(after_step, testing::Each(after_step[2]));
    EXPECT_NE(after_step[2], after_scope[2]);
    expect_equal_models(models);
}

// The prepared model outlives the Accelerator. The model must not keep rank 1 in the job.
TEST(JoinUnevenInputs, ReportsInFp16ThatAFailedRankHasLeft) {
    auto models = tests::clones_of(nn::Mlp({4, 3, 1}), 2);
    const auto errors = tests::outcomes(2, [&](const Group& group) {
        const auto index = static_cast<std::size_t>(group->rank());
        Rank rank(group, models[index], {});
        const auto joined = rank.accelerator.join_uneven_inputs({&models[index]});
        rank.step(0);
        if (group->rank() == 1) throw ValueError("bad batch");
    });
    EXPECT_THAT(tests::text_of(errors[0]), testing::HasSubstr("rank 1 has left"));
    EXPECT_EQ(tests::text_of(errors[1]), "bad batch");
}

}  // namespace
}  // namespace axle
