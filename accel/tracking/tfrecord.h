// Private to accel: the framing of TensorFlow's record files: u64 length, its checksum, the bytes,
// their checksum.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace axle::accel {

// CRC-32C (Castagnoli): polynomial 0x1edc6f41, reflected, as in iSCSI (RFC 3720).
std::uint32_t crc32c(std::string_view bytes);
// The form in which a record stores it, so that checksums of data that holds checksums stay apart.
std::uint32_t masked_crc32c(std::string_view bytes);

// The record, appended to `file`. Little-endian.
void append_record(std::string& file, std::string_view bytes);

}  // namespace axle::accel
