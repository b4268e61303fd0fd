// What tests of binary file readers do to a file.
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

// A file of tests/golden/images.
inline std::string golden_image(const std::string& name) {
    return std::string(AXLE_TESTS_DIR) + "/golden/images/" + name;
}

// What the parser says about these bytes, or "no error". Anything but a FileError comes through. A
// FileError must name the file and an offset in it. The bytes lie in an allocation of their size,
// so that a sanitizer sees a read beyond them.
inline std::string refusal(const std::string& bytes, const Parse& parse) {
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

// No file that ends too early is taken, and none with a byte more.
inline void expect_only_whole(const std::string& bytes, const Parse& parse) {
    ASSERT_EQ(refusal(bytes, parse), "no error");
    for (std::size_t n = 0; n < bytes.size(); ++n)
        EXPECT_NE(refusal(bytes.substr(0, n), parse), "no error") << "the first " << n << " bytes";
    EXPECT_NE(refusal(bytes + '\0', parse), "no error");
    EXPECT_NE(refusal(bytes + '\x1f', parse), "no error");
}

// Changes each byte in [begin, end) in every bit and to every extreme; returns how many of the
// results are taken as files.
inline int flip_bytes(const std::string& bytes, std::size_t begin, std::size_t end,
                      const Parse& parse) {
    int taken = 0;
    for (std::size_t at = begin; at < end; ++at) {
        const auto was = static_cast<unsigned char>(bytes[at]);
        std::vector<int> others = {0, 255, 127, 128};
        for (int bit = 0; bit < 8; ++bit) others.push_back(was ^ (1 << bit));
        for (const int other : others) {
            if (other == was) continue;
            std::string damaged = bytes;
            damaged[at] = static_cast<char>(other);
            if (refusal(damaged, parse) == "no error") ++taken;
        }
    }
    return taken;
}

}  // namespace axle::tests
