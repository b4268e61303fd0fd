// Formats and parses sizes in bytes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace axle {

// Returns "1023 bytes", "1.0 KB", "413.18 MB": units of 1024 and two decimals, as Accelerate does.
// Below 1 KB only non-integer numbers have decimals.
std::string convert_bytes(std::int64_t bytes);
std::string convert_bytes(double bytes);

// Parses sizes as Accelerate does: "100MB" is 100 * 10^6, "512KiB" is 512 * 2^10; a lower-case b,
// as in "8Gb", means bits. Throws ValueError for other text, a missing unit or a negative size.
std::int64_t convert_file_size_to_int(std::string_view size);
// Returns size, which is already in bytes.
std::int64_t convert_file_size_to_int(std::int64_t size);

// Parses sizes of shards as Hugging Face's Hub does: TB, GB, MB or KB in any case, powers of ten,
// always bytes.
std::int64_t parse_size_to_int(std::string_view size);

}  // namespace axle
