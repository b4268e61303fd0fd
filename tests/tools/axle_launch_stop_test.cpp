// Tests how `axle launch` ends: the failure that it prints, and signals.
#include <string>

#include "gmock/gmock.h"
#include "tests/dist/launch/launched.h"
#include "tests/tools/axle_launch.h"

namespace axle {
namespace {

using namespace tests;  // NOLINT: the test helpers of this folder
using testing::ElementsAre;
using testing::HasSubstr;

class AxleLaunchStop : public AxleLaunch {};

// Rank 0 reports that rank 1 is frozen, as the library does, and ends first.
TEST_F(AxleLaunchStop, ReportsAFrozenRankInTextAndJson) {
    // Some shells, such as dash, accept only descriptors below 10 in redirections.
    const Ended ended =
        run(with({"--cpu", "--num_processes", "2"},
                 {"bash", "-c",
                  "if test $RANK = 0; then while ! test -e " + (folder_ / "pid") +
                      "; do sleep 0.02; done; "
                      R"(echo '{"failure": "rank 1 (pid 7, host h) sent no heartbeat )"
                      R"(for 8 s; its last collective was all_reduce #12", "rank": 0, )"
                      R"("failed": 1, "op": "all_reduce", "seq": 12, "pid": 7, )"
                      R"("host": "h", "running": true}' >&$AXLE_LAUNCHER_FD; exit 6; )"
                      "fi; echo $$ > " +
                      (folder_ / "pid") + "; kill -STOP $$; sleep 60"}));
    EXPECT_EQ(ended.code, 6);
    ASSERT_GE(ended.err.size(), 2u) << ended.text();
    EXPECT_EQ(ended.err[ended.err.size() - 2],
              "axle launch: rank 1 (pid 7, host h) sent no heartbeat for 8 s; its last collective "
              "was all_reduce #12");
    const json failure = json::parse(ended.err.back());
    EXPECT_EQ(failure["rank"], 1);
    EXPECT_EQ(failure["pid"], wait_for_pid(folder_ / "pid"));
    EXPECT_EQ(failure["signal"], 0);
    EXPECT_EQ(failure["exit_code"], 0);
    EXPECT_EQ(failure["op"], "all_reduce");
    EXPECT_EQ(failure["seq"], 12);
}

TEST_F(AxleLaunchStop, ForwardsSignalsAndPrintsTheGraceTimeUnlessQuiet) {
    for (const bool quiet : {false, true}) {
        for (const char* name : {"ready0", "ready1"}) fs::remove(folder_ / name);
        Arguments flags = {"--cpu", "--num_processes", "2", "--grace", "45"};
        if (quiet) flags.emplace_back("--quiet");
        const pid_t launcher =
            start(with(flags, {"sh", "-c",
                               "trap 'echo saved; exit 143' TERM; echo $$ > " +
                                   (folder_ / "ready") + "$RANK; while :; do sleep 0.02; done"}));
        wait_for_pid(folder_ / "ready0"), wait_for_pid(folder_ / "ready1");
        kill(launcher, SIGTERM);
        const Ended ended = finish(launcher);
        EXPECT_EQ(ended.code, 143);
        EXPECT_THAT(ended.out, ElementsAre("saved", "saved"));
        const std::string printed =
            "axle launch: signal 15 (Terminated): the processes have 45 s to end; a second SIGINT "
            "kills them\n";
        // The shell may print "Terminated" too.
        EXPECT_EQ(ended.text().find(printed) == std::string::npos, quiet) << ended.text();
        EXPECT_EQ(ended.text().find("axle launch: ") == std::string::npos, quiet) << ended.text();
    }
}

TEST_F(AxleLaunchStop, KillsProcessesAfterTheGraceTime) {
    const pid_t launcher =
        start(with({"--cpu", "--num_processes", "1", "--grace", "0.2"},
                   {"sh", "-c",
                    "trap '' INT; sleep 60 & echo $! > " + (folder_ / "sleeper") + "; echo $$ > " +
                        (folder_ / "shell") + "; wait; wait"}));
    const pid_t pids[] = {wait_for_pid(folder_ / "sleeper"), wait_for_pid(folder_ / "shell")};
    kill(launcher, SIGINT);
    const Ended ended = finish(launcher);
    EXPECT_EQ(ended.code, 130);
    // SIGKILL does not end a process immediately.
    for (const pid_t pid : pids) EXPECT_TRUE(comes_true([&] { return !is_running(pid); }));
    EXPECT_THAT(ended.text(), HasSubstr("did not end within 0.2 s and was killed"));
}

}  // namespace
}  // namespace axle
