// Private to core/files/torch_file.cpp: lists the entries of a zip file whose entries are all
// stored uncompressed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace axle {

struct StoredEntry {
    std::string name;
    std::span<std::byte> bytes;  // a part of the file's bytes
    std::uint32_t crc = 0;       // checksum stored in the file; not verified
};

// Returns the entries of a zip file, sorted by position. Files above 4 GiB (zip64) are supported.
// Entries do not overlap, and names are unique. Throws FileError, with the reason but without a
// path, if the file is not a zip file, or if an entry is compressed, encrypted or not completely in
// the file.
std::vector<StoredEntry> read_stored_zip(std::span<std::byte> file);

}  // namespace axle
