// Tests the options --parallelism_config_* of axle launch.
#include <map>
#include <string>

#include "gmock/gmock.h"
#include "kernels/error.h"
#include "tests/close.h"
#include "tests/tools/axle_launch.h"
#include "tools/axle/cluster_config.h"
#include "tools/axle/flags/launch_flags.h"
#include "tools/axle/flags/parallelism_flags.h"
#include "tools/axle/launch_plan.h"

namespace axle::launcher {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;
using tests::Arguments;
using tests::expect_error;

// Returns the plan of a launch. Unless `section` is null, the launch has a configuration whose
// section parallelism_config is `section`.
LaunchPlan plan(Arguments arguments, const Tree& section = {}) {
    arguments.emplace_back("program");
    std::optional<ClusterConfig> config;
    if (!section.is_null())
        config = config_from_tree({{"distributed_type", "MULTI_CPU"},
                                   {"num_processes", 2},
                                   {"parallelism_config", section}},
                                  "config");
    return plan_launch(*parse_launch_flags(arguments), config);
}

std::map<std::string, std::string> variables_of(const LaunchPlan& plan) {
    std::map<std::string, std::string> variables;
    for (const auto& [name, value] : plan.environment)
        if (name.starts_with("PARALLELISM_CONFIG_")) variables[name.substr(19)] = value;
    return variables;
}

// Covers 26.launch, 28.parallelism_config, 17.dp_replicate_size.
TEST(ParallelismFlags, SetVariablesIfParallelismIsRequestedElseHaveNoEffect) {
    const LaunchPlan given = plan({"--use_parallelism_config", "--parallelism_config_cp_size=2",
                                   "--parallelism_config_cp_comm_strategy=alltoall",
                                   "--parallelism_config_sp_seq_length=64"});
    EXPECT_THAT(given.environment, Contains(Pair("ACCELERATE_USE_PARALLELISM_CONFIG", "true")));
    EXPECT_EQ(variables_of(given),
              (std::map<std::string, std::string>{{"DP_REPLICATE_SIZE", "1"},
                                                  {"DP_SHARD_SIZE", "1"},
                                                  {"TP_SIZE", "1"},
                                                  {"CP_SIZE", "2"},
                                                  {"CP_BACKEND", "torch"},
                                                  {"CP_COMM_STRATEGY", "alltoall"},
                                                  {"SP_SIZE", "1"},
                                                  {"SP_BACKEND", "deepspeed"},
                                                  {"SP_SEQ_LENGTH", "64"},
                                                  {"SP_SEQ_LENGTH_IS_VARIABLE", "true"}}));
    const LaunchPlan ignored = plan({"--parallelism_config_cp_size=2"});
    EXPECT_THAT(variables_of(ignored), IsEmpty());
    EXPECT_THAT(ignored.without_effect, ElementsAre("--parallelism_config_cp_size"));
}

// Accelerate does not have these sizes, so their variables are set only if they are given.
// Covers 26.launch, 28.parallelism_config.
TEST(ParallelismFlags, SetTheSizesOfPipelinesAndExpertGroupsIfTheyAreGiven) {
    const auto given =
        variables_of(plan({"--use_parallelism_config", "--parallelism_config_pp_size=2",
                           "--parallelism_config_ep_size=4"}));
    EXPECT_THAT(given,
                testing::AllOf(Contains(Pair("PP_SIZE", "2")), Contains(Pair("EP_SIZE", "4")),
                               Contains(Pair("TP_SIZE", "1"))));
    EXPECT_THAT(variables_of(plan({}, {{"parallelism_config_ep_size", 2}, {"pp_size", 3}})),
                testing::AllOf(Contains(Pair("EP_SIZE", "2")), Contains(Pair("PP_SIZE", "3"))));
    EXPECT_THAT(variables_of(plan({"--use_parallelism_config"})),
                testing::Not(testing::AnyOf(Contains(testing::Key("PP_SIZE")),
                                            Contains(testing::Key("EP_SIZE")))));
}

// Covers 28.parallelism_config.
TEST(ParallelismFlags, TakePrecedenceOverTheConfiguration) {
    const Tree section = {{"parallelism_config_dp_shard_size", 2}, {"sp_size", 4}};
    EXPECT_THAT(
        variables_of(plan({}, section)),
        testing::AllOf(Contains(Pair("DP_SHARD_SIZE", "2")), Contains(Pair("SP_SIZE", "4"))));
    EXPECT_THAT(variables_of(plan({"--parallelism_config_sp_size=2"}, section)),
                Contains(Pair("SP_SIZE", "2")));
    EXPECT_THAT(plan({}, Tree::map()).environment,
                testing::Not(Contains(testing::Key("ACCELERATE_USE_PARALLELISM_CONFIG"))));
}

// Covers 28.parallelism_config.
TEST(ParallelismFlags, RejectUnknownKeysAndInvalidSizes) {
    expect_error<ValueError>({"parallelism_config: unknown key 'cp_sise'; did you mean cp_size?"},
                             [] {
                                 plan({}, {{"cp_sise", 2}});
                             });
    expect_error<ValueError>(
        {"parallelism_config_tp_size must be an integer from 1 to 2^31 - 1: '0'"}, [] {
            plan({}, {{"tp_size", 0}});
        });
    expect_error<ValueError>(
        {"parallelism_config_ep_size must be an integer from 1 to 2^31 - 1: 'two'"}, [] {
            plan({"--use_parallelism_config", "--parallelism_config_ep_size=two"});
        });
    expect_error<ValueError>(
        {"parallelism_config: cp_size must be text, an integer, true or false"}, [] {
            plan({}, {{"cp_size", Tree::list({1})}});
        });
}

}  // namespace
}  // namespace axle::launcher
