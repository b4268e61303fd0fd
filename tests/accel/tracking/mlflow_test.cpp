// Compares the files of the tracker "mlflow" with those of MLflow's client
// (tests/golden/record_mlflow.py), and tests how it continues runs.
#include "accel/tracking/mlflow.h"

#include <filesystem>
#include <regex>
#include <string>
#include <vector>

#include "accel/accelerator.h"
#include "accel/config/yaml.h"
#include "core/files/file.h"
#include "gmock/gmock.h"
#include "tests/close.h"
#include "tests/environment_variable.h"
#include "tests/log_capture.h"
#include "tests/temporary_folder.h"

namespace axle {
namespace {

namespace fs = std::filesystem;
using accel::MlflowTracker;
using accel::TrackerRun;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::UnorderedElementsAre;
using tests::expect_error;
using tests::TemporaryFolder;

// Returns the only experiment's folder.
std::string experiment_of(const std::string& store) {
    std::vector<std::string> found;
    for (const auto& entry : fs::directory_iterator(store)) found.push_back(entry.path().string());
    EXPECT_EQ(found.size(), 1u) << store;
    return found.empty() ? "" : found.front();
}
std::vector<std::string> runs_of(const std::string& store) {
    std::vector<std::string> runs;
    for (const auto& entry : fs::directory_iterator(experiment_of(store)))
        if (entry.is_directory()) runs.push_back(entry.path().string());
    return runs;
}
std::string only_run_of(const std::string& store) {
    const std::vector<std::string> runs = runs_of(store);
    EXPECT_EQ(runs.size(), 1u);
    return runs.empty() ? "" : runs.front();
}

// Returns the values and steps of a metric, such as {"0.5 1", "0.25 2"}.
std::vector<std::string> values_of(const std::string& run, const std::string& tag) {
    std::vector<std::string> values;
    const std::string text = read_file(run + "/metrics/" + tag);
    for (std::size_t begin = 0, end; (end = text.find('\n', begin)) != std::string::npos;
         begin = end + 1) {
        const std::string line = text.substr(begin, end - begin);
        values.push_back(line.substr(line.find(' ') + 1));
    }
    return values;
}

TrackerRun run_in(const TemporaryFolder& folder, const Tree& options = {}) {
    return {.project_name = "gpt", .logging_dir = folder.path(), .options = options};
}

// Returns the text with the ids of the run, paths and times replaced as in the recorded file.
std::string normalized(std::string text, const std::string& run) {
    const auto replace = [&](const std::string& from, const std::string& to) {
        for (std::size_t at; (at = text.find(from)) != std::string::npos;)
            text.replace(at, from.size(), to);
    };
    const fs::path path(run);
    replace(path.parent_path().string(), "ROOT");
    replace(path.filename().string(), "RUN");
    replace(path.parent_path().filename().string(), "EXPERIMENT");
    return std::regex_replace(text, std::regex("\\b1[0-9]{12}\\b"), "0");
}

// Covers 11.mlflow.
TEST(MlflowTracker, WritesTheFilesOfMlflow) {
    const TemporaryFolder folder;
    MlflowTracker tracker(run_in(folder, {{"run_name", "first"}}));
    tracker.start();
    tracker.store_init_configuration({{"lr", 0.1}, {"model", {{"width", 64}}}});
    tracker.log({{"loss", 0.5}}, 1, {});
    tracker.log({{"loss", NAN}, {"eval", {{"accuracy", 1.0}}}, {"note", "text"}}, 2, {});
    tracker.finish();

    const std::string run = only_run_of(folder / "mlruns");
    const Tree expected = from_json(read_file(AXLE_TESTS_DIR "/golden/mlflow.json"));
    std::vector<std::string> paths;
    for (const auto& entry : fs::recursive_directory_iterator(experiment_of(folder / "mlruns")))
        if (entry.is_regular_file())
            paths.push_back(normalized(entry.path().string(), run).substr(5));  // after "ROOT/"
    std::vector<std::string> recorded;
    for (const auto& [path, text] : expected.entries()) recorded.push_back(path);
    EXPECT_THAT(paths, testing::UnorderedElementsAreArray(recorded));

    const auto text_of = [&](const std::string& path) {
        return normalized(read_file(run + "/" + path), run);
    };
    for (const char* path : {"metrics/loss", "metrics/eval/accuracy", "params/lr",
                             "params/model/width", "tags/mlflow.runName"})
        EXPECT_EQ(text_of(path), expected[std::string("RUN/") + path].string()) << path;
    const Tree meta = accel::parse_yaml(text_of("meta.yaml"), "meta.yaml");
    const Tree theirs = accel::parse_yaml(expected["RUN/meta.yaml"].string(), "recorded");
    EXPECT_EQ(to_json(meta), to_json(theirs));
}

TEST(MlflowTracker, AddsARunToTheExperimentOfTheSameName) {
    const TemporaryFolder folder;
    for (int i = 0; i < 2; ++i) {
        MlflowTracker tracker(run_in(folder));
        tracker.start();
        tracker.log({{"x", i}}, 1, {});
        tracker.finish();
    }
    EXPECT_EQ(runs_of(folder / "mlruns").size(), 2u);
}

TEST(MlflowTracker, CountsStepsFromOneInEachRunOfATracker) {
    const TemporaryFolder folder;
    MlflowTracker tracker(run_in(folder));
    for (int run = 0; run < 2; ++run) {
        tracker.start();
        tracker.log({{"x", 5}}, {}, {});
        tracker.finish();
    }
    for (const std::string& run : runs_of(folder / "mlruns"))
        EXPECT_THAT(values_of(run, "x"), ElementsAre("5 1"));
}

TEST(MlflowTracker, CountsStepsThatAreNotGiven) {
    const TemporaryFolder folder;
    MlflowTracker tracker(run_in(folder));
    tracker.start();
    for (const std::optional<std::int64_t> step : {std::optional<std::int64_t>(), {7}, {}})
        tracker.log({{"x", true}}, step, {});
    tracker.finish();
    EXPECT_THAT(values_of(only_run_of(folder / "mlruns"), "x"), ElementsAre("1 1", "1 7", "1 8"));
}

TEST(MlflowTracker, ContinuesTheNewestRunWithoutTheStepsThatAreLoggedAgain) {
    const TemporaryFolder folder;
    {
        MlflowTracker tracker(run_in(folder));
        tracker.start();
        tracker.store_init_configuration({{"lr", 0.1}});
        for (int step = 1; step <= 4; ++step) tracker.log({{"x", step}}, step, {});
        tracker.finish();
    }
    MlflowTracker tracker(run_in(folder));
    tracker.start();
    tracker.store_init_configuration({{"lr", 0.2}});
    tracker.resume(3);
    tracker.log({{"x", 30}}, 3, {});
    tracker.finish();
    const std::string run = only_run_of(folder / "mlruns");
    EXPECT_THAT(values_of(run, "x"), ElementsAre("1 1", "2 2", "30 3"));
    EXPECT_EQ(read_file(run + "/params/lr"), "0.1");
    EXPECT_THAT(read_file(run + "/meta.yaml"), HasSubstr("status: 3\n"));
}

TEST(MlflowTracker, ContinuesTheRunOfTheOptionRunIdAndRejectsUnknownIds) {
    const TemporaryFolder folder;
    std::vector<std::string> ids;
    for (int i = 0; i < 2; ++i) {
        MlflowTracker tracker(run_in(folder));
        tracker.start();
        tracker.log({{"x", i}}, 1, {});
        tracker.finish();
    }
    const std::string first = runs_of(folder / "mlruns").front();
    MlflowTracker tracker(run_in(folder, {{"run_id", fs::path(first).filename().string()}}));
    tracker.start();
    tracker.log({{"y", 5}}, 2, {});
    tracker.finish();
    EXPECT_THAT(values_of(first, "y"), ElementsAre("5 2"));
    MlflowTracker unknown(run_in(folder, {{"run_id", "0123abc"}}));
    expect_error<FileError>({"mlflow", "gpt", "0123abc"}, [&] { unknown.start(); });
}

TEST(MlflowTracker, ReadsMlflowsEnvironmentVariablesAndRejectsServers) {
    const TemporaryFolder folder;
    const std::string store = "file://" + (folder / "st%6Fre");
    const tests::EnvironmentVariable uri("MLFLOW_TRACKING_URI", store.c_str());
    const tests::EnvironmentVariable experiment("MLFLOW_EXPERIMENT_NAME", "other");
    MlflowTracker tracker(run_in(folder));
    tracker.start();
    tracker.finish();
    EXPECT_THAT(read_file(experiment_of(folder / "store") + "/meta.yaml"),
                HasSubstr("name: other\n"));
    const tests::EnvironmentVariable server("MLFLOW_TRACKING_URI", "http://localhost:5000");
    expect_error<ValueError>({"mlflow: MLFLOW_TRACKING_URI", "http://localhost:5000"},
                             [&] { MlflowTracker refused(run_in(folder)); });
}

TEST(MlflowTracker, RejectsInvalidTagsAndOptionsAndLogsAfterFinish) {
    const TemporaryFolder folder;
    MlflowTracker tracker(run_in(folder));
    tracker.start();
    for (const char* tag : {"../x", "a//b", "/x", "a/..", "a/./b", "x\n", "l(x)", ""})
        expect_error<ValueError>({"mlflow: a tag"}, [&] { tracker.log({{tag, 1}}, 1, {}); });
    tracker.finish();
    expect_error<UsageError>({"mlflow", "finish()"}, [&] { tracker.log({{"x", 1}}, 1, {}); });
    expect_error<ValueError>({"tracker 'mlflow': unknown option 'run_nam'", "run_name"}, [&] {
        MlflowTracker refused(run_in(folder, {{"run_nam", "x"}}));
    });
    expect_error<ValueError>({"mlflow: run_id", "'../a'"}, [&] {
        MlflowTracker refused(run_in(folder, {{"run_id", "../a"}}));
    });
}

TEST(MlflowTracker, LeavesOutLongParamsWithAWarning) {
    const TemporaryFolder folder;
    tests::LogCapture log;
    MlflowTracker tracker(run_in(folder));
    tracker.start();
    tracker.store_init_configuration({{"long", std::string(501, 'x')}, {"short", "x"}});
    tracker.finish();
    EXPECT_THAT(log.lines(), ElementsAre(HasSubstr("'long' has 501 bytes")));
    const std::string run = only_run_of(folder / "mlruns");
    EXPECT_FALSE(fs::exists(run + "/params/long"));
    EXPECT_EQ(read_file(run + "/params/short"), "x");
}

TEST(MlflowTracker, IsSelectedByLoggerTypeWithoutAProjectFolder) {
    const TemporaryFolder folder;
    Accelerator accelerator({.log_with = {accel::LoggerType::mlflow}});
    accelerator.init_trackers("run", {{"lr", 1}},
                              {{"mlflow", {{"logging_dir", folder / "store"}}}});
    accelerator.log({{"loss", 2}}, 1);
    accelerator.end_training();
    EXPECT_THAT(values_of(only_run_of(folder / "store"), "loss"), ElementsAre("2 1"));
}

}  // namespace
}  // namespace axle
