// Stops launched trainers with SIGTERM at random moments, and compares runs bit by bit.
#include <algorithm>
#include <csignal>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "accel/state/checkpoint.h"
#include "accel/state/checkpoint_folder.h"
#include "tests/figures.h"
#include "tests/tools/trainer_program.h"
#include "tests/wait.h"

namespace axle::tests {
namespace {

class Trainer : public TrainerTest {
  protected:
    Trainer() : TrainerTest("train_gpt") {}

    void SetUp() override {
        TrainerTest::SetUp();
        write_words(folder_ / "text.txt");
    }
    Arguments options(const std::string& out, const Arguments& more) {
        Arguments all = {"--preset",           "tiny",  "--data",
                         folder_ / "text.txt", "--out", folder_ / out};
        all.insert(all.end(), more.begin(), more.end());
        return all;
    }
};

// Returns the children of a process.
std::vector<pid_t> children_of(pid_t parent) {
    std::vector<pid_t> all;
    std::ifstream children(str("/proc/", parent, "/task/", parent, "/children"));
    for (pid_t child = 0; children >> child;) all.push_back(child);
    return all;
}
bool is_trainer(pid_t pid) {
    return lines_of(str("/proc/", pid, "/comm")) == Arguments{"train_gpt"};
}

struct StopFigures {
    int stops = 0, valid = 0, orphans = 0;
};

class StoppedTrainer : public Trainer {
  protected:
    // Stops a job of two processes `count` times, through the launcher or a rank.
    void expect_one_checkpoint_each(int count) {
        if (IsSkipped()) return;
        std::mt19937 random(3);
        wrapper_ = {AXLE_BIN_DIR "/axle", "launch", "--quiet", "--cpu", "--num_processes", "2"};
        StopFigures figures;
        for (; figures.stops < count; ++figures.stops) {
            SCOPED_TRACE(str("stop ", figures.stops));
            const std::string out = str("run", figures.stops);
            stop_once(out, random, figures);
            fs::remove_all(folder_ / out);
        }
        EXPECT_EQ(figures.valid, count);
        EXPECT_EQ(figures.orphans, 0);
        record_figure("sigterm", {{"processes", 2},
                                  {"signals", figures.stops},
                                  {"one_valid_new_checkpoint", figures.valid},
                                  {"orphans_after_2_seconds", figures.orphans}});
    }

  private:
    void stop_once(const std::string& out, std::mt19937& random, StopFigures& figures) {
        const pid_t launcher = start(options(out, {"--threads", "1", "--steps", "100000",
                                                   "--save-every", "25", "--eval-every", "40"}));
        ASSERT_TRUE(wait_for_rows(launcher, 1, out));
        std::this_thread::sleep_for(std::chrono::microseconds(random() % 600'000));
        // The launcher also has a child that ends the job if the launcher is killed.
        const std::vector<pid_t> children = children_of(launcher);
        std::vector<pid_t> targets = {launcher};
        std::ranges::copy_if(children, std::back_inserter(targets), is_trainer);
        ASSERT_EQ(targets.size(), 3u);
        kill(targets[random() % targets.size()], SIGTERM);
        const Ended ended = finish(launcher);
        EXPECT_EQ(ended.code, 143) << ended.text();
        for (const pid_t pid : children) {
            const bool has_ended =
                comes_true([&] { return !is_running(pid); }, std::chrono::seconds(2));
            figures.orphans += !has_ended;
        }
        const std::string folder = folder_ / out + "/checkpoints";
        const auto latest = accel::latest_good_checkpoint(folder);
        ASSERT_TRUE(latest.has_value()) << ended.text();
        // The checkpoint of the signal is that of the last step.
        const auto rows = static_cast<std::int64_t>(metrics(out).size());
        const std::int64_t iteration = accel::CheckpointReader(*latest).label().iteration;
        EXPECT_EQ(iteration, rows);
        figures.valid += ended.code == 143 && iteration == rows;
    }
};

TEST_F(StoppedTrainer, LeavesOneNewCheckpointAndNoProcess) { expect_one_checkpoint_each(4); }

TEST_F(StoppedTrainer, LongSeriesLeavesOneNewCheckpointAndNoProcessEach) {
    expect_one_checkpoint_each(100);
}

class RepeatedTrainer : public Trainer {
  protected:
    void expect_same_bits(int runs, const std::vector<int>& threads) {
        if (IsSkipped()) return;
        std::string expected_model;
        std::vector<json> expected_metrics;
        int different = 0, count = 0;
        for (const int n : threads) {
            for (int i = 0; i < runs; ++i, ++count) {
                const std::string out = str("run", count);
                const Ended ended =
                    run(options(out, {"--steps", "30", "--threads", std::to_string(n)}));
                ASSERT_EQ(ended.code, 0) << ended.text();
                if (count == 0) expected_model = model(out), expected_metrics = metrics(out);
                const bool same = model(out) == expected_model && metrics(out) == expected_metrics;
                EXPECT_TRUE(same) << n << " threads, run " << i;
                different += !same;
                fs::remove_all(folder_ / out);
            }
        }
        record_figure("determinism", {{"runs_per_number_of_threads", runs},
                                      {"threads", threads},
                                      {"runs_that_differ", different}});
    }
};

TEST_F(RepeatedTrainer, GivesTheSameBits) { expect_same_bits(1, {1, 3}); }

TEST_F(RepeatedTrainer, LongSeriesGivesTheSameBits) { expect_same_bits(10, {1, 2, 4, 8}); }

}  // namespace
}  // namespace axle::tests
