// Tests jobs on several machines. Each machine is a process with a launcher, and the programs are
// shell scripts.
#include "dist/launch/machines.h"

#include <chrono>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "dist/launch/launch.h"
#include "dist/launch/machine_messages.h"
#include "dist/transport/socket.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/error.h"
#include "tests/dist/launch/launched.h"
#include "tests/free_port.h"

namespace axle::dist {
namespace {

using namespace tests;  // NOLINT: the test helpers of this folder
using testing::ElementsAre;
using testing::HasSubstr;

class Launchers : public testing::Test {
  protected:
    ~Launchers() override {
        for (const auto& [machine, pid] : running_) kill(pid, SIGKILL), wait_for_process(pid);
    }

    MachinesOptions machine(int index) const {
        MachinesOptions options{.place = {.local_world_size = processes_,
                                          .node_rank = index,
                                          .num_nodes = num_machines_,
                                          .master_port = port_,
                                          .token = "the token of the job",
                                          .num_threads = 1},
                                .min_nodes = min_nodes_,
                                .join_timeout = join_timeout_,
                                .silence_timeout = silence_timeout_};
        options.on_change = [](const std::string& text) {
            dprintf(STDERR_FILENO, "%s\n", text.c_str());
        };
        return options;
    }
    // Starts the launcher of a machine. The launcher starts each process with `script`, a shell
    // script or the path of a program.
    void start(
        int index, const std::string& script,
        const std::function<void(MachinesOptions&)>& change = [](auto&) {}) {
        const std::string folder = folder_ / ("machine" + std::to_string(index));
        std::filesystem::create_directories(folder);
        running_[index] = start_process(folder, [=, this] {
            MachinesOptions options = machine(index);
            change(options);
            SuperviseOptions how;
            how.max_restarts = max_restarts_;
            how.patience = std::chrono::milliseconds(50);
            how.grace = std::chrono::seconds(5);
            how.on_failure = [](const JobFailure& failure) {
                dprintf(STDERR_FILENO, "%s\n", failure.text.c_str());
            };
            const auto commands = [&](const JobNode& node) {
                std::vector<Command> all;
                for (int i = 0; i < node.local_world_size; ++i) {
                    const std::string in_folder = "cd " + folder_.path() + "; " + script;
                    Command command{.arguments = {"sh", "-c", in_folder},
                                    .environment = environment_of(node, i)};
                    if (script.starts_with('/')) command.arguments = {script};
                    all.push_back(std::move(command));
                }
                return all;
            };
            return supervise_machines(options, commands, how);
        });
    }
    // Returns a script that writes its process id to the file pid<launch>.<rank>, and prints its
    // ranks and sizes.
    static std::string started() {
        return "echo $$ >pid$AXLE_RESTART_COUNT.$RANK.new; mv pid$AXLE_RESTART_COUNT.$RANK.new "
               "pid$AXLE_RESTART_COUNT.$RANK; echo $AXLE_RESTART_COUNT: $RANK of $WORLD_SIZE on "
               "$NODE_RANK of $GROUP_WORLD_SIZE, $AXLE_FULL_WORLD_SIZE; ";
    }
    static std::string first_time(const std::string& script) {
        return started() + "if test $AXLE_RESTART_COUNT = 0; then " + script + "; fi";
    }
    pid_t process(int restart, int rank) {
        return wait_for_pid(folder_ /
                            ("pid" + std::to_string(restart) + "." + std::to_string(rank)));
    }
    int end(int index) {
        const pid_t pid = running_.at(index);
        running_.erase(index);
        return wait_for_process(pid);
    }
    void kill_launcher(int index) {
        kill(running_.at(index), SIGKILL);
        end(index);
    }
    std::vector<std::string> out(int index) const {
        return lines_in(folder_ / ("machine" + std::to_string(index)) + "/out");
    }
    std::string err(int index) const {
        return read_file(folder_ / ("machine" + std::to_string(index)) + "/err");
    }

