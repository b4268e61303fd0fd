// Tests launch(), which runs a function in several processes, and the JSON of a JobFailure.
#include "dist/launch/launch.h"

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <set>
#include <stdexcept>

#include "core/system/fork.h"
#include "core/tree/tree.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/error.h"
#include "kernels/thread_pool.h"
#include "tests/dist/launch/launched.h"

namespace axle::dist {
namespace {

using namespace std::chrono_literals;
using namespace tests;  // NOLINT: the test helpers of this folder
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::string variable(const char* name) {
    const char* const text = std::getenv(name);
    return text == nullptr ? "(none)" : text;
}

class Launch : public testing::Test {
  protected:
    // Threads from other tests would make launch() throw.
    void SetUp() override {
        kernels::set_num_threads(1);
        ASSERT_EQ(fork_unsafe_state(), "");
    }
    // Writes the text to a file whose name contains the rank and the restart count.
    void write(const std::string& text) const {
        std::ofstream(folder_ / (variable("RANK") + "." + variable("AXLE_RESTART_COUNT")))
            << text << '\n';
    }
    std::string read(const std::string& name) const {
        const auto lines = lines_in(folder_ / name);
        return lines.empty() ? "(no line)" : lines[0];
    }
    static std::string error_of(const std::function<void()>& f) {
        try {
            f();
        } catch (const CommError& error) {
            return error.what();
        }
        return "no CommError";
    }

