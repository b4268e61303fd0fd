// Tests the options of DeepSpeed in `axle launch` and `axle config`.
#include <algorithm>
#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "tests/close.h"
#include "tests/free_port.h"
#include "tests/tools/axle_launch.h"
#include "tools/axle/flags/deepspeed_flags.h"
#include "tools/axle/questionnaire.h"

namespace axle {
namespace {

using namespace tests;  // NOLINT: the test helpers of this folder
using launcher::deepspeed_variables;
using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;
using testing::UnorderedElementsAre;

class AxleDeepSpeed : public AxleLaunch {};

// Covers 26.launch, 27.ACCELERATE_USE_FSDP, 28.deepspeed_config, 15.zero_stage.
TEST(DeepSpeedVariables, AreSetFromFlagsAndTheConfiguration) {
    const Tree section = {{"zero_stage", 3},
                          {"gradient_clipping", 0.5},
                          {"offload_param_device", "CPU"},
                          {"offload_param_nvme_path", "none"},
                          {"zero3_init_flag", true},
                          {"gradient_accumulation_steps", 4},
                          {"deepspeed_hostfile", "hosts"}};
    EXPECT_THAT(deepspeed_variables({{"zero_stage", "2"}, {"zero3_save_16bit_model", "True"}},
                                    section, true),
                ElementsAre(Pair("ACCELERATE_CONFIG_DS_FIELDS",
                                 "zero_stage,gradient_clipping,offload_param_device,"
                                 "offload_param_nvme_path,zero3_init_flag,"
                                 "gradient_accumulation_steps,deepspeed_hostfile,mixed_precision"),
                            Pair("ACCELERATE_DEEPSPEED_OFFLOAD_PARAM_DEVICE", "cpu"),
                            Pair("ACCELERATE_DEEPSPEED_OFFLOAD_PARAM_NVME_PATH", "none"),
                            Pair("ACCELERATE_DEEPSPEED_ZERO3_INIT", "true"),
                            Pair("ACCELERATE_DEEPSPEED_ZERO3_SAVE_16BIT_MODEL", "true"),
                            Pair("ACCELERATE_DEEPSPEED_ZERO_STAGE", "2"),
                            Pair("ACCELERATE_GRADIENT_ACCUMULATION_STEPS", "4"),
                            Pair("ACCELERATE_GRADIENT_CLIPPING", "0.5"),
                            Pair("ACCELERATE_USE_DEEPSPEED", "true")));
    EXPECT_THAT(deepspeed_variables({}, {}, false),
                ElementsAre(Pair("ACCELERATE_USE_DEEPSPEED", "true")));
}

// Covers 26.launch, 28.deepspeed_config.
TEST(DeepSpeedVariables, RejectInvalidValues) {
    const auto refused = [](const char* name, const char* value, const char* text) {
        expect_error<ValueError>({"launch: ", text}, [&] {
            deepspeed_variables({{name, value}}, {}, false);
        });
    };
    refused("zero_stage", "4", "zero_stage must be 0, 1, 2 or 3: '4'");
    refused("gradient_clipping", "-1",
            "gradient_clipping must be a number of at least 0, or none: '-1'");
    refused("offload_optimizer_device", "disk", "must be none, cpu or nvme: 'disk'");
    refused("zero3_init_flag", "maybe", "zero3_init_flag must be true or false: 'maybe'");
    refused("deepspeed_multinode_launcher", "ssh", "must be one of pdsh, standard, openmpi, ");
    expect_error<ValueError>(
        {"deepspeed_config: unknown key 'zero_stag'; did you mean zero_stage?"}, [] {
            deepspeed_variables({}, {{"zero_stag", 1}}, false);
        });
}

// Covers 26.launch, 28.deepspeed_config, 15.hf_ds_config.
TEST_F(AxleDeepSpeed, PassesOptionsThroughTheEnvironment) {
    const std::string config = write("config.yaml",
                                     "distributed_type: DEEPSPEED\nnum_processes: 1\n"
                                     "mixed_precision: bf16\n"
                                     "deepspeed_config:\n  zero_stage: 3\n"
                                     "  gradient_clipping: 1.0\n");
    EXPECT_EQ(value({"--config_file", config}, "ACCELERATE_DEEPSPEED_ZERO_STAGE"), "3");
    EXPECT_EQ(
        value({"--config_file", config, "--zero_stage", "1"}, "ACCELERATE_DEEPSPEED_ZERO_STAGE"),
        "1");
    EXPECT_EQ(value({"--config_file", config}, "ACCELERATE_USE_DEEPSPEED"), "true");
    EXPECT_EQ(value({"--config_file", config}, "ACCELERATE_CONFIG_DS_FIELDS"),
              "zero_stage,gradient_clipping,mixed_precision");
    const Arguments flags = {"--use_deepspeed", "--num_processes", "1", "--deepspeed_config_file",
                             "ds.json"};
    EXPECT_EQ(value(flags, "ACCELERATE_DEEPSPEED_CONFIG_FILE"), "ds.json");
    EXPECT_EQ(value({"--num_processes", "1"}, "ACCELERATE_USE_DEEPSPEED"), "unset");
    EXPECT_EQ(value({"--config_file", "none", "--num_processes", "1"}, "ACCELERATE_USE_DEEPSPEED"),
              "unset");
}

// Covers 26.launch.
TEST_F(AxleDeepSpeed, RejectsConflictingAndInvalidFlagsAndReportsUnusedFlags) {
    EXPECT_EQ(value({"--num_processes=1", "--use_deepspeed", "--cpu"}, "ACCELERATE_USE_CPU"),
              "true");
    expect_code(1, {"--use_deepspeed", "--multi_gpu"}, "cannot be combined with --multi_gpu");
    expect_code(1, {"--use_deepspeed", "--use_fsdp"}, "cannot be combined with --use_fsdp");
    expect_code(1, {"--use_deepspeed", "--zero_stage", "7"}, "zero_stage must be 0, 1, 2 or 3");
    const Ended ended = launch({"--num_processes", "1", "--zero_stage", "2"}, "exit 0");
    EXPECT_THAT(ended.text(), HasSubstr("these flags have no effect: --zero_stage"));
}

// Covers 15.multinode.
TEST_F(AxleDeepSpeed, ReportsTheMissingProgramOfALauncher) {
    const std::string hosts = write("hosts", "a slots=1\nb slots=1\n");
    const char* const path = std::getenv("PATH");
    const std::string before = path == nullptr ? "" : path;
    ::setenv("PATH", folder_.path().c_str(), 1);
    const Ended ended = run({"launch", "--use_deepspeed", "--deepspeed_hostfile", hosts,
                             "--deepspeed_multinode_launcher", "slurm", "/bin/true"});
    ::setenv("PATH", before.c_str(), 1);
    EXPECT_NE(ended.code, 0);
    EXPECT_THAT(ended.text(), HasSubstr("needs the program srun, which is not in PATH"));
}

// A stand-in for pdsh runs the commands of all machines on this machine.
// Covers 15.multinode, 26.launch.
TEST_F(AxleDeepSpeed, StartsTheProcessesOfAllMachinesWithPdsh) {
    const std::string token = write("token", "0123456789abcdef0123456789abcdef\n");
    fs::permissions(token, fs::perms::owner_read);
    const std::string hosts = write("hosts", "a slots=2\nb slots=2\nc slots=2\n");
    write(".deepspeed_env", "FROM_FILE=5%\n");
    write("pdsh",
          "#!/bin/bash\n[ $1 = -S ] && [ $5 = a,b ] && [ $PDSH_RCMD_TYPE = ssh ] || exit 9\n"
          "for n in 0 1; do\n"
          "  command=${6//%%/@}; command=${command//%n/$n}; sh -c \"${command//@/%}\" &\n"
          "done\nwait -n || exit 1; wait -n\n");
    const char* const path = std::getenv("PATH");
    const std::string before = path == nullptr ? "" : path;
    ::setenv("PATH", (folder_.path() + ":" + before).c_str(), 1);
    ::setenv("DS_ENV_FILE", (folder_ / ".deepspeed_env").c_str(), 1);
    const Ended ended =
        launch({"--use_deepspeed", "--deepspeed_hostfile", hosts, "--deepspeed_exclusion_filter",
                "c", "--token_file", token, "--main_process_ip", "127.0.0.1", "--main_process_port",
                std::to_string(free_port()), "--zero_stage", "1"},
               "echo $RANK $WORLD_SIZE $LOCAL_RANK $GROUP_RANK $FROM_FILE "
               "$ACCELERATE_DEEPSPEED_ZERO_STAGE \"$CUDA_VISIBLE_DEVICES\"");
    ::unsetenv("DS_ENV_FILE");
    ::setenv("PATH", before.c_str(), 1);
    EXPECT_EQ(ended.code, 0) << ended.text();
    EXPECT_THAT(ended.out, UnorderedElementsAre("0 4 0 0 5% 1 0,1", "1 4 1 0 5% 1 0,1",
                                                "2 4 0 1 5% 1 0,1", "3 4 1 1 5% 1 0,1"));
}

// Covers 15.multinode.
TEST_F(AxleDeepSpeed, StartsProcessesWithOpenMpi) {
    if (std::system("mpirun --version 2>/dev/null | grep -q 'Open MPI'") != 0)
        GTEST_SKIP() << "mpirun is not Open MPI";
    const std::string hosts = write("hosts", "localhost slots=2\n");
    const Ended ended = launch({"--use_deepspeed", "--deepspeed_hostfile", hosts,
                                "--deepspeed_multinode_launcher", "openmpi"},
                               "echo $OMPI_COMM_WORLD_RANK $ACCELERATE_USE_DEEPSPEED $MASTER_ADDR "
                               "$MASTER_PORT ${AXLE_JOB_TOKEN:+token} ${AXLE_LAUNCHER_FD-none}");
    EXPECT_EQ(ended.code, 0) << ended.text();
    EXPECT_THAT(ended.out, UnorderedElementsAre("0 true localhost 29500 token none",
                                                "1 true localhost 29500 token none"));
}

// With nossh, each machine runs its own `axle launch`, which uses the machine's slots in the
// hostfile.
// Covers 15.multinode.
TEST_F(AxleDeepSpeed, UsesTheSlotsOfThisMachineWithNossh) {
    const std::string hosts = write("hosts", "a slots=4\n");
    const Ended ended =
        launch({"--use_deepspeed", "--deepspeed_hostfile", hosts, "--deepspeed_inclusion_filter",
                "a:1,3", "--deepspeed_multinode_launcher", "nossh"},
               "echo $RANK $CUDA_VISIBLE_DEVICES");
    EXPECT_EQ(ended.code, 0) << ended.text();
    EXPECT_THAT(ended.out, UnorderedElementsAre("0 1,3", "1 1,3"));
}

launcher::ClusterConfig answer(const std::string& lines) {
    std::istringstream in(lines);
    std::ostringstream out;
    return launcher::ask_for_config(in, out, 4);
}

// Covers 26.config, 28.deepspeed_config.
TEST(Questionnaire, AsksForTheOptionsOfDeepSpeed) {
    const launcher::ClusterConfig three =
        answer("5\nno\n1\n4\nno\n4\n3\n/nvme\n2\n8\nyes\n0.5\nyes\nno\nyes\nMoe\nall\nno\n3\n");
    EXPECT_EQ(three.distributed_type, "DEEPSPEED");
    EXPECT_EQ(to_json(three.deepspeed_config, -1),
              to_json(Tree{{"zero_stage", 3},
                           {"offload_optimizer_device", "nvme"},
                           {"offload_optimizer_nvme_path", "/nvme"},
                           {"offload_param_device", "cpu"},
                           {"gradient_accumulation_steps", 8},
                           {"gradient_clipping", 0.5},
                           {"zero3_save_16bit_model", true},
                           {"zero3_init_flag", false},
                           {"deepspeed_moe_layer_cls_names", "Moe"}},
                      -1));
    EXPECT_EQ(three.mixed_precision, "bf16");
    const launcher::ClusterConfig file = answer(
        "5\nno\n2\n0\na\n29500\nyes\n8\nyes\nds.json\nno\nno\n1\nhosts\nyes\nb:0\nall\nno\n");
    EXPECT_EQ(to_json(file.deepspeed_config, -1),
              to_json(Tree{{"deepspeed_config_file", "ds.json"},
                           {"zero3_init_flag", false},
                           {"deepspeed_multinode_launcher", "pdsh"},
                           {"deepspeed_hostfile", "hosts"},
                           {"deepspeed_exclusion_filter", "b:0"}},
                      -1));
    EXPECT_FALSE(file.mixed_precision);
}

// Covers 26.config.
TEST_F(AxleDeepSpeed, WritesTheFlagsOfAxleConfigToTheFileAndRejectsFlagsOfFsdp) {
    const std::string path = folder_ / "c.yaml";
    const Ended ended =
        run({"config", "--config_file", path, "--num_processes", "2", "--zero_stage", "3",
             "--gradient_clipping", "0.5", "--zero3_init_flag", "false"});
    EXPECT_EQ(ended.code, 0) << ended.text();
    EXPECT_THAT(read_file(path), AllOf(HasSubstr("distributed_type: DEEPSPEED"),
                                       HasSubstr("deepspeed_config:\n  gradient_clipping: 0.5\n"
                                                 "  zero3_init_flag: false\n  zero_stage: 3\n")));
    EXPECT_EQ(
        run({"config", "--config_file", path, "--zero_stage", "1", "--fsdp_version", "2"}).code, 2);
}

}  // namespace
}  // namespace axle
