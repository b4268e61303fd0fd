// Tests which options of DeepSpeed's configurations have an effect, and which are rejected.
#include "accel/config/resolve_deepspeed.h"

#include <optional>

#include "accel/config/options.h"
#include "accel/config/resolve_options.h"
#include "gmock/gmock.h"
#include "tests/close.h"
#include "tests/log_capture.h"

namespace axle::accel {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using tests::expect_error;

DeepSpeedPlugin resolved_plugin(const DeepSpeedPlugin& plugin) {
    return *resolved({.deepspeed_plugin = plugin}).deepspeed_plugin;
}

// Returns a configuration that has the section zero_optimization, and the given values by their
// dotted names.
DeepSpeedConfig with(const Tree& values = Tree::map()) {
    DeepSpeedConfig config(Tree{{"zero_optimization", Tree::map()}});
    for (const auto& [name, value] : values.entries()) config.set(name, value);
    return config;
}

// Covers 15.tensor_parallel.autotp_size.
TEST(DeepSpeedPlugin, RejectsOptionsThatAreNotImplemented) {
    const auto refused = [](const DeepSpeedPlugin& plugin, const char* option) {
        expect_error<NotImplementedError>({option, "is not implemented yet; "},
                                          [&] { check_deepspeed(resolved_plugin(plugin)); });
    };
    EXPECT_NO_THROW(check_deepspeed(resolved_plugin({.zero_stage = 3,
                                                     .offload_optimizer_device = "cpu",
                                                     .offload_param_device = "nvme",
                                                     .offload_param_nvme_path = "/tmp",
                                                     .zero3_init_flag = true})));
    refused({.hf_ds_config = with({{"tensor_parallel.autotp_size", 2}})},
            "Accelerator: deepspeed_plugin.hf_ds_config: tensor_parallel.autotp_size: ");
    refused({.hf_ds_config = with({{"zero_optimization.zero_quantized_weights", true}})},
            "Accelerator: deepspeed_plugin.hf_ds_config: zero_optimization.zero_quantized_weights");
    refused({.hf_ds_config = with({{"zero_optimization.mics_hierarchical_params_gather", true}})},
            "Accelerator: deepspeed_plugin.hf_ds_config: "
            "zero_optimization.mics_hierarchical_params_gather: ");
    tests::LogCapture log;
    EXPECT_NO_THROW(check_deepspeed(
        resolved_plugin({.hf_ds_config = with({{"tensor_parallel.autotp_size", 1},
                                               {"zero_optimization.zero_hpz_partition_size", 1},
                                               {"steps_per_print", 5}})})));
    EXPECT_THAT(log.lines(), IsEmpty());
}

// Covers 15.zero_optimization.
TEST(DeepSpeedPlugin, RejectsSizesOfShardGroupsUnlessStageIs3) {
    for (const char* key :
         {"zero_optimization.mics_shard_size", "zero_optimization.zero_hpz_partition_size"}) {
        const auto check = [&](int stage) {
            check_deepspeed(resolved_plugin(
                {.hf_ds_config = with({{"zero_optimization.stage", stage}, {key, 2}})}));
        };
        EXPECT_NO_THROW(check(3));
        expect_error<ValueError>(
            {"DeepSpeedPlugin: ", key, ": 2 needs zero_stage 3: zero_stage is 2"},
            [&] { check(2); });
    }
}

// Covers 15.fp16.
TEST(DeepSpeedPlugin, SetsGradientScalerOptionsAndRejectsOrReportsInvalidAndUnsupportedOptions) {
    const auto scaler_of = [](Tree values, std::optional<GradScalerKwargs> kwargs = {}) {
        values.set("fp16.enabled", true);
        return *resolved({.deepspeed_plugin = {{.hf_ds_config = with(values)}},
                          .grad_scaler_kwargs = kwargs})
                    .grad_scaler_kwargs;
    };
    const auto standard = scaler_of({{"fp16.loss_scale", 0}, {"fp16.initial_scale_power", "auto"}});
    EXPECT_EQ(standard.init_scale, 65536);
    EXPECT_EQ(standard.growth_interval, 2000);
    const auto given =
        scaler_of({{"fp16.initial_scale_power", 10}, {"fp16.loss_scale_window", 1000}});
    EXPECT_EQ(given.init_scale, 1024);
    EXPECT_EQ(given.growth_interval, 1000);
    EXPECT_EQ(scaler_of({{"fp16.initial_scale_power", 10}}, {{.init_scale = 8}}).init_scale, 8);
    expect_error<NotImplementedError>(
        {"Accelerator: ",
         "fp16.loss_scale: a constant loss scale is not implemented yet; set it to 0"},
        [&] {
            scaler_of({{"fp16.loss_scale", 128}});
        });
    expect_error<ValueError>(
        {"DeepSpeedPlugin: ", "fp16.loss_scale_window: must be a number from 1 to "}, [&] {
            scaler_of({{"fp16.loss_scale_window", 0}});
        });
    tests::LogCapture log;
    check_deepspeed(resolved_plugin(
        {.hf_ds_config =
             with({{"fp16.enabled", true}, {"fp16.hysteresis", 2}, {"fp16.min_loss_scale", 1}})}));
    EXPECT_THAT(log.lines(),
                ElementsAre(testing::HasSubstr("fp16.hysteresis, fp16.min_loss_scale")));
}

// Covers 15.hf_ds_config.
TEST(DeepSpeedPlugin, WarnsAboutOptionsWithoutEffect) {
    tests::LogCapture log;
    check_deepspeed(resolved_plugin({.hf_ds_config = with({{"flops_profiler.enabled", true},
                                                           {"comms_logger.enabled", false},
                                                           {"prescale_gradients", true}})}));
    EXPECT_THAT(log.lines(),
                ElementsAre("DeepSpeedPlugin: the DeepSpeed configuration: these options have no "
                            "effect: flops_profiler, prescale_gradients"));
    tests::LogCapture zero;
    check_deepspeed(resolved_plugin(
        {.hf_ds_config = with({{"zero_optimization.overlap_com", true},
                               {"zero_optimization.overlap_comm", true},
                               {"zero_optimization.cpu_offload", false},
                               {"zero_optimization.load_from_fp32_weights", true}})}));
    EXPECT_THAT(zero.lines(),
                ElementsAre("DeepSpeedPlugin: the DeepSpeed configuration: these options have no "
                            "effect: zero_optimization.overlap_com, "
                            "zero_optimization.load_from_fp32_weights"));
}

}  // namespace
}  // namespace axle::accel
