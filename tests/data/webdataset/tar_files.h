// Functions that return the bytes of tar archives.
#pragma once

#include <cstdint>
#include <cstdio>
#include <fstream>
#include <string>

#include "tests/temporary_folder.h"

namespace axle::tests {

// Returns a header whose checksum is replaced by the right one.
inline std::string with_checksum(std::string header) {
    header.replace(148, 8, 8, ' ');
    unsigned sum = 0;
    for (const char c : header) sum += static_cast<unsigned char>(c);
    char digits[8];
    std::snprintf(digits, sizeof digits, "%06o", sum);
    header.replace(148, 7, digits, 7);
    return header;
}

// Returns a ustar header. The field of the size can hold any text of at most 12 bytes.
inline std::string tar_header(const std::string& name, const std::string& size, char type = '0') {
    std::string header(512, '\0');
    header.replace(0, name.size(), name);
    header.replace(124, size.size(), size);
    header[156] = type;
    header.replace(257, 8, std::string("ustar\00000", 8));
    return with_checksum(header);
}

inline std::string octal(std::size_t value) {
    char digits[12];
    std::snprintf(digits, sizeof digits, "%011zo", value);
    return digits;
}

// Returns a header and the contents with padding.
inline std::string tar_member(const std::string& name, const std::string& contents,
                              char type = '0') {
    return tar_header(name, octal(contents.size()), type) + contents +
           std::string((512 - contents.size() % 512) % 512, '\0');
}

// Returns a record of a pax header.
inline std::string pax_record(const std::string& text) {
    std::size_t length = text.size() + 2;
    while (std::to_string(length).size() + text.size() + 2 != length) ++length;
    return std::to_string(length) + " " + text + "\n";
}

inline const std::string kTarEnd(1024, '\0');

// Writes a file and returns its path.
inline std::string written_tar(const TemporaryFolder& folder, const std::string& bytes,
                               const std::string& name = "a.tar") {
    const std::string path = folder / name;
    std::ofstream(path, std::ios::binary) << bytes;
    return path;
}

}  // namespace axle::tests
