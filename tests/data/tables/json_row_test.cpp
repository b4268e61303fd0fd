// Tests that rows of JSON lines have the values and the errors of from_json().
#include "data/tables/json_row.h"

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "core/tree/tree.h"
#include "kernels/error.h"

namespace axle::data {
namespace {

using namespace std::string_view_literals;

std::string error_of(const std::function<void()>& parse) {
    try {
        parse();
    } catch (const ValueError& error) {
        return error.what();
    }
    return "";
}

std::string nested(int depth) { return std::string(depth, '[') + std::string(depth, ']'); }

TEST(ParseJsonRow, HasTheValuesOfFromJson) {
    const std::vector<std::string> texts = {
        R"({"text": "a \"b\" \\ \/ \b\f\n\r\t", "label": -3, "empty": {}, "none": []})",
        R"({"é": "日本", "escaped": "\u00e9\u65e5\ud83d\ude00\u0000", "": ""})",
        R"({"a": [true, false, null, [[], {"b": {}}]], "c": {"d": [{"e": 1}]}})",
        R"([0, -0, 1, 9223372036854775807, -9223372036854775808])",
        R"([0.0, -0.0, 1e5, 1E+5, 2.5e-3, 1.7976931348623157e308, 4.9e-324, 1e-400])",
        R"([0.1, 0.30000000000000004, 9007199254740993.0, 123456789012345678901234567890.5])",
        R"([2.2250738585072011e-308, 1.00000000000000011102230246251565404236316680908203125])",
        " \t{ \"a\" :\r1 , \"b\" : [ 1 , 2 ] } \t",
        "\xef\xbb\xbf{\"a\": 1}",  // after a byte order mark
        "\"" + std::string(3000, 'x') + "\\n" + std::string(3000, 'y') + "\"",
        nested(kMaxTreeDepth),
    };
    for (const std::string& text : texts) {
        const Tree expected = from_json(text), row = parse_json_row(text);
        EXPECT_EQ(to_json(row, -1), to_json(expected, -1)) << text;
    }
}

TEST(ParseJsonRow, HasTheErrorsOfFromJson) {
    const std::vector<std::string> texts = {
        "",
        "{",
        R"({"a": 1)",
        R"({"a" 1})",
        R"({"a": 1,})",
        "[1,]",
        R"({"a": 1} 2)",
        "{a: 1}",
        "nul",
        "NaN",
        "-Infinity",
        "01",
        "1.",
        ".5",
        "+1",
        "1e",
        "0x1",
        // Integers beyond int64, numbers beyond double, and duplicate keys.
        "[9223372036854775808]",
        "[-9223372036854775809]",
        "[1e400]",
        R"({"a": 1, "a": 2})",
        // Strings: escapes, control characters, surrogates without the other half.
        R"(["\x"])",
        R"(["\u12"])",
        "[\"\x01\"]",
        R"(["\ud800"])",
        R"(["\ud800\u0041"])",
        R"(["\udc00"])",
        R"({"\udfff": 1})",
        R"(["open)",
        // Zero bytes end no text.
        std::string("{}\0"sv),
        std::string("{}\0{"sv),
        nested(kMaxTreeDepth + 1),
        nested(100'000),
        std::string(100'000, '['),
    };
    for (const std::string& text : texts) {
        const std::string expected = error_of([&] { from_json(text); });
        EXPECT_NE(expected, "") << text.substr(0, 100);
        EXPECT_EQ(error_of([&] { parse_json_row(text); }), expected) << text.substr(0, 100);
    }
}

}  // namespace
}  // namespace axle::data
