// Tests the command `axle test`, and its worker processes when they are started manually.
#include <chrono>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/free_port.h"
#include "tests/job.h"
#include "tests/tools/trainer_program.h"
#include "tools/axle/self_test.h"

namespace axle::tests {
namespace {

using testing::Contains;
using testing::HasSubstr;

class AxleSelfTest : public TrainerTest {
  protected:
    AxleSelfTest() : TrainerTest("axle") {}
    void SetUp() override {
        TrainerTest::SetUp();
        set("HF_HOME", folder_ / "home");
        set("AXLE_NUM_THREADS", "1");
    }
    void TearDown() override {
        for (const auto& [name, before] : before_)
            before.empty() ? unsetenv(name.c_str()) : setenv(name.c_str(), before.c_str(), 1);
    }
    void set(const std::string& name, const std::string& value) {
        const char* before = std::getenv(name.c_str());
        before_.try_emplace(name, before ? before : "");
        setenv(name.c_str(), value.c_str(), 1);
    }
    static std::string output(const Ended& ended) {
        std::string all;
        for (const auto& line : ended.out) all += line + "\n";
        return all + ended.text();
    }

  private:
    std::map<std::string, std::string> before_;
};

// Covers 29.test.
TEST_F(AxleSelfTest, PassesOnOneProcess) {
    const Ended ended = run({"test", "--worker"});
    EXPECT_EQ(ended.code, 0) << output(ended);
    for (const char* check : {"process execution",
                              "main process first",
                              "collectives",
                              "split between processes: list, tensor, map",
                              "split between processes: evenly",
                              "random number synchronization",
                              "triggers",
                              "reinstantiated state",
                              "loader: map",
                              "loader: map, dispatched",
                              "loader: iterable",
                              "loader: iterable, dispatched",
                              "loader: uneven data",
                              "loader: join uneven inputs",
                              "loader: custom sampler",
                              "loader: seedable sampler",
                              "training like one process",
                              "training with split_batches",
                              "training with a seedable sampler",
                              "training with split_batches and a seedable sampler",
                              "training in fp16",
                              "training in bf16"})
        EXPECT_THAT(ended.out, Contains("  " + std::string(check) + ": passed"));
}

// Covers 29.test.
TEST_F(AxleSelfTest, PassesOnManuallyStartedProcesses) {
    set("WORLD_SIZE", "2");
    set("MASTER_PORT", std::to_string(free_port()));
    set("RANK", "1");
    const pid_t second = start({"test", "--worker"});
    set("RANK", "0");
    const Ended first = run({"test", "--worker"});
    int status = -1;
    waitpid(second, &status, 0);
    EXPECT_EQ(first.code, 0) << output(first);
    EXPECT_EQ(status, 0);
}

// Covers 26.test.
TEST_F(AxleSelfTest, LaunchesTheGivenNumberOfProcesses) {
    const Ended ended = run({"test", "--num_processes", "2", "--cpu"});
    EXPECT_EQ(ended.code, 0) << output(ended);
    EXPECT_THAT(output(ended), HasSubstr("Testing 2 process(es), tcp, on cpu"));
    EXPECT_THAT(output(ended), HasSubstr("The test has passed"));
}

// Covers 26.test.
TEST_F(AxleSelfTest, StartsTheProcessesOfAConfigurationFile) {
    const std::string file = folder_ / "three.yaml";
    ASSERT_EQ(run({"config", "--config_file", file, "--cpu", "--num_processes", "3"}).code, 0);
    const Ended ended = run({"test", "--config_file", file});
    EXPECT_EQ(ended.code, 0) << output(ended);
    EXPECT_THAT(output(ended), HasSubstr("Testing 3 process(es)"));
}

// Covers 26.test.
TEST_F(AxleSelfTest, FailsAndNamesARankThatDoesNotStart) {
    set("AXLE_TIMEOUT_S", "1");
    set("WORLD_SIZE", "2");
    set("MASTER_PORT", std::to_string(free_port()));
    set("RANK", "0");
    const Ended ended = run({"test", "--worker"});
    EXPECT_EQ(ended.code, 1) << output(ended);
    EXPECT_THAT(output(ended), HasSubstr("rank 1"));
}

// `axle test` starts the processes itself, or `axle launch` starts `axle test --worker` in each
// process.
// Covers 26.test, 29.test.
TEST_F(AxleSelfTest, PassesOnOneTwoAndFourProcesses) {
    for (const char* processes : {"1", "2", "4"})
        for (const bool by_launch : {false, true}) {
            Arguments arguments = {"test", "--cpu", "--num_processes", processes};
            if (by_launch)
                arguments = {"launch",  "--quiet", "--cpu", "--num_processes",
                             processes, program_,  "test",  "--worker"};
            const Ended ended = run(arguments);
            EXPECT_EQ(ended.code, 0) << output(ended);
            EXPECT_THAT(output(ended), HasSubstr(str("Testing ", processes, " process(es)")));
            EXPECT_THAT(ended.out, Contains("  training in bf16: passed"));
        }
}

// Covers 26.test.
TEST_F(AxleSelfTest, ReportsTheFailedCheckAndRankOnAllProcesses) {
    Job job(2, [](const dist::Environment& environment) -> std::string {
        const PartialState state(
            {.cpu = true, .process_group = dist::ProcessGroup::create(environment)});
        std::string passed;
        const std::vector<launcher::Check> checks = {{"sums", [](const PartialState&) {}},
                                                     {"orders",
                                                      [](const PartialState& s) {
                                                          launcher::expect(s.process_index() == 0,
                                                                           "it is upside down");
                                                      }},
                                                     {"ends", [](const PartialState&) {}}};
        try {
            launcher::run_checks(state, checks,
                                 [&](const std::string& name) { passed += name + ", "; });
        } catch (const Error& error) {
            return passed + error.what();
        }
        return passed;
    });
    for (const RankOutcome& rank : job.wait(std::chrono::seconds(30)))
        EXPECT_EQ(rank.text, "sums, test: rank 1: orders: it is upside down");
}

}  // namespace
}  // namespace axle::tests
