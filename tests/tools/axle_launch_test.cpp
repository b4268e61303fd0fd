// Tests the program `axle launch`, with shell scripts as launched programs.
#include "tests/tools/axle_launch.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include <arpa/inet.h>
#include <sys/socket.h>

#include "dist/environment/machine.h"
#include "gmock/gmock.h"
#include "tests/dist/launch/launched.h"
#include "tests/free_port.h"
#include "tools/axle/flags/foreign_flags.h"
#include "tools/axle/launch_plan.h"
#include "tools/axle/mpirun.h"

namespace axle {
namespace {

using namespace tests;  // NOLINT: the test helpers of this folder
using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::UnorderedElementsAre;

// Covers 26.launch.
TEST_F(AxleLaunch, StartsTheProgramOncePerProcess) {
    EXPECT_THAT(values({"--num_processes", "3"}, "WORLD_SIZE"), ElementsAre("0 3", "1 3", "2 3"));
    EXPECT_THAT(values({"--num-processes=2"}, "LOCAL_RANK"), ElementsAre("0 0", "1 1"));
    EXPECT_THAT(values({}, "LOCAL_WORLD_SIZE"), Contains(testing::StartsWith("0 ")));
}

TEST_F(AxleLaunch, PassesArgumentsUnchanged) {
    const pid_t child = start(with({"--num_processes", "1"}, {"printf", "%s|", "--num-processes",
                                                              "a b", "", "$HOME", "--", "*"}));
    const Ended ended = finish(child);
    ASSERT_EQ(ended.code, 0) << ended.text();
    EXPECT_EQ(read_file(stdout_of(child)), "--num-processes|a b||$HOME|--|*|");
    EXPECT_EQ(run(with({"--num_processes", "1", "--"}, {"sh", "-c", "exit 3"})).code, 3);
}

// Covers 32.multi-node.
TEST_F(AxleLaunch, ExplainsSeveralMachinesInHelp) {
    const pid_t child = start({"launch", "--help"});
    EXPECT_EQ(finish(child).code, 0);
    EXPECT_THAT(read_file(stdout_of(child)),
                AllOf(HasSubstr("command on each machine"),
                      HasSubstr("the same address, program, data and token"),
                      HasSubstr("--main_process_ip 10.0.0.1")));
}

TEST_F(AxleLaunch, ExitsWithTheCodeOfAFailureAndPrintsTheFailureAsJson) {
    const Ended ended = launch({"--num_processes", "2"}, "if test $RANK = 1; then exit 7; fi");
    EXPECT_EQ(ended.code, 7);
    ASSERT_FALSE(ended.err.empty());
    const json last = json::parse(ended.err.back());
    EXPECT_EQ(last["rank"], 1);
    EXPECT_EQ(last["exit_code"], 7);
    EXPECT_EQ(launch({"--num_processes", "2"}, "kill -9 $$").code, 128 + 9);
}

TEST_F(AxleLaunch, PrintsNothingWithQuiet) {
    const Ended ended = launch({"--quiet"}, "exit 7");
    EXPECT_EQ(ended.code, 7);
    EXPECT_THAT(ended.err, IsEmpty());
}

TEST_F(AxleLaunch, RejectsMisspelledFlagsAndInvalidValues) {
    expect_code(2, {"--num_proceses", "2"}, "did you mean --num_processes?");
    expect_code(2, {"--mixed-precison=bf16"}, "did you mean --mixed_precision?");
    expect_code(2, {"-x"}, "-x");
    expect_code(2, {"--num_processes", "none"}, "num_processes");
    expect_code(2, {"--num_processes", "0"}, "num_processes");
    EXPECT_EQ(run({"launch"}).code, 2);
    EXPECT_EQ(run({"launch", "--num_processes"}).code, 2);
}

// Covers 26.launch.
TEST_F(AxleLaunch, RejectsUnsupportedFlagsAndReportsFlagsWithoutEffect) {
    for (const launcher::RefusedFlag& flag : launcher::refused_flags()) {
        Arguments flags = {str("--", flag.name)};
        if (flag.takes_value) flags.emplace_back("1");
        expect_code(2, flags, flag.instead);
    }
    Arguments all;
    for (const launcher::ForeignFlag& flag : launcher::flags_without_effect()) {
        all.push_back(str("--", flag.name));
        if (flag.takes_value) all.emplace_back("1");
    }
    const Ended ended = launch(all, "echo started");
    EXPECT_EQ(ended.code, 0) << ended.text();
    EXPECT_THAT(ended.out, ElementsAre("started"));
    EXPECT_THAT(ended.text(), HasSubstr("--megatron_lm_attention_backend"));
    EXPECT_EQ(launch({"--same_network", "--rdzv_backend", "c10d", "--rdzv_conf", "a=b", "--role",
                      "worker", "--dynamo_mode", "max-autotune"},
                     "exit 0")
                  .code,
              0);
}

// Covers 26.launch.
TEST_F(AxleLaunch, RejectsConflictingAndInvalidFlags) {
    expect_code(1, {"--multi_gpu", "--num_processes", "1"}, "two processes");
    expect_code(1, {"--multi_gpu", "--cpu", "--num_processes", "2"}, "--cpu");
    expect_code(1, {"--multi_gpu", "--gpu_ids", "1", "--num_processes", "2"}, "gpu_ids");
    expect_code(1, {"--gpu_ids", "0;1", "--num_processes", "2"}, "gpu_ids");
    expect_code(1, {"--module", "--no_python"}, "--no_python");
    expect_code(2, {"--mixed_precision", "fp4"}, "bf16");
    expect_code(2, {"--env", "NAME"}, "NAME=VALUE");
    expect_code(1, {"--env", "A=b\nc"}, "line end");
}

// Covers 27.ACCELERATE_MIXED_PRECISION, 27.ACCELERATE_GRADIENT_ACCUMULATION_STEPS,
// 27.ACCELERATE_USE_CPU, 27.ACCELERATE_DYNAMO_BACKEND, 27.OMP_NUM_THREADS,
// 27.ACCELERATE_CPU_AFFINITY, 27.CUDA_VISIBLE_DEVICES, 27.ACCELERATE_DEBUG_MODE.
TEST_F(AxleLaunch, PassesOptionsThroughTheEnvironment) {
    EXPECT_EQ(value({"--mixed_precision", "bf16"}, "ACCELERATE_MIXED_PRECISION"), "bf16");
    EXPECT_EQ(value({"--mixed_precision", "fp8"}, "ACCELERATE_MIXED_PRECISION"), "fp8");
    EXPECT_EQ(value({}, "ACCELERATE_MIXED_PRECISION"), "no");
    EXPECT_EQ(value({"--cpu"}, "ACCELERATE_USE_CPU"), "true");
    EXPECT_EQ(value({}, "ACCELERATE_USE_CPU"), "false");
    EXPECT_EQ(value({"--debug"}, "ACCELERATE_DEBUG_MODE"), "true");
    EXPECT_EQ(value({}, "ACCELERATE_DEBUG_MODE"), "unset");
    EXPECT_EQ(value({"--gpu_ids", "1,3", "--num_processes", "2"}, "CUDA_VISIBLE_DEVICES"), "1,3");
    EXPECT_EQ(
        value({"--gradient_accumulation_steps", "4"}, "ACCELERATE_GRADIENT_ACCUMULATION_STEPS"),
        "4");
    EXPECT_EQ(value({"--dynamo_backend", "inductor"}, "ACCELERATE_DYNAMO_BACKEND"), "INDUCTOR");
    EXPECT_EQ(value({"--num_cpu_threads_per_process", "3"}, "AXLE_NUM_THREADS"), "3");
    EXPECT_EQ(value({"--num_cpu_threads_per_process", "3"}, "OMP_NUM_THREADS"), "3");
    EXPECT_NE(value({}, "AXLE_NUM_THREADS"), "unset");
    EXPECT_EQ(value({"--env", "MINE=a=b", "--env", "OTHER=c"}, "MINE"), "a=b");
    EXPECT_EQ(value({"--enable_cpu_affinity", "--cpu"}, "ACCELERATE_CPU_AFFINITY"), "1");
    setenv("OMP_NUM_THREADS", "5", 1);
    EXPECT_EQ(value({}, "AXLE_NUM_THREADS"), "5");
    EXPECT_EQ(value({}, "OMP_NUM_THREADS"), "5");
}

// Covers 6.OMP.
TEST_F(AxleLaunch, DividesCoresAmongProcessesByDefault) {
    const std::string half =
        std::to_string(std::max<std::size_t>(1, dist::physical_cores().size() / 2));
    for (const char* name : {"OMP_NUM_THREADS", "AXLE_NUM_THREADS"})
        EXPECT_THAT(values({"--cpu", "--num_processes", "2"}, name),
                    ElementsAre("0 " + half, "1 " + half));
}

// Parses a list such as "0-2,5".
std::set<int> cpus_in(const std::string& list) {
    std::set<int> cpus;
    std::istringstream in(list);
    for (int first = 0; in >> first; in.ignore()) {
        int last = first;
        if (in.peek() == '-') in.ignore() >> last;
        while (first <= last) cpus.insert(first++);
    }
    return cpus;
}

// Covers 6.set.
TEST_F(AxleLaunch, BindsEachProcessToItsCores) {
    if (dist::physical_cores().size() < 2) GTEST_SKIP() << "there is one core";
    const Ended ended = launch({"--cpu", "--num_processes", "2", "--enable_cpu_affinity"},
                               "sed -n 's/Cpus_allowed_list:[[:space:]]*//p' /proc/self/status");
    ASSERT_EQ(ended.code, 0) << ended.text();
    ASSERT_EQ(ended.out.size(), 2u);
    const std::set<int> one = cpus_in(ended.out[0]), other = cpus_in(ended.out[1]);
    EXPECT_THAT(one, Not(IsEmpty()));
    EXPECT_THAT(other, Not(IsEmpty()));
    for (const int cpu : one) EXPECT_FALSE(other.contains(cpu)) << cpu;
}

// Covers 26.launch.
TEST_F(AxleLaunch, ListsDefaultsThatWereUsed) {
    const std::string text = launch({}, "exit 0").text();
    for (const char* flag : {"num_processes", "num_machines", "mixed_precision", "dynamo_backend"})
        EXPECT_THAT(text, HasSubstr(flag));
    const Ended given = launch({"--num_processes", "1", "--num_machines", "1", "--mixed_precision",
                                "no", "--dynamo_backend", "no"},
                               "exit 0");
    EXPECT_THAT(given.err, IsEmpty());
}

// Covers 26.launch, 28.dynamo_config.
TEST_F(AxleLaunch, ReadsTheConfigurationAndPrefersFlagsToIt) {
    const std::string config = write("config.yaml",
                                     "compute_environment: LOCAL_MACHINE\n"
                                     "distributed_type: MULTI_CPU\nuse_cpu: true\n"
                                     "num_processes: 2\nmixed_precision: bf16\n"
                                     "dynamo_config:\n  dynamo_backend: inductor\n");
    EXPECT_THAT(values({"--config_file", config}, "ACCELERATE_MIXED_PRECISION"),
                ElementsAre("0 bf16", "1 bf16"));
    EXPECT_EQ(value({"--config_file", config}, "ACCELERATE_DYNAMO_BACKEND"), "INDUCTOR");
    EXPECT_EQ(value({"--config_file", config}, "ACCELERATE_USE_CPU"), "true");
    EXPECT_THAT(values({"--config_file", config, "--num_processes", "1", "--mixed_precision", "no"},
                       "ACCELERATE_MIXED_PRECISION"),
                ElementsAre("0 no"));
    EXPECT_THAT(launch({"--config_file", config}, "exit 0").err, IsEmpty());
    fs::create_directories(folder_ / "home/accelerate");
    fs::copy_file(config, folder_ / "home/accelerate/default_config.yaml");
    EXPECT_THAT(values({}, "ACCELERATE_MIXED_PRECISION"), ElementsAre("0 bf16", "1 bf16"));
}

// Covers 26.launch, 28.num_processes.
TEST_F(AxleLaunch, RejectsUnsupportedAndInvalidConfigurations) {
    const std::string xla = write("config.yaml", "distributed_type: XLA\nnum_processes: 2\n");
    expect_code(2, {"--config_file", xla}, "XLA");
    const std::string config =
        write("config.yaml", "distributed_type: MULTI_CPU\nnum_processes: -1\n");
    expect_code(1, {"--config_file", config}, "--num_processes");
}

TEST_F(AxleLaunch, DividesProcessesAmongMachinesAndRejectsInvalidOptions) {
    const std::string token = write("token", "0123456789abcdef0123456789abcdef\n");
    fs::permissions(token, fs::perms::owner_read);
    const int port = free_port();
    const auto machine = [&](const std::string& rank) -> Arguments {
        return {"--num_machines",      "2",
                "--num_processes",     "4",
                "--machine_rank",      rank,
                "--main_process_ip",   "127.0.0.1",
                "--main_process_port", std::to_string(port),
                "--token_file",        token};
    };
    const std::string script = "echo $RANK $LOCAL_RANK $GROUP_RANK $AXLE_JOB_TOKEN $MASTER_PORT >" +
                               (folder_ / "rank") + "$RANK";
    const pid_t other = start(with(machine("1"), {"sh", "-c", script}));
    const Ended ended = launch(machine("0"), script);
    EXPECT_EQ(ended.code, 0) << ended.text();
    EXPECT_EQ(finish(other).code, 0);
    std::set<std::string> ports;
    for (int rank = 0; rank < 4; ++rank) {
        std::istringstream line(read_file(folder_ / "rank" + std::to_string(rank)));
        int number = -1, local = -1, group = -1;
        std::string secret, port_of_rank_0;
        line >> number >> local >> group >> secret >> port_of_rank_0;
        EXPECT_EQ(number, rank);
        EXPECT_EQ(local, rank % 2);
        EXPECT_EQ(group, rank / 2);
        EXPECT_EQ(secret, "0123456789abcdef0123456789abcdef");
        ports.insert(port_of_rank_0);
    }
    EXPECT_EQ(ports.size(), 1u);

    fs::permissions(token, fs::perms::owner_read | fs::perms::group_read);
    expect_code(1, machine("0"), "mode 600");
    const Arguments two = {"--num_machines", "2", "--num_processes", "2"};
    const auto more = [&](Arguments flags) {
        flags.insert(flags.begin(), two.begin(), two.end());
        return flags;
    };
    expect_code(1, two, "--machine_rank");
    expect_code(1, more({"--machine_rank", "2"}), "must be from 0 to 1");
    expect_code(1, more({"--machine_rank", "0"}), "--main_process_ip");
    expect_code(1, more({"--machine_rank", "0", "--num_processes", "3"}), "evenly");
    expect_code(2, more({"--machine_rank", "0", "--main_process_ip", "10.0.0.1"}), "--token_file");
    expect_code(
        1,
        more({"--machine_rank", "0", "--main_process_ip", "10.0.0.1", "--main_process_port", "0"}),
        "--main_process_port");
}

// Covers 26.launch.
TEST_F(AxleLaunch, UsesAnotherPortOrFailsOnSeveralMachinesIfTheGivenPortIsInUse) {
    const int server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    ASSERT_EQ(bind(server, reinterpret_cast<sockaddr*>(&address), size), 0);
    ASSERT_EQ(listen(server, 1), 0);
    ASSERT_EQ(getsockname(server, reinterpret_cast<sockaddr*>(&address), &size), 0);
    const std::string port = std::to_string(ntohs(address.sin_port));
    EXPECT_NE(value({"--main_process_port", port}, "MASTER_PORT"), port);
    EXPECT_THAT(launch({"--main_process_port", port}, "exit 0").text(), HasSubstr("in use"));
    setenv("AXLE_JOB_TOKEN", "0123456789abcdef", 1);
    expect_code(1,
                {"--main_process_port", port, "--num_machines", "2", "--num_processes", "2",
                 "--machine_rank", "0", "--main_process_ip", "127.0.0.1"},
                port);
    close(server);
    EXPECT_EQ(value({"--main_process_port", port}, "MASTER_PORT"), port);
}

TEST_F(AxleLaunch, RestartsWithANewTokenAndRestartCount) {
    const Ended ended =
        launch({"--num_processes", "1", "--max_restarts", "2"},
               "echo $AXLE_RESTART_COUNT $AXLE_JOB_TOKEN; test $AXLE_RESTART_COUNT = 2");
    EXPECT_EQ(ended.code, 0) << ended.text();
    ASSERT_EQ(ended.out.size(), 3u);
    for (int i = 0; i < 3; ++i) EXPECT_EQ(ended.out[static_cast<std::size_t>(i)][0], '0' + i);
    EXPECT_NE(ended.out[0].substr(1), ended.out[1].substr(1));
}

TEST_F(AxleLaunch, WritesLogsAndShowsThem) {
    const Ended ended =
        launch({"--num_processes", "2", "--log_dir", folder_ / "logs", "--tee", "1"},
               "echo line of $RANK");
    EXPECT_THAT(ended.out, UnorderedElementsAre("[rank 0] line of 0", "[rank 1] line of 1"));
    EXPECT_EQ(read_file(folder_ / "logs/0/1/stdout.log"), "line of 1\n");
}

TEST_F(AxleLaunch, RunsPythonScriptsAndModules) {
    fs::create_directories(folder_ / "bin");
    write("bin/python3", "#!/bin/sh\necho python3 \"$@\"\n");
    const std::string path = std::getenv("PATH");
    setenv("PATH", (folder_ / "bin:" + path).c_str(), 1);
    const std::string script = write("train.py", "#!/bin/sh\necho itself \"$@\"\n");
    const auto output_of = [&](const Arguments& flags, const Arguments& program) {
        return run(with(flags, program)).out;
    };
    EXPECT_THAT(output_of({}, {script, "--lr"}), ElementsAre("python3 " + script + " --lr"));
    EXPECT_THAT(output_of({"--no_python"}, {script, "1"}), ElementsAre("itself 1"));
    EXPECT_THAT(output_of({"-m"}, {"my.module", "2"}), ElementsAre("python3 -m my.module 2"));
    setenv("PATH", path.c_str(), 1);
}

TEST_F(AxleLaunch, LeavesNoProcessesWhenItIsKilled) {
    const pid_t launcher =
        start(with({"--num_processes", "2"},
                   {"sh", "-c", "sleep 60 & echo $! > " + (folder_ / "sleeper") + "$RANK; wait"}));
    const pid_t pids[] = {wait_for_pid(folder_ / "sleeper0"), wait_for_pid(folder_ / "sleeper1")};
    for (const pid_t pid : pids) ASSERT_TRUE(is_running(pid));
    kill(launcher, SIGKILL);
    finish(launcher);
    for (const pid_t pid : pids) EXPECT_TRUE(comes_true([&] { return !is_running(pid); }));
}

TEST_F(AxleLaunch, BuildsTheArgumentsOfMpirun) {
    launcher::LaunchPlan plan;
    plan.num_machines = 2, plan.processes_here = 3;
    plan.mpirun_hostfile = "hosts";
    plan.command = {"./train", "--lr"};
    plan.environment = {{"ACCELERATE_USE_CPU", "true"}};
    const auto open = launcher::mpirun_arguments(plan, "mpirun", launcher::Mpi::open_mpi);
    EXPECT_THAT(open, AllOf(Contains("--hostfile"), Contains("--npernode"), Contains("6"),
                            Contains("3"), Contains("AXLE_JOB_TOKEN")));
    EXPECT_THAT(str(testing::PrintToString(open)), Not(HasSubstr("AXLE_JOB_TOKEN=")));
    EXPECT_THAT(launcher::mpirun_arguments(plan, "mpiexec", launcher::Mpi::other),
                ElementsAre("mpiexec", "-f", "hosts", "-ppn", "3", "-n", "6", "env", "-u",
                            "AXLE_LAUNCHER_FD", "./train", "--lr"));
}

TEST_F(AxleLaunch, StartsProcessesWithMpirun) {
    if (std::system("mpirun --version > /dev/null 2>&1") != 0) GTEST_SKIP() << "there is no mpirun";
    const std::string hosts = write("hosts", "localhost slots=2\n");
    const Ended ended = launch({"--cpu", "--num_processes", "2", "--mpirun_hostfile", hosts},
                               "echo ${OMPI_COMM_WORLD_RANK-$PMI_RANK} $ACCELERATE_USE_CPU "
                               "${MASTER_PORT:+port} ${AXLE_JOB_TOKEN:+token} "
                               "${AXLE_LAUNCHER_FD-none}");
    EXPECT_EQ(ended.code, 0) << ended.text();
    EXPECT_THAT(ended.out,
                UnorderedElementsAre("0 true port token none", "1 true port token none"));
}

}  // namespace
}  // namespace axle
