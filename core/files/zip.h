// Private to the library: lists the entries of a zip file, and decompresses them.
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
// The maximum compression ratio of deflate, which can encode 258 bytes in two bits (258 * 8 / 2).
inline constexpr std::int64_t kMaxInflateRatio = 1032;

// Name and bytes are parts of the file's bytes, which must outlive the entry.
struct ZipMember {
    std::string_view name;
    std::span<std::byte> bytes;  // compressed if is_deflated is true
    std::uint64_t size = 0;      // the number of uncompressed bytes
    std::uint32_t crc = 0;       // checksum of the uncompressed bytes; not verified
    bool is_deflated = false;    // otherwise the bytes are stored uncompressed
};

// Returns the entries of a zip file, sorted by name. Files above 4 GiB (zip64) are supported.
// Entries do not overlap, and names are unique. An entry does not claim a larger size than its
// compressed bytes can contain, which is kMaxInflateRatio bytes for each. Throws FileError, with
// the reason but without a path, if the file is not a zip file or its directory is invalid or too
// large. Also throws FileError if an entry is encrypted, truncated or compressed by another method
// than deflate.
std::vector<ZipMember> read_zip(std::span<std::byte> file);

// Like read_zip(), but also throws FileError if an entry is compressed.
std::vector<ZipMember> read_stored_zip(std::span<std::byte> file);

// Returns the entry with this name, or null. `sorted` must be sorted by name.
const ZipMember* find_entry(std::span<const ZipMember> sorted, std::string_view name);

// Throws FileError, without a path, if the bytes of the stored entry do not match its checksum.
void check_crc(const ZipMember& entry);

// Decompresses a deflated entry to `out`, which must have entry.size bytes. Throws FileError,
// without a path, if the compressed bytes are damaged, have another size or do not match the
// checksum, and std::bad_alloc if zlib cannot allocate memory.
void inflate_entry(const ZipMember& entry, std::span<std::byte> out);

}  // namespace axle
