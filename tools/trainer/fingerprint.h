// Fingerprints of data files, which tell whether a resumed run reads the same data.
#pragma once

#include <cstdint>
#include <string>

namespace axle::trainer {

// Returns the number of bytes and a checksum of the first `bytes` bytes of a file. Reads at most 64
// parts of 64 KiB, which are spread evenly, so a change elsewhere in a larger file is not noticed.
// Throws FileError if the file is shorter.
std::string fingerprint(const std::string& path, std::int64_t bytes);
// Returns the fingerprint of the whole file.
std::string fingerprint(const std::string& path);

// Returns whether a file begins with the data that have a fingerprint, and is longer.
bool has_grown(const std::string& path, const std::string& fingerprint);

}  // namespace axle::trainer
