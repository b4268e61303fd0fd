// Private to accel: writes TensorFlow's record files. A record is a u64 length, its checksum, the
// data, and its checksum.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace axle::accel {

// CRC-32C (Castagnoli): polynomial 0x1edc6f41, reflected, as in iSCSI (RFC 3720).
std::uint32_t crc32c(std::string_view bytes);
// The checksum as records store it: masked, so that data which contains checksums has another one.
std::uint32_t masked_crc32c(std::string_view bytes);

// Appends a record to `file`, in little-endian order.
void append_record(std::string& file, std::string_view bytes);

}  // namespace axle::accel
