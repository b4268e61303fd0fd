// Tests `axle launch` on several machines. Each machine is a launcher on this machine.
#include <csignal>
#include <map>
#include <string>
#include <vector>

#include "accel/state/checkpoint.h"
#include "accel/state/checkpoint_folder.h"
#include "gmock/gmock.h"
#include "tests/dist/launch/launched.h"
#include "tests/free_port.h"
#include "tests/tools/axle_launch.h"

namespace axle {
namespace {

using namespace tests;  // NOLINT: the test helpers of this folder
using testing::HasSubstr;
using testing::Not;

class AxleLaunchOnMachines : public AxleLaunch {
  protected:
    void SetUp() override {
        AxleLaunch::SetUp();
        setenv("AXLE_JOB_TOKEN", "0123456789abcdef", 1);
        program_ = "/bin/sh";
        write_words(folder_ / "text.txt");
    }
    void TearDown() override {
        unsetenv("AXLE_JOB_TOKEN");
        for (const auto& [machine, pid] : running_) kill(pid, SIGKILL), finish(pid);
    }

    // Starts the launcher of one of three machines. Its output is in the file out<machine>.
    void start_machine(int machine, const std::string& flags, const std::string& command) {
        const std::string number = std::to_string(machine);
        running_[machine] = start({"-c", "exec " AXLE_BIN_DIR
                                         "/axle launch --cpu --num_machines 3 --num_processes 3 "
                                         "--machine_rank " +
                                             number +
                                             " --main_process_ip 127.0.0.1 "
                                             "--main_process_port " +
                                             std::to_string(port_) + " " + flags + " " + command +
                                             " >" + (folder_ / "out") + number + " 2>&1"});
    }
    void start_all(const std::string& flags, const std::string& command) {
        for (const int machine : {0, 1, 2}) start_machine(machine, flags, command);
    }
    int end(int machine) {
        const pid_t pid = running_.at(machine);
        running_.erase(machine);
        return finish(pid).code;
    }
    std::string output(int machine) { return read_file(folder_ / "out" + std::to_string(machine)); }
    // Returns a program that prints its rank and port, writes its process id to the file
    // pid<rank>, and waits for 60 s. After a restart, it does not wait.
    std::string until_restart() {
        return "sh -c 'echo $RANK of $WORLD_SIZE at $MASTER_PORT; echo $$ >" + (folder_ / "pid") +
               "$RANK; test $AXLE_RESTART_COUNT != 0 || sleep 60'";
    }
    // Returns the command of a run with 24 samples per update on three machines.
    std::string train(const std::string& out) {
        return AXLE_BIN_DIR
               "/train_gpt --preset tiny --threads 1 --batch-size 4 "
               "--gradient-accumulation-steps 2 --steps 300 --save-every 20 --resume auto --data " +
               (folder_ / "text.txt") + " --out " + (folder_ / out);
    }

