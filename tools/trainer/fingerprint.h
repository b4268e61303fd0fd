// Fingerprints of data files. A resumed run uses them to check that it reads the same data.
#pragma once

#include <cstdint>
#include <string>

namespace axle::trainer {

// Returns the number of bytes and a checksum of the first `bytes` bytes of a file. Reads at most 64
// parts of 64 KiB, which are spread evenly, so changes in other parts of a larger file are not
// detected. Throws FileError if the file is shorter.
std::string fingerprint(const std::string& path, std::int64_t bytes);
// Returns the fingerprint of the whole file, or of all files *.bin in a folder.
std::string fingerprint(const std::string& path);

// Returns whether a file begins with data of this fingerprint, and is longer than these data.
bool has_grown(const std::string& path, const std::string& fingerprint);

}  // namespace axle::trainer
