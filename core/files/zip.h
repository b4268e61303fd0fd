// Private to core/files/torch_file.cpp: what a zip file holds, where every entry is stored as it
// is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace axle::inline v0 {

struct StoredEntry {
    std::string name;
    std::span<std::byte> bytes;  // of the file
    std::uint32_t crc = 0;       // that the file says; not compared
};

// The entries in the order of their bytes, also of a file beyond 4 GiB (zip64). No two share a byte
// or a name. FileError with the bare reason for what is no zip file, and for entries that are
// compressed, encrypted or not wholly in the file.
std::vector<StoredEntry> read_stored_zip(std::span<std::byte> file);

}  // namespace axle::inline v0
