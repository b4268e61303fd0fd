// Functions that return the bytes of zip files with stored entries.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <zlib.h>

namespace axle::tests {

// Returns the little-endian bytes of a number.
template <class T>
std::string bytes_of(T value, int length = sizeof(T)) {
    std::string bytes;
    for (int i = 0; i < length; ++i)
        bytes += static_cast<char>(static_cast<std::uint64_t>(value) >> (8 * i));
    return bytes;
}

struct ZipEntry {
    std::string name, bytes;
};

// Returns a zip file of stored entries, optionally with zip64 sizes and directory.
inline std::string zip_of(const std::vector<ZipEntry>& entries, bool is_64 = false) {
    std::string file, directory;
    for (const auto& [name, bytes] : entries) {
        const auto* data = reinterpret_cast<const Bytef*>(bytes.data());
        const std::uint32_t crc = static_cast<std::uint32_t>(crc32_z(0, data, bytes.size()));
        const std::uint32_t size = is_64 ? 0xffffffff : static_cast<std::uint32_t>(bytes.size());
        const std::uint32_t offset = is_64 ? 0xffffffff : static_cast<std::uint32_t>(file.size());
        const std::string extra = is_64 ? bytes_of(1, 2) + bytes_of(24, 2) +
                                              bytes_of(bytes.size(), 8) +
                                              bytes_of(bytes.size(), 8) + bytes_of(file.size(), 8)
                                        : "";
        const std::string common = bytes_of(0, 2) + bytes_of(0, 2) + bytes_of(0, 4) +
                                   bytes_of(crc) + bytes_of(size) + bytes_of(size) +
                                   bytes_of(name.size(), 2);
        directory += bytes_of(0x02014b50) + bytes_of(0, 2) + bytes_of(45, 2) + common +
                     bytes_of(extra.size(), 2) + std::string(6 + 4, '\0') + bytes_of(offset) +
                     name + extra;
        file += bytes_of(0x04034b50) + bytes_of(45, 2) + common + bytes_of(0, 2) + name + bytes;
    }
    const std::size_t begin = file.size();
    file += directory;
    if (is_64) {
        const std::size_t end = file.size();
        file += bytes_of(0x06064b50) + bytes_of(44, 8) + bytes_of(45, 2) + bytes_of(45, 2) +
                bytes_of(0, 8) + bytes_of(entries.size(), 8) + bytes_of(entries.size(), 8) +
                bytes_of(directory.size(), 8) + bytes_of(begin, 8);
        file += bytes_of(0x07064b50) + bytes_of(0, 4) + bytes_of(end, 8) + bytes_of(1, 4);
    }
    const auto counted = [&](std::size_t value, int length) {
        return is_64 ? std::string(static_cast<std::size_t>(length), '\xff')
                     : bytes_of(value, length);
    };
    return file + bytes_of(0x06054b50) + bytes_of(0, 4) + counted(entries.size(), 2) +
           counted(entries.size(), 2) + counted(directory.size(), 4) + counted(begin, 4) +
           bytes_of(0, 2);
}

}  // namespace axle::tests