    const int port_ = free_port();
    std::map<int, pid_t> running_;  // launchers by machine
};

TEST_F(AxleLaunchOnMachines, RestartsOnTheRemainingMachines) {
    start_all("--min_nodes 2 --max_restarts 1", until_restart());
    for (const char* rank : {"0", "1", "2"}) wait_for_pid(folder_ / "pid" + rank);
    kill(running_.at(1), SIGKILL);
    EXPECT_EQ(end(1), -SIGKILL);
    for (const int machine : {0, 2}) EXPECT_EQ(end(machine), 0) << output(machine);
    EXPECT_THAT(output(0), HasSubstr("\n0 of 2 at "));
    EXPECT_THAT(output(2), HasSubstr("\n1 of 2 at "));
    EXPECT_THAT(output(0), HasSubstr("axle launch: restarting on 2 of 3 machines without machine "
                                     "1 (restart 1 of 1)\n"));
    // The launchers use the given port, and rank 0 uses another port.
    EXPECT_THAT(output(2), Not(HasSubstr("at " + std::to_string(port_) + "\n")));
}

TEST_F(AxleLaunchOnMachines, EndsWithAnErrorIfTooFewMachinesRemain) {
    start_all("--min_nodes 3 --max_restarts 1 --join_timeout 1.5", until_restart());
    for (const char* rank : {"0", "1", "2"}) wait_for_pid(folder_ / "pid" + rank);
    kill(running_.at(1), SIGKILL);
    for (const int machine : {0, 2}) {
        EXPECT_EQ(end(machine), 1);
        EXPECT_THAT(output(machine),
                    HasSubstr("axle launch: 2 of the 3 machines of the job are left, and at least "
                              "3 are needed: machine 1 did not join within 1.5 s\n"));
    }
}

TEST_F(AxleLaunchOnMachines, ContinuesTrainingWithTheSameGlobalBatchOnFewerMachines) {
    if (!fs::exists(AXLE_BIN_DIR "/train_gpt")) GTEST_SKIP() << "train_gpt was not built";
    start_all("", train("whole"));
    for (const int machine : {0, 1, 2}) ASSERT_EQ(end(machine), 0) << output(machine);

    start_all("--min_nodes 2 --max_restarts 1", train("cut"));
    ASSERT_TRUE(comes_true([&] { return has_checkpoint("cut"); }));
    kill(running_.at(1), SIGKILL);
    for (const int machine : {0, 2}) ASSERT_EQ(end(machine), 0) << output(machine);
    EXPECT_THAT(output(0), HasSubstr("restarting on 2 of 3 machines"));

    const auto latest = accel::latest_checkpoint(folder_ / "cut/checkpoints");
    ASSERT_TRUE(latest.has_value());
    EXPECT_EQ(accel::checkpoint_label(*latest).identity["batch"].string(), "24");
    EXPECT_EQ(accel::checkpoint_label(*latest).iteration, 300);
    const std::vector<json> cut = metrics("cut"), whole = metrics("whole");
    ASSERT_EQ(cut.size(), 300u);
    ASSERT_EQ(whole.size(), 300u);
    for (std::size_t i = 0; i < cut.size(); ++i) {
        EXPECT_EQ(cut[i]["step"], whole[i]["step"]);
        EXPECT_EQ(cut[i]["epoch"], whole[i]["epoch"]);  // depends on the number of samples
        EXPECT_NEAR(cut[i]["loss"], whole[i]["loss"], 1e-3) << "step " << i;
    }
}

TEST_F(AxleLaunchOnMachines, ReportsAGlobalBatchThatCannotBeDivided) {
    if (!fs::exists(AXLE_BIN_DIR "/train_gpt")) GTEST_SKIP() << "train_gpt was not built";
    setenv("AXLE_FULL_WORLD_SIZE", "3", 1);
    const Ended ended = finish(start(
        {"-c", "exec " AXLE_BIN_DIR "/axle launch --quiet --cpu --num_processes 2 " AXLE_BIN_DIR
               "/train_gpt --preset tiny --data " +
                   (folder_ / "text.txt") + " --out " + (folder_ / "run") + " --batch-size 4"}));
    unsetenv("AXLE_FULL_WORLD_SIZE");
    EXPECT_EQ(ended.code, 1);
    EXPECT_THAT(ended.text(),
                HasSubstr("the global batch of 12 samples (3 processes x batch size 4 x 1 "
                          "accumulation steps) cannot be divided among 2 processes: use a multiple "
                          "of 2 for gradient_accumulation_steps"));
}

TEST_F(AxleLaunchOnMachines, RejectsInvalidMinNodes) {
    program_ = AXLE_BIN_DIR "/axle";
    const Arguments two = {"--num_machines", "2", "--num_processes",   "2",
                           "--machine_rank", "0", "--main_process_ip", "127.0.0.1"};
    const auto with_two = [&](Arguments more) {
        more.insert(more.begin(), two.begin(), two.end());
        return more;
    };
    expect_code(1, with_two({"--min_nodes", "3"}), "--min_nodes must not exceed --num_machines");
    expect_code(1, with_two({"--min_nodes", "1"}), "--max_restarts must be at least 1");
    expect_code(1, with_two({"--min_nodes", "2", "--mpirun_hostfile", "hosts"}), "mpirun");
    expect_code(2, with_two({"--min_nodes", "0"}), "min_nodes");
}

}  // namespace
}  // namespace axle
