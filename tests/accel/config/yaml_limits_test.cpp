// Tests the limits on the size of YAML files, on integers, and on the memory that parsing needs.
#include <fstream>
#include <functional>
#include <string>

#include "accel/config/config.h"
#include "accel/config/structured_config.h"
#include "accel/config/yaml.h"
#include "tests/close.h"
#include "tests/peak_memory.h"
#include "tests/sanitized.h"
#include "tests/temporary_folder.h"

namespace axle::tests {
namespace {

TEST(ParseYaml, NeedsAtMost512BytesOfMemoryPerByteOfText) {
    // The largest texts take a minute with a sanitizer, so these builds parse shorter texts.
    const std::int64_t bytes = tests::kSanitized ? accel::kMaxYaml / 16 : accel::kMaxYaml;
    const auto repeated = [&](const std::string& part) {
        std::string text;
        while (std::ssize(text) + std::ssize(part) < bytes) text += part;
        return text;
    };
    for (const std::string& text :
         {"[" + repeated("a,") + "]", "[" + repeated("{},"), repeated("- "), repeated("-\n"),
          repeated("? "), repeated("["), repeated("{a: "), repeated("&a "), repeated("!!"),
          repeated("a:\n"), repeated("\n"), repeated("'"), repeated("#"),
          "a: &a [" + repeated("x,") + "]\nb: *a"}) {
        const std::int64_t peak = peak_memory([&] {
            for (const auto& parse : {std::function([&] { accel::parse_yaml(text, "name"); }),
                                      std::function([&] { accel::parse_config(text, "name"); })})
                try {
                    parse();
                } catch (const Error&) {
                    // Most of the texts are not valid YAML.
                }
        });
        EXPECT_LE(peak, 512 * bytes) << text.substr(0, 10);
    }
}

TEST(ParseYaml, RejectsIntegersOfMagnitudeAbove2To53) {
    EXPECT_EQ(accel::parse_yaml("9007199254740992", "name").integer(), std::int64_t{1} << 53);
    EXPECT_EQ(accel::parse_yaml("-1:30", "name").integer(), -90);
    for (const char* text : {"9007199254740993", "-9007199254740993", "1:0:0:0:0:0:0:0:0:0:0:0:0",
                             "-1:0:0:0:0:0:0:0:0:0"})
        expect_error<ValueError>({"name", "-2^53 to 2^53", text},
                                 [&] { accel::parse_yaml(text, "name"); });
}

TEST(ParseYaml, RejectsLargeDocumentsAndFiles) {
    const TemporaryFolder folder(FolderStorage::in_memory);
    const std::string text = "a: " + std::string(accel::kMaxYaml, 'x');
    std::ofstream(folder / "f") << text;
    expect_error<ValueError>({"name: ", "262147", "262144"},
                             [&] { accel::parse_yaml(text, "name"); });
    expect_error<FileError>({"name: ", "262147", "262144"},
                            [&] { accel::parse_config(text, "name"); });
    expect_error<FileError>({(folder / "f").c_str(), "262147", "262144"},
                            [&] { accel::read_config(folder / "f"); });
    expect_error<FileError>({(folder / "f").c_str(), "262147", "262144"},
                            [&] { accel::read_structured_config(folder / "f", {}); });
    EXPECT_EQ(accel::parse_config(text.substr(0, accel::kMaxYaml), "name").size(), 1u);
}

}  // namespace
}  // namespace axle::tests
