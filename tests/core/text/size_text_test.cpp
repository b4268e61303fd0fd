#include "core/text/size_text.h"

#include "tests/close.h"
#include "tests/vectors.h"

namespace axle::tests {

// Covers 13.convert_bytes.
TEST(ConvertBytes, MatchesAccelerate) {
    const nlohmann::json recorded = vectors("convert_bytes.json");
    for (const nlohmann::json& c : recorded["cases"]) {
        SCOPED_TRACE(c.dump());
        const nlohmann::json& n = c["n"];
        EXPECT_EQ(n.is_number_integer() ? convert_bytes(n.get<std::int64_t>())
                                        : convert_bytes(n.get<double>()),
                  c["s"].get<std::string>());
    }
}

TEST(ConvertFileSizeToInt, MatchesAccelerate) {
    const nlohmann::json recorded = vectors("convert_file_size_to_int.json");
    for (const nlohmann::json& c : recorded["cases"]) {
        SCOPED_TRACE(c.dump());
        const nlohmann::json& size = c["size"];
        const auto read = [&] {
            return size.is_string() ? convert_file_size_to_int(size.get<std::string>())
                                    : convert_file_size_to_int(size.get<std::int64_t>());
        };
        if (c.contains("error"))
            EXPECT_THROW(static_cast<void>(read()), ValueError);
        else
            EXPECT_EQ(read(), c["bytes"].get<std::int64_t>());
    }
}

TEST(ConvertBytes, RoundsLikePython) {
    EXPECT_EQ(convert_bytes(50.0), "50.0 bytes");
    EXPECT_EQ(convert_bytes(std::int64_t{1} << 20), "1.0 MB");
    EXPECT_EQ(convert_bytes(std::int64_t{90669056}), "86.47 MB");
    // These values lie exactly halfway between two decimals. Python rounds them to the even digit.
    EXPECT_EQ(convert_bytes(1024 * 1.125), "1.12 KB");
    EXPECT_EQ(convert_bytes(1024 * 1.375), "1.38 KB");
}

TEST(ConvertFileSizeToInt, ParsesBinaryUnitsAndBits) {
    EXPECT_EQ(convert_file_size_to_int("1 GiB"), 1 << 30);
    EXPECT_EQ(convert_file_size_to_int("+1e1kib"), 10240);
    EXPECT_EQ(convert_file_size_to_int("8Gb"), 1000000000);
    EXPECT_EQ(convert_file_size_to_int("8gB"), 8000000000);
}

TEST(ParseSizeToInt, IgnoresCaseAndSpaces) {
    EXPECT_EQ(parse_size_to_int(" 5 GB "), 5000000000);
    EXPECT_EQ(parse_size_to_int("8Gb"), 8000000000);
    EXPECT_EQ(parse_size_to_int("1.5tb"), 1500000000000);
}

TEST(ConvertFileSizeToInt, RejectsInvalidSizesAsDoesParseSizeToInt) {
    for (const char* text : {"", "GB", "12", "1XB", "-1GB", "nanGB", "infMB", "1e400GB", "1e30GB",
                             "1 2MB", "0x1GB", "+-1GB"}) {
        expect_error<ValueError>({"convert_file_size_to_int", text},
                                 [&] { return convert_file_size_to_int(text); });
        expect_error<ValueError>({"parse_size_to_int", text, "'5GB'"},
                                 [&] { return parse_size_to_int(text); });
    }
    expect_error<ValueError>({"parse_size_to_int", "1GiB"},
                             [] { return parse_size_to_int("1GiB"); });
    EXPECT_THROW(convert_file_size_to_int(-1), ValueError);
}

}  // namespace axle::tests
