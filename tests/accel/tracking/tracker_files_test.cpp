// Tests AppendFile, and the CSV, JSONL and YAML files that trackers write.
#include <cmath>
#include <filesystem>
#include <fstream>

#include "accel/accelerator.h"
#include "accel/tracking/append_file.h"
#include "accel/tracking/tensorboard.h"
#include "core/files/file.h"
#include "core/ops.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/accel/tracking/full_disk.h"
#include "tests/accel/tracking/recorder.h"
#include "tests/close.h"
#include "tests/temporary_folder.h"

namespace axle {
namespace {

using tests::expect_error;
using tests::FullDisk;
using tests::TemporaryFolder;
using tests::with;

TEST(AppendFile, ReportsAFullDisk) {
    accel::AppendFile file("/dev/full");
    for (int i = 0; i < 2; ++i)
        expect_error<FileError>({"/dev/full: can't write: "}, [&] { file.append("x"); });
}

TEST(AppendFile, DoesNotFollowASymbolicLink) {
    const TemporaryFolder folder;
    std::filesystem::create_symlink(folder / "victim", folder / "metrics.jsonl");
    expect_error<FileError>({(folder / "metrics.jsonl").c_str(), "can't open for writing"},
                            [&] { accel::AppendFile file(folder / "metrics.jsonl"); });
    EXPECT_FALSE(std::filesystem::exists(folder / "victim"));
}

TEST(AppendFile, WritesAllOrNothing) {
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
        accelerator.init_trackers("run", {{"lr", 1e-5}, {"w", full({}, 2.0)}}, {{name, options}});
        f(accelerator);
        accelerator.end_training();
        return read_file(folder / "run/" + file);
    }
};

// Covers 11.csv, 11.values.
TEST(CsvTracker, QuotesFieldsAccordingToRfc4180) {
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

// Covers 11.csv, 11.values.
TEST(CsvTracker, WritesNumbersExactly) {
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

// Covers 11.csv, 11.values.
TEST(CsvTracker, AddsColumnsForNewMetrics) {
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
TEST(CsvTracker, RemovesRowsFromPurgeStepOnwardAndDamagedLines) {
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
    // Tests truncated and invalid lines, then a file that is not a table.
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

// Covers 11.csv, 11.values.
TEST(JsonlTracker, SummarizesTensorsAndKeepsNestedMaps) {
    Files files;
    EXPECT_EQ(files.jsonl({},
                          [](Accelerator& a) {
                              a.log({{"step", 99},
                                     {"w", tensor({1.0, 2, 3}, {3})},
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
TEST(JsonlTracker, RemovesLinesFromPurgeStepOnward) {
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
TEST(TensorBoardTracker, WritesHyperparametersAsYaml) {
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
}

TEST(TensorBoardTracker, ReturnsItsWriterUntilTheEndOfTraining) {
    const TemporaryFolder folder;
    Accelerator accelerator(with({"tensorboard"}, folder.path()));
    accelerator.init_trackers("run");
    auto& tracker =
        dynamic_cast<accel::TensorBoardTracker&>(accelerator.get_tracker("tensorboard", true));
    tracker.writer().add_scalar("own", 1, 2);
    accelerator.end_training();
    expect_error<UsageError>({"tensorboard: "}, [&] { tracker.writer(); });
}

}  // namespace
}  // namespace axle