    TemporaryFolder folder_{FolderStorage::in_memory};
};

// Covers 24.notebook_launcher.
TEST_F(Launch, RunsAFunctionInEachProcessWithItsArguments) {
    launch(
        {.num_processes = 3},
        [&](int a, const std::string& b) {
            write(str(a, b, " ", variable("RANK"), "/", variable("WORLD_SIZE"), " ",
                      variable("LOCAL_RANK"), "/", variable("LOCAL_WORLD_SIZE")));
        },
        4, std::string("b"));
    EXPECT_EQ(read("0.0"), "4b 0/3 0/3");
    EXPECT_EQ(read("1.0"), "4b 1/3 1/3");
    EXPECT_EQ(read("2.0"), "4b 2/3 2/3");
    EXPECT_EQ(variable("RANK"), "(none)");
}

// Covers 24.PrepareForLaunch.
TEST_F(Launch, GivesAllProcessesTheSameTokenAndMasterAddress) {
    for (const char* run : {"one", "two"}) {
        launch({.num_processes = 2, .environment = {{"RUN", run}}}, [&] {
            std::ofstream(folder_ / (variable("RUN") + variable("RANK")))
                << variable("AXLE_JOB_TOKEN") << variable("MASTER_ADDR") << ":"
                << variable("MASTER_PORT") << '\n';
        });
    }
    EXPECT_EQ(read("one0"), read("one1"));
    EXPECT_EQ(read("two0"), read("two1"));
    EXPECT_NE(read("one0"), read("two0"));
    EXPECT_THAT(read("one0"), HasSubstr("127.0.0.1:"));
}

// Covers 24.debug_launcher.
TEST_F(Launch, PassesOptionsThroughTheEnvironment) {
    debug_launch(
        [&] {
            write(variable("ACCELERATE_USE_CPU") + " " + variable("ACCELERATE_MIXED_PRECISION"));
        },
        2);
    EXPECT_EQ(read("1.0"), "true no");
    launch({.num_processes = 2, .mixed_precision = "bf16"}, [&] {
        write(variable("ACCELERATE_USE_CPU") + " " + variable("ACCELERATE_MIXED_PRECISION"));
    });
    EXPECT_EQ(read("1.0"), "(none) bf16");
}

// Covers 24.notebook_launcher.
TEST_F(Launch, RunsASingleProcessInTheCallerAndPassesItsExceptions) {
    const pid_t here = getpid();
    pid_t there = 0;
    launch({.num_processes = 1}, [&] { there = getpid(); });
    EXPECT_EQ(there, here);
    EXPECT_THROW(launch({.num_processes = 1}, [] { throw std::logic_error("mine"); }),
                 std::logic_error);
}

TEST_F(Launch, ReportsTheRankThatThrew) {
    const std::string text = error_of([&] {
        launch({.num_processes = 2}, [] {
            if (variable("RANK") == "1") throw std::runtime_error("the data is gone");
        });
    });
    EXPECT_THAT(text, AllOf(HasSubstr("rank 1"), HasSubstr("the data is gone")));
}

TEST_F(Launch, ReportsExceptionsWithoutText) {
    EXPECT_THAT(
        error_of([] { launch({.num_processes = 2}, [] { throw std::runtime_error(""); }); }),
        HasSubstr("exit code 1"));
    EXPECT_THAT(error_of([] { launch({.num_processes = 2}, [] { throw 3; }); }),
                HasSubstr("not derived from std::exception"));
}

TEST_F(Launch, ShortensLongErrorTexts) {
    const std::string text = error_of([] {
        launch({.num_processes = 2}, [] {
            close(STDERR_FILENO);
            throw std::runtime_error(std::string(1 << 20, 'x'));
        });
    });
    EXPECT_GT(text.size(), 1000u);
    EXPECT_LT(text.size(), 100'000u);
}

TEST_F(Launch, ReportsTheRankKilledByASignal) {
    EXPECT_THAT(error_of([] {
                    launch({.num_processes = 2}, [] {
                        if (variable("RANK") == "0") raise(SIGKILL);
                    });
                }),
                AllOf(HasSubstr("rank 0"), HasSubstr("signal 9")));
}

// Covers 24.notebook_launcher.
TEST_F(Launch, RestartsAllProcessesWithANewTokenOrPort) {
    launch({.num_processes = 2, .max_restarts = 1}, [&] {
        write(variable("MASTER_PORT") + variable("AXLE_JOB_TOKEN"));
        if (variable("AXLE_RESTART_COUNT") == "0") throw std::runtime_error("not yet");
    });
    EXPECT_NE(read("0.0"), read("0.1"));
    EXPECT_EQ(read("0.1"), read("1.1"));
}

TEST_F(Launch, WritesBufferedOutputOnce) {
    const pid_t launcher = start_process(folder_.path(), [] {
        std::printf("before\n");
        std::cout << "also before\n";
        launch({.num_processes = 2}, [] { std::printf("within\n"); });
        std::printf("after\n");
        std::fflush(nullptr);
        return 0;
    });
    EXPECT_EQ(wait_for_process(launcher), 0);
    EXPECT_THAT(
        lines_in(folder_ / "out"),
        testing::UnorderedElementsAre("before", "also before", "within", "within", "after"));
}

// Covers 24.notebook_launcher.
TEST_F(Launch, RejectsInvalidOptions) {
    const auto f = [] {};
    EXPECT_THROW(launch({}, f), ValueError);
    EXPECT_THROW(launch({.num_processes = -1}, f), ValueError);
    EXPECT_THROW(launch({.num_processes = 2, .node_rank = 1}, f), ValueError);
    EXPECT_THROW(launch({.num_processes = 2, .node_rank = -1}, f), ValueError);
    EXPECT_THROW(launch({.num_processes = 2, .num_nodes = 2}, f),
                 ValueError);  // several machines need use_port
    EXPECT_THROW(launch({.num_processes = 2, .mixed_precision = "fp12"}, f), ValueError);
    EXPECT_THROW(launch({.num_processes = 2, .environment = {{"A=B", "c"}}}, f), ValueError);
    EXPECT_THROW(launch({.num_processes = 2, .use_port = 29511, .num_nodes = 2}, f), UsageError);
}

// Covers 24.notebook_launcher.
TEST_F(Launch, RejectsACallerWithAThreadPoolUnlessItStartsOneProcess) {
    kernels::set_num_threads(2);
    EXPECT_THROW(launch({.num_processes = 2}, [] {}), UsageError);
    launch({.num_processes = 1}, [] {});
    kernels::set_num_threads(1);
}

TEST_F(Launch, AllowsThreadsInChildren) {
    const pid_t launcher = start_process(folder_.path(), [] {
        launch({.num_processes = 2}, [] {
            kernels::set_num_threads(2);
            std::atomic<int> sum = 0;
            kernels::parallel(8, [&](std::int64_t) { ++sum; });
            if (sum != 8) throw std::runtime_error("tasks are missing");
        });
        return 0;
    });
    EXPECT_EQ(wait_for_process(launcher), 0);
    EXPECT_THAT(lines_in(folder_ / "err"), IsEmpty());
}

TEST(JobFailure, IsFormattedAsOneLineOfJson) {
    const std::string text = JobFailure{.rank = 1,
                                        .pid = 42,
                                        .host = "h",
                                        .signal = 9,
                                        .exit_code = -9,
                                        .op = "all_reduce",
                                        .sequence = 12,
                                        .text = "rank 1 died"}
                                 .to_json();
    EXPECT_EQ(text.find('\n'), std::string::npos);
    EXPECT_EQ(text, R"({"rank": 1, "pid": 42, "host": "h", "signal": 9, "exit_code": -9, )"
                    R"("op": "all_reduce", "seq": 12, "text": "rank 1 died"})");
}

}  // namespace
}  // namespace axle::dist
