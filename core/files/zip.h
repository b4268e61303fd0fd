// Private to core: lists the entries of a zip file whose entries are all stored uncompressed.
//
// Limits: the directory has at most kMaxZipDirectory bytes. The list needs at most one byte of
// memory per byte of the directory. The slowest step is sorting the list.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace axle {

inline constexpr std::size_t kMaxZipDirectory = 100'000'000;

// Name and bytes are parts of the file's bytes, which must outlive the entry.
struct StoredEntry {
    std::string_view name;
    std::span<std::byte> bytes;
    std::uint32_t crc = 0;  // checksum stored in the file; not verified
};

// Returns the entries of a zip file, sorted by name. Files above 4 GiB (zip64) are supported.
// Entries do not overlap, and names are unique. Throws FileError, with the reason but without a
// path, if the file is not a zip file or its directory is invalid or too large. Also throws
// FileError if an entry is compressed, encrypted or truncated.
std::vector<StoredEntry> read_stored_zip(std::span<std::byte> file);

// Returns the entry with this name, or null. `sorted` must be sorted by name.
const StoredEntry* find_entry(std::span<const StoredEntry> sorted, std::string_view name);

// Throws FileError, without a path, if the bytes of the entry do not match its checksum.
void check_crc(const StoredEntry& entry);

}  // namespace axle
