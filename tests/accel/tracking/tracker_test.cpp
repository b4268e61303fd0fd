// Tests the option log_with, the methods of the Accelerator for trackers, and errors of trackers.
#include "accel/tracking/tracker.h"

#include <filesystem>

#include "accel/accelerator.h"
#include "core/files/file.h"
#include "core/ops.h"
#include "core/system/log.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/accel/tracking/recorder.h"
#include "tests/close.h"
#include "tests/temporary_folder.h"

namespace axle {
namespace {

using accel::LogWith;
using accel::Tracker;
using accel::TrackerRun;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;
using tests::expect_error;
using tests::Messages;
using tests::Recorder;
using tests::TemporaryFolder;
using tests::with;

// --- the option log_with

// Covers 11.filter_trackers.
TEST(LogWith, RejectsUnknownNamesAndSuggestsTheNearest) {
    expect_error<ValueError>({"log_with: ", "'tensorbord'", "'tensorboard'", "jsonl", "csv"},
                             [] { Accelerator accelerator(with({"tensorbord"}, "x")); });
    expect_error<ValueError>({"log_with: unknown tracker 'wandbb'; 'wandb' needs Python", "jsonl"},
                             [] { Accelerator accelerator(with({"wandbb"}, "x")); });
}

// Covers 11.LoggerType, 11.filter_trackers, 31.comet_ml.
TEST(LogWith, SkipsPythonTrackersWithOneWarning) {
    Messages messages;
    const TemporaryFolder folder;
    Accelerator accelerator(with(
        {"wandb", "jsonl", "comet_ml", "aim", "clearml", "dvclive", "trackio"}, folder.path()));
    EXPECT_THAT(messages.take(),
                ElementsAre(HasSubstr("wandb, comet_ml, aim, clearml, dvclive, trackio")));
    accelerator.init_trackers("run");
    ASSERT_THAT(accelerator.trackers(), SizeIs(1));
    EXPECT_EQ(accelerator.trackers()[0]->name(), "jsonl");
}

// Covers 11.filter_trackers.
TEST(LogWith, NeedsAFolderForTrackersThatWriteFiles) {
    for (const char* name : {"tensorboard", "jsonl", "csv", "all"})
        expect_error<ValueError>({"log_with: ", "logging_dir"},
                                 [&] { Accelerator accelerator(with({name})); });
}

// Covers 11.filter_trackers, 11.log_with, 31.log_with.
TEST(LogWith, ExpandsTheNameAllAndIgnoresDuplicates) {
    const TemporaryFolder folder;
    const auto mine = std::make_shared<Recorder>("mine");
    Accelerator accelerator(with({mine, "all", "csv", "csv"}, folder.path()));
    accelerator.init_trackers("run");
    std::vector<std::string> names;
    for (const Tracker* tracker : accelerator.trackers()) names.push_back(tracker->name());
    EXPECT_THAT(names, testing::IsSupersetOf({"mine", "tensorboard", "jsonl", "csv", "mlflow"}));
    EXPECT_EQ(std::count(names.begin(), names.end(), "csv"), 1);
}

// Covers 11.tensorboard.
TEST(LogWith, PrefersLoggingDirToProjectDir) {
    const TemporaryFolder folder;
    Accelerator accelerator(
        {.log_with = {"jsonl"}, .project_dir = folder / "project", .logging_dir = folder / "logs"});
    accelerator.init_trackers("run");
    accelerator.log({{"x", 1}}, 1);
    EXPECT_TRUE(std::filesystem::exists(folder / "logs/run/metrics.jsonl"));
    EXPECT_EQ(Accelerator({.project_dir = "p"}).logging_dir(), "p");
}

// Covers 11.register_tracker_class, 11.init_kwargs.
TEST(RegisterTrackerClass, AddsOrReplacesATrackerByNameAndRejectsTheNameAll) {
    Messages messages;
    std::shared_ptr<Recorder> made;
    TrackerRun run;
    const accel::TrackerClass printer = {"printer", false, [&](const TrackerRun& r) {
                                             run = r;
                                             made = std::make_shared<Recorder>("printer");
                                             return made;
                                         }};
    accel::register_tracker_class(printer);
    EXPECT_THAT(messages.take(), IsEmpty());
    Accelerator accelerator(with({"printer"}));
    accelerator.init_trackers("run", {}, {{"printer", {{"colour", "blue"}}}});
    EXPECT_EQ(run.project_name, "run");
    EXPECT_EQ(run.options["colour"].string(), "blue");
    EXPECT_THAT(made->calls, ElementsAre("start"));
    accel::register_tracker_class(printer);
    EXPECT_THAT(messages.take(), ElementsAre(HasSubstr("'printer' is replaced")));
    expect_error<UsageError>({"register_tracker_class: "}, [] {
        accel::register_tracker_class({"all", false, {}});
    });
    // The registered class refers to local variables. Replaces it by a class that does not.
    accel::register_tracker_class({"printer", false, [](const TrackerRun&) {
                                       return std::make_shared<Recorder>("printer");
                                   }});
}

// The names of services are the same as in Accelerate. A service whose tracker class is registered
// is not skipped.
// Covers 11.LoggerType, 11.wandb.
TEST(LogWith, AcceptsLoggerTypesAndRegisteredServices) {
    Messages messages;
    const TemporaryFolder folder;
    EXPECT_STREQ(accel::name_of(accel::LoggerType::swanlab), "swanlab");
    accel::register_tracker_class({"swanlab", false, [](const TrackerRun&) {
                                       return std::make_shared<Recorder>("swanlab");
                                   }});
    Accelerator accelerator(with(
        {accel::LoggerType::tensorboard, accel::LoggerType::swanlab, accel::LoggerType::comet_ml},
        folder.path()));
    EXPECT_THAT(messages.take(), ElementsAre(HasSubstr("comet_ml")));
    accelerator.init_trackers("run");
    ASSERT_THAT(accelerator.trackers(), SizeIs(2));
    EXPECT_EQ(accelerator.trackers()[0]->name(), "tensorboard");
    EXPECT_EQ(accelerator.trackers()[1]->name(), "swanlab");
}

// --- the Accelerator's methods

// Covers 2.trackers, 3.init_trackers, 3.log, 11.GeneralTracker, 11.init_kwargs, 31.log_with.
TEST(Trackers, ReceiveLogsOnlyBetweenInitTrackersAndEndTraining) {
    const auto mine = std::make_shared<Recorder>("mine");
    {
        Accelerator accelerator(with({mine}));
        accelerator.log({{"early", 1}}, 1);
        EXPECT_THAT(mine->calls, IsEmpty());
        accelerator.init_trackers("run", {{"lr", 0.5}});
        accelerator.log({{"loss", 2}}, 3);
        accelerator.log({{"loss", 4}});
        accelerator.log({{"loss", 5}}, 6, {{"mine", {{"colour", "red"}}}, {"other", {{"x", 1}}}});
        accelerator.end_training();
        accelerator.end_training();
        accelerator.log({{"late", 1}}, 9);
    }
    EXPECT_THAT(
        mine->calls,
        ElementsAre("start", "config {\"lr\": 0.5}", "log {\"loss\": 2} at 3", "log {\"loss\": 4}",
                    "log {\"loss\": 5} at 6 with {\"colour\": \"red\"}", "finish"));
}

TEST(Trackers, AreFinishedByTheDestructor) {
    const auto mine = std::make_shared<Recorder>("mine");
    {
        Accelerator accelerator(with({mine}));
        accelerator.init_trackers("run");
    }
    EXPECT_THAT(mine->calls, ElementsAre("start", "finish"));
}

// Covers 11.get_tracker, 11.GeneralTracker.
TEST(GetTracker, ReturnsABlankOrNamedTrackerAndRejectsUnknownNames) {
    const auto mine = std::make_shared<Recorder>("mine");
    Accelerator accelerator(with({mine}));
    Tracker& blank = accelerator.get_tracker("anything");
    blank.log({{"loss", 1}}, 1);
    blank.log_images({});
    accelerator.init_trackers("run");
    EXPECT_EQ(&accelerator.get_tracker("mine", true), mine.get());
    EXPECT_NE(&accelerator.get_tracker("mine"), mine.get());
    accelerator.get_tracker("mine").log_images({{"x", ones({2, 2})}}, 1);
    accelerator.get_tracker("mine").log_table("t", {"a"}, Tree::list({Tree::list({1})}));
    EXPECT_THAT(mine->calls, ElementsAre("start", "log_images", "log_table t"));
    expect_error<ValueError>({"get_tracker: ", "'other'", "mine"},
                             [&] { accelerator.get_tracker("other"); });
}

TEST(LogAndInitTrackers, RejectValuesThatAreNotAMap) {
    Accelerator accelerator;
    expect_error<ValueError>({"log: values"}, [&] { accelerator.log(Tree(3)); });
    expect_error<ValueError>({"init_trackers: config"},
                             [&] { accelerator.init_trackers("run", Tree(3)); });
}

// --- errors of user-defined trackers

TEST(Trackers, DoNotStopTrainingWhenTheyThrow) {
    Messages messages;
    for (const char* fails : {"start", "config", "log", "log_images", "log_table", "finish"}) {
        const auto bad = std::make_shared<Recorder>("bad", fails);
        const auto good = std::make_shared<Recorder>("good");
        {
            Accelerator accelerator(with({bad, good}));
            accelerator.init_trackers("run", {{"lr", 1}});
            for (int step = 0; step < 3; ++step) accelerator.log({{"x", 1}}, step);
            for (Tracker* tracker : accelerator.trackers()) {
                tracker->log_images({{"x", ones({2, 2})}});
                tracker->log_table("t", {}, Tree::list());
            }
        }
        EXPECT_THAT(good->calls, SizeIs(8)) << fails;
        EXPECT_THAT(messages.take(), ElementsAre(testing::AllOf(HasSubstr("tracker 'bad': "),
                                                                HasSubstr("out of paper"))))
            << fails;
    }
}

TEST(Trackers, DoNotStopTrainingWhenNameAndMainProcessOnlyThrow) {
    struct Nameless : Recorder {
        using Recorder::Recorder;
        std::string name() const override { throw 7; }
        bool main_process_only() const override { throw 8; }
    };
    Messages messages;
    Accelerator accelerator(with({std::make_shared<Nameless>("x")}));
    accelerator.init_trackers("run");
    accelerator.log({{"x", 1}}, 1);
    EXPECT_THAT(messages.take(), ElementsAre(HasSubstr("unknown type")));
}

}  // namespace
}  // namespace axle
