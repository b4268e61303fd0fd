// Tests text formatting, progress bars, configuration files and JSON lines.
#include "accel/utils/text.h"

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "accel/config/config.h"
#include "accel/tracking/jsonl.h"
#include "accel/utils/progress.h"
#include "core/files/file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/close.h"
#include "tests/temporary_folder.h"

namespace axle {
namespace {

using accel::human_bytes;
using accel::human_duration;
using accel::JsonLines;
using accel::ProgressBar;
using accel::read_config;
using testing::ContainsRegex;
using testing::MatchesRegex;
using tests::expect_error;
using tests::TemporaryFolder;

TEST(HumanBytes, RoundsAndAppendsTheUnit) {
    EXPECT_EQ(human_bytes(0), "0 B");
    EXPECT_EQ(human_bytes(999), "999 B");
    EXPECT_EQ(human_bytes(1000), "1.0 kB");
    EXPECT_EQ(human_bytes(17'340'000), "17.3 MB");
    EXPECT_EQ(human_bytes(99'950), "100 kB");
    EXPECT_EQ(human_bytes(999'600), "1.0 MB");
    EXPECT_EQ(human_bytes(INT64_MAX), "9.2 EB");
}

TEST(HumanDuration, FormatsHoursMinutesAndSeconds) {
    EXPECT_EQ(human_duration(0), "0:00");
    EXPECT_EQ(human_duration(59.4), "0:59");
    EXPECT_EQ(human_duration(59.6), "1:00");
    EXPECT_EQ(human_duration(727), "12:07");
    EXPECT_EQ(human_duration(3765), "1:02:45");
    EXPECT_EQ(human_duration(360000), "100:00:00");
    EXPECT_EQ(human_duration(-1), "?");
    EXPECT_EQ(human_duration(std::stod("nan")), "?");
    EXPECT_EQ(human_duration(1e300), "?");
}

std::vector<std::string> lines_of(const std::string& text) {
    std::vector<std::string> lines;
    std::istringstream stream(text);
    for (std::string line; std::getline(stream, line);) lines.push_back(line);
    return lines;
}

TEST(ProgressBar, WritesPlainLinesWithRateAndRemainingTime) {
    std::ostringstream out;
    {
        ProgressBar bar(200, {.title = "train", .line_seconds = 0, .out = &out});
        bar.update(84, "loss 2.01");
        bar.print("val_loss 1.9");
        bar.update(200);
    }
    const auto lines = lines_of(out.str());
    ASSERT_EQ(lines.size(), 3u) << out.str();
    EXPECT_THAT(lines[0],
                MatchesRegex("train  42% 84/200 \\[0:00<[0-9:]+, [0-9]+\\.[0-9]+ step/s\\]"
                             " loss 2.01"));
    EXPECT_EQ(lines[1], "val_loss 1.9");
    EXPECT_THAT(lines[2], ContainsRegex("100% 200/200 \\[0:00<0:00, "));
    EXPECT_EQ(out.str().find('\r'), std::string::npos);
}

TEST(ProgressBar, ComputesTheRateFromItsStart) {
    std::ostringstream out;
    ProgressBar bar(1'000'000'010, {.start = 1'000'000'000, .line_seconds = 0, .out = &out});
    bar.update(1'000'000'000);
    // Without progress, the remaining time is unknown.
    EXPECT_THAT(lines_of(out.str()).at(0), ContainsRegex("<\\?, 0\\.00 step/s"));
}

TEST(ProgressBar, LimitsTheRateOfLinesButAlwaysWritesTheLastLine) {
    std::ostringstream out;
    {
        ProgressBar bar(1000, {.line_seconds = 3600, .out = &out});
        for (int i = 1; i <= 900; ++i) bar.update(i);
    }
    const auto lines = lines_of(out.str());
    ASSERT_LE(lines.size(), 2u);
    EXPECT_THAT(lines.back(), ContainsRegex(" 90% 900/1000 "));
}

TEST(ProgressBar, AcceptsATotalOfZeroAndASecondClose) {
    std::ostringstream out;
    ProgressBar bar(0, {.out = &out});
    EXPECT_NO_THROW(bar.update(0));
    EXPECT_NO_THROW(bar.close());
    EXPECT_NO_THROW(bar.close());
}

// A pseudo terminal to which stderr is connected during its lifetime.
class Terminal {
  public:
    Terminal() : master_(posix_openpt(O_RDWR | O_NOCTTY)), stderr_(dup(STDERR_FILENO)) {
        if (master_ < 0 || grantpt(master_) != 0 || unlockpt(master_) != 0) return;
        const int slave = open(ptsname(master_), O_RDWR | O_NOCTTY);
        if (slave < 0) return;
        is_open_ = true;
        dup2(slave, STDERR_FILENO);
        close(slave);
        fcntl(master_, F_SETFL, O_NONBLOCK);
    }
    ~Terminal() {
        dup2(stderr_, STDERR_FILENO);
        close(stderr_);
        if (master_ >= 0) close(master_);
    }
    // Returns whether the system has pseudo terminals. A container without devpts, for example, has
    // none.
    bool is_open() const { return is_open_; }
    // Returns the text that was written to the terminal.
    std::string shown() const {
        std::string all;
        char part[4096];
        for (ssize_t n = 0; (n = read(master_, part, sizeof(part))) > 0;)
            all.append(part, static_cast<std::size_t>(n));
        return all;
    }

  private:
    int master_, stderr_;
    bool is_open_ = false;
};

// Covers 25.total_progress, 25.progress.
TEST(ProgressBar, ShowsASecondBarOnATerminalUntilClosed) {
    const Terminal terminal;
    if (!terminal.is_open()) GTEST_SKIP() << "no pseudo terminal: is devpts mounted at /dev/pts?";
    ProgressBar total(4, {.title = "total"});
    ProgressBar epoch(2, {.title = "epoch", .leave = false, .line = 1});
    total.update(1, "loss=2.0");
    EXPECT_THAT(terminal.shown(), ContainsRegex("^\r\x1b\\[Ktotal  25%.* 1/4 .*loss=2.0$"));
    epoch.update(1);
    EXPECT_THAT(terminal.shown(), ContainsRegex("^\r\n\r\x1b\\[Kepoch  50%.* 1/2 .*\x1b\\[A$"));
    epoch.close();
    EXPECT_EQ(terminal.shown(), "\r\n\r\x1b[K\x1b[A");
    total.print("val_loss 1.9");
    EXPECT_EQ(terminal.shown(), "\r\x1b[Kval_loss 1.9\r\n");
}

std::vector<std::pair<std::string, std::string>> config(const TemporaryFolder& folder,
                                                        const std::string& text) {
    std::ofstream(folder / "c.yaml") << text;
    return read_config(folder / "c.yaml");
}

using Entries = std::vector<std::pair<std::string, std::string>>;

TEST(ReadConfig, KeepsTextAndOrderOfScalars) {
    const TemporaryFolder folder;
    EXPECT_EQ(config(folder,
                     "# a comment\nlr: 6e-4\nsteps: 0010\neval-only: yes\nout: 'a: b'\n"
                     "text: \"x # y\"\nempty:\nbetas: [0.9, 0.95]\n"),
              Entries({{"lr", "6e-4"},
                       {"steps", "0010"},
                       {"eval-only", "yes"},
                       {"out", "a: b"},
                       {"text", "x # y"},
                       {"empty", ""},
                       {"betas", "0.9,0.95"}}));
    EXPECT_EQ(config(folder, ""), Entries());
    EXPECT_EQ(config(folder, "# nothing\n"), Entries());
    EXPECT_EQ(config(folder, "{\"lr\": 0.1}"), Entries({{"lr", "0.1"}}));
}

TEST(ReadConfig, KeepsEmptyListItems) {
    const TemporaryFolder folder;
    EXPECT_EQ(config(folder, "a: []\nb: ['', x]\nc: [x, '']\n"),
              Entries({{"a", ""}, {"b", ",x"}, {"c", "x,"}}));
}

TEST(ReadConfig, RejectsInvalidContentsAndReportsTheFile) {
    const TemporaryFolder folder;
    const std::string path = folder / "c.yaml";
    const auto refused = [&](const std::string& text, const char* part) {
        expect_error<FileError>({path.c_str(), part}, [&] { config(folder, text); });
    };
    refused("lr: 1\nsteps: 2\nlr: 3\n", "'lr' is repeated");
    refused("model:\n  lr: 1\n", "'model' must be a plain value");
    refused("list: [[1, 2]]\n", "'list' must be a plain value");
    refused("list: [{a: 1}]\n", "'list' must be a plain value");
    refused("- lr\n- steps\n", "must be a map");
    refused("just text\n", "must be a map");
    refused("lr: [1, 2\n", "not YAML");
    refused("lr: *unknown\n", "not YAML");
    refused("? [a, b]\n: 1\n", "a key");
    refused("lr: \xff\n", "'lr' must be UTF-8 text");
    refused("lr: \"\\_\"\n", "'lr' must be UTF-8 text");
    refused("\"\\e[31m\": {a: 1}\n", "'\\x1b[31m' must be a plain value");
    expect_error<FileError>({(folder / "none").c_str(), "can't open"},
                            [&] { read_config(folder / "none"); });
    expect_error<FileError>({folder.path().c_str()}, [&] { read_config(folder.path()); });
}

std::string written(const TemporaryFolder& folder) { return read_file(folder / "m.jsonl"); }

TEST(JsonLines, WritesOneObjectPerLineImmediately) {
    const TemporaryFolder folder;
    JsonLines lines(folder / "m.jsonl", 0);
    lines.write(Tree{{"step", 1}, {"loss", 0.1}});
    EXPECT_EQ(written(folder), "{\"step\": 1, \"loss\": 0.1}\n");
    lines.write(Tree{{"step", 2}, {"text", "two\nlines"}});
    EXPECT_EQ(lines_of(written(folder)).size(), 2u);
}

TEST(JsonLines, RemovesLinesAfterTheGivenStep) {
    const TemporaryFolder folder;
    std::string all;
    {
        JsonLines lines(folder / "m.jsonl", 0);
        for (int step = 1; step <= 5; ++step) lines.write(Tree{{"step", step}});
        all = written(folder);
    }
    { JsonLines lines(folder / "m.jsonl", 5); }
    EXPECT_EQ(written(folder), all);
    {
        JsonLines lines(folder / "m.jsonl", 3);
        lines.write(Tree{{"step", 4}, {"again", true}});
    }
    EXPECT_EQ(written(folder),
              "{\"step\": 1}\n{\"step\": 2}\n{\"step\": 3}\n{\"step\": 4, \"again\": true}\n");
    { JsonLines lines(folder / "m.jsonl", 0); }
    EXPECT_EQ(written(folder), "");
    { JsonLines lines(folder / "other.jsonl", 7); }
    EXPECT_EQ(read_file(folder / "other.jsonl"), "");
}

TEST(JsonLines, DropsAnIncompleteOrInvalidLastLine) {
    const TemporaryFolder folder;
    for (const char* half :
         {"{\"st", "{\"step\": 3", "{\"step\": 3}", "\xff", "", "{}\n", "[]\n"}) {
        std::ofstream(folder / "m.jsonl") << "{\"step\": 1}\n{\"step\": 2}\n" << half;
        JsonLines lines(folder / "m.jsonl", 9);
        lines.write(Tree{{"step", 10}});
        EXPECT_EQ(written(folder), "{\"step\": 1}\n{\"step\": 2}\n{\"step\": 10}\n") << half;
    }
}

TEST(JsonLines, ReportsAMissingFolder) {
    const TemporaryFolder folder;
    expect_error<FileError>({(folder / "none/m.jsonl").c_str()},
                            [&] { JsonLines lines(folder / "none/m.jsonl", 0); });
}

}  // namespace
}  // namespace axle
