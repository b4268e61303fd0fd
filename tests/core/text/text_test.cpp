#include "core/text/text.h"

#include "gtest/gtest.h"

namespace axle {
namespace {

TEST(Nearest, ReturnsClosestCandidateOrEmptyStringIfNoneIsClose) {
    const std::vector<std::string> names = {"--batch-size", "--block-size", "--lr", "--min-lr"};
    EXPECT_EQ(nearest("--batchsize", names), "--batch-size");
    EXPECT_EQ(nearest("--batch_size", names), "--batch-size");
    EXPECT_EQ(nearest("--lr", names), "--lr");
    EXPECT_EQ(nearest("--l", names), "--lr");
    EXPECT_EQ(nearest("--temperature", names), "");
    EXPECT_EQ(nearest("x", {}), "");
    EXPECT_EQ(nearest("", names), "");
}

TEST(Nearest, TreatsVeryLongNamesAsDifferent) {
    const std::string huge(20'000'000, 'x');
    EXPECT_EQ(nearest("lr", {huge, "lrs"}), "lrs");
    EXPECT_EQ(nearest(huge, {"lr", "lrs"}), "");
}

TEST(ReplaceInvalidUtf8, ReplacesEachInvalidByte) {
    EXPECT_EQ(replace_invalid_utf8("plain\n"), "plain\n");
    EXPECT_EQ(replace_invalid_utf8("caf\xC3\xA9"), "caf\xC3\xA9");
    EXPECT_EQ(replace_invalid_utf8("a\xFF\xC3z"), "a\xEF\xBF\xBD\xEF\xBF\xBDz");
    EXPECT_EQ(replace_invalid_utf8("\xED\xA0\x80"), "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD");
}

}  // namespace
}  // namespace axle
