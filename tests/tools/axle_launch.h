// The fixture of tests of `axle launch`.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "tests/tools/trainer_program.h"

namespace axle::tests {

class AxleLaunch : public TrainerTest {
  protected:
    AxleLaunch() : TrainerTest("axle") {}

    // Ignores the user's default configuration file and the variables that set threads and tokens.
    void SetUp() override {
        TrainerTest::SetUp();
        setenv("HF_HOME", (folder_ / "home").c_str(), 1);
        for (const char* name : {"OMP_NUM_THREADS", "AXLE_NUM_THREADS", "AXLE_JOB_TOKEN"})
            unsetenv(name);
    }

    static Arguments with(const Arguments& flags, const Arguments& program) {
        Arguments all = {"launch"};
        all.insert(all.end(), flags.begin(), flags.end());
        all.insert(all.end(), program.begin(), program.end());
        return all;
    }
    Ended launch(const Arguments& flags, const std::string& script) {
        return run(with(flags, {"sh", "-c", script}));
    }
    void expect_code(int code, const Arguments& flags, const std::string& words) {
        const Ended ended = launch(flags, "echo started");
        EXPECT_EQ(ended.code, code) << ended.text();
        EXPECT_THAT(ended.text(), testing::HasSubstr(words));
        EXPECT_THAT(ended.out, testing::IsEmpty());
    }
    // Returns the value of a variable on each rank, prefixed with the rank.
    std::vector<std::string> values(const Arguments& flags, const std::string& name) {
        Ended ended = launch(flags, "echo $RANK ${" + name + "-unset}");
        EXPECT_EQ(ended.code, 0) << ended.text();
        std::sort(ended.out.begin(), ended.out.end());
        return ended.out;
    }
    std::string value(const Arguments& flags, const std::string& name) {
        const auto all = values(flags, name);
        return all.empty() ? "nothing" : all[0].substr(2);
    }
    std::string write(const std::string& name, const std::string& text) {
        std::ofstream(folder_ / name) << text;
        fs::permissions(folder_ / name, fs::perms::owner_all);
        return folder_ / name;
    }
};

}  // namespace axle::tests
