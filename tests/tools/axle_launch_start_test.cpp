// Tests what `axle launch` does before the program runs: it searches for the program, lists default
// values, reads flags and configurations, and sets variables.
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "gmock/gmock.h"
#include "kernels/error.h"
#include "tests/tools/axle_launch.h"

namespace axle {
namespace {

using namespace tests;  // NOLINT: the test helpers of this folder
using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

using AxleLaunchStart = AxleLaunch;

TEST_F(AxleLaunchStart, ReportsAProgramThatCannotRun) {
    const std::string text = folder_ / "notes.txt";
    std::ofstream(text) << "text";
    const std::string script = folder_ / "train.py";
    struct Case {
        Arguments program;
        std::string words;
    };
    for (const auto& [program, words] : std::vector<Case>{
             {{"no-such-program-anywhere"}, "'no-such-program-anywhere' was not found in PATH"},
             {{folder_ / "nothing"}, "does not exist"},
             {{folder_.path() + "/"}, "is a folder"},
             {{text}, "is not executable; run chmod +x on it"},
             {{script, "--lr", "1"}, "the Python script '" + script + "' does not exist"},
             {{"no_such_script.py"}, "'no_such_script.py' does not exist in "},
             {{"--no_python", script}, "does not exist"}}) {
        const Ended ended = run(with({"--num_processes", "2"}, program));
        EXPECT_EQ(ended.code, 1) << ended.text();
        EXPECT_EQ(ended.err.size(), 1u) << ended.text();
        EXPECT_THAT(ended.text(), HasSubstr(words));
        EXPECT_THAT(ended.text(), testing::StartsWith("axle: launch: the "));
    }
}

// Covers 26.launch.
TEST_F(AxleLaunchStart, ListsDefaultValuesOnce) {
    const auto listed = [&](const Arguments& flags) {
        return launch(flags, "exit 0").text().find("--num_machines is 1") != std::string::npos;
    };
    EXPECT_FALSE(listed({"--quiet"}));
    EXPECT_TRUE(listed({"--num_processes", "1"}));
    EXPECT_FALSE(listed({"--num_processes", "1"}));

    // `axle launch` prints only the default values that it has not printed earlier.
    const std::string all = launch({"--cpu"}, "exit 0").text();
    EXPECT_THAT(all, AllOf(HasSubstr("--num_processes is 1"), Not(HasSubstr("--num_machines"))));
    EXPECT_THAT(launch({"--cpu"}, "exit 0").err, IsEmpty());
}

// Covers 26.launch.
TEST_F(AxleLaunchStart, PassesInheritedAndGivenEnvironmentVariablesToPrograms) {
    const char* const before = std::getenv("AXLE_LIBRARY_PATH");
    EXPECT_EQ(value({}, "AXLE_LIBRARY_PATH"), before == nullptr ? "unset" : before);
    EXPECT_EQ(value({"--env", "AXLE_LIBRARY_PATH=/mine"}, "AXLE_LIBRARY_PATH"), "/mine");
}

// Covers 26.launch, 27.ACCELERATE_FP8_BACKEND, 28.fp8_config.
TEST_F(AxleLaunchStart, PassesTheFp8RecipeThroughTheEnvironment) {
    const std::string config = write("config.yaml",
                                     "distributed_type: MULTI_CPU\nnum_processes: 1\n"
                                     "fp8_config:\n  backend: TE\n  fp8_margin: 2\n");
    EXPECT_EQ(value({"--config_file", config}, "ACCELERATE_FP8_BACKEND"), "TE");
    EXPECT_EQ(value({"--config_file", config}, "ACCELERATE_FP8_MARGIN"), "2");
    const Arguments flags = {"--config_file",     config,
                             "--fp8_backend",     "AO",
                             "--fp8_format=E4M3", "--fp8_use_autocast_during_eval"};
    EXPECT_EQ(value(flags, "ACCELERATE_FP8_BACKEND"), "AO");
    EXPECT_EQ(value(flags, "ACCELERATE_FP8_MARGIN"), "2");
    EXPECT_EQ(value(flags, "ACCELERATE_FP8_FORMAT"), "E4M3");
    EXPECT_EQ(value(flags, "ACCELERATE_FP8_USE_AUTOCAST_DURING_EVAL"), "true");
    EXPECT_EQ(value({}, "ACCELERATE_FP8_USE_AUTOCAST_DURING_EVAL"), "unset");
}

// The names are from Accelerate's documentation, at least one from each group.
// Covers 26.launch.
TEST_F(AxleLaunchStart, AcceptsSupportedAndRejectsUnsupportedFlagsOfAccelerate) {
    const Ended ended = launch({"--quiet",
                                "--cpu",
                                "--debug",
                                "--same_network",
                                "--enable_cpu_affinity",
                                "--downcast_bf16",
                                "--dynamo_use_fullgraph",
                                "--dynamo_use_dynamic",
                                "--dynamo_use_regional_compilation",
                                "--fp8_use_autocast_during_eval",
                                "--num_processes=1",
                                "--num_machines=1",
                                "--machine_rank=0",
                                "--main_process_ip=127.0.0.1",
                                "--main_process_port=0",
                                "--gpu_ids=all",
                                "--num_cpu_threads_per_process=1",
                                "--mixed_precision=no",
                                "--rdzv_backend=static",
                                "--rdzv_conf=a=b",
                                "--max_restarts=0",
                                "--monitor_interval=0.1",
                                "--role=default",
                                "--tee=0",
                                "--main_training_function=main",
                                "--dynamo_backend=no",
                                "--dynamo_mode=default",
                                "--gradient_accumulation_steps=1",
                                "--gradient_clipping=1.0",
                                "--zero_stage=2",
                                "--deepspeed_config_file=none",
                                "--offload_optimizer_device=none",
                                "--zero3_init_flag=false",
                                "--fsdp_version=2",
                                "--fsdp_sharding_strategy=FULL_SHARD",
                                "--fsdp_auto_wrap_policy=NO_WRAP",
                                "--fsdp_state_dict_type=FULL_STATE_DICT",
                                "--megatron_lm_tp_degree=1",
                                "--megatron_lm_gradient_clipping=1.0",
                                "--parallelism_config_tp_size=1",
                                "--parallelism_config_cp_backend=torch",
                                "--fp8_backend=te",
                                "--fp8_format=HYBRID",
                                "--fp8_margin=0",
                                "--fp8_interval=1",
                                "--fp8_amax_history_len=1024",
                                "--fp8_amax_compute_algo=most_recent",
                                "--fp8_override_linear_precision=false,false,false",
                                "--fp8_opt_level=O2",
                                "--fp8_pad_inner_dim=true",
                                "--fp8_enable_fsdp_float8_all_gather=true"},
                               "exit 0");
    EXPECT_EQ(ended.code, 0) << ended.text();
    for (const char* refused : {"--tpu", "--tpu_cluster", "--tpu_use_sudo", "--vm=a",
                                "--aws_access_key_id=a", "--aws_secret_access_key=a"}) {
        const std::string name = std::string(refused).substr(0, std::string(refused).find('='));
        expect_code(2, {refused}, name + " is not supported: ");
        EXPECT_THAT(launch({refused}, "exit 0").text(), Not(HasSubstr("did you mean")));
    }
}

// Without --use_deepspeed, flags of DeepSpeed have no effect.
// Covers 26.launch.
TEST_F(AxleLaunchStart, ReportsFlagsOfDeepSpeedThatHaveNoEffect) {
    const Ended ended = launch({"--num_processes", "1", "--gradient_clipping", "1.0"}, "exit 0");
    EXPECT_EQ(ended.code, 0);
    EXPECT_THAT(ended.text(), HasSubstr("these flags have no effect: --gradient_clipping\n"));
}

// Covers 26.launch, 28.fp8_config.
TEST_F(AxleLaunchStart, PassesFp8PrecisionOverridesThroughTheEnvironmentAndRequiresThreeValues) {
    const auto overrides = [&](const Arguments& flags) {
        std::string all;
        for (const char* product : {"FPROP", "DGRAD", "WGRAD"})
            all += value(flags, str("ACCELERATE_FP8_OVERRIDE_", product)) + " ";
        return all;
    };
    const std::string config = write("config.yaml",
                                     "distributed_type: MULTI_CPU\nnum_processes: 1\n"
                                     "fp8_config:\n  override_linear_precision:\n"
                                     "  - false\n  - false\n  - true\n");
    EXPECT_EQ(overrides({"--config_file", config}), "false false true ");
    EXPECT_EQ(overrides({"--config_file", config, "--fp8_override_linear_precision", "1,0,0"}),
              "1 0 0 ");
    EXPECT_EQ(overrides({}), "unset unset unset ");
    expect_code(1, {"--fp8_override_linear_precision", "true"}, "three values");
}

}  // namespace
}  // namespace axle
