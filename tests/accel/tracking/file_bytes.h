// Helpers that read the bytes of files and the rows of PNG files.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>

#include <zlib.h>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace axle::tests {

inline std::string bytes_of(std::initializer_list<int> bytes) {
    std::string text;
    for (const int byte : bytes) text += static_cast<char>(byte);
    return text;
}

inline std::uint32_t big_endian(const std::string& bytes, std::size_t at) {
    std::uint32_t value = 0;
    for (std::size_t i = 0; i < 4; ++i)
        value = value << 8 | static_cast<unsigned char>(bytes.at(at + i));
    return value;
}

// Returns the rows of a PNG with their filter bytes, after checking every chunk.
inline std::string rows_of(const std::string& png) {
    EXPECT_EQ(png.substr(0, 8), "\x89PNG\r\n\x1a\n");
    std::string packed;
    std::vector<std::string> types;
    for (std::size_t at = 8; at < png.size();) {
        const std::uint32_t length = big_endian(png, at);
        const std::string body = png.substr(at + 4, length + 4);
        EXPECT_EQ(
            ::crc32(0, reinterpret_cast<const Bytef*>(body.data()), static_cast<uInt>(body.size())),
            big_endian(png, at + 8 + length));
        types.push_back(body.substr(0, 4));
        if (types.back() == "IDAT") packed += body.substr(4);
        at += 12 + length;
    }
    EXPECT_THAT(types, testing::ElementsAre("IHDR", "IDAT", "IEND"));
    std::string rows(1 << 16, '\0');
    uLongf size = rows.size();
    EXPECT_EQ(::uncompress(reinterpret_cast<Bytef*>(rows.data()), &size,
                           reinterpret_cast<const Bytef*>(packed.data()), packed.size()),
              Z_OK);
    return rows.substr(0, size);
}

}  // namespace axle::tests
