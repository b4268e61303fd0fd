// Stops and kills launched trainers at random moments, and compares runs bit by bit.
#include <algorithm>
#include <chrono>
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
    // Stops `count` jobs of two processes, each by a signal to the launcher or to a rank.
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
        // The checkpoint that the signal has requested is the checkpoint of the last step.
        const auto rows = static_cast<std::int64_t>(metrics(out).size());
        const std::int64_t iteration = accel::CheckpointReader(*latest).label().iteration;
        EXPECT_EQ(iteration, rows);
        figures.valid += ended.code == 143 && iteration == rows;
    }
};

TEST_F(StoppedTrainer, LeavesOneNewCheckpointAndNoProcess) { expect_one_checkpoint_each(4); }

TEST_F(StoppedTrainer, LeavesOneNewCheckpointAndNoProcessInALongRun) {
    expect_one_checkpoint_each(100);
}

std::vector<pid_t> trainers_of(pid_t launcher) {
    std::vector<pid_t> all = children_of(launcher);
    std::erase_if(all, [](pid_t pid) { return !is_trainer(pid); });
    return all;
}

// Returns the processes whose command line contains a text.
std::vector<pid_t> processes_with(const std::string& text) {
    std::vector<pid_t> all;
    for (const auto& entry : fs::directory_iterator("/proc")) {
        const std::string name = entry.path().filename();
        if (name.find_first_not_of("0123456789") != std::string::npos) continue;
        std::ifstream file(entry.path() / "cmdline");
        std::string line;
        std::getline(file, line);  // reads nothing if the process has ended
        if (line.find(text) != std::string::npos) all.push_back(std::stoi(name));
    }
    return all;
}

// Sends signals to jobs of two trainers that start or end.
class InterruptedTrainer : public Trainer {
  protected:
    using Clock = std::chrono::steady_clock;

    // Sends SIGTERM to the launcher or a rank at a random moment of the start, sometimes even
    // before signal handlers are installed.
    void expect_stops_at_start(int count) {
        if (IsSkipped() || !prepare()) return;
        for (int i = 0; i < count && !HasFailure(); ++i) {
            SCOPED_TRACE(str("signal ", i));
            const pid_t launcher = start_run("run", kSteps);
            std::this_thread::sleep_for(random_part_of(startup_));
            std::vector<pid_t> targets = trainers_of(launcher);
            targets.push_back(launcher);
            const pid_t target = targets[random_() % targets.size()];
            kill(target, SIGTERM);
            const Ended ended = finish(launcher);
            // SIGTERM ends a launcher that has neither a signal handler nor processes yet.
            EXPECT_TRUE(ended.code == 143 || (target == launcher && ended.code == -SIGTERM))
                << ended.code << ": " << ended.text();
            expect_whole_run("run");
            EXPECT_EQ(newest_, std::ssize(metrics("run"))) << ended.text();
        }
        record_figure("sigterm_at_start", {{"processes", 2}, {"signals", count}});
    }
    // Sends SIGKILL to a rank while it starts, loads a checkpoint or joins the job.
    void expect_kills_at_start_to_end_the_job(int count) {
        if (IsSkipped() || !prepare()) return;
        for (int i = 0; i < count && !HasFailure(); ++i) {
            SCOPED_TRACE(str("kill ", i));
            const pid_t launcher = start_run("run", kSteps);
            std::vector<pid_t> ranks;
            ASSERT_TRUE(comes_true([&] { return (ranks = trainers_of(launcher)).size() == 2; }));
            std::this_thread::sleep_for(random_part_of(startup_));
            kill(ranks[random_() % 2], SIGKILL);
            expect_killed(launcher);
            expect_whole_run("run");
        }
        record_figure("kills_at_start", {{"processes", 2}, {"kills", count}});
    }
    // Sends SIGKILL to a rank after the last step, while it saves, leaves the job or ends.
    void expect_kills_at_end_to_end_the_job(int count) {
        if (IsSkipped() || !prepare()) return;
        int killed = 0;
        for (int i = 0; i < count && !HasFailure(); ++i) {
            SCOPED_TRACE(str("kill ", i));
            const std::string out = str("end", i);
            newest_ = 0;
            const pid_t launcher = start_run(out, "3");
            ASSERT_TRUE(wait_for_rows(launcher, 3, out));
            const std::vector<pid_t> ranks = trainers_of(launcher);
            std::this_thread::sleep_for(random_part_of(std::chrono::milliseconds(10)));
            if (!ranks.empty()) kill(ranks[random_() % ranks.size()], SIGKILL);
            const bool was_killed = expect_killed(launcher, true);
            expect_whole_run(out);
            EXPECT_TRUE(was_killed || newest_ == 3) << "no checkpoint of the last step";
            killed += was_killed;
            fs::remove_all(folder_ / out);
        }
        EXPECT_GT(killed, 0);
        record_figure("kills_at_end",
                      {{"processes", 2}, {"kills", count}, {"before_the_end", killed}});
    }

