// Tests the FSDP options of axle launch and axle config, and the command axle to-fsdp2.
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "core/files/file.h"
#include "gmock/gmock.h"
#include "kernels/error.h"
#include "tests/close.h"
#include "tests/log_capture.h"
#include "tests/tools/axle_launch.h"
#include "tools/axle/cluster_config.h"
#include "tools/axle/flags/fsdp_flags.h"
#include "tools/axle/flags/launch_flags.h"
#include "tools/axle/launch_plan.h"
#include "tools/axle/questionnaire.h"

namespace axle::launcher {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using tests::Arguments;
using tests::Ended;
using tests::expect_error;
using tests::LogCapture;

Tree recorded() { return from_json(read_file(AXLE_TESTS_DIR "/golden/fsdp.json")); }

std::map<std::string, std::string> strings_of(const Tree& tree) {
    std::map<std::string, std::string> result;
    for (const auto& [key, value] : tree.entries()) result[key] = value.string();
    return result;
}

// --- variables

// Covers 26.launch, 27.ACCELERATE_USE_FSDP, 28.deepspeed_config.
TEST(FsdpVariables, MatchAccelerate) {
    const Tree golden = recorded();
    for (const Tree& launch : golden["launches"].elements()) {
        Arguments arguments;
        for (const Tree& flag : launch["flags"].elements()) arguments.push_back(flag.string());
        arguments.emplace_back("program");
        std::optional<ClusterConfig> config;
        if (!launch["fsdp_config"].is_null())
            config = config_from_tree({{"distributed_type", "FSDP"},
                                       {"num_processes", 2},
                                       {"fsdp_config", launch["fsdp_config"]}},
                                      "config");
        const LaunchPlan plan = plan_launch(*parse_launch_flags(arguments), config);
        std::map<std::string, std::string> variables;
        for (const auto& [name, value] : plan.environment)
            if (name.starts_with("FSDP_") || name == "ACCELERATE_USE_FSDP") variables[name] = value;
        EXPECT_EQ(variables, strings_of(launch["environment"])) << to_json(launch);
        EXPECT_THAT(plan.without_effect, IsEmpty());
    }
}

// Covers 26.launch, 28.deepspeed_config.
TEST(FsdpVariables, AcceptNullAndListValues) {
    const auto variables = fsdp_variables(
        {}, {{"fsdp_ignored_modules", Tree()},
             {"fsdp_transformer_layer_cls_to_wrap", Tree::list({"GPT2Block", "Embedding"})}});
    EXPECT_FALSE(variables.contains("FSDP_IGNORED_MODULES"));
    EXPECT_EQ(variables.at("FSDP_TRANSFORMER_CLS_TO_WRAP"), "GPT2Block,Embedding");
}

// Covers 26.launch, 28.deepspeed_config.
TEST(FsdpVariables, RejectUnknownKeysAndValues) {
    const auto refused = [](std::initializer_list<const char*> text, const Tree& section) {
        expect_error<ValueError>(text, [&] { fsdp_variables({}, section); });
    };
    refused({"fsdp_config: unknown key 'fsdp_reshard_forward'; did you mean "
             "fsdp_reshard_after_forward?"},
            {{"fsdp_reshard_forward", true}});
    refused({"fsdp_version must be 1 or 2: '3'"}, {{"fsdp_version", 3}});
    refused({"fsdp_sharding_strategy must be one of FULL_SHARD, ", "'ALL'"},
            {{"fsdp_sharding_strategy", "ALL"}});
    refused({"fsdp_reshard_after_forward must be one of FULL_SHARD, ", "'true'"},
            {{"fsdp_version", 1}, {"fsdp_reshard_after_forward", true}});
    refused({"fsdp_reshard_after_forward must be true or false for version 2", "axle to-fsdp2",
             "'FULL_SHARD'"},
            {{"fsdp_version", 2}, {"fsdp_reshard_after_forward", "FULL_SHARD"}});
    refused({"fsdp_auto_wrap_policy must be one of TRANSFORMER_BASED_WRAP, "},
            {{"auto_wrap_policy", "BLOCKS"}});
    refused({"fsdp_auto_wrap_policy must be one of "}, {{"auto_wrap_policy", 1}});
    refused({"fsdp_backward_prefetch must be one of BACKWARD_PRE, "},
            {{"fsdp_backward_prefetch", "EARLY"}});
    refused({"fsdp_state_dict_type must be one of FULL_STATE_DICT, "},
            {{"fsdp_state_dict_type", "FULL"}});
    refused({"fsdp_min_num_params must be an integer of at least 0: '1e8'"},
            {{"fsdp_min_num_params", "1e8"}});
    refused({"fsdp_offload_params must be true or false: 'cpu'"}, {{"fsdp_offload_params", "cpu"}});
    refused({"fsdp_ignored_modules must be text"}, {{"fsdp_ignored_modules", {{"a", 1}}}});
    refused({"fsdp_cpu_ram_efficient_loading needs fsdp_sync_module_states"},
            {{"fsdp_cpu_ram_efficient_loading", true}, {"fsdp_sync_module_states", false}});
}

// --- axle launch

class AxleLaunchFsdp : public tests::AxleLaunch {};

// Covers 26.launch, 27.ACCELERATE_USE_FSDP.
TEST_F(AxleLaunchFsdp, PassesEnvironmentVariablesToAllProcesses) {
    EXPECT_THAT(values({"--use_fsdp", "--fsdp_version=2", "--num_processes=2"}, "FSDP_VERSION"),
                ElementsAre("0 2", "1 2"));
    EXPECT_EQ(value({"--num_processes=1"}, "ACCELERATE_USE_FSDP"), "unset");
    const std::string config = write("config.yaml",
                                     "distributed_type: FSDP\nnum_processes: 2\nuse_cpu: true\n"
                                     "fsdp_config:\n  fsdp_min_num_params: 2000\n");
    EXPECT_THAT(values({"--config_file", config}, "FSDP_MIN_NUM_PARAMS"),
                ElementsAre("0 2000", "1 2000"));
    EXPECT_EQ(value({"--config_file", config}, "ACCELERATE_USE_CPU"), "true");
    EXPECT_EQ(value({"--config_file", config, "--multi_gpu"}, "ACCELERATE_USE_FSDP"), "unset");
}

// Covers 26.launch.
TEST_F(AxleLaunchFsdp, RejectsConflictingAndInvalidFlagsAndReportsUnusedFlags) {
    EXPECT_EQ(value({"--num_processes=1", "--use_fsdp", "--cpu"}, "ACCELERATE_USE_CPU"), "true");
    EXPECT_EQ(value({"--num_processes=1", "--use_fsdp", "--cpu"}, "ACCELERATE_USE_FSDP"), "true");
    expect_code(1, {"--use_fsdp", "--multi_gpu"}, "--use_fsdp cannot be combined with --multi_gpu");
    expect_code(1, {"--use_fsdp", "--fsdp_version", "3"}, "fsdp_version must be 1 or 2: '3'");
    const Arguments unused = {"--num_processes=1", "--fsdp_version=2"};
    EXPECT_THAT(launch(unused, "exit 0").text(),
                HasSubstr("these flags have no effect: --fsdp_version\n"));
    EXPECT_THAT(launch({"--use_fsdp", "--num_processes=1", "--fsdp_version=2"}, "exit 0").text(),
                Not(HasSubstr("no effect")));
}

// --- axle config

ClusterConfig answer(const std::string& lines, int gpus) {
    std::istringstream in(lines);
    std::ostringstream out;
    ClusterConfig config = ask_for_config(in, out, gpus);
    std::string left;
    EXPECT_FALSE(std::getline(in, left)) << "not asked for: " << left;
    return config;
}

// Covers 26.config, 28.deepspeed_config.
TEST(Questionnaire, AsksForTheOptionsOfFsdp) {
    const ClusterConfig two =
        answer("4\nno\n1\n2\n\n\nno\n\nno\nGPT2Block,Embedding\n\n\n\n\n\n\n", 2);
    EXPECT_EQ(two.distributed_type, "FSDP");
    EXPECT_FALSE(two.use_cpu);
    EXPECT_EQ(two.num_processes, 2);
    EXPECT_EQ(to_json(two.fsdp_config),
              to_json(Tree{{"fsdp_version", 2},
                           {"fsdp_reshard_after_forward", true},
                           {"fsdp_offload_params", false},
                           {"fsdp_auto_wrap_policy", "TRANSFORMER_BASED_WRAP"},
                           {"fsdp_transformer_layer_cls_to_wrap", "GPT2Block,Embedding"},
                           {"fsdp_state_dict_type", "SHARDED_STATE_DICT"},
                           {"fsdp_cpu_ram_efficient_loading", true},
                           {"fsdp_activation_checkpointing", false}}));
    const ClusterConfig one =
        answer("4\nyes\n1\n4\nno\n1\n2\n\n2\n-1\n5000000000\n2\n3\nyes\n\nno\nno\n\n1\n", 0);
    EXPECT_TRUE(one.use_cpu);
    EXPECT_EQ(one.num_processes, 4);
    EXPECT_EQ(to_json(one.fsdp_config),
              to_json(Tree{{"fsdp_version", 1},
                           {"fsdp_reshard_after_forward", "SHARD_GRAD_OP"},
                           {"fsdp_offload_params", false},
                           {"fsdp_auto_wrap_policy", "SIZE_BASED_WRAP"},
                           {"fsdp_min_num_params", std::int64_t{5000000000}},
                           {"fsdp_backward_prefetch", "BACKWARD_POST"},
                           {"fsdp_state_dict_type", "SHARDED_STATE_DICT"},
                           {"fsdp_forward_prefetch", true},
                           {"fsdp_use_orig_params", true},
                           {"fsdp_cpu_ram_efficient_loading", false},
                           {"fsdp_sync_module_states", false},
                           {"fsdp_activation_checkpointing", false}}));
    EXPECT_NO_THROW(fsdp_variables({}, two.fsdp_config));
    EXPECT_NO_THROW(fsdp_variables({}, one.fsdp_config));
}

using AxleConfigFsdp = AxleLaunchFsdp;

// Covers 26.config, 28.deepspeed_config.
TEST_F(AxleConfigFsdp, WritesTheFsdpSectionFromFlagsAndRejectsInvalidFlags) {
    const std::string path = folder_ / "config.yaml";
    ASSERT_EQ(run({"config", "--config_file", path, "--num_processes", "2",
                   "--fsdp_reshard_after_forward", "false", "--fsdp_min_num_params", "7"})
                  .code,
              0);
    const ClusterConfig config = read_config(path);
    EXPECT_EQ(config.distributed_type, "FSDP");
    EXPECT_EQ(config.fsdp_config["fsdp_version"].integer(), 2);
    EXPECT_EQ(config.fsdp_config["fsdp_min_num_params"].integer(), 7);
    EXPECT_FALSE(config.fsdp_config["fsdp_reshard_after_forward"].boolean());
    ASSERT_EQ(run({"config", "--config_file", path, "--num_processes", "2", "--fsdp_version", "1",
                   "--fsdp_reshard_after_forward", "1"})
                  .code,
              0);
    EXPECT_EQ(read_config(path).fsdp_config["fsdp_reshard_after_forward"].string(), "1");
    const auto refused = [&](int code, const Arguments& flags, const std::string& text) {
        Arguments all = {"config", "--config_file", path, "--num_processes", "2"};
        all.insert(all.end(), flags.begin(), flags.end());
        const Ended ended = run(all);
        EXPECT_EQ(ended.code, code);
        EXPECT_THAT(ended.text(), HasSubstr(text));
    };
    refused(1, {"--fsdp_version", "3"}, "fsdp_version must be 1 or 2: '3'");
    refused(2, {"--fsdp_version", "2", "--distributed_type", "MULTI_CPU"},
            "--fsdp_* flags need --distributed_type FSDP");
}

// --- axle to-fsdp2

// Covers 26.to-fsdp2.
TEST(ToFsdp2, ConvertsLikeAccelerate) {
    const Tree golden = recorded();
    for (const Tree& conversion : golden["conversions"].elements()) {
        LogCapture log;
        const Tree converted = to_fsdp2(conversion["fsdp_config"]);
        const Tree& expected = conversion["converted"];
        EXPECT_EQ(converted.size(), expected.size()) << to_json(converted);
        for (const auto& [key, value] : expected.entries())
            EXPECT_EQ(to_json(converted[key]), to_json(value)) << key;
        for (const char* gone : {"fsdp_backward_prefetch", "fsdp_forward_prefetch",
                                 "fsdp_use_orig_params", "fsdp_sync_module_states"}) {
            if (!conversion["fsdp_config"].contains(gone)) continue;
            EXPECT_THAT(log.lines(), Contains(HasSubstr(str("removed ", gone))));
        }
        EXPECT_NO_THROW(fsdp_variables({}, converted));
    }
}

// Covers 26.to-fsdp2.
TEST(ToFsdp2, ReportsOptionsThatVersion2DoesNotHaveAndRejectsInvalidStrategies) {
    LogCapture log;
    const Tree converted = to_fsdp2({{"state_dict_type", "LOCAL_STATE_DICT"},
                                     {"sharding_strategy", "FULL_SHARD"},
                                     {"reshard_after_forward", "NO_SHARD"}});
    EXPECT_EQ(converted["fsdp_state_dict_type"].string(), "SHARDED_STATE_DICT");
    EXPECT_FALSE(converted["fsdp_reshard_after_forward"].boolean());
    EXPECT_THAT(log.lines(), ElementsAre(HasSubstr("NO_SHARD has no equivalent"),
                                         HasSubstr("replaced LOCAL_STATE_DICT")));
    expect_error<ValueError>(
        {"to-fsdp2: fsdp_sharding_strategy must be one of FULL_SHARD, ", "'ALL'"}, [] {
            to_fsdp2({{"fsdp_sharding_strategy", "ALL"}});
        });
    expect_error<ValueError>({"to-fsdp2: fsdp_sharding_strategy and fsdp_reshard_after_forward "
                              "must name the same strategy: NO_SHARD, FULL_SHARD"},
                             [] {
                                 to_fsdp2({{"fsdp_sharding_strategy", "NO_SHARD"},
                                           {"fsdp_reshard_after_forward", "FULL_SHARD"}});
                             });
}

using AxleToFsdp2 = AxleLaunchFsdp;

// Covers 26.to-fsdp2.
TEST_F(AxleToFsdp2, WritesTheConvertedFileOrOverwritesTheSourceAndKeepsVersion2) {
    const std::string text =
        "distributed_type: FSDP\nnum_processes: 2\nmixed_precision: bf16\n"
        "fsdp_config:\n  fsdp_sharding_strategy: SHARD_GRAD_OP\n"
        "  fsdp_use_orig_params: true\n";
    const std::string path = write("old.yaml", text), output = folder_ / "new.yaml";
    const Ended ended = run({"to-fsdp2", "--config_file", path, "--output_file", output});
    EXPECT_EQ(ended.code, 0);
    EXPECT_THAT(ended.text(), HasSubstr("removed fsdp_use_orig_params"));
    EXPECT_EQ(read_file(path), text);
    const ClusterConfig config = read_config(output);
    EXPECT_EQ(config.mixed_precision, "bf16");
    EXPECT_EQ(to_json(config.fsdp_config),
              to_json(Tree{{"fsdp_reshard_after_forward", false}, {"fsdp_version", 2}}));
    ASSERT_EQ(run({"to-fsdp2", "--config_file", path, "--overwrite"}).code, 0);
    EXPECT_EQ(read_file(path), read_file(output));
    const Ended again = run({"to-fsdp2", "--config_file", path, "--overwrite"});
    EXPECT_EQ(again.code, 0);
    EXPECT_THAT(again.text(), HasSubstr("the configuration is for version 2 already"));
    EXPECT_EQ(read_file(path), read_file(output));
}

// Covers 26.to-fsdp2.
TEST_F(AxleToFsdp2, RejectsMissingInputsExistingOutputsAndFilesWithoutFsdpOptions) {
    const std::string path =
        write("old.yaml", "distributed_type: FSDP\nfsdp_config:\n  fsdp_version: 1\n");
    const auto refused = [&](int code, Arguments flags, const std::string& words) {
        flags.insert(flags.begin(), "to-fsdp2");
        const Ended ended = run(flags);
        EXPECT_EQ(ended.code, code);
        EXPECT_THAT(ended.text(), HasSubstr(words));
    };
    refused(2, {}, "--config_file");
    refused(2, {"--config_file", path}, "pass --output_file, or --overwrite");
    refused(1, {"--config_file", folder_ / "none.yaml", "--overwrite"}, "none.yaml");
    refused(1, {"--config_file", path, "--output_file", path},
            "the file exists and was not changed");
    const std::string plain = write("plain.yaml", "distributed_type: 'NO'\n");
    refused(1, {"--config_file", plain, "--overwrite"}, "has no fsdp_config to convert");
}

}  // namespace
}  // namespace axle::launcher
