// Tests the options of Accelerator for sharded and parallel training.
#include <memory>
#include <string>
#include <vector>

#include "core/autograd/local_part.h"
#include "core/log.h"
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
TEST(FsdpPlugin, IsAcceptedWithOneAndSeveralProcesses) {
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
TEST(DeepSpeedPlugin, SetsOptionsOfTheAccelerator) {
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
    EXPECT_NO_THROW(make({.deepspeed_plugin = accel::DeepSpeedPlugin{}}));  // nothing to shard
    expect_error<ValueError>({"DeepSpeedPlugin: "},
                             [] { make({.deepspeed_plugin = {{.zero_stage = 4}}}); });
}

// Covers 15.zero_stage, 15.gradient_clipping, 15.zero3_init_flag.
TEST(DeepSpeedPlugin, ShardsModelsAndClipsGradients) {
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

// Covers 1.megatron_lm_plugin, 27.ACCELERATE_USE_FSDP.
TEST(MegatronPlugin, IsRejectedAsNotImplemented) {
    expect_error<NotImplementedError>(
        {"Accelerator: megatron_lm_plugin: tensor and pipeline parallel training is not "
         "implemented yet"},
        [] { make({.megatron_lm_plugin = accel::MegatronLMPlugin{}}); });
    const EnvironmentVariable use("ACCELERATE_USE_MEGATRON_LM", "1");
    EXPECT_THROW(make({}), NotImplementedError);
}

// Covers 1.parallelism_config, 1.torch_tp_plugin.
TEST(ParallelismConfig, RejectsInvalidSizesAndBackends) {
    const auto refused = [](const ParallelismConfig& config,
                            std::initializer_list<const char*> text) {
        expect_error<ValueError>(text, [&] { make({.parallelism_config = config}); });
    };
    refused({.tp_size = 0}, {"ParallelismConfig: tp_size: must be at least 1: 0"});
    refused({.dp_shard_size = -1}, {"ParallelismConfig: dp_shard_size: must be at least 1: -1"});
    refused({.dp_replicate_size = 2, .tp_size = 2},
            {"ParallelismConfig: tp_size or cp_size above 1 with dp_replicate_size above 1 needs "
             "dp_shard_size"});
    refused({.cp_size = 2, .sp_size = 2}, {"ParallelismConfig: cp_size above 1 cannot be combined "
                                           "with sp_size above 1: cp_size 2, sp_size 2"});
    refused({.cp_backend = "ring"},
            {"ParallelismConfig: cp_backend: must be one of torch", "ring"});
    refused({.sp_backend = "ring"},
            {"ParallelismConfig: sp_backend: must be one of deepspeed", "ring"});
    refused({.tp_size = 2}, {"ParallelismConfig: the product of the sizes is 2, but must be 1, the "
                             "number of processes"});
    expect_error<UsageError>(
        {"Accelerator: torch_tp_plugin and parallelism_config are both given"}, [] {
            make({.torch_tp_plugin = {{.tp_size = 1}}, .parallelism_config = ParallelismConfig{}});
        });
    expect_error<ValueError>({"ParallelismConfig: the product of the sizes is 2, but must be "},
                             [] { make({.torch_tp_plugin = {{.tp_size = 2}}}); });
    EXPECT_NO_THROW(make({.torch_tp_plugin = accel::TorchTensorParallelPlugin{}}));
}

// Covers 1.parallelism_config, 2.parallelism_config, 2.tensor_parallel_rank,
// 2.pipeline_parallel_rank, 2.should_save_model, 2.torch_device_mesh, 2.data_parallel_rank,
// 2.data_parallel_shard_rank, 2.context_parallel_rank.
TEST(ParallelismConfig, SupportsOnlyTheReplicaDimension) {
    on_ranks(2, [](const Group& group) {
        for (const int replicas : {1, 2}) {  // if all sizes are 1, all ranks are replicas
            Accelerator accelerator(
                {.parallelism_config = ParallelismConfig{.dp_replicate_size = replicas},
                 .process_group = group});
            ASSERT_NE(accelerator.torch_device_mesh(), nullptr);
            EXPECT_EQ(accelerator.torch_device_mesh()->size("dp_replicate"), 2);
            EXPECT_EQ(accelerator.data_parallel_rank(), group->rank());
            EXPECT_EQ(accelerator.tensor_parallel_rank(), 0);
            EXPECT_EQ(accelerator.data_parallel_shard_rank(), 0);
            EXPECT_EQ(accelerator.pipeline_parallel_rank(), 0);
            EXPECT_EQ(accelerator.context_parallel_rank(), 0);
            EXPECT_TRUE(accelerator.should_save_model());
        }
        EXPECT_EQ(Accelerator({.process_group = group}).should_save_model(), group->rank() == 0);
        const auto refused = [&](const ParallelismConfig& config, const char* size) {
            expect_error<NotImplementedError>({size, "is not implemented yet"}, [&] {
                make({.parallelism_config = config, .process_group = group});
            });
        };
        expect_error<ValueError>(
            {"ParallelismConfig: dp_shard_size above 1 needs fsdp_plugin: dp_shard_size is 2"},
            [&] {
                make({.parallelism_config = ParallelismConfig{.dp_shard_size = 2},
                      .process_group = group});
            });
        refused({.tp_size = 2}, "Accelerator: parallelism_config.tp_size");
        refused({.cp_size = 2}, "Accelerator: parallelism_config.cp_size");
        refused({.sp_size = 2}, "Accelerator: parallelism_config.sp_size");
        expect_error<ValueError>(
            {"ParallelismConfig: the product of the sizes is 3, but must be 2, the number of "
             "processes"},
            [&] {
                make({.parallelism_config = ParallelismConfig{.dp_replicate_size = 3},
                      .process_group = group});
            });
    });
}

// Covers 1.parallelism_config, 27.ACCELERATE_USE_FSDP.
TEST(ParallelismConfig, IsReadFromTheEnvironment) {
    const EnvironmentVariable size("PARALLELISM_CONFIG_TP_SIZE", "2");
    EXPECT_FALSE(Accelerator().options().parallelism_config);
    const EnvironmentVariable use("ACCELERATE_USE_PARALLELISM_CONFIG", "true");
    expect_error<ValueError>({"ParallelismConfig: the product of the sizes is 2, but must be "},
                             [] { make({}); });
    const EnvironmentVariable backend("PARALLELISM_CONFIG_CP_BACKEND", "ring");
    expect_error<ValueError>({"ParallelismConfig: cp_backend"}, [] { make({}); });
    const EnvironmentVariable wrong("PARALLELISM_CONFIG_SP_SIZE", "two");
    expect_error<ValueError>({"PARALLELISM_CONFIG_SP_SIZE: must be an integer: 'two'"},
                             [] { make({}); });
}

// Covers 2.tensor_parallel_rank, 2.pipeline_parallel_rank, 2.parallelism_config,
// 2.torch_device_mesh, 2.data_parallel_rank.
TEST(TensorParallelRank, ThrowsWithoutADeviceMesh) {
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

// Covers 3.maybe_context_parallel, 3.deepspeed_ulysses_dl_adapter.
TEST(ContextAndSequenceParallelism, HaveNoEffectIfDisabledAndThrowIfEnabled) {
    Accelerator accelerator;
    SmallNet net;
    data::DataLoader loader(tests::samples(4));
    const Tensor buffer = ones({2, 4});
    {
        const auto scope = accelerator.maybe_context_parallel({buffer}, {1}, {buffer});
        EXPECT_EQ(buffer.shape(), Shape({2, 4}));
    }
    EXPECT_NO_THROW(static_cast<void>(accelerator.maybe_context_parallel()));
    EXPECT_EQ(&accelerator.deepspeed_ulysses_dl_adapter(loader, net), &loader);
    on_ranks(2, [&](const Group& group) {
        using Mesh = dist::DeviceMesh;
        const auto mesh_of = [&](const char* name) {
            return std::make_shared<const Mesh>(group, std::vector<Mesh::Dimension>{{name, 2}});
        };
        Accelerator cp({.process_group = group, .device_mesh = mesh_of("cp")});
        expect_error<NotImplementedError>(
            {"maybe_context_parallel: context parallel training is not implemented yet"},
            [&] { static_cast<void>(cp.maybe_context_parallel()); });
        EXPECT_EQ(cp.context_parallel_rank(), group->rank());
        Accelerator sp({.process_group = group, .device_mesh = mesh_of("sp")});
        expect_error<NotImplementedError>(
            {"deepspeed_ulysses_dl_adapter: sequence parallel training is not implemented yet"},
            [&] { sp.deepspeed_ulysses_dl_adapter(loader, net); });
    });
}

}  // namespace
}  // namespace axle