  private:
    static constexpr const char* kSteps = "100000";

    pid_t start_run(const std::string& out, const std::string& steps) {
        return start(options(out, {"--resume", "auto", "--threads", "1", "--steps", steps,
                                   "--save-every", "25", "--eval-every", "40"}));
    }
    std::chrono::microseconds random_part_of(Clock::duration time) {
        const auto most = std::chrono::duration_cast<std::chrono::microseconds>(time).count();
        return std::chrono::microseconds(random_() % static_cast<std::uint64_t>(most + 1));
    }
    // Writes the first checkpoint and measures how long the start takes. Returns whether all
    // expectations are met.
    bool prepare() {
        wrapper_ = {AXLE_BIN_DIR "/axle", "launch", "--quiet", "--cpu", "--num_processes", "2"};
        const auto begin = Clock::now();
        const pid_t launcher = start_run("run", kSteps);
        EXPECT_TRUE(wait_for_rows(launcher, 1, "run"));
        startup_ = Clock::now() - begin;
        kill(launcher, SIGTERM);
        EXPECT_EQ(finish(launcher).code, 143);
        expect_whole_run("run");
        EXPECT_GT(newest_, 0);
        return !HasFailure();
    }
    // Waits for a job after one of its ranks was killed, and expects that it failed. If
    // `may_have_ended` is true, the job may also have succeeded before the kill; then returns
    // false.
    bool expect_killed(pid_t launcher, bool may_have_ended = false) {
        const auto begin = Clock::now();
        const Ended ended = finish(launcher);
        EXPECT_LT(Clock::now() - begin, std::chrono::seconds(5)) << ended.text();
        if (may_have_ended && ended.code == 0) return false;
        EXPECT_EQ(ended.code, 137) << ended.text();
        // The other ranks do not report a rank that had already left the job.
        EXPECT_TRUE(may_have_ended || ended.text().find(" died") != std::string::npos)
            << ended.text();
        return true;
    }
    // Expects that a run has no process and no damaged checkpoint, and that its newest checkpoint
    // is not older than `newest_`. Then sets newest_ to its iteration, or 0 if there is none.
    void expect_whole_run(const std::string& out) {
        EXPECT_TRUE(comes_true([&] { return processes_with(folder_ / out).empty(); },
                               std::chrono::seconds(2)))
            << "a process is left";
        const std::string folder = folder_ / out + "/checkpoints";
        const auto list = accel::list_checkpoints(folder);
        EXPECT_TRUE(list.damaged.empty());
        const auto latest = accel::latest_good_checkpoint(folder);
        const std::int64_t iteration =
            latest ? accel::checkpoint_label(*latest).iteration : std::int64_t{0};
        EXPECT_GE(iteration, newest_);
        newest_ = iteration;
    }

    std::mt19937_64 random_{9};
    Clock::duration startup_{};  // the time until the first row of metrics
    std::int64_t newest_ = 0;    // the iteration of the newest checkpoint
};

TEST_F(InterruptedTrainer, KeepsItsCheckpointWhenItIsStoppedAtTheStart) {
    expect_stops_at_start(8);
}
TEST_F(InterruptedTrainer, EndsTheJobWhenARankIsKilledAtTheStart) {
    expect_kills_at_start_to_end_the_job(5);
}
TEST_F(InterruptedTrainer, EndsTheJobWhenARankIsKilledAfterTheLastStep) {
    expect_kills_at_end_to_end_the_job(10);
}
TEST_F(InterruptedTrainer, KeepsItsCheckpointWhenItIsStoppedAtTheStartInALongRun) {
    expect_stops_at_start(300);
}
TEST_F(InterruptedTrainer, EndsTheJobWhenARankIsKilledAtTheStartInALongRun) {
    expect_kills_at_start_to_end_the_job(300);
}
TEST_F(InterruptedTrainer, EndsTheJobWhenARankIsKilledAfterTheLastStepInALongRun) {
    expect_kills_at_end_to_end_the_job(300);
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

TEST_F(RepeatedTrainer, GivesTheSameBitsWithOneAndThreeThreads) { expect_same_bits(1, {1, 3}); }

TEST_F(RepeatedTrainer, GivesTheSameBitsInEachRunWithOneToEightThreadsInALongRun) {
    expect_same_bits(10, {1, 2, 4, 8});
}

}  // namespace
}  // namespace axle::tests
