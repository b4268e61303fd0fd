// Formats and parses sizes in bytes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace axle {

// Formats a size as Accelerate does: "1023 bytes", "1.0 KB", "413.18 MB". Units are powers of 1024.
// Numbers have one or two decimals; integers below 1 KB have none.
std::string convert_bytes(std::int64_t bytes);
std::string convert_bytes(double bytes);

// Parses a size such as "100MB" (100 * 10^6) or "512KiB" (512 * 2^10) by the rules of Accelerate,
// and returns it in bytes. The units are GB, MB, KB, GiB, MiB and KiB in upper or lower case; a
// lower-case b after G, M or K, as in "8Gb", means bits. Throws ValueError for any other text, a
// missing unit, a negative size or a size beyond int64.
std::int64_t convert_file_size_to_int(std::string_view size);
// Returns `size` unchanged, because it is already in bytes. Throws ValueError if it is negative.
std::int64_t convert_file_size_to_int(std::int64_t size);

// Parses a shard size and returns it in bytes, as Hugging Face's Hub does. The units are TB, GB, MB
// and KB in upper or lower case; they are powers of ten and always mean bytes. Throws ValueError
// for any other text, a missing unit, a negative size or a size beyond int64.
std::int64_t parse_size_to_int(std::string_view size);

}  // namespace axle
