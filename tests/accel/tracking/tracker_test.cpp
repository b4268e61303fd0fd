// Trackers: what all have in common, resuming, and failures that stay where they are.
#include "accel/tracking/tracker.h"

#include <atomic>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <limits>
#include <mutex>
#include <thread>

#include <sys/resource.h>
#include <unistd.h>

#include "accel/accelerator.h"
#include "accel/tracking/append_file.h"
#include "accel/tracking/tensorboard.h"
#include "core/files/file.h"
#include "core/log.h"
#include "core/ops.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
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
using tests::TemporaryFolder;

// What the library says while it lives.
class Messages {
  public:
    Messages() {
        set_log_sink([this](LogLevel level, std::string_view text) {
            const std::lock_guard lock(mutex_);
            if (level >= LogLevel::warning) texts_.emplace_back(text);
        });
    }
    ~Messages() { set_log_sink({}); }
    std::vector<std::string> take() {
        const std::lock_guard lock(mutex_);
        return std::exchange(texts_, {});
    }

  private:
    std::mutex mutex_;
    std::vector<std::string> texts_;
};

// Remembers what it is told, and throws where it is asked to.
struct Recorder : Tracker {
    explicit Recorder(std::string name_, std::string fails_ = "")
        : own_name(std::move(name_)), fails(std::move(fails_)) {}

    std::string name() const override { return own_name; }
    void start() override { record("start"); }
    void store_init_configuration(const Tree& config) override { record(str("config ", config)); }
    void log(const Tree& values, std::optional<std::int64_t> step, const Tree& options) override {
        std::string call = str("log ", values);
        if (step) call += str(" at ", *step);
        if (!options.is_null()) call += str(" with ", options);
        record(call);
    }
    void log_images(const Tree&, std::optional<std::int64_t>, const Tree&) override {
        record("log_images");
    }
    void log_table(const std::string& table, const std::vector<std::string>&, const Tree&,
                   std::optional<std::int64_t>, const Tree&) override {
        record("log_table " + table);
    }
    void finish() override { record("finish"); }

    void record(const std::string& call) {
        calls.push_back(call);
        if (!fails.empty() && call.rfind(fails, 0) == 0) throw std::runtime_error("out of paper");
    }

    std::string own_name, fails;
    std::vector<std::string> calls;
};

accel::AcceleratorOptions with(std::vector<LogWith> log_with, const std::string& folder = "") {
    return {.log_with = std::move(log_with), .project_dir = folder};
}

// --- choosing

// Covers 11.filter_trackers.
TEST(LogWith, AnUnknownNameIsRefusedWithTheNearest) {
    expect_error<ValueError>({"log_with: ", "'tensorbord'", "'tensorboard'", "jsonl", "csv"},
                             [] { Accelerator accelerator(with({"tensorbord"}, "x")); });
    expect_error<ValueError>({"log_with: ", "'wandbb'", "'wandb'"},
                             [] { Accelerator accelerator(with({"wandbb"}, "x")); });
}

// Covers 11.LoggerType, 11.filter_trackers, 31.comet_ml.
TEST(LogWith, WhatNeedsPythonIsLeftOutWithOneWarning) {
    Messages messages;
    const TemporaryFolder folder;
    Accelerator accelerator(
        with({"wandb", "jsonl", "comet_ml", "aim", "mlflow", "clearml", "dvclive", "trackio"},
             folder.path()));
    EXPECT_THAT(messages.take(),
                ElementsAre(HasSubstr("wandb, comet_ml, aim, mlflow, clearml, dvclive, trackio")));
    accelerator.init_trackers("run");
    ASSERT_THAT(accelerator.trackers(), SizeIs(1));
    EXPECT_EQ(accelerator.trackers()[0]->name(), "jsonl");
}

// Covers 11.filter_trackers.
TEST(LogWith, ATrackerThatWritesNeedsAFolder) {
    for (const char* name : {"tensorboard", "jsonl", "csv", "all"})
        expect_error<ValueError>({"log_with: ", "logging_dir"},
                                 [&] { Accelerator accelerator(with({name})); });
}

