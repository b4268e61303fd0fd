// Tests how DeepSpeed plugins are resolved from fields, environment variables and configurations.
#include "accel/config/deepspeed_plugin.h"

#include <optional>
#include <string>

#include "accel/config/options.h"
#include "accel/config/resolve_deepspeed.h"
#include "accel/config/resolve_options.h"
#include "core/files/file.h"
#include "gmock/gmock.h"
#include "tests/close.h"
#include "tests/environment_variable.h"
#include "tests/log_capture.h"
#include "tests/temporary_folder.h"

namespace axle::accel {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using tests::EnvironmentVariable;
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

void expect_refused(const DeepSpeedPlugin& plugin, std::initializer_list<const char*> parts) {
    expect_error<ValueError>(parts, [&] { resolved_plugin(plugin); });
}

// Covers 1.deepspeed_plugin, 15.zero_stage, 15.gradient_clipping, 15.gradient_accumulation_steps,
// 15.offload_optimizer_device, 15.offload_param_device, 15.zero3_init_flag,
// 15.zero3_save_16bit_model.
TEST(DeepSpeedPlugin, HasTheDefaultsOfAccelerate) {
    const DeepSpeedPlugin plugin = resolved_plugin({});
    EXPECT_EQ(plugin.zero_stage, 2);
    EXPECT_EQ(plugin.gradient_accumulation_steps, 1);
    EXPECT_EQ(gradient_clipping_of(plugin), 1.0);
    EXPECT_EQ(plugin.offload_optimizer_device, "none");
    EXPECT_EQ(plugin.offload_param_device, "none");
    EXPECT_EQ(plugin.zero3_save_16bit_model, false);
    EXPECT_FALSE(plugin.is_zero3_init_enabled());
    EXPECT_TRUE(resolved_plugin({.zero_stage = 3}).is_zero3_init_enabled());
    EXPECT_EQ(plugin.enable_msamp, false);
    const DeepSpeedConfig& config = *plugin.hf_ds_config;
    EXPECT_TRUE(config.is_zero2());
    EXPECT_TRUE(config.is_auto("train_batch_size"));
    EXPECT_TRUE(config.is_auto("train_micro_batch_size_per_gpu"));
    EXPECT_TRUE(config.is_auto("gradient_clipping"));
    EXPECT_EQ(gradient_clipping_of(resolved_plugin({.gradient_clipping = 0})), std::nullopt);
    EXPECT_EQ(gradient_clipping_of(resolved_plugin({.gradient_clipping = 0.5})), 0.5);
    EXPECT_FALSE(resolved({}).deepspeed_plugin);
}

// Covers 27.ACCELERATE_USE_FSDP, 27.ACCELERATE_GRADIENT_CLIPPING, 15.hf_ds_config, 15.zero_stage,
// 15.offload_optimizer_device, 15.offload_param_device, 15.zero3_init_flag,
// 15.zero3_save_16bit_model, 15.transformer_moe_cls_names, 15.gradient_clipping.
TEST(DeepSpeedPlugin, ReadsOptionsFromTheEnvironmentUnlessTheProgramSetsThem) {
    const EnvironmentVariable use("ACCELERATE_USE_DEEPSPEED", "true"),
        stage("ACCELERATE_DEEPSPEED_ZERO_STAGE", "3"),
        clipping("ACCELERATE_GRADIENT_CLIPPING", "0.25"),
        optimizer("ACCELERATE_DEEPSPEED_OFFLOAD_OPTIMIZER_DEVICE", "nvme"),
        optimizer_path("ACCELERATE_DEEPSPEED_OFFLOAD_OPTIMIZER_NVME_PATH", "/a"),
        param("ACCELERATE_DEEPSPEED_OFFLOAD_PARAM_DEVICE", "nvme"),
        param_path("ACCELERATE_DEEPSPEED_OFFLOAD_PARAM_NVME_PATH", "/b"),
        save("ACCELERATE_DEEPSPEED_ZERO3_SAVE_16BIT_MODEL", "true"),
        moe("ACCELERATE_DEEPSPEED_MOE_LAYER_CLS_NAMES", "Moe,Block"),
        init("ACCELERATE_DEEPSPEED_ZERO3_INIT", "false");
    const DeepSpeedPlugin plugin = *resolved({}).deepspeed_plugin;
    EXPECT_EQ(plugin.zero_stage, 3);
    EXPECT_EQ(plugin.gradient_clipping, 0.25);
    EXPECT_EQ(plugin.offload_optimizer_device, "nvme");
    EXPECT_EQ(plugin.offload_optimizer_nvme_path, "/a");
    EXPECT_EQ(plugin.offload_param_device, "nvme");
    EXPECT_EQ(plugin.offload_param_nvme_path, "/b");
    EXPECT_EQ(plugin.zero3_save_16bit_model, true);
    EXPECT_THAT(plugin.transformer_moe_cls_names, ElementsAre("Moe", "Block"));
    EXPECT_FALSE(plugin.is_zero3_init_enabled());
    EXPECT_TRUE(plugin.hf_ds_config->is_offload());
    EXPECT_EQ(plugin.hf_ds_config->get_value("zero_optimization.offload_param.nvme_path").string(),
              "/b");
    // Fields take precedence over environment variables.
    EXPECT_EQ(resolved_plugin({.gradient_clipping = 2}).gradient_clipping, 2);
}

// Covers 27.ACCELERATE_GRADIENT_CLIPPING.
TEST(DeepSpeedPlugin, RejectsInvalidEnvironmentVariablesAndAcceptsDisabledClipping) {
    const EnvironmentVariable use("ACCELERATE_USE_DEEPSPEED", "true");
    {
        const EnvironmentVariable clipping("ACCELERATE_GRADIENT_CLIPPING", "much");
        expect_error<ValueError>(
            {"ACCELERATE_GRADIENT_CLIPPING: must be a number, auto or none: 'much'"},
            [] { resolved({}); });
    }
    for (const char* off : {"none", "0"}) {
        const EnvironmentVariable clipping("ACCELERATE_GRADIENT_CLIPPING", off);
        EXPECT_EQ(gradient_clipping_of(*resolved({}).deepspeed_plugin), std::nullopt) << off;
    }
    const EnvironmentVariable stage("ACCELERATE_DEEPSPEED_ZERO_STAGE", "two");
    expect_error<ValueError>({"ACCELERATE_DEEPSPEED_ZERO_STAGE: must be a 32-bit integer: 'two'"},
                             [] { resolved({}); });
}

// Covers 15.zero_stage, 15.offload_optimizer_device, 15.offload_param_device,
// 15.gradient_clipping.
TEST(DeepSpeedPlugin, RejectsInvalidValues) {
    expect_refused({.zero_stage = 4},
                   {"DeepSpeedPlugin: the DeepSpeed configuration: zero_optimization.stage: must "
                    "be 0, 1, 2 or 3: 4"});
    expect_refused({.gradient_clipping = -1}, {"DeepSpeedPlugin: ", "gradient_clipping: ", ": -1"});
    expect_refused({.gradient_accumulation_steps = 0},
                   {"DeepSpeedPlugin: ", "gradient_accumulation_steps: must be an integer from 1"});
    expect_refused({.zero_stage = 3, .offload_param_device = "disk"},
                   {"DeepSpeedPlugin: ", "offload_param.device: must be \"none\"", "\"disk\""});
    expect_refused({.zero_stage = 1, .offload_optimizer_device = "cpu"},
                   {"DeepSpeedPlugin: offload_optimizer_device: 'cpu' needs zero_stage 2 or 3: "
                    "zero_stage is 1"});
    expect_refused({.offload_optimizer_device = "nvme", .offload_optimizer_nvme_path = "/nvme"},
                   {"DeepSpeedPlugin: offload_optimizer_device: 'nvme' needs zero_stage 3"});
    expect_refused({.offload_param_device = "cpu"},
                   {"DeepSpeedPlugin: offload_param_device: 'cpu' needs zero_stage 3: zero_stage "
                    "is 2"});
    expect_refused({.zero_stage = 3, .offload_param_device = "nvme"},
                   {"DeepSpeedPlugin: offload_param_nvme_path: must be the path of a folder on an "
                    "NVMe disk if offload_param_device is 'nvme': 'none'"});
    EXPECT_NO_THROW(resolved_plugin({.offload_optimizer_device = "cpu"}));
    expect_refused({.hf_ds_config = with({{"zero_optimization.offload_param", 5}})},
                   {"DeepSpeedPlugin: ", "zero_optimization.offload_param: must be a section: 5"});
    const DeepSpeedPlugin null =
        resolved_plugin({.hf_ds_config = with({{"zero_optimization.offload_param", Tree()}})});
    EXPECT_EQ(resolved_plugin(null).offload_param_device, "none");
}

// Covers 15.hf_ds_config, 15.gradient_accumulation_steps.
TEST(DeepSpeedPlugin, TakesItsFieldsFromAConfiguration) {
    const Tree values = {{"gradient_accumulation_steps", 4},
                         {"gradient_clipping", 0.5},
                         {"zero_optimization.stage", 3},
                         {"zero_optimization.offload_optimizer.device", "cpu"},
                         {"zero_optimization.stage3_gather_16bit_weights_on_model_save", true}};
    const AcceleratorOptions options =
        resolved({.deepspeed_plugin = {{.hf_ds_config = with(values)}}});
    const DeepSpeedPlugin& plugin = *options.deepspeed_plugin;
    EXPECT_EQ(plugin.zero_stage, 3);
    EXPECT_EQ(plugin.gradient_accumulation_steps, 4);
    EXPECT_EQ(accumulation_steps(options), 4);
    EXPECT_EQ(plugin.gradient_clipping, 0.5);
    EXPECT_EQ(plugin.offload_optimizer_device, "cpu");
    EXPECT_EQ(plugin.zero3_save_16bit_model, true);
    const DeepSpeedPlugin empty = resolved_plugin({.hf_ds_config = with()});
    EXPECT_EQ(empty.zero_stage, 0);
    EXPECT_EQ(gradient_clipping_of(empty), std::nullopt);
    // Options that the configuration leaves out are taken from the fields.
    const DeepSpeedPlugin mixed = resolved_plugin(
        {.hf_ds_config = with({{"zero_optimization.stage", 1}}), .gradient_clipping = 0.1});
    EXPECT_EQ(mixed.zero_stage, 1);
    EXPECT_EQ(gradient_clipping_of(mixed), 0.1);
    EXPECT_NO_THROW(resolved(options));  // a resolved plugin can be resolved again
}

// Covers 15.hf_ds_config.
TEST(DeepSpeedPlugin, FillsAutoValuesOfAConfiguration) {
    const DeepSpeedConfig config = with({{"gradient_accumulation_steps", "auto"},
                                         {"gradient_clipping", "auto"},
                                         {"zero_optimization.stage", "auto"},
                                         {"zero_optimization.offload_param.device", "auto"}});
    const DeepSpeedPlugin plain = resolved_plugin({.hf_ds_config = config});
    EXPECT_EQ(plain.zero_stage, 2);
    EXPECT_EQ(plain.offload_param_device, "none");
    EXPECT_EQ(gradient_clipping_of(plain), 1.0);
    const DeepSpeedPlugin given = resolved_plugin({.hf_ds_config = config,
                                                   .gradient_clipping = 3,
                                                   .zero_stage = 3,
                                                   .offload_param_device = "cpu"});
    EXPECT_EQ(given.hf_ds_config->get_value("zero_optimization.stage").integer(), 3);
    EXPECT_EQ(given.hf_ds_config->get_value("zero_optimization.offload_param.device").string(),
              "cpu");
    EXPECT_EQ(given.gradient_clipping, 3);
    const AcceleratorOptions options = resolved(
        {.gradient_accumulation_steps = 6, .deepspeed_plugin = {{.hf_ds_config = config}}});
    EXPECT_EQ(options.deepspeed_plugin->gradient_accumulation_steps, 6);
    EXPECT_EQ(accumulation_steps(options), 6);
}

// Covers 15.hf_ds_config.
TEST(DeepSpeedPlugin, ReadsAndChecksTheFileNamedByAnEnvironmentVariable) {
    const tests::TemporaryFolder folder;
    const std::string path = folder / "ds.json";
    const EnvironmentVariable file("ACCELERATE_DEEPSPEED_CONFIG_FILE", path.c_str());
    write_file_atomically(path, R"({"zero_optimization": {"stage": 1}})");
    EXPECT_EQ(resolved_plugin({}).zero_stage, 1);
    write_file_atomically(path, R"({"zero_optimization": {"stage": "one"}})");
    expect_refused({}, {("DeepSpeedPlugin: '" + path +
                         "': zero_optimization.stage: must be 0, 1, 2 "
                         "or 3: \"one\"")
                            .c_str()});
    write_file_atomically(path, R"({"train_batch_size": 8})");
    expect_refused({}, {"DeepSpeedPlugin: '", path.c_str(),
                        "': zero_optimization: must be a section: it is missing"});
    const EnvironmentVariable none("ACCELERATE_DEEPSPEED_CONFIG_FILE", "none");
    EXPECT_EQ(resolved_plugin({}).zero_stage, 2);
}

// Covers 15.hf_ds_config, 27.ACCELERATE_BYPASS_DEVICE_MAP.
TEST(DeepSpeedPlugin, ListsOptionsThatContradictTheConfiguration) {
    const Tree values = {{"gradient_clipping", 1}, {"zero_optimization.stage", 2}};
    EXPECT_NO_THROW(
        resolved_plugin({.hf_ds_config = with(values), .gradient_clipping = 1, .zero_stage = 2}));
    const EnvironmentVariable stage("ACCELERATE_DEEPSPEED_ZERO_STAGE", "3");
    expect_refused({.hf_ds_config = with(values), .gradient_clipping = 2},
                   {"DeepSpeedPlugin: options contradict the DeepSpeed configuration: ",
                    "gradient_clipping is 2.0, but gradient_clipping is 1",
                    "ACCELERATE_DEEPSPEED_ZERO_STAGE is 3, but zero_optimization.stage is 2"});
    const tests::TemporaryFolder folder;
    const std::string path = folder / "ds.json";
    write_file_atomically(path, R"({"zero_optimization": {"stage": 3}})");
    EXPECT_NO_THROW(resolved_plugin({.hf_ds_config = path}));
    const EnvironmentVariable fields("ACCELERATE_CONFIG_DS_FIELDS",
                                     "deepspeed_config_file,zero_stage,mixed_precision");
    expect_refused({.hf_ds_config = path},
                   {"DeepSpeedPlugin: the configuration of the launcher has options that '",
                    "must contain: zero_stage, mixed_precision; write them"});
    const EnvironmentVariable init("ACCELERATE_CONFIG_DS_FIELDS",
                                   "deepspeed_config_file,zero3_init_flag");
    EXPECT_NO_THROW(resolved_plugin({.hf_ds_config = path}));
}

// Covers 15.fp16.
TEST(DeepSpeedPlugin, SetsMixedPrecisionOrRejectsContradictions) {
    const auto precision_with = [](const Tree& values, const char* wanted = "") {
        return precision(resolved(
            {.mixed_precision = wanted, .deepspeed_plugin = {{.hf_ds_config = with(values)}}}));
    };
    EXPECT_EQ(precision_with({{"fp16.enabled", true}}), "fp16");
    EXPECT_EQ(precision_with({{"bf16.enabled", true}}), "bf16");
    EXPECT_EQ(precision_with({{"bf16.enabled", true}}, "bf16"), "bf16");
    EXPECT_EQ(precision_with({{"fp16.enabled", "auto"}, {"bf16.enabled", "auto"}}, "fp16"), "fp16");
    EXPECT_EQ(precision_with({{"fp16.enabled", "auto"}, {"bf16.enabled", "auto"}}), "no");
    EXPECT_EQ(precision_with({{"bf16.enabled", "auto"}}, "fp8"), "fp8");
    EXPECT_EQ(precision_with(Tree::map(), "bf16"), "bf16");
    const DeepSpeedPlugin filled =
        *resolved({.mixed_precision = "fp8", .deepspeed_plugin = DeepSpeedPlugin{}})
             .deepspeed_plugin;
    EXPECT_TRUE(filled.hf_ds_config->is_true("bf16.enabled"));
    EXPECT_TRUE(filled.hf_ds_config->is_false("fp16.enabled"));
    const auto refused = [&](const Tree& values, const char* wanted,
                             std::initializer_list<const char*> parts) {
        expect_error<ValueError>(parts, [&] { precision_with(values, wanted); });
    };
    refused({{"bf16.enabled", true}}, "fp16",
            {"DeepSpeedPlugin: mixed_precision is 'fp16', but in the DeepSpeed configuration "
             "fp16.enabled is true and bf16.enabled is true"});
    refused({{"bf16.enabled", false}}, "bf16",
            {"DeepSpeedPlugin: mixed_precision is 'bf16', but in "});
    refused({{"fp16.enabled", true}, {"bf16.enabled", true}}, "",
            {"DeepSpeedPlugin: the DeepSpeed configuration: fp16.enabled and bf16.enabled are both "
             "true"});
    refused({{"fp16.enabled", 1}}, "", {"DeepSpeedPlugin: ", "fp16.enabled: must be true, false"});
    refused({{"fp16", true}}, "", {"DeepSpeedPlugin: ", "fp16: must be a section"});
}

// Covers 15.gradient_accumulation_steps, 27.ACCELERATE_GRADIENT_ACCUMULATION_STEPS.
TEST(DeepSpeedPlugin, OverridesAccumulationStepsOfAcceleratorAndEnvironmentIfItSetsThem) {
    tests::LogCapture log;
    const AcceleratorOptions options =
        resolved({.gradient_accumulation_steps = 2,
                  .deepspeed_plugin = {{.gradient_accumulation_steps = 4}}});
    EXPECT_EQ(accumulation_steps(options), 4);
    EXPECT_THAT(log.lines(),
                ElementsAre("DeepSpeedPlugin: gradient_accumulation_steps is 4 in the plugin and 2 "
                            "in the Accelerator; the Accelerator uses 4"));
    {
        const EnvironmentVariable variable("ACCELERATE_GRADIENT_ACCUMULATION_STEPS", "3");
        EXPECT_EQ(accumulation_steps(resolved({.deepspeed_plugin = DeepSpeedPlugin{}})), 3);
        EXPECT_EQ(accumulation_steps(
                      resolved({.deepspeed_plugin = {{.gradient_accumulation_steps = 5}}})),
                  5);
    }
    const EnvironmentVariable variable("ACCELERATE_GRADIENT_ACCUMULATION_STEPS", "auto");
    EXPECT_EQ(accumulation_steps(resolved({.deepspeed_plugin = DeepSpeedPlugin{},
                                           .gradient_accumulation_plugin = {{.num_steps = 7}}})),
              7);
}

// Covers 15.zero3_init_flag.
TEST(DeepSpeedPlugin, TurnsZero3InitOffUnlessStageIs3) {
    tests::LogCapture log;
    EXPECT_EQ(resolved_plugin({.zero_stage = 3, .zero3_init_flag = true}).zero3_init_flag, true);
    EXPECT_THAT(log.lines(), IsEmpty());
    EXPECT_EQ(resolved_plugin({.zero3_init_flag = true}).zero3_init_flag, false);
    EXPECT_THAT(log.lines(), ElementsAre("DeepSpeedPlugin: zero3_init_flag applies only to "
                                         "zero_stage 3; it is set to false: zero_stage is 2"));
}

// Covers 15.enable_msamp.
TEST(DeepSpeedPlugin, EnablesMsAmpFromTheEnvironmentAndRejectsInvalidMsAmpOptions) {
    const EnvironmentVariable backend("ACCELERATE_FP8_BACKEND", "MSAMP");
    const DeepSpeedPlugin plugin = resolved_plugin({});
    EXPECT_EQ(plugin.enable_msamp, true);
    EXPECT_EQ(plugin.hf_ds_config->get_value("msamp.opt_level").string(), "O1");
    expect_error<NotImplementedError>({"DeepSpeedPlugin: enable_msamp: ", "stage 0, 1 or 2"},
                                      [] { resolved_plugin({.zero_stage = 3}); });
    const EnvironmentVariable level("ACCELERATE_FP8_OPT_LEVEL", "O3");
    expect_refused({}, {"DeepSpeedPlugin: msamp_opt_level: must be O1 or O2: 'O3'"});
    expect_error<NotImplementedError>({"Accelerator: deepspeed_plugin.enable_msamp: MS-AMP"},
                                      [&] { check_deepspeed(plugin); });
}

// Covers 15.multiple, 2.deepspeed_plugin.
TEST(DeepSpeedPlugins, AreSelectedByNameAndCannotBeCombinedWithDeepspeedPlugin) {
    AcceleratorOptions options = resolved(
        {.deepspeed_plugins = {{"student", {.zero_stage = 1}}, {"teacher", {.zero_stage = 3}}}});
    EXPECT_EQ(options.deepspeed_plugin->zero_stage, 1);
    EXPECT_EQ(get_deepspeed_plugin(options, "teacher").zero_stage, 3);
    select_deepspeed_plugin(options, "teacher");
    EXPECT_EQ(options.deepspeed_plugin->zero_stage, 3);
    expect_error<ValueError>(
        {"select_deepspeed_plugin: there is no plugin 'judge'; deepspeed_plugins "
         "has student, teacher"},
        [&] { select_deepspeed_plugin(options, "judge"); });
    expect_error<UsageError>({"Accelerator: deepspeed_plugin and deepspeed_plugins are both given"},
                             [] {
                                 resolved({.deepspeed_plugin = DeepSpeedPlugin{},
                                           .deepspeed_plugins = {{"a", DeepSpeedPlugin{}}}});
                             });
}

}  // namespace
}  // namespace axle::accel
