// Tests supervise() with /bin/sh: exit codes, environment, signals and output. Also tests the
// building blocks of launchers: find_program(), ReservedPort, environment_of() and
// make_job_token().
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <map>

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "core/tree/tree.h"
#include "dist/launch/launch.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/error.h"
#include "tests/dist/launch/supervised.h"

namespace axle::dist {
namespace {

using namespace std::chrono_literals;
using namespace tests;  // NOLINT: the test helpers of this folder
using testing::ElementsAre;
using testing::HasSubstr;

class Supervise : public tests::SuperviseTest {};

TEST_F(Supervise, ReturnsZeroWhenAllProcessesSucceed) {
    EXPECT_EQ(run({"exit 0", "exit 0"}), 0);
    EXPECT_THAT(err(), ElementsAre());
}

// Rank 0 fails when the launcher has reported the failure of rank 1.
TEST_F(Supervise, ReturnsTheExitCodeOfTheFirstFailure) {
    EXPECT_EQ(run({"head -n 1 <&$AXLE_LAUNCHER_FD >/dev/null; exit 5", "exit 7"}), 7);
    const Tree json = failure();
    EXPECT_EQ(json["rank"].integer(), 1);
    EXPECT_EQ(json["exit_code"].integer(), 7);
    EXPECT_EQ(json["signal"].integer(), 0);
    EXPECT_FALSE(json["host"].string().empty());
}

TEST_F(Supervise, Returns128PlusTheSignalIfASignalEndsAProcess) {
    EXPECT_EQ(run({"kill -9 $$"}), 128 + SIGKILL);
    EXPECT_EQ(failure()["signal"].integer(), SIGKILL);
    EXPECT_EQ(failure()["exit_code"].integer(), -SIGKILL);
}

// Rank 0 continues for a short time after the failure of rank 1.
TEST_F(Supervise, WaitsForOtherRanksBeforeSigterm) {
    EXPECT_EQ(run({"trap 'echo asked; exit 0' TERM; head -n 1 <&$AXLE_LAUNCHER_FD >/dev/null; "
                   "sleep 0.2; echo by myself; sleep 60 & wait",
                   "exit 3"},
                  {.patience = 2500ms, .grace = 60s}),
              3);
    EXPECT_THAT(out(), ElementsAre("by myself", "asked"));
}

TEST_F(Supervise, KillsProcessesThatIgnoreSigterm) {
    EXPECT_EQ(run({"trap '' TERM; echo $$ > " + file("pid") + "; while :; do sleep 1; done",
                   "while ! test -e " + file("pid") + "; do sleep 0.01; done; exit 4"},
                  {.patience = 10ms, .grace = 200ms}),
              4);
    EXPECT_FALSE(is_running(wait_for_pid(file("pid"))));
}

TEST_F(Supervise, EndsProcessesLeftByAChild) {
    EXPECT_EQ(run({"sleep 60 & echo $! > " + file("pid")}), 0);
    EXPECT_FALSE(is_running(wait_for_pid(file("pid"))));
}

TEST_F(Supervise, LeavesNoProcessesIfTheLauncherIsKilled) {
    const auto script = [&](const std::string& rank) {
        return "trap '' TERM HUP; sleep 60 & echo $! > " + file("sleeper" + rank) + "; echo $$ > " +
               file("shell" + rank) + "; wait; wait";
    };
    const pid_t launcher = start({script("0"), script("1")});
    std::vector<pid_t> pids;
    for (const char* name : {"sleeper0", "sleeper1", "shell0", "shell1"})
        pids.push_back(wait_for_pid(file(name)));
    for (const pid_t pid : pids) ASSERT_TRUE(is_running(pid));
    kill(launcher, SIGKILL);
    wait_for_process(launcher);
    EXPECT_TRUE(comes_true([&] { return std::none_of(pids.begin(), pids.end(), is_running); }));
}

TEST_F(Supervise, RestartsAFailedJobAtMostMaxRestartsTimes) {
    const std::string script =
        "echo $RANK $AXLE_RESTART_COUNT $TORCHELASTIC_RESTART_COUNT $TORCHELASTIC_MAX_RESTARTS "
        "$GENERATION; ";
    SuperviseOptions options{.max_restarts = 2};
    options.environment = [](int attempt) {
        return std::map<std::string, std::string>{{"GENERATION", "g" + std::to_string(attempt)}};
    };
    EXPECT_EQ(run({script + "test $AXLE_RESTART_COUNT = 1"}, options), 0);
    EXPECT_THAT(out(), ElementsAre("0 0 0 2 g0", "0 1 1 2 g1"));
    EXPECT_EQ(err().size(), 1u);
    EXPECT_EQ(run({script + "exit 8"}, options), 8);
    EXPECT_EQ(out().size(), 3u);
    EXPECT_EQ(err().size(), 3u);
}

TEST_F(Supervise, WritesALogForEachRankAndRestart) {
    const SuperviseOptions options{.max_restarts = 1, .log_dir = file("logs")};
    EXPECT_EQ(run({"echo one; echo two >&2", "echo $AXLE_RESTART_COUNT; exit 1"}, options), 1);
    EXPECT_THAT(out(), ElementsAre());
    for (const char* attempt : {"0", "1"}) {
        const std::string folder = file("logs/") + attempt;
        EXPECT_EQ(read_file(folder + "/0/stdout.log"), "one\n");
        EXPECT_EQ(read_file(folder + "/0/stderr.log"), "two\n");
        EXPECT_EQ(read_file(folder + "/1/stdout.log"), attempt + std::string("\n"));
        struct stat status = {};
        ASSERT_EQ(stat((folder + "/1/stdout.log").c_str(), &status), 0);
        EXPECT_EQ(status.st_mode & 0077, 0u);
    }
}

TEST_F(Supervise, DoesNotFollowALinkAtTheLogOfARank) {
    std::filesystem::create_directories(file("logs/0/0"));
    std::filesystem::create_symlink(file("victim"), file("logs/0/0/stdout.log"));
    EXPECT_EQ(run({"echo one"}, {.log_dir = file("logs")}), kThrew);
    ASSERT_EQ(err().size(), 1u);
    EXPECT_THAT(err()[0], HasSubstr("stdout.log: Too many levels of symbolic links"));
    EXPECT_FALSE(std::filesystem::exists(file("victim")));
}

TEST_F(Supervise, ShowsCompleteLinesWithTheRank) {
    const std::string chatter =
        "i=0; while [ $i -lt 200 ]; do printf 'a%s' $i; printf 'b%s\\n' $i; i=$((i+1)); done; "
        "printf last";
    EXPECT_EQ(run({chatter, chatter, "echo to stderr >&2"}, {.log_dir = file("logs"), .tee = 3}),
              0);
    std::map<std::string, std::vector<std::string>> lines;
    for (const std::string& line : out()) {
        ASSERT_GT(line.size(), 9u) << line;
        lines[line.substr(0, 9)].push_back(line.substr(9));
    }
    std::vector<std::string> expected;
    expected.reserve(201);
    for (int i = 0; i < 200; ++i) expected.push_back(str("a", i, "b", i));
    expected.emplace_back("last");
    EXPECT_EQ(lines["[rank 0] "], expected);
    EXPECT_EQ(lines["[rank 1] "], expected);
    EXPECT_EQ(lines.size(), 2u);
    EXPECT_THAT(err(), ElementsAre("[rank 2] to stderr"));
    EXPECT_EQ(lines_in(file("logs/0/1/stdout.log")).size(), 200u);
}

TEST_F(Supervise, CanPrefixOnlyTheLinesOfStdout) {
    EXPECT_EQ(run({"echo shown; echo as it is >&2"}, {.tee = 1}), 0);
    EXPECT_THAT(out(), ElementsAre("[rank 0] shown"));
    EXPECT_THAT(err(), ElementsAre("as it is"));
}

TEST_F(Supervise, ReturnsTheExitCodeIfItsOutputIsClosed) {
    int ends[2];
    ASSERT_EQ(::pipe(ends), 0);
    close(ends[0]);
    const pid_t launcher = start_process(folder_.path(), [&] {
        dup2(ends[1], STDOUT_FILENO);
        return supervise(
            ranks({"i=0; while [ $i -lt 50 ]; do echo line; i=$((i+1)); done; exit 6"}),
            {.tee = 3});
    });
    close(ends[1]);
    EXPECT_EQ(wait_for_process(launcher), 6);
}

TEST_F(Supervise, GivesChildrenOnlyTheirOwnDescriptors) {
    const int stray = open("/dev/null", O_RDONLY);  // without O_CLOEXEC, children inherit it
    EXPECT_EQ(run({"n=0; while [ $n -lt 200 ]; do if [ -h /proc/$$/fd/$n ]; then echo $n; fi; "
                   "n=$((n+1)); done; echo $AXLE_LAUNCHER_FD",
                   "exit 0"},
                  {.log_dir = file("logs")}),
              0);
    close(stray);
    const auto lines = lines_in(file("logs/0/0/stdout.log"));
    ASSERT_FALSE(lines.empty());
    EXPECT_THAT(lines, ElementsAre("0", "1", "2", lines.back(), lines.back()));
}

TEST_F(Supervise, ReportsADeathToTheOtherProcesses) {
    EXPECT_EQ(run({"head -n 1 <&$AXLE_LAUNCHER_FD", "kill -9 $$"}), 128 + SIGKILL);
    ASSERT_EQ(out().size(), 1u);
    const Tree json = from_json(out()[0]);
    EXPECT_EQ(json["rank"].integer(), 1);
    EXPECT_EQ(json["signal"].integer(), SIGKILL);
    EXPECT_EQ(json["pid"].integer(), failure()["pid"].integer());
}

TEST_F(Supervise, ReportsTheCollectiveThatSurvivorsReported) {
    EXPECT_EQ(run({"head -n 1 <&$AXLE_LAUNCHER_FD > /dev/null; echo "
                   "'{\"failure\":\"rank 1 died\",\"rank\":0,\"failed\":1,\"op\":\"all_reduce\","
                   "\"seq\":12}' >&$AXLE_LAUNCHER_FD",
                   "kill -9 $$"}),
              128 + SIGKILL);
    EXPECT_EQ(failure()["op"].string(), "all_reduce");
    EXPECT_EQ(failure()["seq"].integer(), 12);
    EXPECT_EQ(failure()["rank"].integer(), 1);
}

TEST_F(Supervise, IgnoresInvalidMessagesFromAChild) {
    EXPECT_EQ(run({"head -c 300000 /dev/zero >&$AXLE_LAUNCHER_FD; echo '{\"failure\"' "
                   ">&$AXLE_LAUNCHER_FD; exit 2"}),
              2);
    EXPECT_EQ(failure()["op"].string(), "");
}

TEST_F(Supervise, RestoresSignalMasks) {
    sigset_t before, after;
    pthread_sigmask(SIG_SETMASK, nullptr, &before);
    EXPECT_EQ(supervise(ranks({"exit 0"}), {}), 0);
    pthread_sigmask(SIG_SETMASK, nullptr, &after);
    for (int signal = 1; signal < NSIG; ++signal)
        EXPECT_EQ(sigismember(&before, signal), sigismember(&after, signal)) << signal;
}

TEST_F(Supervise, RejectsInvalidOptionsAndCommands) {
    EXPECT_THROW(supervise({}, {}), ValueError);
    EXPECT_THROW(supervise(ranks({"exit 0"}), {.tee = 4}), ValueError);
    EXPECT_THROW(supervise(ranks({"exit 0"}), {.max_restarts = -1}), ValueError);
    const auto with = [](const std::string& name, const std::string& value) {
        return std::vector<Command>{{.arguments = {"true"}, .environment = {{name, value}}}};
    };
    EXPECT_THROW(supervise(with("A=B", "c"), {}), ValueError);
    EXPECT_THROW(supervise(with("", "c"), {}), ValueError);
    EXPECT_THROW(supervise(with("A\nB", "c"), {}), ValueError);
    EXPECT_THROW(supervise(with("A", "b\nc"), {}), ValueError);
    EXPECT_THROW(supervise(with("A", std::string("b\0c", 3)), {}), ValueError);
    EXPECT_THROW(supervise({{.arguments = {"no-such-program-anywhere"}, .environment = {}}}, {}),
                 FileError);
    EXPECT_THROW(supervise({{.arguments = {folder_.path()}, .environment = {}}}, {}), FileError);
}

TEST_F(Supervise, ReportsWhyAProgramCannotStart) {
    write_file_atomically(file("script"), "no program\n");
    std::filesystem::permissions(file("script"), std::filesystem::perms::owner_all);
    const pid_t launcher = start_process(folder_.path(), [&] {
        return supervise({{.arguments = {file("script")}, .environment = {}}}, {});
    });
    EXPECT_EQ(wait_for_process(launcher), 126);
    ASSERT_FALSE(err().empty());
    EXPECT_THAT(err()[0], HasSubstr("format"));
}

TEST(FindProgram, ReturnsThePathOfAnExecutableFileOrThrows) {
    const TemporaryFolder folder;
    const std::string program = folder / "train";
    write_file_atomically(program, "#!/bin/sh\n");
    const auto error_of = [](const std::string& name) -> std::string {
        try {
            return find_program(name);
        } catch (const FileError& error) {
            return error.what();
        }
    };
    EXPECT_THAT(error_of(program), HasSubstr("is not executable; run chmod +x on it"));
    std::filesystem::permissions(program, std::filesystem::perms::owner_all);
    EXPECT_EQ(find_program(program), program);
    EXPECT_TRUE(find_program("sh").ends_with("/sh"));
    EXPECT_THAT(error_of(folder.path() + "/"), HasSubstr("is a folder"));
    EXPECT_EQ(error_of("/nowhere/train"), "launch: the program '/nowhere/train' does not exist");
    EXPECT_THAT(error_of("./nowhere/train"), HasSubstr("does not exist in /"));
    EXPECT_EQ(error_of("no-such-program"),
              "launch: the program 'no-such-program' was not found in PATH");
}

TEST(ReservedPort, IsExclusiveButAServerCanListenAtItAndRejectsInvalidNumbers) {
    const ReservedPort held;
    ASSERT_GT(held.port(), 0);
    const ReservedPort other;
    EXPECT_NE(other.port(), held.port());
    const int server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const int yes = 1;
    setsockopt(server, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<in_port_t>(held.port()));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(bind(server, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    EXPECT_EQ(listen(server, 1), 0);
    EXPECT_THROW(ReservedPort{held.port()}, CommError);
    close(server);
    EXPECT_THROW(ReservedPort{70000}, ValueError);
}

// Covers 6.OMP, 27.OMP_NUM_THREADS, 27.NODE_RANK.
TEST(EnvironmentOf, SetsRanksAddressTokenAndThreads) {
    const auto all = environment_of({.local_world_size = 2,
                                     .node_rank = 1,
                                     .num_nodes = 3,
                                     .master_addr = "10.0.0.1",
                                     .master_port = 29500,
                                     .token = "secret",
                                     .num_threads = 7},
                                    1);
    const std::map<std::string, std::string> expected = {{"RANK", "3"},
                                                         {"WORLD_SIZE", "6"},
                                                         {"LOCAL_RANK", "1"},
                                                         {"LOCAL_WORLD_SIZE", "2"},
                                                         {"GROUP_RANK", "1"},
                                                         {"NODE_RANK", "1"},
                                                         {"MASTER_ADDR", "10.0.0.1"},
                                                         {"MASTER_PORT", "29500"},
                                                         {"AXLE_JOB_TOKEN", "secret"},
                                                         {"OMP_NUM_THREADS", "7"},
                                                         {"AXLE_NUM_THREADS", "7"}};
    for (const auto& [name, value] : expected) EXPECT_EQ(all.at(name), value) << name;
}

TEST(JobToken, Has32RandomBytes) {
    const std::string token = make_job_token();
    EXPECT_EQ(token.size(), 64u);
    EXPECT_EQ(token.find_first_not_of("0123456789abcdef"), std::string::npos);
    EXPECT_NE(token, make_job_token());
}

}  // namespace
}  // namespace axle::dist
