// Tests regular expressions, also those of files that are not trusted.
#include "core/text/pattern.h"

#include <string>

#include "tests/close.h"

namespace axle {
namespace {

using tests::expect_error;

TEST(Pattern, MatchesTheWholeTextOrAPartOfIt) {
    const Pattern pattern("layers\\.[0-9]+");
    EXPECT_TRUE(pattern.matches("layers.12"));
    EXPECT_FALSE(pattern.matches("layers.12\n"));
    EXPECT_FALSE(pattern.matches("layers.12.weight"));
    EXPECT_TRUE(pattern.is_found_in("model.layers.12.weight"));
    EXPECT_FALSE(pattern.is_found_in("layers.x"));
    EXPECT_FALSE(Pattern("a|ab").matches("abc"));
    EXPECT_TRUE(Pattern("a|ab").matches("ab"));
    EXPECT_TRUE(Pattern("^bias$").is_found_in("bias"));
}

TEST(Pattern, RejectsInvalidLongAndDeepExpressions) {
    expect_error<ValueError>({"missing closing parenthesis"}, [] { Pattern("("); });
    expect_error<ValueError>({"pattern string is longer"},
                             [] { Pattern(std::string(70'000, 'a')); });
    expect_error<ValueError>({"parentheses are too deeply nested"},
                             [] { Pattern(std::string(300, '(') + std::string(300, ')')); });
}

TEST(Pattern, EndsASearchThatNeedsTooManySteps) {
    const Pattern pattern("(a+)+b?c");
    const std::string text = std::string(40, 'a') + "bbc";
    expect_error<ValueError>({"the search for the regular expression '(a+)+b?c' failed"},
                             [&] { pattern.matches(text); });
}

}  // namespace
}  // namespace axle
