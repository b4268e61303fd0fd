// Tests the options --megatron_lm_* of axle launch.
#include <map>
#include <string>

#include "gmock/gmock.h"
#include "kernels/error.h"
#include "tests/close.h"
#include "tests/tools/axle_launch.h"
#include "tools/axle/cluster_config.h"
#include "tools/axle/flags/launch_flags.h"
#include "tools/axle/flags/megatron_flags.h"
#include "tools/axle/launch_plan.h"

namespace axle::launcher {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::Key;
using testing::Not;
using testing::Pair;
using tests::Arguments;
using tests::expect_error;

// Returns the plan of a launch. Unless `section` is null, the launch has a configuration whose
// section megatron_lm_config is `section`.
LaunchPlan plan(Arguments arguments, const Tree& section = {}) {
    arguments.emplace_back("program");
    std::optional<ClusterConfig> config;
    if (!section.is_null())
        config = config_from_tree({{"distributed_type", "MEGATRON_LM"},
                                   {"num_processes", 4},
                                   {"megatron_lm_config", section}},
                                  "config");
    return plan_launch(*parse_launch_flags(arguments), config);
}

std::map<std::string, std::string> variables_of(const LaunchPlan& plan) {
    std::map<std::string, std::string> variables;
    for (const auto& [name, value] : plan.environment)
        if (name.starts_with("MEGATRON_LM_")) variables[name.substr(12)] = value;
    return variables;
}

// Accelerate sets the same variables.
// Covers 26.launch, 28.deepspeed_config.
TEST(MegatronFlags, SetVariablesIfMegatronLmIsUsedElseHaveNoEffect) {
    const LaunchPlan given =
        plan({"--use_megatron_lm", "--num_processes=4", "--megatron_lm_tp_degree=2",
              "--megatron_lm_sequence_parallelism=true", "--megatron_lm_num_micro_batches=8"});
    EXPECT_THAT(given.environment, Contains(Pair("ACCELERATE_USE_MEGATRON_LM", "true")));
    EXPECT_EQ(variables_of(given),
              (std::map<std::string, std::string>{{"TP_DEGREE", "2"},
                                                  {"PP_DEGREE", "1"},
                                                  {"NUM_MICRO_BATCHES", "8"},
                                                  {"SEQUENCE_PARALLELISM", "true"},
                                                  {"GRADIENT_CLIPPING", "1.0"}}));
    EXPECT_THAT(variables_of(plan({"--use_megatron_lm", "--megatron_lm_eod_mask_loss=true",
                                   "--megatron_lm_calculate_per_token_loss=false"})),
                testing::IsSupersetOf(
                    {Pair("EOD_MASK_LOSS", "true"), Pair("CALCULATE_PER_TOKEN_LOSS", "false")}));
    const LaunchPlan ignored = plan({"--megatron_lm_tp_degree=2"});
    EXPECT_THAT(variables_of(ignored), IsEmpty());
    EXPECT_THAT(ignored.without_effect, ElementsAre("--megatron_lm_tp_degree"));
    EXPECT_THAT(ignored.environment, Not(Contains(Key("ACCELERATE_USE_MEGATRON_LM"))));
}

// Covers 28.deepspeed_config.
TEST(MegatronFlags, TakePrecedenceOverTheConfiguration) {
    const Tree section = {{"megatron_lm_pp_degree", 2},
                          {"use_distributed_optimizer", true},
                          {"megatron_lm_gradient_clipping", 0.5},
                          {"megatron_lm_attention_backend", true}};
    const LaunchPlan planned = plan({}, section);
    EXPECT_THAT(variables_of(planned),
                testing::AllOf(Contains(Pair("PP_DEGREE", "2")),
                               Contains(Pair("USE_DISTRIBUTED_OPTIMIZER", "true")),
                               Contains(Pair("GRADIENT_CLIPPING", "0.5"))));
    EXPECT_THAT(planned.without_effect, ElementsAre("megatron_lm_attention_backend"));
    EXPECT_THAT(variables_of(plan({"--megatron_lm_pp_degree=4"}, section)),
                Contains(Pair("PP_DEGREE", "4")));
    // The flag of another way to train takes precedence over the distributed type of the
    // configuration.
    EXPECT_THAT(plan({"--use_fsdp"}, section).environment,
                Not(Contains(Key("ACCELERATE_USE_MEGATRON_LM"))));
}

// Covers 26.launch.
TEST(MegatronFlags, RejectUnknownKeysInvalidValuesAndTheFlagUseFsdp) {
    expect_error<ValueError>(
        {"megatron_lm_config: unknown key 'tp_degre'", "megatron_lm_tp_degree?"}, [] {
            plan({}, {{"tp_degre", 2}});
        });
    const auto refused = [](const char* flag, const char* text) {
        expect_error<ValueError>({text}, [&] { plan({"--use_megatron_lm", flag}); });
    };
    refused("--megatron_lm_tp_degree=0",
            "megatron_lm_tp_degree must be an integer of at least 1: '0'");
    refused("--megatron_lm_gradient_clipping=-1",
            "megatron_lm_gradient_clipping must be a number of at least 0: '-1'");
    refused("--megatron_lm_sequence_parallelism=maybe",
            "megatron_lm_sequence_parallelism must be true or false: 'maybe'");
    refused("--megatron_lm_eod_mask_loss=2",
            "megatron_lm_eod_mask_loss must be true or false: '2'");
    refused("--megatron_lm_recompute_method=some",
            "megatron_lm_recompute_method must be uniform or block: 'some'");
    expect_error<ValueError>({"launch: --use_fsdp cannot be combined with --use_megatron_lm"}, [] {
        plan({"--use_fsdp", "--use_megatron_lm"});
    });
}

}  // namespace
}  // namespace axle::launcher
