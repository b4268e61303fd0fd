// Tests the options of Accelerator: deprecated options, kwargs handlers, environment variables, and
// conflicts between them.
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/system/log.h"
#include "optim/grad_scaler.h"
#include "optim/sgd.h"
#include "tests/accel/training.h"
#include "tests/dist/ranks.h"
#include "tests/environment_variable.h"

namespace axle {
namespace {

using accel::AcceleratorOptions;
using accel::DataLoaderConfiguration;
using tests::EnvironmentVariable;
using tests::expect_error;
using tests::SmallNet;
using Group = std::shared_ptr<dist::ProcessGroup>;

void make(const AcceleratorOptions& options) { const Accelerator accelerator(options); }

// Returns the lines logged while f() runs.
template <class F>
std::vector<std::string> logged(F&& f) {
    std::vector<std::string> lines;
    set_log_sink([&](LogLevel, std::string_view text) { lines.emplace_back(text); });
    f();
    set_log_sink({});
    return lines;
}

// Covers 1._split_batches, 1.dataloader_config, 1.dispatch_batches, 1.even_batches,
// 1.split_batches, 1.use_seedable_sampler, 2.split_batches, 31.logging_dir, 2.dispatch_batches,
// 2.even_batches, 2.use_seedable_sampler, 2.non_blocking, 2.use_stateful_dataloader.
TEST(DeprecatedOptions, SetTheDataLoaderConfigurationOrAgreeWithIt) {
    const Accelerator plain;
    EXPECT_FALSE(plain.split_batches());
    EXPECT_EQ(plain.dispatch_batches(), std::nullopt);
    EXPECT_TRUE(plain.even_batches());
    EXPECT_FALSE(plain.use_seedable_sampler());
    EXPECT_FALSE(plain.non_blocking());
    EXPECT_FALSE(plain.use_stateful_dataloader());

    Accelerator older({.split_batches = true,
                       .even_batches = false,
                       .dispatch_batches = false,
                       .use_seedable_sampler = true});
    EXPECT_TRUE(older.split_batches());
    EXPECT_EQ(older.dispatch_batches(), false);
    EXPECT_FALSE(older.even_batches());
    EXPECT_TRUE(older.use_seedable_sampler());
    older.set_even_batches(true);
    EXPECT_TRUE(older.even_batches());

    // The deprecated option and the configuration may both be given if they agree.
    const Accelerator both(
        {.dataloader_config = DataLoaderConfiguration{.dispatch_batches = {},
                                                      .even_batches = false,
                                                      .non_blocking = true,
                                                      .use_stateful_dataloader = true},
         .even_batches = false,
         .dispatch_batches = true});
    EXPECT_FALSE(both.even_batches());
    EXPECT_EQ(both.dispatch_batches(), true);
    EXPECT_TRUE(both.non_blocking());
    EXPECT_TRUE(both.use_stateful_dataloader());
}

// Covers 1.dispatch_batches, 1.even_batches, 1.split_batches, 1.use_seedable_sampler,
// 31.split_batches.
TEST(DeprecatedOptions, AreRejectedIfTheyContradictTheConfiguration) {
    const auto refused = [](const char* name, AcceleratorOptions options) {
        options.dataloader_config = DataLoaderConfiguration{.dispatch_batches = true};
        expect_error<UsageError>({str("Accelerator: ", name, " and dataloader_config.").c_str(),
                                  "; give it in dataloader_config alone"},
                                 [&] { make(options); });
    };
    refused("split_batches", {.split_batches = true});
    refused("even_batches", {.even_batches = false});
    refused("dispatch_batches", {.dispatch_batches = false});
    refused("use_seedable_sampler", {.use_seedable_sampler = true});
}

// Covers 1.fp16, 31.logging_dir.
TEST(DeprecatedOptions, SetMixedPrecisionFromFp16UnlessTheyDisagree) {
    EXPECT_EQ(Accelerator({.cpu = true, .fp16 = true}).mixed_precision(), "fp16");
    EXPECT_EQ(Accelerator({.mixed_precision = "fp16", .fp16 = true}).mixed_precision(), "fp16");
    EXPECT_EQ(Accelerator({.mixed_precision = "bf16", .fp16 = false}).mixed_precision(), "bf16");
    expect_error<UsageError>({"Accelerator: fp16 and mixed_precision must agree: fp16 is true, "
                              "mixed_precision is 'bf16'"},
                             [] { make({.mixed_precision = "bf16", .fp16 = true}); });
    expect_error<UsageError>({"Accelerator: fp16 and mixed_precision must agree: fp16 is false, "
                              "mixed_precision is 'fp16'"},
                             [] { make({.mixed_precision = "fp16", .fp16 = false}); });
}

// Covers 1.kwargs_handlers, 8.GradScalerKwargs, 29.KwargsHandler.
TEST(KwargsHandlers, SetOptionsOfTheAccelerator) {
    Accelerator accelerator(
        {.mixed_precision = "fp16",
         .cpu = true,
         .kwargs_handlers = {accel::GradScalerKwargs{.init_scale = 512},
                             accel::AutocastKwargs{.enabled = false, .cache_enabled = true},
                             accel::DistributedDataParallelKwargs{.bucket_cap_mb = 25,
                                                                  .find_unused_parameters = true},
                             accel::InitProcessGroupKwargs{.backend = "gloo"},
                             accel::ProfileKwargs{.record_shapes = true}}});
    const AcceleratorOptions& options = accelerator.options();
    EXPECT_EQ(accelerator.scaler()->get_scale(), 512);
    EXPECT_FALSE(options.autocast_kwargs->enabled);
    EXPECT_EQ(options.autocast_kwargs->cache_enabled, true);
    {
        const auto scope = accelerator.autocast();
        EXPECT_EQ(autocast_dtype(), std::nullopt);
    }
    EXPECT_TRUE(options.ddp_kwargs.find_unused_parameters);
    EXPECT_EQ(options.init_process_group_kwargs.backend, "gloo");
    EXPECT_TRUE(options.profile_kwargs->record_shapes);
}

// Covers 1.kwargs_handlers.
TEST(KwargsHandlers, AreRejectedIfGivenTwiceOrTogetherWithTheirField) {
    expect_error<ValueError>(
        {"Accelerator: kwargs_handlers: only one handler of each kind is allowed; given twice: "
         "GradScalerKwargs"},
        [] {
            make({.kwargs_handlers = {accel::GradScalerKwargs{}, accel::AutocastKwargs{},
                                      accel::GradScalerKwargs{}}});
        });
    const auto refused = [](const char* field, AcceleratorOptions options,
                            accel::KwargsHandler handler) {
        options.kwargs_handlers.push_back(std::move(handler));
        expect_error<UsageError>(
            {str("Accelerator: ", field, " is given").c_str(), "give only one of them"},
            [&] { make(options); });
    };
    refused("grad_scaler_kwargs", {.grad_scaler_kwargs = accel::GradScalerKwargs{}},
            accel::GradScalerKwargs{});
    refused("autocast_kwargs", {.autocast_kwargs = accel::AutocastKwargs{}},
            accel::AutocastKwargs{});
    refused("profile_kwargs", {.profile_kwargs = accel::ProfileKwargs{}}, accel::ProfileKwargs{});
    refused("ddp_kwargs", {.ddp_kwargs = {.static_graph = true}},
            accel::DistributedDataParallelKwargs{});
    refused("init_process_group_kwargs", {.init_process_group_kwargs = {.backend = "gloo"}},
            accel::InitProcessGroupKwargs{});
}

// Covers 1.mixed_precision, 27.ACCELERATE_MIXED_PRECISION, 8.PrecisionType, 27.MIXED_PRECISION.
TEST(MixedPrecisionOption, IgnoresCaseAndPrefersTheNewerEnvironmentVariable) {
    EXPECT_EQ(Accelerator({.mixed_precision = "BF16"}).mixed_precision(), "bf16");
    const EnvironmentVariable older("MIXED_PRECISION", "bf16");
    EXPECT_EQ(Accelerator().mixed_precision(), "bf16");
    const EnvironmentVariable newer("ACCELERATE_MIXED_PRECISION", "fp16");
    EXPECT_EQ(Accelerator().mixed_precision(), "fp16");
    EXPECT_EQ(Accelerator({.mixed_precision = "no"}).mixed_precision(), "no");
}

// Covers 1.mixed_precision, 27.ACCELERATE_MIXED_PRECISION, 27.MIXED_PRECISION.
TEST(MixedPrecisionOption, ReportsTheEnvironmentVariableOfAnInvalidValue) {
    const EnvironmentVariable variable("MIXED_PRECISION", "half");
    expect_error<ValueError>(
        {"Accelerator: mixed_precision must be no, ", "'half'", "in MIXED_PRECISION"},
        [] { make({}); });
}

// Covers 1.mixed_precision, 6.AcceleratorState.
TEST(MixedPrecisionOption, MustBeEqualInCoexistingAccelerators) {
    {
        const Accelerator first({.mixed_precision = "bf16"});
        EXPECT_EQ(Accelerator().mixed_precision(), "bf16");
        EXPECT_EQ(Accelerator({.mixed_precision = "bf16"}).mixed_precision(), "bf16");
        expect_error<ValueError>(
            {"Accelerator: mixed_precision is 'bf16' in an existing Accelerator, "
             "and must be the same in the new one: 'no'"},
            [] { make({.mixed_precision = "no"}); });
    }
    EXPECT_EQ(Accelerator({.mixed_precision = "no"}).mixed_precision(), "no");
}

// Covers 1.cpu, 2.device, 27.ACCELERATE_USE_CPU, 27.ACCELERATE_TORCH_DEVICE, 29.XLA,
// 13.str_to_bool.
TEST(DeviceOption, IsReadFromTheEnvironmentAndRejectsUnsupportedDevices) {
    EXPECT_EQ(Accelerator({.cpu = true}).device(), Device::cpu());
    for (const char* yes : {"1", "true", "True", "YES", "on", "y", "t"}) {
        const EnvironmentVariable variable("ACCELERATE_USE_CPU", yes);
        EXPECT_EQ(Accelerator().device(), Device::cpu());
    }
    {
        const EnvironmentVariable variable("ACCELERATE_TORCH_DEVICE", "cpu");
        EXPECT_EQ(Accelerator().device(), Device::cpu());
    }
    for (const char* other : {"xla", "xpu:0", "mps", "meta", "cuda0", "tpu"}) {
        const EnvironmentVariable variable("ACCELERATE_TORCH_DEVICE", other);
        expect_error<DeviceError>(
            {"ACCELERATE_TORCH_DEVICE: the device must be cpu, cuda or cuda:<index>", other},
            [] { make({}); });
        EXPECT_EQ(Accelerator({.cpu = true}).device(), Device::cpu());
    }
    const EnvironmentVariable missing("ACCELERATE_TORCH_DEVICE", "cuda:63");
    EXPECT_THROW(make({}), DeviceError);
}

// Covers 27.ACCELERATE_USE_CPU, 27.ACCELERATE_DEBUG_MODE, 13.str_to_bool.
TEST(EnvironmentFlags, AreRejectedIfInvalid) {
    for (const char* name :
         {"ACCELERATE_USE_CPU", "ACCELERATE_DEBUG_MODE", "ACCELERATE_USE_FSDP",
          "ACCELERATE_USE_DEEPSPEED", "ACCELERATE_USE_MEGATRON_LM",
          "ACCELERATE_USE_PARALLELISM_CONFIG", "ACCELERATE_DYNAMO_USE_FULLGRAPH"}) {
        const EnvironmentVariable variable(name, "maybe");
        expect_error<ValueError>({name, ": must be 1, true, t, yes, y or on, or 0, ", "'maybe'"},
                                 [] { make({}); });
    }
}

// Covers 27.ACCELERATE_DEBUG_MODE, 6.PartialState.
TEST(EnvironmentFlags, TurnOnDebugMode) {
    EXPECT_FALSE(Accelerator().state().debug());
    {
        const EnvironmentVariable variable("ACCELERATE_DEBUG_MODE", "yes");
        EXPECT_TRUE(Accelerator().state().debug());
    }
    const EnvironmentVariable variable("ACCELERATE_DEBUG_MODE", "0");
    EXPECT_FALSE(Accelerator().state().debug());
}

// Covers 32.DynamoBackend, 1.dynamo_backend.
TEST(DynamoBackend, MustBeKnownAndIsLoggedUnlessDisabled) {
    EXPECT_EQ(accel::known_dynamo_backends(),
              std::vector<std::string>({"no", "eager", "aot_eager", "inductor", "aot_ts_nvfuser",
                                        "nvprims_nvfuser", "cudagraphs", "ofi", "fx2trt", "onnxrt",
                                        "tensorrt", "aot_torchxla_trace_once",
                                        "torhchxla_trace_once", "ipex", "tvm", "hpu_backend"}));
    for (const std::string& name : accel::known_dynamo_backends()) {
        const auto lines = logged([&] { make({.dynamo_backend = name}); });
        EXPECT_EQ(lines.size(), name == "no" ? 0U : 1U);
        for (const std::string& line : lines)
            EXPECT_NE(line.find(str("'", name, "'")), std::string::npos);
    }
    EXPECT_TRUE(logged([] { make({}); }).empty());
    EXPECT_TRUE(logged([] {
                    make({.dynamo_plugin = {{.backend = "inductor", .disable = true}}});
                }).empty());
    expect_error<ValueError>({"Accelerator: dynamo_backend: must be one of no, eager, ", "'jit'"},
                             [] { make({.dynamo_backend = "jit"}); });
}

// Covers 32.DynamoBackend.
TEST(Dynamo, DoesNotChangeModelOutputsOnCpu) {
    set_log_sink([](LogLevel, std::string_view) {});
    SmallNet net;
    net.eval();
    const Tensor x = ones({2, 4}), y = net(x);
    Accelerator accelerator({.cpu = true, .dynamo_backend = "inductor"});
    tests::expect_same_bits(accelerator.prepare(net)(x), y);
    auto step = accelerator.compile([&](Tree& batch) { return net(batch.tensor()); });
    tests::expect_same_bits(step(Tree(x)), y);
    set_log_sink({});
}

// Covers 1.dynamo_backend, 29.TorchDynamoPlugin, 27.ACCELERATE_DYNAMO_BACKEND, 1.dynamo_plugin.
TEST(Dynamo, ReadsMissingOptionsFromTheEnvironment) {
    set_log_sink([](LogLevel, std::string_view) {});
    const EnvironmentVariable backend("ACCELERATE_DYNAMO_BACKEND", "INDUCTOR"),
        mode("ACCELERATE_DYNAMO_MODE", "max-autotune"),
        fullgraph("ACCELERATE_DYNAMO_USE_FULLGRAPH", "true"),
        dynamic("ACCELERATE_DYNAMO_USE_DYNAMIC", "false"),
        regional("ACCELERATE_DYNAMO_USE_REGIONAL_COMPILATION", "1");
    {
        const Accelerator accelerator;
        const accel::TorchDynamoPlugin& plugin = *accelerator.options().dynamo_plugin;
        EXPECT_EQ(plugin.backend, "inductor");
        EXPECT_EQ(plugin.mode, "max-autotune");
        EXPECT_EQ(plugin.fullgraph, true);
        EXPECT_EQ(plugin.dynamic, false);
        EXPECT_EQ(plugin.use_regional_compilation, true);
    }
    const Accelerator accelerator(
        {.dynamo_plugin = {{.backend = "eager", .mode = "default", .fullgraph = false}}});
    const accel::TorchDynamoPlugin& plugin = *accelerator.options().dynamo_plugin;
    EXPECT_EQ(plugin.backend, "eager");
    EXPECT_EQ(plugin.mode, "default");
    EXPECT_EQ(plugin.fullgraph, false);
    EXPECT_EQ(plugin.dynamic, false);
    set_log_sink({});
}

// Covers 1.dynamo_backend, 27.ACCELERATE_DYNAMO_BACKEND, 1.dynamo_plugin.
TEST(Dynamo, RejectsInvalidNamesAndABackendGivenTwice) {
    expect_error<ValueError>(
        {"Accelerator: dynamo_plugin.mode: must be one of default, ", "'fast'"},
        [] { make({.dynamo_plugin = {{.mode = "fast"}}}); });
    expect_error<UsageError>({"Accelerator: dynamo_backend and dynamo_plugin are both given"}, [] {
        make({.dynamo_backend = "no", .dynamo_plugin = {{.backend = "no"}}});
    });
    const EnvironmentVariable variable("ACCELERATE_DYNAMO_BACKEND", "jit");
    expect_error<ValueError>({"Accelerator: dynamo_backend: must be one of no, ", "'jit'"},
                             [] { make({}); });
}

}  // namespace
}  // namespace axle
