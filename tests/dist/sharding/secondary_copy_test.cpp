// Tests sharded models whose parameters are also kept by the ranks of a smaller group
// (ShardingOptions::secondary), and buffers of models with replicas.
#include "core/autograd/autograd.h"
#include "gtest/gtest.h"
#include "nn/layers/norm.h"
#include "optim/sgd.h"
#include "tests/dist/sharding/sharded_models.h"

namespace axle {
namespace {

using dist::ShardedDataParallel;
using dist::ShardingStrategy;
using tests::at;
using tests::clones_of;
using tests::expect_error;
using tests::Gpt64;
using tests::Group;
using tests::loss_of;
using tests::on_ranks;

// Forward gathers every unit from all ranks, unless the copy is valid. Backward gathers the blocks
// from the copy.
TEST(SecondaryCopy, IsUsedUntilTheParametersChange) {
    const Gpt64 gpt;
    auto models = clones_of(gpt.make(), 4);
    on_ranks(4, [&](const Group& group) {
        nn::Gpt& model = models[at(group)];
        ShardedDataParallel sharded(
            model, group, {.units = gpt.units(), .secondary = group->split(group->rank() / 2)});
        optim::SGD optimizer(model.parameters(), {.lr = 0.1});
        const std::int64_t units = gpt.layers + 1;
        for (std::int64_t step = 0; step < 6; ++step) {
            SCOPED_TRACE(step);
            sharded.reset_counters();
            loss_of(model, step, *group).backward();
            const bool has_changed = step % 3 == 0;
            EXPECT_EQ(sharded.counters().all_gathers, units + gpt.layers);
            EXPECT_EQ(sharded.counters().secondary_all_gathers,
                      gpt.layers + (has_changed ? 0 : units));
            if (step % 3 != 2) continue;
            optimizer.step();
            optimizer.zero_grad();
        }
    });
}

TEST(SecondaryCopy, DoesNotChangeTheResult) {
    const Gpt64 gpt;
    nn::Gpt whole = gpt.make();
    const nn::Gpt initial = whole.clone();
    const tests::ReferenceRun expected = tests::train_alone(whole);
    for (const auto strategy : {ShardingStrategy::full_shard, ShardingStrategy::shard_grad_op})
        for (const int size : {1, 2, 4}) {
            SCOPED_TRACE(str(name_of(strategy), " with a group of ", size));
            auto models = clones_of(initial, 4);
            on_ranks(4, [&](const Group& group) {
                nn::Gpt& model = models[at(group)];
                const ShardedDataParallel sharded(
                    model, group,
                    {.strategy = strategy,
                     .units = gpt.units(),
                     .secondary = group->split(group->rank() / size)});
                tests::expect_same_training(model, group, expected);
            });
        }
}

TEST(SecondaryCopy, IsReplacedAfterChangesInAScopeOfFullParameters) {
    const Gpt64 gpt;
    auto models = clones_of(gpt.make(), 4), others = clones_of(models.front(), 4);
    on_ranks(4, [&](const Group& group) {
        nn::Gpt& model = models[at(group)];
        const ShardedDataParallel sharded(
            model, group, {.units = gpt.units(), .secondary = group->split(group->rank() / 2)});
        const NoGrad no_grad;
        static_cast<void>(loss_of(model, 0, *group));
        {
            const dist::FullParameters full(model);
            for (const Tensor& p : model.parameters()) Tensor(p).mul_(0.5);
        }
        nn::Gpt& halved = others[at(group)];
        for (const Tensor& p : halved.parameters()) Tensor(p).mul_(0.5);
        EXPECT_EQ(loss_of(model, 1, *group).item(), loss_of(halved, 1, *group).item());
    });
}

TEST(SecondaryCopy, RejectsGroupSizesThatDoNotDivideTheNumberOfRanks) {
    on_ranks(2, [&](const Group& group) {
        nn::Gpt model = Gpt64().make();
        expect_error<ValueError>(
            {"ShardedDataParallel: the number of ranks of the group must be a multiple "
             "of the number of ranks of the secondary group: the group "
             "has 1, the secondary group 2"},
            [&] {
                const ShardedDataParallel sharded(model, dist::ProcessGroup::alone(),
                                                  {.secondary = group});
            });
    });
}

TEST(ShardedReplicas, StartWithTheBuffersOfRank0) {
    on_ranks(4, [&](const Group& group) {
        nn::BatchNorm1d model(3);
        model.running_mean.fill_(group->rank());
        const ShardedDataParallel sharded(model, group->split(group->rank() / 2),
                                          {.replicas = group->split(group->rank() % 2)});
        tests::expect_same_bits(model.running_mean, zeros({3}));
    });
}

}  // namespace
}  // namespace axle
