#include "dist/transport/launcher_channel.h"

#include "gtest/gtest.h"

namespace axle::tests {
namespace {

using dist::ChildEnd;
using dist::LineReader;
using dist::ReportedFailure;

TEST(LauncherChannel, ReadsWrittenReports) {
    const std::string line = to_line(ChildEnd{1, 4242, 9, 0});
    EXPECT_EQ(line, "{\"rank\": 1, \"pid\": 4242, \"signal\": 9, \"exit_code\": 0}\n");
    const ChildEnd end = dist::read_child_end(line).value_or(ChildEnd());
    EXPECT_EQ(end.rank, 1);
    EXPECT_EQ(end.pid, 4242);
    EXPECT_EQ(end.signal, 9);
    EXPECT_EQ(end.exit_code, 0);

    const ReportedFailure written{
        "a \"text\"\nof two lines", 0, 1, "all_reduce", 12, 4242, "a host", true};
    const auto read = dist::read_reported_failure(to_line(written)).value_or(ReportedFailure());
    EXPECT_EQ(read.text, written.text);
    EXPECT_EQ(read.rank, 0);
    EXPECT_EQ(read.failed, 1);
    EXPECT_EQ(read.op, "all_reduce");
    EXPECT_EQ(read.sequence, 12);
    EXPECT_EQ(read.pid, 4242);
    EXPECT_EQ(read.host, "a host");
    EXPECT_TRUE(read.is_running);
    EXPECT_FALSE(
        dist::read_reported_failure(R"({"failure":"","rank":0,"failed":1,"op":"","seq":0})")
            .value_or(written)
            .is_running);
}

TEST(LauncherChannel, TruncatesLongTexts) {
    const std::string line = to_line(ReportedFailure{std::string(1 << 20, '\x01'), 0, -1, "", 0});
    EXPECT_LE(line.size(), dist::kMaxLauncherLine);
    EXPECT_TRUE(dist::read_reported_failure(line));
}

TEST(LauncherChannel, IgnoresInvalidLines) {
    for (const char* line : {"", "{", "[]", "null", "{\"rank\":1}",
                             "{\"rank\":1,\"pid\":1,\"signal\":9,\"exit_code\":\"0\"}",
                             "{\"rank\":1,\"pid\":1,\"signal\":99999999999,\"exit_code\":0}",
                             "{\"rank\":1.5,\"pid\":1,\"signal\":9,\"exit_code\":0}"}) {
        EXPECT_FALSE(dist::read_child_end(line)) << line;
        EXPECT_FALSE(dist::read_reported_failure(line)) << line;
    }
}

TEST(LauncherChannel, SplitsAStreamIntoLines) {
    LineReader reader;
    EXPECT_FALSE(reader.next());
    reader.add("one\ntw");
    EXPECT_EQ(reader.next(), "one");
    EXPECT_FALSE(reader.next());
    reader.add("o\n\nthree\n");
    EXPECT_EQ(reader.next(), "two");
    EXPECT_EQ(reader.next(), "");
    EXPECT_EQ(reader.next(), "three");
    EXPECT_FALSE(reader.next());
}

TEST(LauncherChannel, DropsAnOverlongLine) {
    LineReader reader;
    for (int i = 0; i < 100; ++i) reader.add(std::string(4096, 'x'));
    EXPECT_FALSE(reader.next());
    reader.add("xx\nnext\n");
    EXPECT_EQ(reader.next(), "next");
}

}  // namespace
}  // namespace axle::tests
