// Private to accel: writes TensorFlow's record files. A record is a u64 length, its checksum, the
// data, and its checksum.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace axle::accel {

// Returns the CRC-32C (Castagnoli) checksum, with the reflected polynomial 0x1edc6f41, as in iSCSI
// (RFC 3720).
std::uint32_t crc32c(std::string_view bytes);
// Returns the checksum as records store it. It is masked, so that data which contains checksums
// gets a different one.
std::uint32_t masked_crc32c(std::string_view bytes);

// Appends a record to `file`, in little-endian order.
void append_record(std::string& file, std::string_view bytes);

}  // namespace axle::accel
