// Private to accel: writes TensorFlow's record files. A record is the u64 length of the data, the
// length's checksum, the data, and the data's checksum.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace axle::accel {

// Returns the CRC-32C (Castagnoli) checksum, as used in iSCSI (RFC 3720); its polynomial is
// 0x1edc6f41.
std::uint32_t crc32c(std::string_view bytes);
// Returns the masked checksum that records store. TensorFlow masks checksums because the CRC of
// data that contains its own CRC is not reliable.
std::uint32_t masked_crc32c(std::string_view bytes);

// Appends a record with the data `bytes` to `file`, in little-endian order.
void append_record(std::string& file, std::string_view bytes);

}  // namespace axle::accel
