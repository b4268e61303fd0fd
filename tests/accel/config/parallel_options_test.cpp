// Tests the options of Accelerator for sharded and parallel training.
#include <memory>
#include <string>
#include <vector>

#include "core/autograd/local_part.h"
#include "core/system/log.h"
#include "dist/sharding/sharded_data_parallel.h"
#include "optim/sgd.h"
#include "tests/accel/training.h"
#include "tests/dist/ranks.h"
#include "tests/environment_variable.h"

namespace axle {
namespace {

using accel::AcceleratorOptions;
using accel::NotImplementedError;
using accel::ParallelismConfig;
using tests::EnvironmentVariable;
using tests::expect_error;
using tests::on_ranks;
using tests::SmallNet;
using Group = std::shared_ptr<dist::ProcessGroup>;

void make(const AcceleratorOptions& options) { const Accelerator accelerator(options); }

// Covers 1.fsdp_plugin, 27.ACCELERATE_USE_FSDP.
TEST(FsdpPlugin, IsReadFromTheEnvironmentAndShardsModelsUnlessItsStrategyIsNoShard) {
    EXPECT_FALSE(Accelerator().options().fsdp_plugin);
    EXPECT_NO_THROW(make({.fsdp_plugin = accel::FullyShardedDataParallelPlugin{}}));
    {
        const EnvironmentVariable use("ACCELERATE_USE_FSDP", "true"), version("FSDP_VERSION", "2");
        EXPECT_EQ(Accelerator().options().fsdp_plugin->fsdp_version, 2);
    }
    on_ranks(2, [](const Group& group) {
        for (const char* strategy : {"NO_SHARD", "FULL_SHARD"}) {
            Accelerator accelerator(
                {.cpu = true,
                 .fsdp_plugin = {{.reshard_after_forward = strategy, .sync_module_states = true}},
                 .process_group = group});
            SmallNet net;
            accelerator.prepare(net);
            EXPECT_EQ(autograd::is_sharded(net.in.weight), strategy == std::string("FULL_SHARD"));
        }
    });
}

// Covers 1.deepspeed_plugin, 2.deepspeed_plugin, 15.fp16, 15.gradient_accumulation_steps.
TEST(DeepSpeedPlugin, SetsPrecisionAndAccumulationStepsOfTheAcceleratorAndRejectsInvalidStages) {
    const accel::DeepSpeedPlugin plain{.zero_stage = 0};
    {
        const Accelerator named({.deepspeed_plugins = {{"student", plain}, {"teacher", plain}}});
        EXPECT_EQ(named.options().deepspeed_plugin->zero_stage, 0);
    }
    const Tree config = {{"zero_optimization", {{"stage", 0}}},
                         {"bf16", {{"enabled", true}}},
                         {"gradient_accumulation_steps", 3}};
    {
        const Accelerator accelerator({.deepspeed_plugin = {{.hf_ds_config = config}}});
        EXPECT_EQ(accelerator.mixed_precision(), "bf16");
        EXPECT_EQ(accelerator.gradient_accumulation_steps(), 3);
    }
    EXPECT_NO_THROW(make({.deepspeed_plugin = accel::DeepSpeedPlugin{}}));  // has nothing to shard
    expect_error<ValueError>({"DeepSpeedPlugin: "},
                             [] { make({.deepspeed_plugin = {{.zero_stage = 4}}}); });
}

// Covers 15.zero_stage, 15.gradient_clipping, 15.zero3_init_flag.
TEST(DeepSpeedPlugin, ShardsModelsAboveStage0AndClipsGradients) {
    for (const int stage : {0, 1, 2, 3})
        on_ranks(2, [&](const Group& group) {
            Accelerator accelerator(
                {.cpu = true,
                 .deepspeed_plugin = {{.gradient_clipping = 1e-3, .zero_stage = stage}},
                 .process_group = group});
            manual_seed(2);
            SmallNet net;
            optim::SGD sgd(net.parameters(), {.lr = 1});
            accelerator.prepare(net, sgd);
            EXPECT_EQ(autograd::is_sharded(net.in.weight), stage > 0);
            const auto copy = [&] {
                const dist::FullParameters full(net);
                return net.in.weight.detach().clone();
            };
            const Tensor before = copy();
            accelerator.backward(sum(net(ones({2, 4}))) * 100.0);
            sgd.step();
            const double change = sum(abs(copy() - before)).item();
            EXPECT_GT(change, 0);
            EXPECT_LT(change, 0.01);  // the gradient has 32 elements and a norm of at most 1e-3
        });
}

// Covers 2.tensor_parallel_rank, 2.pipeline_parallel_rank, 2.parallelism_config,
// 2.torch_device_mesh, 2.data_parallel_rank.
TEST(DeviceMeshOption, DefinesTheParallelRanksAndExcludesParallelismConfig) {
    const Accelerator accelerator;
    EXPECT_EQ(accelerator.torch_device_mesh(), nullptr);
    expect_error<UsageError>({"tensor_parallel_rank: needs an Accelerator with a "},
                             [&] { accelerator.tensor_parallel_rank(); });
    expect_error<UsageError>({"pipeline_parallel_rank: needs"},
                             [&] { accelerator.pipeline_parallel_rank(); });
    on_ranks(2, [](const Group& group) {
        using Mesh = dist::DeviceMesh;
        const auto mesh =
            std::make_shared<const Mesh>(group, std::vector<Mesh::Dimension>{{"tp", 2}});
        const Accelerator one({.process_group = group, .device_mesh = mesh});
        EXPECT_EQ(one.torch_device_mesh(), mesh.get());
        EXPECT_EQ(one.tensor_parallel_rank(), group->rank());
        EXPECT_EQ(one.data_parallel_rank(), 0);
        expect_error<UsageError>({"Accelerator: parallelism_config and device_mesh are both given"},
                                 [&] {
                                     make({.parallelism_config = ParallelismConfig{},
                                           .process_group = group,
                                           .device_mesh = mesh});
                                 });
    });
}

}  // namespace
}  // namespace axle
