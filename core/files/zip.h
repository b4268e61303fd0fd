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
    std::span<std::byte> bytes;  // points into the file
    std::uint32_t crc = 0;       // as stated in the file; not verified
};

// Returns the entries sorted by position; supports files above 4 GiB (zip64). Entries do not
// overlap and names are unique. Throws FileError with the bare reason if the file is not a zip
// file, or if an entry is compressed, encrypted or not completely in the file.
std::vector<StoredEntry> read_stored_zip(std::span<std::byte> file);

}  // namespace axle
