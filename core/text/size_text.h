// Sizes in bytes, as people write and read them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace axle::inline v0 {

// "1023 bytes", "1.0 KB", "413.18 MB": units of 1024 and two decimals, as Accelerate shows sizes.
// Only a number that is no integer has decimals below 1 KB.
std::string convert_bytes(std::int64_t bytes);
std::string convert_bytes(double bytes);

// What Accelerate reads: "100MB" is 100 * 10^6, "512KiB" is 512 * 2^10, and with a small b, as in
// "8Gb", it is bits. ValueError for any other text, a missing unit and negative sizes.
std::int64_t convert_file_size_to_int(std::string_view size);
// Bytes already.
std::int64_t convert_file_size_to_int(std::int64_t size);

// What Hugging Face's Hub reads, as the sizes of shards: TB, GB, MB or KB, powers of ten in any
// case, always of bytes.
std::int64_t parse_size_to_int(std::string_view size);

}  // namespace axle::inline v0
