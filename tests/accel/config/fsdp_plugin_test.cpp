// Tests the options of FullyShardedDataParallelPlugin, and how they are resolved.
#include "accel/config/fsdp_plugin.h"

#include <map>
#include <string>
#include <vector>

#include "accel/config/resolve_fsdp.h"
#include "accel/config/resolve_options.h"
#include "gmock/gmock.h"
#include "tests/close.h"
#include "tests/environment_variable.h"
#include "tests/log_capture.h"

namespace axle {
namespace {

using accel::AcceleratorOptions;
using accel::MixedPrecisionPolicy;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using tests::EnvironmentVariable;
using tests::expect_error;
using tests::LogCapture;
using Plugin = accel::FullyShardedDataParallelPlugin;

Plugin resolved(const Plugin& plugin) {
    return *accel::resolved({.fsdp_plugin = plugin}).fsdp_plugin;
}

void expect_refused(std::initializer_list<const char*> text, const Plugin& plugin) {
    expect_error<ValueError>(text, [&] { resolved(plugin); });
}

// Expects that resolving the plugin logs one warning that contains the text.
void expect_warning(const std::string& text, const Plugin& plugin) {
    LogCapture log;
    resolved(plugin);
    EXPECT_THAT(log.lines(), ElementsAre(HasSubstr(text)));
}

const MixedPrecisionPolicy& policy_of(const Plugin& plugin) {
    return std::get<MixedPrecisionPolicy>(plugin.mixed_precision_policy);
}

std::string wrap_policy(const Plugin& plugin) {
    return std::get<std::string>(plugin.auto_wrap_policy);
}

// Covers 14.fsdp_version, 14.sharding_strategy, 14.reshard_after_forward, 14.backward_prefetch,
// 14.forward_prefetch, 14.auto_wrap_policy, 14.cpu_offload, 14.state_dict_type,
// 14.limit_all_gathers, 14.use_orig_params, 14.sync_module_states, 14.cpu_ram_efficient_loading,
// 14.activation_checkpointing.
TEST(FsdpPlugin, HasTheDefaultsOfAccelerate) {
    LogCapture log;
    const Plugin one = resolved({});
    EXPECT_EQ(one.fsdp_version, 1);
    EXPECT_EQ(one.sharding_strategy, "FULL_SHARD");
    EXPECT_EQ(one.strategy(), "FULL_SHARD");
    EXPECT_EQ(one.backward_prefetch, "NO_PREFETCH");
    EXPECT_EQ(one.forward_prefetch, false);
    EXPECT_EQ(wrap_policy(one), "NO_WRAP");
    EXPECT_EQ(one.cpu_offload, false);
    EXPECT_EQ(one.state_dict_type, "FULL_STATE_DICT");
    EXPECT_TRUE(one.limit_all_gathers);
    EXPECT_EQ(one.use_orig_params, false);
    EXPECT_EQ(one.sync_module_states, false);
    EXPECT_EQ(one.cpu_ram_efficient_loading, false);
    EXPECT_EQ(one.activation_checkpointing, false);
    EXPECT_EQ(one.mixed_precision_policy.index(), 0U);
    EXPECT_EQ(one.ignored_modules.index(), 0U);

    const Plugin two = resolved({.fsdp_version = 2});
    EXPECT_TRUE(std::get<bool>(two.reshard_after_forward));
    EXPECT_EQ(two.strategy(), "FULL_SHARD");
    EXPECT_EQ(two.state_dict_type, "SHARDED_STATE_DICT");
    EXPECT_FALSE(two.forward_prefetch);
    EXPECT_FALSE(two.use_orig_params);
    EXPECT_FALSE(two.sync_module_states);
    EXPECT_THAT(log.lines(), IsEmpty());
}

// Covers 14.fsdp_version, 27.ACCELERATE_USE_FSDP.
TEST(FsdpPlugin, ReadsOptionsFromTheEnvironmentUnlessTheProgramSetsThem) {
    EXPECT_FALSE(accel::resolved({}).fsdp_plugin);
    const EnvironmentVariable use("ACCELERATE_USE_FSDP", "true"), version("FSDP_VERSION", "2"),
        policy("FSDP_AUTO_WRAP_POLICY", "transformer_based_wrap"),
        types("FSDP_TRANSFORMER_CLS_TO_WRAP", "GPT2Block, Embedding"),
        offload("FSDP_OFFLOAD_PARAMS", "true"), state("FSDP_STATE_DICT_TYPE", "FULL_STATE_DICT"),
        reshard("FSDP_RESHARD_AFTER_FORWARD", "false"), ignored("FSDP_IGNORED_MODULES", "ln_.*"),
        loading("FSDP_CPU_RAM_EFFICIENT_LOADING", "true"),
        checkpointing("FSDP_ACTIVATION_CHECKPOINTING", "true"),
        to_host("FSDP_ACTIVATION_CHECKPOINTING_OFFLOAD", "true"),
        prefetch("FSDP_FORWARD_PREFETCH", "false"), old("FSDP_SHARDING_STRATEGY", "FULL_SHARD");
    LogCapture log;
    const Plugin plugin = *accel::resolved({}).fsdp_plugin;
    EXPECT_EQ(plugin.fsdp_version, 2);
    EXPECT_EQ(wrap_policy(plugin), "TRANSFORMER_BASED_WRAP");
    EXPECT_THAT(*plugin.transformer_cls_names_to_wrap, ElementsAre("GPT2Block", "Embedding"));
    EXPECT_EQ(plugin.cpu_offload, true);
    EXPECT_EQ(plugin.state_dict_type, "FULL_STATE_DICT");
    EXPECT_EQ(plugin.strategy(), "SHARD_GRAD_OP");
    EXPECT_EQ(std::get<std::string>(plugin.ignored_modules), "ln_.*");
    EXPECT_EQ(plugin.cpu_ram_efficient_loading, true);
    EXPECT_EQ(plugin.activation_checkpointing, true);
    EXPECT_EQ(plugin.activation_checkpointing_offload, true);
    EXPECT_THAT(log.lines(), IsEmpty());
    // Options of the plugin take precedence over environment variables.
    EXPECT_EQ(resolved({.fsdp_version = 2, .reshard_after_forward = true}).strategy(),
              "FULL_SHARD");
}

// Covers 14.fsdp_version, 27.ACCELERATE_USE_FSDP.
TEST(FsdpPlugin, ReadsEnvironmentVariablesOfVersion1AndRejectsInvalidNumbers) {
    const EnvironmentVariable prefetch("FSDP_BACKWARD_PREFETCH", "BACKWARD_POST"),
        forward("FSDP_FORWARD_PREFETCH", "1"), original("FSDP_USE_ORIG_PARAMS", "yes"),
        sync("FSDP_SYNC_MODULE_STATES", "true"), policy("FSDP_AUTO_WRAP_POLICY", "SIZE_BASED_WRAP"),
        size("FSDP_MIN_NUM_PARAMS", "5000000000");
    const Plugin plugin = resolved({});
    EXPECT_EQ(plugin.backward_prefetch, "BACKWARD_POST");
    EXPECT_EQ(plugin.forward_prefetch, true);
    EXPECT_EQ(plugin.use_orig_params, true);
    EXPECT_EQ(plugin.sync_module_states, true);
    EXPECT_EQ(plugin.min_num_params, 5000000000);
    const EnvironmentVariable wrong("FSDP_MIN_NUM_PARAMS", "1e8");
    expect_refused({"FSDP_MIN_NUM_PARAMS: must be a 64-bit integer: '1e8'"}, {});
}

// Covers 14.fsdp_version.
TEST(FsdpPlugin, RejectsUnknownVersions) {
    expect_refused({"FullyShardedDataParallelPlugin: fsdp_version: must be 1 or 2: 3"},
                   {.fsdp_version = 3});
}

// Covers 14.sharding_strategy, 14.reshard_after_forward.
TEST(FsdpPlugin, AcceptsNamesAndNumbersOfStrategiesAndRejectsOtherNamesAndNumbers) {
    const std::vector<std::string> names = {"FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD",
                                            "HYBRID_SHARD", "HYBRID_SHARD_ZERO2"};
    for (std::size_t i = 0; i < names.size(); ++i) {
        EXPECT_EQ(resolved({.reshard_after_forward = names[i]}).strategy(), names[i]);
        EXPECT_EQ(resolved({.reshard_after_forward = std::to_string(i + 1)}).strategy(), names[i]);
    }
    EXPECT_EQ(resolved({.reshard_after_forward = "shard_grad_op"}).strategy(), "SHARD_GRAD_OP");
    EXPECT_FALSE(resolved({.reshard_after_forward = "NO_SHARD"}).shards());
    EXPECT_TRUE(resolved({}).shards());
    const char* const prefix = "FullyShardedDataParallelPlugin: reshard_after_forward: ";
    expect_refused({prefix, "must be one of FULL_SHARD, SHARD_GRAD_OP, NO_SHARD", "'ALL'"},
                   {.reshard_after_forward = "ALL"});
    expect_refused({prefix, "'6'"}, {.reshard_after_forward = "6"});
}

// Covers 14.sharding_strategy, 14.reshard_after_forward.
TEST(FsdpPlugin, ReadsTheStrategyOfVersion1FromEitherVariableAndRejectsContradictions) {
    const EnvironmentVariable old("FSDP_SHARDING_STRATEGY", "2");
    EXPECT_EQ(resolved({}).strategy(), "SHARD_GRAD_OP");
    const EnvironmentVariable unused("FSDP_RESHARD_AFTER_FORWARD", "true");  // set by launchers
    EXPECT_EQ(resolved({}).strategy(), "SHARD_GRAD_OP");
    {
        const EnvironmentVariable reshard("FSDP_RESHARD_AFTER_FORWARD", "hybrid_shard");
        expect_refused({"FullyShardedDataParallelPlugin: FSDP_SHARDING_STRATEGY and "
                        "FSDP_RESHARD_AFTER_FORWARD must name the same strategy: SHARD_GRAD_OP, "
                        "HYBRID_SHARD"},
                       {});
        const EnvironmentVariable standard("FSDP_SHARDING_STRATEGY", "FULL_SHARD");
        EXPECT_EQ(resolved({}).strategy(), "HYBRID_SHARD");
    }
}

// Covers 14.sharding_strategy, 14.reshard_after_forward.
TEST(FsdpPlugin, RejectsContradictoryStrategyOptionsAndWarnsAboutTheDeprecatedOption) {
    expect_warning("sharding_strategy: deprecated", {.sharding_strategy = "NO_SHARD"});
    EXPECT_EQ(resolved({.sharding_strategy = "NO_SHARD"}).strategy(), "NO_SHARD");
    expect_refused(
        {"FullyShardedDataParallelPlugin: sharding_strategy and reshard_after_forward must "
         "name the same strategy: NO_SHARD, FULL_SHARD"},
        {.sharding_strategy = "NO_SHARD", .reshard_after_forward = "FULL_SHARD"});
    const char* const reshard = "FullyShardedDataParallelPlugin: reshard_after_forward: ";
    expect_refused({reshard, "must be the name of a strategy for version 1"},
                   {.reshard_after_forward = true});
    expect_refused({reshard, "must be true or false for version 2 of FSDP: 'FULL_SHARD'"},
                   {.fsdp_version = 2, .reshard_after_forward = "FULL_SHARD"});
    EXPECT_EQ(resolved({.fsdp_version = 2, .reshard_after_forward = "False"}).strategy(),
              "SHARD_GRAD_OP");
    expect_refused({"FullyShardedDataParallelPlugin: sharding_strategy: is for version 1"},
                   {.fsdp_version = 2, .sharding_strategy = "FULL_SHARD"});
    expect_warning(
        "sharding_strategy: has no effect with version 2",
        {.fsdp_version = 2, .sharding_strategy = "FULL_SHARD", .reshard_after_forward = false});
    const EnvironmentVariable variable("FSDP_RESHARD_AFTER_FORWARD", "full_shard");
    expect_refused({"FSDP_RESHARD_AFTER_FORWARD: must be true or false", "axle to-fsdp2"},
                   {.fsdp_version = 2});
}

// Covers 14.backward_prefetch, 14.forward_prefetch.
TEST(FsdpPlugin, ReadsBackwardPrefetchAndRejectsOrIgnoresPrefetchingInVersion2) {
    EXPECT_EQ(resolved({.backward_prefetch = "backward_pre"}).backward_prefetch, "BACKWARD_PRE");
    EXPECT_EQ(resolved({.backward_prefetch = "2"}).backward_prefetch, "BACKWARD_POST");
    expect_refused({"FullyShardedDataParallelPlugin: backward_prefetch: must be one of "
                    "BACKWARD_PRE, BACKWARD_POST, NO_PREFETCH: 'ALWAYS'"},
                   {.backward_prefetch = "ALWAYS"});
    expect_warning("backward_prefetch: has no effect with version 2",
                   {.fsdp_version = 2, .backward_prefetch = "BACKWARD_PRE"});
    expect_refused(
        {"FullyShardedDataParallelPlugin: forward_prefetch: cannot be set with version 2"},
        {.fsdp_version = 2, .forward_prefetch = false});
}

// Covers 14.use_orig_params, 14.sync_module_states, 14.cpu_ram_efficient_loading.
TEST(FsdpPlugin, WarnsAboutOptionsThatItIgnoresOrChanges) {
    expect_warning("use_orig_params: has no effect with version 2",
                   {.fsdp_version = 2, .use_orig_params = true});
    expect_warning("sync_module_states: has no effect with version 2",
                   {.fsdp_version = 2, .sync_module_states = true});
    const Plugin loading{.cpu_ram_efficient_loading = true};
    expect_warning("sync_module_states: set to true because cpu_ram_efficient_loading", loading);
    EXPECT_EQ(resolved(loading).sync_module_states, true);
    expect_warning("min_num_params: has no effect", {.min_num_params = 3});
    expect_warning("transformer_cls_names_to_wrap: has no effect",
                   {.transformer_cls_names_to_wrap = {{"GPT2Block"}}});
}

// Covers 14.activation_checkpointing.
TEST(FsdpPlugin, RejectsActivationCheckpointingOffloadWithoutCheckpointingOrVersion2) {
    expect_refused({"FullyShardedDataParallelPlugin: activation_checkpointing_offload: needs "
                    "activation_checkpointing"},
                   {.fsdp_version = 2, .activation_checkpointing_offload = true});
    expect_refused(
        {"FullyShardedDataParallelPlugin: activation_checkpointing_offload: needs version 2"},
        {.activation_checkpointing = true, .activation_checkpointing_offload = true});
}

// Covers 14.state_dict_type, 14.set_state_dict_type.
TEST(FsdpPlugin, SetsTheStateDictTypeByNameOrNumberAndRejectsInvalidTypes) {
    Plugin plugin = resolved({.fsdp_version = 2});
    plugin.set_state_dict_type("full_state_dict");
    EXPECT_EQ(plugin.state_dict_type, "FULL_STATE_DICT");
    plugin.set_state_dict_type();  // keeps the type
    EXPECT_EQ(plugin.state_dict_type, "FULL_STATE_DICT");
    plugin.set_state_dict_type("3");
    EXPECT_EQ(plugin.state_dict_type, "SHARDED_STATE_DICT");
    expect_error<ValueError>({"FullyShardedDataParallelPlugin: state_dict_type: must be one of ",
                              "LOCAL_STATE_DICT", "'SOME'"},
                             [&] { plugin.set_state_dict_type("SOME"); });
    expect_error<ValueError>({"FullyShardedDataParallelPlugin: state_dict_type: LOCAL_STATE_DICT "
                              "is for version 1"},
                             [&] { plugin.set_state_dict_type("LOCAL_STATE_DICT"); });
    EXPECT_EQ(plugin.state_dict_type, "SHARDED_STATE_DICT");
    EXPECT_EQ(resolved({.state_dict_type = "LOCAL_STATE_DICT"}).state_dict_type,
              "LOCAL_STATE_DICT");
}

// Covers 14.state_dict_config.
TEST(FsdpPlugin, SelectsRank0AndTheCpuForFullStateDictsOfSeveralProcessesByDefault) {
    Plugin plugin = resolved({.optim_state_dict_config = {{.rank0_only = false}}});
    EXPECT_TRUE(state_dict_config_of(plugin, 2).rank0_only);
    EXPECT_TRUE(state_dict_config_of(plugin, 2).offload_to_cpu);
    EXPECT_FALSE(state_dict_config_of(plugin, 2, true).rank0_only);
    EXPECT_FALSE(state_dict_config_of(plugin, 1).rank0_only);
    EXPECT_FALSE(state_dict_config_of(plugin, 1).offload_to_cpu);
    plugin.set_state_dict_type("SHARDED_STATE_DICT");
    EXPECT_FALSE(state_dict_config_of(plugin, 2).rank0_only);
}

// Covers 14.mixed_precision_policy.
TEST(FsdpPlugin, UsesThePrecisionOfTheAcceleratorByDefault) {
    const auto with = [](const char* precision, const Plugin& plugin) {
        return policy_of(
            *accel::resolved({.mixed_precision = precision, .fsdp_plugin = plugin}).fsdp_plugin);
    };
    EXPECT_EQ(with("bf16", {}), (MixedPrecisionPolicy{bf16, bf16, bf16, {}}));
    EXPECT_EQ(with("fp8", {}), (MixedPrecisionPolicy{bf16, bf16, bf16, {}}));
    EXPECT_EQ(with("fp16", {.fsdp_version = 2}), (MixedPrecisionPolicy{f16, f16, {}, f16}));
    const MixedPrecisionPolicy own{.param_dtype = f16, .reduce_dtype = f64};
    EXPECT_EQ(with("bf16", {.mixed_precision_policy = own}), own);
    EXPECT_EQ(with("bf16", {.mixed_precision_policy = "fp32"}),
              (MixedPrecisionPolicy{f32, f32, f32, {}}));
}

// Covers 14.mixed_precision_policy.
TEST(FsdpPlugin, AcceptsMixedPrecisionPoliciesAsNamesOrMapsAndRejectsInvalidPolicies) {
    using Map = std::map<std::string, DType>;
    EXPECT_EQ(policy_of(resolved({.mixed_precision_policy = "fp8"})),
              (MixedPrecisionPolicy{bf16, bf16, bf16, {}}));
    const Map one = {{"param_dtype", bf16}, {"reduce_dtype", f32}, {"buffer_dtype", f16}};
    EXPECT_EQ(policy_of(resolved({.mixed_precision_policy = one})),
              (MixedPrecisionPolicy{bf16, f32, f16, {}}));
    const Map two = {{"param_dtype", bf16}, {"reduce_dtype", f32}, {"output_dtype", f16}};
    EXPECT_EQ(policy_of(resolved({.fsdp_version = 2, .mixed_precision_policy = two})),
              (MixedPrecisionPolicy{bf16, f32, {}, f16}));
    const char* const prefix = "FullyShardedDataParallelPlugin: mixed_precision_policy: ";
    expect_refused({prefix,
                    "a map for version 2 must have the keys param_dtype, reduce_dtype and "
                    "output_dtype; it has buffer_dtype, param_dtype, reduce_dtype"},
                   {.fsdp_version = 2, .mixed_precision_policy = one});
    expect_refused({prefix, "it has none"}, {.mixed_precision_policy = Map{}});
    expect_refused({prefix, "reduce_dtype must be float32, float16 or bfloat16: float64"},
                   {.mixed_precision_policy =
                        Map{{"param_dtype", f32}, {"reduce_dtype", f64}, {"buffer_dtype", f32}}});
    expect_refused({prefix, "must be fp8, fp16, bf16 or fp32: 'half'"},
                   {.mixed_precision_policy = "half"});
    expect_refused(
        {prefix,
         "output_dtype is only for version 2 of FSDP, and fsdp_version is 1; remove it or "
         "set fsdp_version to 2"},
        {.mixed_precision_policy = MixedPrecisionPolicy{.output_dtype = f32}});
    expect_refused(
        {prefix,
         "buffer_dtype is only for version 1 of FSDP, and fsdp_version is 2; remove it or "
         "set fsdp_version to 1"},
        {.fsdp_version = 2, .mixed_precision_policy = MixedPrecisionPolicy{.buffer_dtype = f32}});
    expect_refused({prefix, "param_dtype must be a floating dtype: int64"},
                   {.mixed_precision_policy = MixedPrecisionPolicy{.param_dtype = i64}});
}

// Covers 14.mixed_precision_policy.
TEST(FsdpPlugin, ReplacesTheMixedPrecisionPolicyOnlyOnRequestAndRejectsOtherDTypes) {
    Plugin plugin = resolved({});
    plugin.set_mixed_precision("bf16", true);
    EXPECT_EQ(policy_of(plugin), (MixedPrecisionPolicy{bf16, bf16, f32, {}}));
    plugin.set_mixed_precision(f16);
    EXPECT_EQ(policy_of(plugin).param_dtype, bf16);
    plugin.set_mixed_precision(f16, false, true);
    EXPECT_EQ(policy_of(plugin), (MixedPrecisionPolicy{f16, f16, f16, {}}));
    EXPECT_THROW(plugin.set_mixed_precision(f64), ValueError);
    EXPECT_THROW(plugin.set_mixed_precision("int8"), ValueError);
}

// Covers 14.cpu_ram_efficient_loading.
TEST(FsdpPlugin, RejectsCpuRamEfficientLoadingWithTorchaoFp8) {
    AcceleratorOptions options{.mixed_precision = "fp8",
                               .fsdp_plugin = {{.cpu_ram_efficient_loading = true}}};
    EXPECT_NO_THROW(accel::resolved(options));
    options.ao_recipe_kwargs.emplace();
    expect_error<ValueError>({"FullyShardedDataParallelPlugin: cpu_ram_efficient_loading: cannot "
                              "be combined with mixed_precision fp8"},
                             [&] { accel::resolved(options); });
    options.mixed_precision = "bf16";
    EXPECT_NO_THROW(accel::resolved(options));
}

// Covers 14.auto_wrap_policy, 14.min_num_params.
TEST(FsdpPlugin, RejectsInvalidWrapPolicies) {
    expect_refused({"FullyShardedDataParallelPlugin: min_num_params: must be at least 0: -1"},
                   {.auto_wrap_policy = "SIZE_BASED_WRAP", .min_num_params = -1});
    expect_refused({"FullyShardedDataParallelPlugin: auto_wrap_policy: must be one of "
                    "TRANSFORMER_BASED_WRAP, SIZE_BASED_WRAP, NO_WRAP: 'wrap'"},
                   {.auto_wrap_policy = "wrap"});
    expect_refused({"FullyShardedDataParallelPlugin: auto_wrap_policy: ", "'1'"},
                   {.auto_wrap_policy = "1"});
    expect_refused({"FullyShardedDataParallelPlugin: auto_wrap_policy: the function is empty"},
                   {.auto_wrap_policy = accel::WrapPolicy()});
}

// Resolving options a second time, for example for a second Accelerator, does not change them.
TEST(FsdpPlugin, KeepsStrategyAndPrefetchingWhenResolvedAgain) {
    for (const int version : {1, 2}) {
        const Plugin once = resolved({.fsdp_version = version});
        LogCapture log;
        const Plugin twice = resolved(once);
        EXPECT_EQ(twice.strategy(), once.strategy());
        EXPECT_EQ(twice.backward_prefetch, once.backward_prefetch);
        EXPECT_THAT(log.lines(), IsEmpty());
    }
}

}  // namespace
}  // namespace axle
