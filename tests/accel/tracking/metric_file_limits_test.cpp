// Tests that trackers read metric files with little memory, even if the files are damaged.
#include <fstream>
#include <string>

#include "accel/tracking/csv.h"
#include "accel/tracking/jsonl.h"
#include "core/files/file.h"
#include "gtest/gtest.h"
#include "tests/close.h"
#include "tests/peak_memory.h"
#include "tests/sanitized.h"
#include "tests/temporary_folder.h"

namespace axle::tests {
namespace {

constexpr std::int64_t kMiB = 1 << 20;

// A folder with a file that a tracker has written in an earlier run.
struct OldRun {
    OldRun(const std::string& name, const std::string& text) {
        create_directories(folder / "run");
        path = folder / ("run/" + name);
        std::ofstream(path, std::ios::binary) << text;
    }
    accel::TrackerRun run() const { return {.project_name = "run", .logging_dir = folder.path()}; }

    TemporaryFolder folder{FolderStorage::in_memory};
    std::string path;
};

// Resumes a run at step `purge_step`, or without a step if it is nullopt.
template <class Tracker>
void resume(const OldRun& old, std::optional<std::int64_t> purge_step) {
    Tracker tracker(old.run());
    tracker.start();
    tracker.resume(purge_step);
    tracker.finish();
}

// Without a sanitizer, a copy of such a file would need more memory than the tests allow. With a
// sanitizer, larger files take minutes.
constexpr std::int64_t kLargeFile = (kSanitized ? 1 : 16) * kMiB;

TEST(CsvTracker, ContinuesItsFileWithoutCopyingItToMemory) {
    std::string text = "step,x\n";
    for (int step = 1; std::ssize(text) < kLargeFile; ++step) text += str(step % 1000, ",7\n");
    const OldRun old("metrics.csv", text);
    const auto size = std::ssize(text);
    // The measured peak includes the pages of the mapped file once, and pages of the program.
    EXPECT_LE(peak_memory([&] { resume<accel::CsvTracker>(old, std::nullopt); }), size + 8 * kMiB);
    EXPECT_EQ(read_file(old.path), text);
    EXPECT_LE(peak_memory([&] {
                  accel::CsvTracker tracker(old.run());
                  tracker.start();
                  tracker.resume(std::nullopt);
                  tracker.log({{"y", 1}}, 5, {});
              }),
              size + 8 * kMiB);
    const std::string wide = read_file(old.path);
    EXPECT_TRUE(wide.starts_with("step,x,y\n1,7,\n2,7,\n"));
    EXPECT_TRUE(wide.ends_with(",7,\n5,,1\n"));
    EXPECT_EQ(std::count(wide.begin(), wide.end(), '\n'),
              std::count(text.begin(), text.end(), '\n') + 1);
}

TEST(CsvTracker, RejectsAHugeHeaderInBoundedMemoryAndKeepsTheFile) {
    const std::string text = "step" + std::string(4 * kMiB, ',') + "\n";
    const OldRun old("metrics.csv", text);
    EXPECT_LE(peak_memory([&] {
                  try {
                      resume<accel::CsvTracker>(old, std::nullopt);
                  } catch (const FileError&) {
                      return;
                  }
                  throw std::runtime_error("no error");
              }),
              std::ssize(text) + 8 * kMiB);
    expect_error<FileError>({old.path.c_str(), "the first line has 4194309 bytes", "1048576"},
                            [&] { resume<accel::CsvTracker>(old, std::nullopt); });
    EXPECT_EQ(InputFile(old.path).size(), 4 * kMiB + 5);
}

TEST(CsvTracker, KeepsTheRowsBeforeADamagedRow) {
    const OldRun old("metrics.csv", "step,\"a,b\"\n1,2\n2,\"x\ny\"\n3,4,5\n4,5\n");
    resume<accel::CsvTracker>(old, std::nullopt);
    EXPECT_EQ(read_file(old.path), "step,\"a,b\"\n1,2\n2,\"x\ny\"\n");
}

TEST(JsonlTracker, ContinuesItsFileWithoutCopyingItToMemory) {
    std::string text;
    for (int step = 1; std::ssize(text) < kLargeFile; ++step)
        text += str("{\"step\": ", step % 1000, ", \"loss\": 0.5}\n");
    const OldRun old("metrics.jsonl", text);
    EXPECT_LE(peak_memory([&] { resume<accel::JsonlTracker>(old, std::nullopt); }),
              std::ssize(text) + 8 * kMiB);
    EXPECT_EQ(read_file(old.path), text);
}

TEST(JsonlTracker, KeepsLongLinesWithLittleMemoryUnlessTheyAreDamaged) {
    const std::string values = [] {
        std::string list = "0";
        while (std::ssize(list) < 4 * kMiB) list += ",0";
        return list;
    }();
    const std::string before = "{\"step\": 1, \"table\": [" + values + "]}\n";
    const OldRun old("metrics.jsonl", before + "{\"step\": 2, \"table\": [" + values + "]}\n");
    EXPECT_LE(peak_memory([&] { resume<accel::JsonlTracker>(old, 2); }), 16 * kMiB);
    EXPECT_EQ(read_file(old.path), before);
    // A long line is damaged if its beginning or its end differs from what trackers write.
    for (const std::string& damaged :
         {"[" + values + "]\n", "{\"step\": 2, \"a\": [" + values + "\n",
          "{\"step\": 2.5, \"a\": [" + values + "]}\n"}) {
        const OldRun run("metrics.jsonl", before + damaged);
        resume<accel::JsonlTracker>(run, std::nullopt);
        EXPECT_EQ(read_file(run.path), before) << damaged.substr(0, 20);
    }
}

}  // namespace
}  // namespace axle::tests
