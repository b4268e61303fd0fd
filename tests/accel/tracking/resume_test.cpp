// Tests the files of trackers in runs that load_state() resumes, and in new runs in the same
// folder.
#include <algorithm>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "accel/accelerator.h"
#include "core/files/file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/accel/tracking/recorder.h"
#include "tests/close.h"
#include "tests/dist/ranks.h"
#include "tests/temporary_folder.h"

namespace axle {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;
using tests::Messages;
using tests::Recorder;
using tests::TemporaryFolder;
using tests::with;

// Tests a tracker that writes a file. Every row has the step and one value, "x".
class FileTracker : public testing::TestWithParam<const char*> {
  protected:
    static std::string name() { return GetParam(); }
    std::string file(const std::string& number = "") const {
        return folder_ / ("run/metrics" + number + "." + name());
    }
    accel::AcceleratorOptions options() const { return with({name()}, folder_.path()); }
    std::string checkpoint() const { return folder_ / "checkpoint"; }

    // Returns the rows of a file as "step:x".
    static std::vector<std::string> rows(const std::string& path) {
        std::vector<std::string> all;
        std::istringstream text(read_file(path));
        for (std::string line; std::getline(text, line);) {
            if (line == "step,x") continue;
            if (!line.starts_with('{')) {
                std::replace(line.begin(), line.end(), ',', ':');
                all.push_back(line);
            } else {
                const Tree row = from_json(line);
                all.push_back(str(row["step"].integer(), ':', row["x"].integer()));
            }
        }
        return all;
    }
    std::vector<std::string> rows() const { return rows(file()); }

    // Logs x for the given steps.
    static void log(Accelerator& accelerator, std::vector<std::int64_t> steps, std::int64_t x) {
        for (const std::int64_t step : steps) accelerator.log({{"x", x}}, step);
    }
    // Runs until step 5 with x = 0. Saves a checkpoint after step 3 was logged.
    void run_and_crash() const {
        Accelerator accelerator(options());
        accelerator.init_trackers("run");
        log(accelerator, {1, 2, 3}, 0);
        accelerator.save_state(checkpoint());
        log(accelerator, {4, 5}, 0);
    }

