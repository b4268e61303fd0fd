// Tests ParallelismConfig: sizes, handlers, the mesh and the processes that read the same data.
#include "accel/config/parallelism_config.h"

#include <memory>
#include <string>
#include <vector>

#include "accel/loading/data_loader.h"
#include "gmock/gmock.h"
#include "tests/accel/training.h"
#include "tests/dist/ranks.h"
#include "tests/environment_variable.h"
#include "tests/log_capture.h"
#include "tests/vectors.h"

namespace axle {
namespace {

using accel::AcceleratorOptions;
using accel::NotImplementedError;
using accel::ParallelismConfig;
using testing::Contains;
using testing::HasSubstr;
using tests::EnvironmentVariable;
using tests::expect_error;
using tests::LogCapture;
using tests::on_ranks;
using Group = std::shared_ptr<dist::ProcessGroup>;

const accel::FullyShardedDataParallelPlugin kFsdp2{.fsdp_version = 2};

void make(const AcceleratorOptions& options) { const Accelerator accelerator(options); }

void expect_refused(const ParallelismConfig& config, std::initializer_list<const char*> text) {
    expect_error<ValueError>(text, [&] { make({.parallelism_config = config}); });
}

// Covers 17.mesh, 17.fsdp_dim_names, 17.data, 17.dp_replicate_size.
TEST(ParallelismConfig, HasTheMeshAndDataRanksOfAccelerateAndPpAsFirstDimension) {
    const auto vectors = tests::vectors("parallelism_mesh.json");
    for (const auto& c : vectors["cases"]) {
        SCOPED_TRACE(c.dump());
        const ParallelismConfig config{.dp_replicate_size = c["dp_replicate"],
                                       .dp_shard_size = c["dp_shard"],
                                       .tp_size = c["tp"],
                                       .cp_size = c["cp"],
                                       .sp_size = c["sp"]};
        if (c.contains("error")) {
            EXPECT_THROW(make({.parallelism_config = config}), ValueError);
            continue;
        }
        EXPECT_EQ(config.total_size(), c["total"]);
        EXPECT_EQ(config.data_parallel_size(), c["dp_size"]);
        EXPECT_EQ(config.non_data_parallel_size(), c["non_dp_size"]);
        const auto dimensions = config.mesh_dimensions();
        std::vector<std::string> names;
        std::vector<int> shape;
        for (const auto& [name, size] : dimensions) names.push_back(name), shape.push_back(size);
        EXPECT_EQ(names, c["mesh_names"].get<std::vector<std::string>>());
        EXPECT_EQ(shape, c["mesh_shape"].get<std::vector<int>>());
        EXPECT_EQ(config.dp_dim_names(), c["dp_dims"].get<std::vector<std::string>>());
        EXPECT_EQ(config.non_dp_dim_names(), c["non_dp_dims"].get<std::vector<std::string>>());
        EXPECT_EQ(config.dp_cp_dim_names(), c["loss_avg_dims"].get<std::vector<std::string>>());
        EXPECT_EQ(config.dp_shard_cp_dim_names(),
                  c["model_shard_dims"].get<std::vector<std::string>>());
        EXPECT_EQ(config.fsdp_dim_names(), c["fsdp_mesh_dims"].get<std::vector<std::string>>());
        for (int rank = 0; rank < config.total_size(); ++rank) {
            const accel::DataRank place = accel::data_rank(dimensions, rank);
            EXPECT_EQ(place.index, c["dataloader_process_index"][static_cast<std::size_t>(rank)]);
            EXPECT_EQ(place.count, c["dataloader_num_processes"]);
        }
    }
    const ParallelismConfig stages{.dp_shard_size = 2, .tp_size = 3, .pp_size = 4};
    EXPECT_EQ(stages.mesh_dimensions().front().name, "pp");
    EXPECT_EQ(accel::data_rank(stages.mesh_dimensions(), 23).index, 1);
    EXPECT_EQ(accel::data_rank(stages.mesh_dimensions(), 23).count, 2);
}

// Covers 1.parallelism_config, 1.torch_tp_plugin, 17.dp_replicate_size, 17.cp_backend.
TEST(ParallelismConfig, RejectsInvalidSizesBackendsAndCombinations) {
    expect_refused({.tp_size = 0}, {"ParallelismConfig: tp_size: must be at least 1: 0"});
    expect_refused({.dp_shard_size = -1},
                   {"ParallelismConfig: dp_shard_size: must be at least 1: -1"});
    expect_refused({.pp_size = 0}, {"ParallelismConfig: pp_size: must be at least 1: 0"});
    expect_refused({.dp_replicate_size = 2, .tp_size = 2},
                   {"ParallelismConfig: tp_size or cp_size above 1 with dp_replicate_size above 1 "
                    "needs dp_shard_size"});
    expect_refused({.cp_size = 2, .sp_size = 2},
                   {"ParallelismConfig: cp_size above 1 cannot be combined with sp_size above 1: "
                    "cp_size 2, sp_size 2"});
    expect_refused({.cp_backend = "ring"},
                   {"ParallelismConfig: cp_backend: must be one of torch", "ring"});
    expect_refused({.sp_backend = "ring"},
                   {"ParallelismConfig: sp_backend: must be one of deepspeed", "ring"});
    expect_refused({.tp_size = 2}, {"ParallelismConfig: the product of the sizes is 2, but must be "
                                    "1, the number of processes"});
    expect_error<UsageError>(
        {"Accelerator: torch_tp_plugin and parallelism_config are both given"}, [] {
            make({.torch_tp_plugin = {{.tp_size = 1}}, .parallelism_config = ParallelismConfig{}});
        });
    expect_error<ValueError>({"ParallelismConfig: the product of the sizes is 2, but must be "},
                             [] { make({.torch_tp_plugin = {{.tp_size = 2}}}); });
    EXPECT_NO_THROW(make({.torch_tp_plugin = accel::TorchTensorParallelPlugin{}}));
}

// Covers 17.tp_handler, 17.cp_handler, 17.sp_handler.
TEST(ParallelismConfig, RejectsInvalidHandlersAndWarnsAboutUnusedHandlers) {
    expect_refused(
        {.cp_size = 2, .cp_handler = {{.cp_comm_strategy = "ring"}}},
        {"ParallelismConfig: cp_comm_strategy: must be one of allgather, alltoall", "ring"});
    expect_refused({.sp_size = 2, .sp_handler = {{.sp_seq_length_is_variable = false}}},
                   {"ParallelismConfig: sp_seq_length: must be set if sp_seq_length_is_variable "
                    "is false"});
    expect_refused({.sp_size = 2, .sp_handler = {{.sp_seq_length = 0}}},
                   {"ParallelismConfig: sp_seq_length: must be at least 1: 0"});
    for (const char* name : {"eager", "flex_attention"})
        expect_refused({.sp_size = 2, .sp_handler = {{.sp_attn_implementation = name}}},
                       {"ParallelismConfig: sp_attn_implementation: must be one of sdpa", name});
    LogCapture log;
    make({.parallelism_config = ParallelismConfig{.tp_handler = {{}}, .sp_handler = {{}}}});
    EXPECT_THAT(log.lines(), Contains(HasSubstr("tp_handler has no effect, because tp_size is 1")));
    EXPECT_THAT(log.lines(), Contains(HasSubstr("sp_handler has no effect, because sp_size is 1")));
}

// Covers 17.cp_handler, 17.sp_handler, 27.ACCELERATE_USE_FSDP.
TEST(ParallelismConfig, ReadsItsHandlersFromTheEnvironment) {
    on_ranks(2, [](const Group& group) {
        const Accelerator accelerator({.fsdp_plugin = kFsdp2,
                                       .parallelism_config = ParallelismConfig{.cp_size = 2},
                                       .process_group = group});
        EXPECT_EQ(accelerator.options().parallelism_config->cp_comm_strategy(), "allgather");
    });
    const EnvironmentVariable strategy("PARALLELISM_CONFIG_CP_COMM_STRATEGY", "alltoall"),
        variable("PARALLELISM_CONFIG_SP_SEQ_LENGTH_IS_VARIABLE", "false"),
        length("PARALLELISM_CONFIG_SP_SEQ_LENGTH", "64"),
        attention("PARALLELISM_CONFIG_SP_ATTN_IMPLEMENTATION", "kernels/flash");
    on_ranks(2, [](const Group& group) {
        const Accelerator cp({.fsdp_plugin = kFsdp2,
                              .parallelism_config = ParallelismConfig{.cp_size = 2},
                              .process_group = group});
        EXPECT_EQ(cp.options().parallelism_config->cp_comm_strategy(), "alltoall");
        const Accelerator sp(
            {.parallelism_config = ParallelismConfig{.sp_size = 2}, .process_group = group});
        const auto& handler = sp.options().parallelism_config->sp_handler;
        ASSERT_TRUE(handler);
        EXPECT_EQ(handler->sp_seq_length, 64);
        EXPECT_EQ(handler->sp_seq_length_is_variable, false);
        EXPECT_EQ(handler->sp_attn_implementation, "kernels/flash");
    });
}

// Covers 17.to_json.
TEST(ParallelismConfig, IsConvertedToJson) {
    const ParallelismConfig config{
        .dp_shard_size = 4, .cp_size = 2, .cp_handler = {{.cp_comm_strategy = "alltoall"}}};
    const Tree json = from_json(config.to_json());
    EXPECT_EQ(json["dp_shard_size"].integer(), 4);
    EXPECT_EQ(json["cp_handler"]["cp_comm_strategy"].string(), "alltoall");
    EXPECT_TRUE(json["sp_handler"].is_null());
    EXPECT_EQ(json["cp_backend"].string(), "torch");
}

// Covers 1.parallelism_config, 2.parallelism_config, 2.tensor_parallel_rank,
// 2.pipeline_parallel_rank, 2.should_save_model, 2.torch_device_mesh, 2.data_parallel_rank,
// 2.data_parallel_shard_rank, 2.context_parallel_rank.
TEST(ParallelismConfig, DeterminesMeshAndRanksOfTheAccelerator) {
    on_ranks(4, [](const Group& group) {
        const auto replicas = [&](int size) {
            Accelerator accelerator(
                {.parallelism_config = ParallelismConfig{.dp_replicate_size = size},
                 .process_group = group});
            ASSERT_NE(accelerator.torch_device_mesh(), nullptr);
            EXPECT_EQ(accelerator.torch_device_mesh()->size("dp_replicate"), 4);
            EXPECT_EQ(accelerator.data_parallel_rank(), group->rank());
            EXPECT_EQ(accelerator.tensor_parallel_rank(), 0);
            EXPECT_EQ(accelerator.pipeline_parallel_rank(), 0);
            EXPECT_TRUE(accelerator.should_save_model());
            EXPECT_TRUE(accelerator.should_read_data());
        };
        replicas(1);  // if all sizes are 1, all ranks are replicas
        replicas(4);
        EXPECT_EQ(Accelerator({.process_group = group}).should_save_model(), group->rank() == 0);

        const Accelerator cp(
            {.fsdp_plugin = kFsdp2,
             .parallelism_config = ParallelismConfig{.dp_shard_size = 2, .cp_size = 2},
             .process_group = group});
        const dist::DeviceMesh& mesh = *cp.torch_device_mesh();
        EXPECT_EQ(cp.data_parallel_shard_rank(), group->rank() / 2);
        EXPECT_EQ(cp.context_parallel_rank(), group->rank() % 2);
        EXPECT_EQ(cp.should_read_data(), group->rank() % 2 == 0);
        EXPECT_TRUE(cp.should_save_model());
        EXPECT_EQ(mesh.get_group("dp_shard_cp")->size(), 4);
        EXPECT_EQ(mesh.get_group("dp_cp")->size(), 4);
        EXPECT_EQ(mesh.get_group("dp")->size(), 2);
        EXPECT_EQ(mesh.get_group("dp")->rank(), group->rank() / 2);

        const Accelerator sp(
            {.parallelism_config = ParallelismConfig{.dp_replicate_size = 2, .sp_size = 2},
             .process_group = group});
        EXPECT_EQ(sp.sequence_parallel_rank(), group->rank() % 2);
        EXPECT_EQ(sp.data_parallel_rank(), group->rank() / 2);
        EXPECT_TRUE(sp.should_read_data());
        EXPECT_EQ(sp.torch_device_mesh()->get_group("dp_shard_cp")->size(), 1);
    });
}

// Covers 1.parallelism_config, 17.CP.
TEST(ParallelismConfig, RejectsMissingPluginsAndUnsupportedCombinations) {
    on_ranks(2, [](const Group& group) {
        const auto refused = [&](const AcceleratorOptions& given,
                                 std::initializer_list<const char*> text) {
            AcceleratorOptions options = given;
            options.process_group = group;
            expect_error<ValueError>(text, [&] { make(options); });
        };
        const ParallelismConfig cp{.cp_size = 2};
        refused({.parallelism_config = ParallelismConfig{.dp_shard_size = 2}},
                {"ParallelismConfig: dp_shard_size above 1 needs fsdp_plugin or deepspeed_plugin: "
                 "dp_shard_size is 2"});
        refused({.parallelism_config = ParallelismConfig{.dp_replicate_size = 3}},
                {"ParallelismConfig: the product of the sizes is 3, but must be 2, the number of "
                 "processes"});
        refused({.parallelism_config = cp},
                {"ParallelismConfig: cp_size above 1 needs fsdp_plugin with fsdp_version 2"});
        refused({.fsdp_plugin = accel::FullyShardedDataParallelPlugin{}, .parallelism_config = cp},
                {"ParallelismConfig: cp_size above 1 needs fsdp_plugin with fsdp_version 2"});
        expect_error<NotImplementedError>(
            {"Accelerator: parallelism_config.tp_size: tensor parallel training with DeepSpeed"},
            [&] {
                make({.deepspeed_plugin = accel::DeepSpeedPlugin{},
                      .parallelism_config = ParallelismConfig{.tp_size = 2},
                      .process_group = group});
            });
        EXPECT_NO_THROW(
            make({.fsdp_plugin = kFsdp2, .parallelism_config = cp, .process_group = group}));
    });
    on_ranks(4, [](const Group& group) {
        const auto refused = [&](const ParallelismConfig& config, const char* option) {
            expect_error<NotImplementedError>({"Accelerator: parallelism_config.", option}, [&] {
                make({.parallelism_config = config, .process_group = group});
            });
        };
        refused({.sp_size = 2, .pp_size = 2}, "sp_size: a pipeline of models");
        EXPECT_NO_THROW(make({.parallelism_config = ParallelismConfig{.tp_size = 2, .pp_size = 2},
                              .process_group = group}));
    });
    const EnvironmentVariable standalone("ACCELERATE_ALLOW_CP_STANDALONE", "1");
    on_ranks(2, [](const Group& group) {
        EXPECT_NO_THROW(
            make({.parallelism_config = ParallelismConfig{.cp_size = 2}, .process_group = group}));
    });
}

// Covers 1.parallelism_config, 27.ACCELERATE_USE_FSDP.
TEST(ParallelismConfig, IsReadFromTheEnvironmentAndChecked) {
    const EnvironmentVariable size("PARALLELISM_CONFIG_TP_SIZE", "2");
    EXPECT_FALSE(Accelerator().options().parallelism_config);
    const EnvironmentVariable use("ACCELERATE_USE_PARALLELISM_CONFIG", "true");
    expect_error<ValueError>({"ParallelismConfig: the product of the sizes is 2, but must be "},
                             [] { make({}); });
    const EnvironmentVariable backend("PARALLELISM_CONFIG_CP_BACKEND", "ring");
    expect_error<ValueError>({"ParallelismConfig: cp_backend"}, [] { make({}); });
    const EnvironmentVariable wrong("PARALLELISM_CONFIG_SP_SIZE", "two");
    expect_error<ValueError>({"PARALLELISM_CONFIG_SP_SIZE: must be a 32-bit integer: 'two'"},
                             [] { make({}); });
}

}  // namespace
}  // namespace axle
