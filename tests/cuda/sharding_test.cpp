// Tests sharded training with parameters on GPUs, which communicate with NCCL or through the host.
#include <map>
#include <string>

#include "core/autograd/local_part.h"
#include "dist/sharding/full_state.h"
#include "dist/sharding/sharded_state.h"
#include "dist/sharding/wrap_policy.h"
#include "tests/cuda/nccl_ranks.h"
#include "tests/dist/sharding/architectures.h"
#include "tests/sanitized.h"
#include "tests/temporary_folder.h"

namespace axle::tests {
namespace {

using dist::ShardingStrategy;

class ShardingOnGpu : public ProcessGroupOnGpu {
  protected:
    template <class Model>
    void expect_losses_of_one_process() {
        constexpr std::int64_t kTrainedSteps = kSanitized ? 2 : 20;
        manual_seed(3);
        Model whole = small_architecture(static_cast<Model*>(nullptr));
        whole.to(f64);
        auto models = clones_of(whole, GetParam());
        const std::vector<double> expected =
            train_architecture(whole, dist::ProcessGroup::alone(), kTrainedSteps);
        const auto errors = on_groups([&](const Group& group, Device gpu) {
            Model& model = models[static_cast<std::size_t>(group->rank())];
            const dist::ShardedDataParallel sharded(
                model, group,
                {.units = dist::units_by_type(model, model.no_split_modules()), .device = gpu});
            const std::vector<double> losses = train_architecture(model, group, kTrainedSteps);
            for (std::size_t i = 0; i < losses.size(); ++i)
                EXPECT_NEAR(losses[i], expected[i], 1e-8) << "step " << i;
        });
        for (const std::string& error : errors) EXPECT_EQ(error, "");
    }
};
INSTANTIATE_TEST_SUITE_P(Ranks, ShardingOnGpu, testing::Values(2, 3, 4));

TEST_P(ShardingOnGpu, TrainsLikeOneProcessOnTheCpu) {
    const Gpt64 gpt{.layers = 2};
    nn::Gpt whole = gpt.make();
    for (const auto strategy : {ShardingStrategy::full_shard, ShardingStrategy::shard_grad_op,
                                ShardingStrategy::shard_optimizer})
        for (const bool apart : {true, false}) {
            SCOPED_TRACE(str(name_of(strategy), apart ? " with NCCL" : " through the host"));
            if (!apart && (!kSimulated || strategy != ShardingStrategy::full_shard)) continue;
            nn::Gpt alone = whole.clone();
            auto models = clones_of(whole, GetParam());
            const ReferenceRun expected = train_alone(alone);
            const auto errors = on_groups(
                [&](const Group& group, Device gpu) {
                    nn::Gpt& model = models[static_cast<std::size_t>(group->rank())];
                    const dist::ShardedDataParallel sharded(
                        model, group, {.strategy = strategy, .units = gpt.units(), .device = gpu});
                    EXPECT_EQ(model.transformer.wte.weight.device(), gpu);
                    expect_same_training(model, group, expected, 1e-8);
                },
                apart);
            for (const std::string& error : errors) EXPECT_EQ(error, "");
        }
}

TEST_P(ShardingOnGpu, TrainsLlamaLikeOneProcessOnTheCpu) {
    expect_losses_of_one_process<nn::Llama>();
}

TEST_P(ShardingOnGpu, TrainsBertLikeOneProcessOnTheCpu) {
    expect_losses_of_one_process<nn::BertForMaskedLM>();
}

TEST_P(ShardingOnGpu, OffloadsPartsToTheCpu) {
    const Gpt64 gpt{.layers = 2};
    nn::Gpt whole = gpt.make();
    auto models = clones_of(whole, GetParam());
    const ReferenceRun expected = train_alone(whole);
    const auto errors = on_groups([&](const Group& group, Device gpu) {
        nn::Gpt& model = models[static_cast<std::size_t>(group->rank())];
        const dist::ShardedDataParallel sharded(
            model, group, {.units = gpt.units(), .device = gpu, .offload_to_cpu = true});
        const Tensor weight = model.transformer.h[0].mlp.c_fc.weight;
        EXPECT_EQ(weight.device(), gpu);
        EXPECT_TRUE(autograd::local_part(weight).device().is_cpu());
        expect_same_training(model, group, expected, 1e-8);
    });
    for (const std::string& error : errors) EXPECT_EQ(error, "");
}

// Each rank has a whole copy of the parameters, and gradients are averaged between the ranks.
TEST_P(ShardingOnGpu, AveragesGradientsOfReplicas) {
    const Gpt64 gpt{.layers = 2};
    nn::Gpt whole = gpt.make();
    auto models = clones_of(whole, GetParam());
    const ReferenceRun expected = train_alone(whole);
    const auto errors = on_groups([&](const Group& group, Device gpu) {
        nn::Gpt& model = models[static_cast<std::size_t>(group->rank())];
        const Group own = group->split(group->rank());
        const dist::ShardedDataParallel sharded(
            model, own, {.units = gpt.units(), .device = gpu, .replicas = group});
        expect_same_training(model, group, expected, 1e-8);
        EXPECT_EQ(sharded.counters().all_reduces, sharded.counters().reduce_scatters);
    });
    for (const std::string& error : errors) EXPECT_EQ(error, "");
}

// The group that keeps the copy is each rank alone, or all ranks.
TEST_P(ShardingOnGpu, GathersForBackwardFromASecondaryCopy) {
    const Gpt64 gpt{.layers = 2};
    nn::Gpt whole = gpt.make();
    const nn::Gpt initial = whole.clone();
    const ReferenceRun expected = train_alone(whole);
    for (const bool alone : {true, false}) {
        SCOPED_TRACE(alone);
        auto models = clones_of(initial, GetParam());
        const auto errors = on_groups([&](const Group& group, Device gpu) {
            nn::Gpt& model = models[static_cast<std::size_t>(group->rank())];
            const dist::ShardedDataParallel sharded(
                model, group,
                {.units = gpt.units(),
                 .device = gpu,
                 .secondary = group->split(alone ? group->rank() : 0)});
            expect_same_training(model, group, expected, 1e-8);
            EXPECT_GT(sharded.counters().secondary_all_gathers, 0);
        });
        for (const std::string& error : errors) EXPECT_EQ(error, "");
    }
}

TEST_P(ShardingOnGpu, SavesLoadsAndGathersStates) {
    const Gpt64 gpt{.layers = 2};
    nn::Gpt whole = gpt.make();
    const nn::Gpt other = gpt.make();
    auto models = clones_of(whole, GetParam()), loaded = clones_of(other, GetParam());
    const ReferenceRun expected = train_alone(whole);
    const TemporaryFolder folder(FolderStorage::in_memory);
    const auto errors = on_groups([&](const Group& group, Device gpu) {
        const auto rank = static_cast<std::size_t>(group->rank());
        nn::Gpt &model = models[rank], &copy = loaded[rank];
        {
            const dist::ShardedDataParallel sharded(model, group,
                                                    {.units = gpt.units(), .device = gpu});
            expect_same_losses(model, group, expected, 1e-8);
            save_sharded(folder.path(), dist::sharded_state(model, group->rank() == 0), *group);
        }
        for (const Tensor& p : copy.parameters()) Tensor(p).set_data(zeros_like(p.detach()));
        const dist::ShardedDataParallel sharded(copy, group, {.units = gpt.units(), .device = gpu});
        dist::load_sharded(ShardedFolder(folder.path()), copy);
        const nn::StateDict state = dist::full_state_dict(copy, {.rank0_only = false});
        const std::map<std::string, Tensor> gathered(state.begin(), state.end());
        const nn::StateDict named = whole.named_parameters();
        for (std::size_t i = 0; i < named.size(); ++i) {
            SCOPED_TRACE(named[i].first);
            expect_close(gathered.at(named[i].first).cpu(), expected.parameters[i], 1e-8);
        }
    });
    for (const std::string& error : errors) EXPECT_EQ(error, "");
}

}  // namespace
}  // namespace axle::tests
