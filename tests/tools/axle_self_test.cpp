// axle test: the self-test, by hand as rank of a job and as `axle launch` starts it.
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/job.h"
#include "tests/tools/trainer_program.h"

namespace axle::tests {
namespace {

using testing::HasSubstr;

class AxleSelfTest : public TrainerTest {
  protected:
    AxleSelfTest() : TrainerTest("axle") {}
    void SetUp() override {
        TrainerTest::SetUp();
        if (!fs::exists(AXLE_BIN_DIR "/libaxle_gloo.so")) GTEST_SKIP() << "no Gloo was built";
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

TEST_F(AxleSelfTest, HoldsForOneProcess) {
    const Ended ended = run({"test", "--worker"});
    EXPECT_EQ(ended.code, 0) << output(ended);
    EXPECT_THAT(output(ended), HasSubstr("training: as on one process"));
}

TEST_F(AxleSelfTest, HoldsForProcessesThatAreStartedByHand) {
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

TEST_F(AxleSelfTest, LaunchesItself) {
    const Ended ended = run({"test", "--num_processes", "2", "--cpu"});
    EXPECT_EQ(ended.code, 0) << output(ended);
    EXPECT_THAT(output(ended), HasSubstr("Testing 2 process(es), gloo, on cpu"));
    EXPECT_THAT(output(ended), HasSubstr("The test has passed"));
}

TEST_F(AxleSelfTest, FollowsAConfiguration) {
    const std::string file = folder_ / "three.yaml";
    ASSERT_EQ(run({"config", "--config_file", file, "--cpu", "--num_processes", "3"}).code, 0);
    const Ended ended = run({"test", "--config_file", file});
    EXPECT_EQ(ended.code, 0) << output(ended);
    EXPECT_THAT(output(ended), HasSubstr("Testing 3 process(es)"));
}

TEST_F(AxleSelfTest, SaysThatItHasFailed) {
    set("AXLE_TIMEOUT_S", "1");
    set("WORLD_SIZE", "2");
    set("MASTER_PORT", std::to_string(free_port()));
    set("RANK", "0");
    const Ended ended = run({"test", "--worker"});
    EXPECT_EQ(ended.code, 1) << output(ended);
    EXPECT_THAT(output(ended), HasSubstr("rank 1"));
}

}  // namespace
}  // namespace axle::tests