    int num_machines_ = 3, min_nodes_ = 2, max_restarts_ = 2, processes_ = 1;
    Milliseconds join_timeout_{20000}, silence_timeout_{10000};
    const int port_ = free_port();
    TemporaryFolder folder_{FolderStorage::in_memory};
    std::map<int, pid_t> running_;  // launchers by machine
};

TEST_F(Launchers, GiveProcessesRanksInTheOrderOfMachineRanks) {
    processes_ = 2;
    for (const int index : {2, 1, 0}) start(index, started());
    for (const int index : {0, 1, 2}) EXPECT_EQ(end(index), 0) << err(index);
    EXPECT_THAT(out(0),
                testing::UnorderedElementsAre("0: 0 of 6 on 0 of 3, 6", "0: 1 of 6 on 0 of 3, 6"));
    EXPECT_THAT(out(2),
                testing::UnorderedElementsAre("0: 4 of 6 on 2 of 3, 6", "0: 5 of 6 on 2 of 3, 6"));
}

TEST_F(Launchers, RestartWithNewRanksAfterAMachineIsLost) {
    for (const int index : {0, 1, 2}) start(index, first_time("sleep 60"));
    for (const int rank : {0, 1, 2}) process(0, rank);
    kill_launcher(1);
    EXPECT_EQ(end(0), 0) << err(0);
    EXPECT_EQ(end(2), 0) << err(2);
    EXPECT_THAT(out(0), ElementsAre("0: 0 of 3 on 0 of 3, 3", "1: 0 of 2 on 0 of 2, 3"));
    EXPECT_THAT(out(2), ElementsAre("0: 2 of 3 on 2 of 3, 3", "1: 1 of 2 on 1 of 2, 3"));
    EXPECT_THAT(err(0), HasSubstr("restarting on 2 of 3 machines without machine 1 (restart 1 of "
                                  "2)"));
    EXPECT_THAT(err(2), HasSubstr("is lost: the connection was closed"));
    const pid_t lost = process(0, 1);
    EXPECT_TRUE(comes_true([&] { return !is_running(lost); }));
}

TEST_F(Launchers, EndIfFewerThanMinNodesAreLeft) {
    min_nodes_ = 3, join_timeout_ = Milliseconds(1000);
    for (const int index : {0, 1, 2}) start(index, started() + "sleep 60");
    for (const int rank : {0, 1, 2}) process(0, rank);
    kill_launcher(1);
    for (const int index : {0, 2}) {
        EXPECT_EQ(end(index), 1);
        EXPECT_THAT(err(index),
                    HasSubstr("2 of the 3 machines of the job are left, and at least 3 are needed: "
                              "machine 1 did not join within 1 s"));
    }
    EXPECT_THAT(err(0), HasSubstr("waiting up to 1 s for machine 1"));
}

TEST_F(Launchers, TreatASuspendedLauncherAsLostAfterTheSilenceTimeout) {
    silence_timeout_ = Milliseconds(2000);
    for (const int index : {0, 1, 2}) start(index, first_time("sleep 60"));
    for (const int rank : {0, 1, 2}) process(0, rank);
    kill(running_.at(2), SIGSTOP);
    EXPECT_EQ(end(0), 0) << err(0);
    EXPECT_EQ(end(1), 0) << err(1);
    EXPECT_THAT(err(0), HasSubstr("is lost: it sent nothing for 2 s"));
    // When the launcher continues, it ends its processes.
    const pid_t left = process(0, 2);
    EXPECT_TRUE(is_running(left));
    kill(running_.at(2), SIGCONT);
    EXPECT_EQ(end(2), 1);
    EXPECT_FALSE(is_running(left));
    EXPECT_THAT(err(2), HasSubstr("the launcher of machine 0 at 127.0.0.1"));
}

TEST_F(Launchers, EndIfMachine0IsLost) {
    for (const int index : {0, 1, 2}) start(index, started() + "sleep 60");
    for (const int rank : {0, 1, 2}) process(0, rank);
    kill_launcher(0);
    for (const int index : {1, 2}) {
        EXPECT_EQ(end(index), 1);
        EXPECT_THAT(err(index), HasSubstr("is lost: the connection was closed; a job does not "
                                          "continue without machine 0"));
    }
}

TEST_F(Launchers, IncludeAReturningMachineInTheNextLaunch) {
    const std::string script = first_time("sleep 60") +
                               "; if test $AXLE_RESTART_COUNT = 1; then while ! test -e go; do "
                               "sleep 0.01; done; exit 7; fi";
    for (const int index : {0, 1, 2}) start(index, script);
    for (const int rank : {0, 1, 2}) process(0, rank);
    kill_launcher(1);
    process(1, 0), process(1, 1);
    start(1, script);
    ASSERT_TRUE(comes_true([&] {
        return err(0).find("machine 1") != std::string::npos &&
               err(0).find("has joined and waits for a restart") != std::string::npos;
    }));
    std::ofstream(folder_ / "go") << "go";
    for (const int index : {0, 1, 2}) EXPECT_EQ(end(index), 0) << err(index);
    EXPECT_THAT(out(1), ElementsAre("2: 1 of 3 on 1 of 3, 3"));
    EXPECT_THAT(out(2), testing::Contains("2: 2 of 3 on 2 of 3, 3"));
}

TEST_F(Launchers, RestartAllMachinesAfterAProcessHasFailed) {
    for (const int index : {0, 1, 2})
        start(index, first_time("test $RANK = 1 && exit 5; sleep 60"));
    for (const int index : {0, 1, 2}) EXPECT_EQ(end(index), 0) << err(index);
    EXPECT_THAT(out(2), ElementsAre("0: 2 of 3 on 2 of 3, 3", "1: 2 of 3 on 2 of 3, 3"));
    EXPECT_THAT(err(1), HasSubstr("ended with exit code 5"));
    EXPECT_THAT(err(2), HasSubstr("rank 1 (pid "));
}

TEST_F(Launchers, ExitWithTheCodeOfAFailedProcessOnAllMachines) {
    max_restarts_ = 0, min_nodes_ = 3;
    for (const int index : {0, 1, 2})
        start(index, started() + "test $RANK = 2 && exit 5; sleep 60");
    for (const int index : {0, 1, 2}) EXPECT_EQ(end(index), 5) << err(index);
}

// Machine 1 has only one process, and this process is frozen. Therefore no process on this machine
// can report a failure.
TEST_F(Launchers, EndAFrozenProcessWhenTheJobHasFailedElsewhere) {
    num_machines_ = min_nodes_ = 2, max_restarts_ = 0;
    start(0, started() +
                 "while ! test -e pid0.1; do sleep 0.01; done; while ! grep -q 'T (stopped'"
                 " /proc/$(cat pid0.1)/status; do sleep 0.01; done; exit 6");
    start(1, started() + "kill -STOP $$; sleep 60");
    const pid_t frozen = process(0, 1);
    EXPECT_EQ(end(0), 6) << err(0);
    EXPECT_EQ(end(1), 6) << err(1);
    EXPECT_FALSE(is_running(frozen));
    EXPECT_THAT(err(1), HasSubstr("rank 0 (pid "));
}

TEST_F(Launchers, EndTheJobWithoutARestartAfterACheckpoint) {
    for (const int index : {0, 1, 2}) start(index, started() + "exit 143");
    for (const int index : {0, 1, 2}) EXPECT_EQ(end(index), kExitAfterCheckpoint) << err(index);
    EXPECT_EQ(out(1).size(), 1u);
}

TEST_F(Launchers, EndOnAllMachinesIfMachine0GetsASignal) {
    for (const int index : {0, 1, 2}) start(index, started() + "sleep 60");
    for (const int rank : {0, 1, 2}) process(0, rank);
    kill(running_.at(0), SIGTERM);
    EXPECT_EQ(end(0), 143);
    for (const int index : {1, 2}) {
        EXPECT_EQ(end(index), 143);
        EXPECT_THAT(err(index), HasSubstr("machine 0 was stopped by signal 15"));
    }
}

TEST_F(Launchers, ContinueWithoutAMachineThatGetsASignal) {
    for (const int index : {0, 1, 2}) start(index, first_time("sleep 60"));
    for (const int rank : {0, 1, 2}) process(0, rank);
    kill(running_.at(1), SIGTERM);
    EXPECT_EQ(end(1), 143);
    kill(process(0, 2), SIGKILL);  // simulates a rank that detects the lost ranks and ends
    EXPECT_EQ(end(0), 0) << err(0);
    EXPECT_EQ(end(2), 0) << err(2);
    EXPECT_THAT(err(0), HasSubstr("was stopped by signal 15"));
    EXPECT_THAT(out(2).back(), "1: 1 of 2 on 1 of 2, 3");
}

// Returns whether a process blocks SIGTERM, as launchers do to intercept it.
bool intercepts_sigterm(pid_t pid) {
    for (const std::string& line : lines_in("/proc/" + std::to_string(pid) + "/status"))
        if (line.starts_with("SigBlk:"))
            return (std::stoull(line.substr(7), nullptr, 16) >> (SIGTERM - 1) & 1) != 0;
    return false;
}

TEST_F(Launchers, StopOnSigtermWhileTheyWaitForOtherMachines) {
    for (const int index : {1, 0}) {  // machine 1 waits for machine 0; then machine 0 waits alone
        start(index, started());
        ASSERT_TRUE(comes_true([&] { return intercepts_sigterm(running_.at(index)); }));
        kill(running_.at(index), SIGTERM);
        EXPECT_EQ(end(index), 143);
        EXPECT_TRUE(out(index).empty());
    }
}

TEST_F(Launchers, StartWithoutAMissingMachineAfterTheJoinTimeout) {
    join_timeout_ = Milliseconds(2500);
    for (const int index : {0, 2}) start(index, started());
    for (const int index : {0, 2}) EXPECT_EQ(end(index), 0) << err(index);
    EXPECT_THAT(out(2), ElementsAre("0: 1 of 2 on 1 of 2, 3"));
    EXPECT_THAT(err(0), HasSubstr("starting on 2 of 3 machines without machine 1"));
}

TEST_F(Launchers, RejectLaunchersWithOtherOptionsOrAMachineNumberInUse) {
    num_machines_ = min_nodes_ = 3;
    start(0, started() + "sleep 60");
    start(1, started() + "sleep 60", [](MachinesOptions& o) { o.place.local_world_size = 2; });
    EXPECT_EQ(end(1), kThrew);
    EXPECT_THAT(err(1), HasSubstr("the number of processes per machine is 1 on machine 0, but 2 on "
                                  "machine 1"));
    start(1, started() + "sleep 60", [](MachinesOptions& o) { o.min_nodes = 2; });
    EXPECT_EQ(end(1), kThrew);
    EXPECT_THAT(err(1), HasSubstr("the minimum number of machines is 3 on machine 0, but 2"));
    // Two launchers have the same number, and one of them is rejected.
    start(1, started() + "sleep 60");
    const pid_t first = running_.at(1);
    start(1, started() + "sleep 60");
    int status = 0;
    const pid_t refused = waitpid(-1, &status, 0);
    ASSERT_TRUE(refused == first || refused == running_.at(1));
    EXPECT_EQ(WEXITSTATUS(status), kThrew);
    EXPECT_THAT(err(1), HasSubstr("is used by another launcher"));
    running_[1] = refused == first ? running_.at(1) : first;
    start(2, started() + "sleep 60");
    for (const int rank : {0, 1, 2}) EXPECT_GT(process(0, rank), 0);
}

// Clients without the token hold more connections than the launcher of machine 0 keeps, and send
// arbitrary bytes.
TEST_F(Launchers, JoinWhileClientsWithoutTheTokenHoldAllConnections) {
    num_machines_ = min_nodes_ = 2;
    start(0, started());
    const Address address = resolve("127.0.0.1", port_).front();
    std::vector<Socket> strangers;
    ASSERT_TRUE(comes_true([&] {
        try {
            strangers.push_back(connect_to(address, Clock::now() + std::chrono::seconds(20)));
        } catch (const CommError&) {  // the launcher does not listen yet
        }
        return strangers.size() == 100;
    }));
    for (std::size_t i = 0; i < strangers.size(); ++i)
        send_some(strangers[i], i % 2 == 0 ? std::string(5000, 'x') : to_line(JoinMachine()));
    start(1, started());
    for (const int index : {0, 1}) EXPECT_EQ(end(index), 0) << err(index);
}

TEST_F(Launchers, RejectALauncherWithAnotherToken) {
    join_timeout_ = Milliseconds(1000), num_machines_ = min_nodes_ = 2;
    start(0, started());
    start(1, started(), [](MachinesOptions& o) { o.place.token = "another token"; });
    EXPECT_EQ(end(1), kThrew);
    EXPECT_THAT(err(1),
                HasSubstr("machine 1 could not join the launcher of machine 0 at 127.0.0.1"));
    EXPECT_THAT(err(1), HasSubstr("all machines have the same token"));
    EXPECT_EQ(end(0), 1);
    EXPECT_THAT(err(0), HasSubstr("1 of the 2 machines of the job have joined"));
}

TEST_F(Launchers, ReportAProgramThatCannotBeExecuted) {
    num_machines_ = min_nodes_ = 2, max_restarts_ = 0;
    const std::string program = folder_ / "program";
    std::ofstream(program) << "#!/no/such/interpreter\n";
    std::filesystem::permissions(program, std::filesystem::perms::owner_all);
    start(0, "exec sleep 60");
    start(1, program);
    EXPECT_EQ(end(1), 127);
    EXPECT_EQ(end(0), 127);
    EXPECT_THAT(err(0), HasSubstr("rank 1 (pid "));
    EXPECT_THAT(err(1), HasSubstr("cannot start '" + program + "': No such file"));
}

}  // namespace
}  // namespace axle::dist