// Covers 11.filter_trackers, 11.log_with, 31.log_with.
TEST(LogWith, ANameCountsOnceAndAllMeansAll) {
    const TemporaryFolder folder;
    const auto mine = std::make_shared<Recorder>("mine");
    Accelerator accelerator(with({mine, "all", "csv", "csv"}, folder.path()));
    accelerator.init_trackers("run");
    std::vector<std::string> names;
    for (const Tracker* tracker : accelerator.trackers()) names.push_back(tracker->name());
    EXPECT_THAT(names, testing::IsSupersetOf({"mine", "tensorboard", "jsonl", "csv"}));
    EXPECT_EQ(std::count(names.begin(), names.end(), "csv"), 1);
}

// Covers 11.tensorboard.
TEST(LogWith, TheLoggingFolderGoesBeforeTheProjects) {
    const TemporaryFolder folder;
    Accelerator accelerator(
        {.log_with = {"jsonl"}, .project_dir = folder / "project", .logging_dir = folder / "logs"});
    accelerator.init_trackers("run");
    EXPECT_TRUE(std::filesystem::exists(folder / "logs/run/metrics.jsonl"));
    EXPECT_EQ(Accelerator({.project_dir = "p"}).logging_dir(), "p");
}

// Covers 11.register_tracker_class, 11.init_kwargs.
TEST(RegisterTrackerClass, MakesANameKnown) {
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
    // The next test finds one that needs nothing of this one.
    accel::register_tracker_class({"printer", false, [](const TrackerRun&) {
                                       return std::make_shared<Recorder>("printer");
                                   }});
}

