// Helpers that corrupt files, for tests of binary file readers.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/error.h"

namespace axle::tests {

using Parse = std::function<void(std::span<const std::byte> bytes, const std::string& name)>;

// Returns the path of a file in tests/golden/images.
inline std::string golden_image(const std::string& name) {
    return std::string(AXLE_TESTS_DIR) + "/golden/images/" + name;
}

// Returns the message of the FileError that the parser throws for these bytes, or "no error". Other
// exceptions are rethrown. Fails the test if the message does not begin with the file's path and an
// offset in the file. The bytes are parsed from an allocation of exactly their size, so that
// sanitizers detect reads out of bounds.
inline std::string parse_error(const std::string& bytes, const Parse& parse) {
    const auto* first = reinterpret_cast<const std::byte*>(bytes.data());
    const std::vector<std::byte> exact(first, first + bytes.size());
    try {
        parse(exact, "a\nfile");
    } catch (const FileError& error) {
        const std::string text = error.what();
        EXPECT_EQ(text.rfind("a\\x0afile: byte ", 0), 0u) << text;
        return text;
    }
    return "no error";
}

// Checks that the file is accepted, and that it is rejected if it is truncated or has an additional
// byte at the end.
inline void expect_only_complete_files(const std::string& bytes, const Parse& parse) {
    ASSERT_EQ(parse_error(bytes, parse), "no error");
    for (std::size_t n = 0; n < bytes.size(); ++n)
        EXPECT_NE(parse_error(bytes.substr(0, n), parse), "no error")
            << "the first " << n << " bytes";
    EXPECT_NE(parse_error(bytes + '\0', parse), "no error");
    EXPECT_NE(parse_error(bytes + '\x1f', parse), "no error");
}

// Flips each bit of each byte in [begin, end), and also sets each byte to extreme values. Returns
// how many of the resulting files the parser accepts.
inline int count_accepted_flips(const std::string& bytes, std::size_t begin, std::size_t end,
                                const Parse& parse) {
    int accepted = 0;
    for (std::size_t at = begin; at < end; ++at) {
        const auto original = static_cast<unsigned char>(bytes[at]);
        std::vector<int> values = {0, 255, 127, 128};
        for (int bit = 0; bit < 8; ++bit) values.push_back(original ^ (1 << bit));
        for (const int value : values) {
            if (value == original) continue;
            std::string damaged = bytes;
            damaged[at] = static_cast<char>(value);
            if (parse_error(damaged, parse) == "no error") ++accepted;
        }
    }
    return accepted;
}

}  // namespace axle::tests
