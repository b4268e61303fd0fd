// Tests sharded training with parameters on GPUs, which communicate with NCCL or through the host.
#include "core/autograd/local_part.h"
#include "tests/cuda/nccl_ranks.h"
#include "tests/dist/sharding/sharded_models.h"

namespace axle::tests {
namespace {

using dist::ShardingStrategy;

class ShardingOnGpu : public ProcessGroupOnGpu {};
INSTANTIATE_TEST_SUITE_P(Ranks, ShardingOnGpu, testing::Values(2, 3));

TEST_P(ShardingOnGpu, TrainsLikeOneProcessOnTheCpu) {
    const Gpt64 gpt{.layers = 2};
    nn::Gpt whole = gpt.make();
    for (const auto strategy : {ShardingStrategy::full_shard, ShardingStrategy::shard_optimizer})
        for (const bool apart : {true, false}) {
            SCOPED_TRACE(str(name_of(strategy), apart ? " with NCCL" : " through the host"));
            if (!kSimulated && !apart && GetParam() > 1) continue;
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

}  // namespace
}  // namespace axle::tests