    TemporaryFolder folder_;
};

// Covers 3.init_trackers, 11.csv.
TEST_P(FileTracker, ContinuesItsFileIfLoadStateIsCalledBeforeOrAfterInitTrackers) {
    for (const bool loads_first : {false, true}) {
        fs::remove_all(folder_ / "run");
        run_and_crash();
        ASSERT_THAT(rows(), ElementsAre("1:0", "2:0", "3:0", "4:0", "5:0"));
        Accelerator accelerator(options());
        if (loads_first) accelerator.load_state(checkpoint());
        accelerator.init_trackers("run");
        if (!loads_first) accelerator.load_state(checkpoint());
        EXPECT_EQ(rows().size(), 5u) << "the first log() cuts the file";
        log(accelerator, {4}, 7);
        EXPECT_THAT(rows(), ElementsAre("1:0", "2:0", "3:0", "4:7"));
        log(accelerator, {5, 6}, 7);
        EXPECT_THAT(rows(), ElementsAre("1:0", "2:0", "3:0", "4:7", "5:7", "6:7"));
        EXPECT_FALSE(fs::exists(file(".1")));
    }
}

// The main process writes the file, and all processes load the checkpoint.
TEST_P(FileTracker, ContinuesItsFileOnTwoProcesses) {
    tests::on_ranks(2, [&](const std::shared_ptr<dist::ProcessGroup>& group) {
        const auto start = [&] {
            accel::AcceleratorOptions all = options();
            all.process_group = group;
            auto accelerator = std::make_unique<Accelerator>(std::move(all));
            accelerator->init_trackers("run");
            return accelerator;
        };
        {
            const auto accelerator = start();
            log(*accelerator, {1, 2, 3}, 0);
            accelerator->save_state(checkpoint());
            log(*accelerator, {4, 5}, 0);
            accelerator->end_training();
        }
        const auto resumed = start();
        resumed->load_state(checkpoint());
        log(*resumed, {4, 5, 6}, 7);
        resumed->end_training();
    });
    EXPECT_THAT(rows(), ElementsAre("1:0", "2:0", "3:0", "4:7", "5:7", "6:7"));
}

TEST_P(FileTracker, ContinuesItsFileInEveryResumedRun) {
    run_and_crash();
    for (const std::int64_t x : {1, 2, 3}) {
        Accelerator accelerator(options());
        accelerator.init_trackers("run");
        accelerator.load_state(checkpoint());
        // A checkpoint that is saved before the first log() records the logged steps of the loaded
        // checkpoint.
        accelerator.save_state(checkpoint());
        log(accelerator, {4, 5}, x);
    }
    EXPECT_THAT(rows(), ElementsAre("1:0", "2:0", "3:0", "4:3", "5:3"));
}

TEST_P(FileTracker, KeepsTheRowOfTheSavedStepIfItWasLoggedAfterTheSave) {
    {
        Accelerator accelerator(options());
        accelerator.init_trackers("run");
        log(accelerator, {1, 2}, 0);
        accelerator.save_state(checkpoint());  // saves before step 3 is logged
        log(accelerator, {3, 4}, 0);
    }
    Accelerator accelerator(options());
    accelerator.init_trackers("run");
    accelerator.load_state(checkpoint());
    log(accelerator, {4}, 7);
    EXPECT_THAT(rows(), ElementsAre("1:0", "2:0", "3:0", "4:7"));
}

TEST_P(FileTracker, KeepsRowsUpToTheCheckpointIfAnEarlierStepIsLogged) {
    run_and_crash();
    Accelerator accelerator(options());
    accelerator.load_state(checkpoint());
    accelerator.init_trackers("run");
    log(accelerator, {0, 4}, 7);
    EXPECT_THAT(rows(), ElementsAre("1:0", "2:0", "3:0", "0:7", "4:7"));
}

TEST_P(FileTracker, ContinuesTheStepNumbersOfLogsWithoutAStep) {
    const auto log_unnamed = [](Accelerator& accelerator, int count, int x) {
        for (int i = 0; i < count; ++i) accelerator.log({{"x", x}});
    };
    {
        Accelerator accelerator(options());
        accelerator.init_trackers("run");
        log_unnamed(accelerator, 2, 0);
        accelerator.save_state(checkpoint());
        log_unnamed(accelerator, 2, 0);
    }
    Accelerator accelerator(options());
    accelerator.init_trackers("run");
    accelerator.load_state(checkpoint());
    log_unnamed(accelerator, 3, 7);
    EXPECT_THAT(rows(), ElementsAre("1:0", "2:0", "3:7", "4:7", "5:7"));
}

TEST_P(FileTracker, ContinuesFromACheckpointWithoutLoggedSteps) {
    const auto resume = [&](std::optional<std::int64_t> step) {
        {
            Accelerator accelerator(options());
            accelerator.save_state(checkpoint());  // there are no trackers yet
            fs::remove_all(folder_ / "run");
            accelerator.init_trackers("run");
            log(accelerator, {1, 2, 3, 4}, 0);
        }
        Accelerator accelerator(options());
        accelerator.init_trackers("run");
        accelerator.load_state(checkpoint());
        accelerator.log({{"x", 7}}, step);
        return rows();
    };
    EXPECT_THAT(resume(3), ElementsAre("1:0", "2:0", "3:7"));
    EXPECT_THAT(resume({}), ElementsAre("1:0", "2:0", "3:0", "4:0", "5:7"));
}

TEST_P(FileTracker, RenamesTheFileOfAnEarlierRun) {
    for (const std::int64_t x : {1, 2, 3}) {
        Accelerator accelerator(options());
        accelerator.init_trackers("run");
        if (x > 1) {
            EXPECT_THAT(rows(), ElementsAre(str("1:", x - 1))) << "before the first log()";
        }
        log(accelerator, {1}, x);
    }
    EXPECT_THAT(rows(), ElementsAre("1:3"));
    EXPECT_THAT(rows(file(".1")), ElementsAre("1:1"));
    EXPECT_THAT(rows(file(".2")), ElementsAre("1:2"));
    EXPECT_FALSE(fs::exists(file(".3")));
}

TEST_P(FileTracker, KeepsItsFileInARunThatLogsNothing) {
    run_and_crash();
    Accelerator accelerator(options());
    accelerator.init_trackers("run");
    accelerator.load_state(checkpoint());
    accelerator.end_training();
    EXPECT_THAT(rows(), ElementsAre("1:0", "2:0", "3:0", "4:0", "5:0"));
}

TEST_P(FileTracker, KeepsRowsOfThisRunIfLoadStateFollowsTheFirstLog) {
    Accelerator accelerator(options());
    accelerator.init_trackers("run");
    log(accelerator, {1, 2}, 0);
    accelerator.save_state(checkpoint());
    log(accelerator, {3, 4}, 0);
    accelerator.load_state(checkpoint());  // a program may load its best weights at the end
    log(accelerator, {3}, 7);
    EXPECT_THAT(rows(), ElementsAre("1:0", "2:0", "3:0", "4:0", "3:7"));
}

TEST_P(FileTracker, PrefersPurgeStepToTheStepOfTheCheckpoint) {
    run_and_crash();
    Accelerator accelerator(options());
    accelerator.load_state(checkpoint());
    accelerator.init_trackers("run", {}, {{name(), {{"purge_step", 2}}}});
    EXPECT_THAT(rows(), ElementsAre("1:0"));
    log(accelerator, {4}, 7);
    EXPECT_THAT(rows(), ElementsAre("1:0", "4:7"));
}

INSTANTIATE_TEST_SUITE_P(Trackers, FileTracker, testing::Values("csv", "jsonl"),
                         [](const auto& param) { return std::string(param.param); });

struct ResumeRecorder : Recorder {
    using Recorder::Recorder;
    void resume(std::optional<std::int64_t> purge_step) override {
        record(purge_step ? str("resume at ", *purge_step) : "resume");
    }
};

TEST(Trackers, ReceiveTheStepFromWhichAResumedRunLogsAgain) {
    const TemporaryFolder folder;
    const auto run = [&](bool loads, const std::function<void(Accelerator&)>& f) {
        const auto mine = std::make_shared<ResumeRecorder>("mine");
        Accelerator accelerator(with({mine}));
        accelerator.init_trackers("run");
        if (loads) accelerator.load_state(folder / "s");
        f(accelerator);
        return mine->calls;
    };
    EXPECT_THAT(run(false,
                    [&](Accelerator& a) {
                        a.log({{"x", 0}}, 10);
                        a.get_tracker("mine").log_table("t", {}, Tree::list(), 20);
                        a.save_state(folder / "s");
                    }),
                ElementsAre("start", "log {\"x\": 0} at 10", "log_table t"));
    EXPECT_THAT(run(true,
                    [&](Accelerator& a) {
                        a.get_tracker("mine").log_images({}, 15);
                        a.log({{"x", 0}}, 40);
                    }),
                ElementsAre("start", "resume at 21", "log_images", "log {\"x\": 0} at 40"));
    EXPECT_THAT(run(true,
                    [&](Accelerator& a) {
                        a.log({{"x", 0}}, 40);
                    }),
                ElementsAre("start", "resume at 40", "log {\"x\": 0} at 40"));
}

TEST(Trackers, AreNotCalledAgainIfTheirResumeThrows) {
    const TemporaryFolder folder;
    Messages messages;
    Accelerator().save_state(folder / "s");
    const auto mine = std::make_shared<ResumeRecorder>("mine", "resume");
    Accelerator accelerator(with({mine}));
    accelerator.load_state(folder / "s");
    accelerator.init_trackers("run");
    for (int step = 0; step < 2; ++step) accelerator.log({{"x", 0}}, step);
    EXPECT_THAT(mine->calls, ElementsAre("start", "resume at 0"));
    EXPECT_THAT(messages.take(), ElementsAre(HasSubstr("tracker 'mine': resume: out of paper")));
}

TEST(AcceleratorLog, WarnsOnceAboutValuesLoggedBeforeInitTrackers) {
    Messages messages;
    const auto log_twice = [](Accelerator& accelerator) {
        for (int step = 0; step < 2; ++step) accelerator.log({{"x", 0}}, step);
    };
    {
        Accelerator accelerator(with({std::make_shared<Recorder>("mine")}));
        log_twice(accelerator);
        EXPECT_THAT(messages.take(), ElementsAre(StartsWith("log: the values are not logged, "
                                                            "because init_trackers()")));
        accelerator.init_trackers("run");
        log_twice(accelerator);
    }
    Accelerator without_trackers;
    log_twice(without_trackers);
    EXPECT_THAT(messages.take(), ElementsAre(HasSubstr("set log_with")));
    Accelerator initialized;
    initialized.init_trackers("run");
    log_twice(initialized);
    EXPECT_THAT(messages.take(), IsEmpty());
}

}  // namespace
}  // namespace axle