// Names of services are Accelerate's; one that is registered is no longer left out.
// Covers 11.LoggerType, 11.wandb.
TEST(LogWith, TakesLoggerTypesAndRegisteredServices) {
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
TEST(Trackers, AreStartedConfiguredFedAndFinishedOnce) {
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

TEST(Trackers, TheDestructorFinishes) {
    const auto mine = std::make_shared<Recorder>("mine");
    {
        Accelerator accelerator(with({mine}));
        accelerator.init_trackers("run");
    }
    EXPECT_THAT(mine->calls, ElementsAre("start", "finish"));
}

// Covers 11.get_tracker, 11.GeneralTracker.
TEST(Trackers, GetTrackerUnwrapsAndNamesWhatThereIs) {
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

TEST(Trackers, WhatIsNoMapIsRefused) {
    Accelerator accelerator;
    expect_error<ValueError>({"log: values"}, [&] { accelerator.log(Tree(3)); });
    expect_error<ValueError>({"init_trackers: config"},
                             [&] { accelerator.init_trackers("run", Tree(3)); });
}

// --- what every built-in tracker does

class BuiltIn : public testing::TestWithParam<const char*> {
  protected:
    static std::string name() { return GetParam(); }
    std::string folder() const { return folder_ / "run"; }
    // All that it wrote.
    std::string written() const {
        std::string all;
        for (const auto& entry : std::filesystem::recursive_directory_iterator(folder()))
            if (entry.is_regular_file()) all += read_file(entry.path());
        return all;
    }
    template <class F>
    void run(const Tree& options, F&& f) {
        Accelerator accelerator(with({name()}, folder_.path()));
        accelerator.init_trackers("run", {{"lr", 1e-5}, {"deep", {{"flag", true}}}},
                                  {{name(), options}});
        f(accelerator);
    }

    TemporaryFolder folder_;
    Messages messages_;
};

// Covers 11.tensorboard, 11.values, 30.20.
TEST_P(BuiltIn, TakesEveryKindOfValue) {
    run({}, [&](Accelerator& accelerator) {
        accelerator.log({{"i", 1},
                         {"x", 0.1},
                         {"nan", NAN},
                         {"flag", true},
                         {"text", "a,\"b\"\nc"},
                         {"none", Tree()},
                         {"list", Tree::list({1, 2})},
                         {"nested", {{"deep", {{"x", 2}}}}},
                         {"scalar", full({}, 0.5)},
                         {"weights", arange(0, 9, 1)},
                         {"nothing", zeros({0})}},
                        1);
        accelerator.log({}, 2);
        accelerator.log({{"x", 0.2}});
        Tracker& tracker = accelerator.get_tracker(name());
        tracker.log_images({{"one", ones({2, 2})}, {"two", Tree::list({ones({3, 2, 2})})}}, 3);
        tracker.log_images({{"hwc", ones({2, 2, 3})}}, 3, {{"dataformats", "HWC"}});
        tracker.log_table("table", {"a", "b"}, Tree::list({Tree::list({1, "x"})}), 3);
    });
    EXPECT_THAT(messages_.take(), IsEmpty());
}

// Covers 11.tensorboard.
TEST_P(BuiltIn, WritesEachLogAtOnce) {
    run({}, [&](Accelerator& accelerator) {
        accelerator.log({{"first", 1}}, 1);
        EXPECT_THAT(written(), HasSubstr("first"));
        accelerator.log({{"second", 1}}, 2);
        EXPECT_THAT(written(), HasSubstr("second"));
    });
}

// Covers 11.init_kwargs.
TEST_P(BuiltIn, RefusesOptionsThatItDoesNotHave) {
    expect_error<ValueError>({"tracker ", "'purge_steps'", "'purge_step'"}, [&] {
        run({{"purge_steps", 3}}, [](Accelerator&) {});
    });
    expect_error<ValueError>({"tracker ", "purge_step must", "-1"}, [&] {
        run({{"purge_step", -1}}, [](Accelerator&) {});
    });
}

// Covers 30.20.
TEST_P(BuiltIn, ItsFailuresAreSaidOnceAndStopNothing) {
    write_file_atomically(folder(), "a file where a folder should be");
    const auto other = std::make_shared<Recorder>("other");
    {
        Accelerator accelerator(with({name(), other}, folder_.path()));
        accelerator.init_trackers("run", {{"lr", 1}});
        for (int step = 0; step < 3; ++step) accelerator.log({{"x", 1}}, step);
    }
    EXPECT_THAT(messages_.take(),
                ElementsAre(testing::AllOf(HasSubstr("tracker '" + name() + "': start: "),
                                           HasSubstr(folder()))));
    EXPECT_THAT(other->calls, SizeIs(6));
}

// Files of this process can't grow beyond a size while it lives.
class FullDisk {
  public:
    explicit FullDisk(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
        ::getrlimit(RLIMIT_FSIZE, &before_);
        const rlimit limit = {bytes, before_.rlim_max};
        ::setrlimit(RLIMIT_FSIZE, &limit);
    }
    ~FullDisk() {
        ::setrlimit(RLIMIT_FSIZE, &before_);
        std::signal(SIGXFSZ, handler_);
    }

  private:
    void (*handler_)(int);
    rlimit before_ = {};
};

TEST_P(BuiltIn, GoesOnWhenTheDiskHasRoomAgain) {
    run({}, [&](Accelerator& accelerator) {
        accelerator.log({{"x", 1}}, 1);
        const std::string before = written();
        {
            const FullDisk full(60);
            for (int step = 2; step < 9; ++step) accelerator.log({{"x", 0.12345678901}}, step);
        }
        EXPECT_THAT(messages_.take(), ElementsAre(HasSubstr("tracker '" + name() + "': log: ")));
        accelerator.log({{"x", 1}}, 9);
    });
    EXPECT_THAT(messages_.take(), IsEmpty());
    // Nothing half stands in the file: what comes behind it still reads.
    run({{"purge_step", 100}}, [](Accelerator&) {});
    const std::string expected = name() == "jsonl" ? "{\"step\": 9, \"x\": 1}\n"
                                 : name() == "csv" ? "\n9,1\n"
                                                   : "";
    EXPECT_THAT(written(), HasSubstr(expected));
}

INSTANTIATE_TEST_SUITE_P(Trackers, BuiltIn, testing::Values("tensorboard", "jsonl", "csv"),
                         [](const auto& param) { return std::string(param.param); });

// --- failures of the user's own

TEST(Trackers, AnExceptionInAnyMethodStopsNothing) {
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

TEST(Trackers, OneThatCannotEvenSayItsNameStopsNothing) {
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

TEST(AppendFile, AFullDeviceIsNamed) {
    accel::AppendFile file("/dev/full");
    for (int i = 0; i < 2; ++i)
        expect_error<FileError>({"/dev/full: can't write: "}, [&] { file.append("x"); });
}

TEST(AppendFile, OfAPieceThatDoesNotFitNothingStays) {
    const TemporaryFolder folder;
    accel::AppendFile file(folder / "f");
    file.append("12345678");
    {
        const FullDisk full(10);
        expect_error<FileError>({(folder / "f").c_str(), "can't write"},
                                [&] { file.append("abcd"); });
        EXPECT_EQ(read_file(folder / "f"), "12345678");
        file.append("ab");
    }
    file.append("c");
    EXPECT_EQ(read_file(folder / "f"), "12345678abc");
}

// --- files

struct Files {
    TemporaryFolder folder;
    template <class F>
    std::string csv(const Tree& options, F&& f) {
        return written("csv", "metrics.csv", options, f);
    }
    template <class F>
    std::string jsonl(const Tree& options, F&& f) {
        return written("jsonl", "metrics.jsonl", options, f);
    }
    template <class F>
    std::string written(const char* name, const std::string& file, const Tree& options, F&& f) {
        Accelerator accelerator(with({name}, folder.path()));
        accelerator.init_trackers("run", {{"lr", 1e-5}, {"w", full({}, 2)}}, {{name, options}});
        f(accelerator);
        accelerator.end_training();
        return read_file(folder / "run/" + file);
    }
};

TEST(Csv, QuotesAsRfc4180Says) {
    Files files;
    EXPECT_EQ(
        files.csv(
            {},
            [](Accelerator& a) {
                a.log({{"plain", "x y"}, {"a,b", "c,d"}, {"q", "say \"hi\""}, {"n", "two\nlines"}},
                      1);
            }),
        "step,plain,\"a,b\",q,n\n1,x y,\"c,d\",\"say \"\"hi\"\"\",\"two\nlines\"\n");
}

TEST(Csv, NumbersReadBackTheSame) {
    Files files;
    EXPECT_EQ(files.csv({},
                        [](Accelerator& a) {
                            a.log({{"a", 0.1},
                                   {"b", 1e-300},
                                   {"c", -3},
                                   {"d", NAN},
                                   {"e", -INFINITY},
                                   {"f", true}},
                                  7);
                        }),
              "step,a,b,c,d,e,f\n7,0.1,1e-300,-3,NaN,-Infinity,true\n");
}

TEST(Csv, ColumnsGrow) {
    Files files;
    EXPECT_EQ(files.csv({},
                        [](Accelerator& a) {
                            a.log({{"loss", 1}}, 1);
                            a.log({{"loss", 2}, {"note", "x\n,\""}}, 2);
                            a.log({{"val", {{"acc", 0.5}}}, {"loss", 3}}, 3);
                            a.log({{"loss", 4}}, 4);
                        }),
              "step,loss,note,val/acc\n1,1,,\n2,2,\"x\n,\"\"\",\n3,3,,0.5\n4,4,,\n");
}

// Covers 11.csv.
TEST(Csv, ResumesAtAStep) {
    Files files;
    files.csv({}, [](Accelerator& a) {
        for (int step = 1; step <= 5; ++step) a.log({{"x", step}, {"a\"b", "line\nbreak"}}, step);
    });
    const std::string kept = "step,x,\"a\"\"b\"\n1,1,\"line\nbreak\"\n2,2,\"line\nbreak\"\n";
    EXPECT_EQ(files.csv({{"purge_step", 3}},
                        [](Accelerator& a) {
                            a.log({{"x", 9}}, 3);
                        }),
              kept + "3,9,\n");
    // A line that a crash cut short, and what is no table.
    for (const char* half : {"4,1", "4,\"", "x,1,2\n", "4\n", "\n"}) {
        std::ofstream(files.folder / "run/metrics.csv") << kept << half;
        EXPECT_EQ(files.csv({{"purge_step", 9}}, [](Accelerator&) {}), kept) << half;
    }
    std::ofstream(files.folder / "run/metrics.csv") << "something else\n1,2\n";
    EXPECT_EQ(files.csv({{"purge_step", 9}},
                        [](Accelerator& a) {
                            a.log({{"x", 1}}, 9);
                        }),
              "step,x\n9,1\n");
    EXPECT_EQ(files.csv({}, [](Accelerator& a) { a.log({{"y", 1}}); }), "step,y\n1,1\n");
}

TEST(Jsonl, SummarisesTensorsAndKeepsMapsNested) {
    Files files;
    EXPECT_EQ(files.jsonl({},
                          [](Accelerator& a) {
                              a.log({{"step", 99},
                                     {"w", tensor({1, 2, 3}, {3})},
                                     {"one", full({1}, 0.5)},
                                     {"m", {{"a", 1}}}},
                                    4);
                              a.log({{"next", true}});
                          }),
              "{\"step\": 4, \"w\": {\"min\": 1.0, \"max\": 3.0, \"mean\": 2.0, \"std\": 1.0}, "
              "\"one\": 0.5, \"m\": {\"a\": 1}}\n{\"step\": 5, \"next\": true}\n");
    EXPECT_EQ(from_json(read_file(files.folder / "run/config.json"))["w"].number(), 2);
}

// Covers 11.csv.
TEST(Jsonl, ResumesAtAStep) {
    Files files;
    files.jsonl({}, [](Accelerator& a) {
        for (int step = 1; step <= 5; ++step) a.log({{"x", step}}, step);
    });
    EXPECT_EQ(files.jsonl({{"purge_step", 3}},
                          [](Accelerator& a) {
                              a.log({{"x", 9}});
                          }),
              "{\"step\": 1, \"x\": 1}\n{\"step\": 2, \"x\": 2}\n{\"step\": 3, \"x\": 9}\n");
}

// Covers 11.tensorboard.
TEST(TensorBoard, HyperparametersAreYaml) {
    const TemporaryFolder folder;
    Accelerator accelerator(with({"tensorboard"}, folder.path()));
    accelerator.init_trackers("run", {{"lr", 1e-5},
                                      {"n", 3},
                                      {"x", INFINITY},
                                      {"text", "a: \"b\""},
                                      {"none", Tree()},
                                      {"deep", {{"flag", true}}}});
    EXPECT_EQ(read_file(folder / "run/hparams.yml"),
              "\"lr\": 1.0e-05\n\"n\": 3\n\"x\": .inf\n\"text\": \"a: \\\"b\\\"\"\n\"none\": null\n"
              "\"deep/flag\": true\n");
    auto& tracker =
        dynamic_cast<accel::TensorBoardTracker&>(accelerator.get_tracker("tensorboard", true));
    tracker.writer().add_scalar("own", 1, 2);
    accelerator.end_training();
    expect_error<UsageError>({"tensorboard: "}, [&] { tracker.writer(); });
}

// --- the log sink

TEST(Log, GoesToTheSinkAndBackToStderr) {
    {
        Messages messages;
        log(LogLevel::warning, "one ", 1);
        log(LogLevel::info, "not taken by this one");
        EXPECT_THAT(messages.take(), ElementsAre("one 1"));
    }
    testing::internal::CaptureStderr();
    log(LogLevel::debug, "quiet");
    log(LogLevel::info, "quiet");
    log(LogLevel::warning, "careful");
    log(LogLevel::error, "broken");
    EXPECT_EQ(testing::internal::GetCapturedStderr(),
              "axle: warning: careful\naxle: error: broken\n");
}

TEST(Log, ASinkThatThrowsOrSpeaksOrIsReplacedHarmsNobody) {
    set_log_sink([](LogLevel, std::string_view) { throw 1; });
    log(LogLevel::error, "x");
    int calls = 0;
    set_log_sink([&](LogLevel level, std::string_view) {
        ++calls;
        set_log_sink([&](LogLevel, std::string_view) { calls += 10; });
        log(level, "again");
    });
    log(LogLevel::error, "x");
    EXPECT_EQ(calls, 11);
    set_log_sink({});
}

TEST(Log, ThreadsMayLogWhileTheSinkChanges) {
    std::atomic<int> calls = 0;
    std::vector<std::thread> threads;
    threads.reserve(4);
    for (int t = 0; t < 4; ++t)
        threads.emplace_back([&] {
            for (int i = 0; i < 200; ++i) {
                set_log_sink([&](LogLevel, std::string_view) { ++calls; });
                log(LogLevel::error, "x");
            }
        });
    for (std::thread& thread : threads) thread.join();
    set_log_sink({});
    EXPECT_EQ(calls, 800);
}

}  // namespace
}  // namespace axle
