// How large a file of weights may become.
#pragma once

#include <cstdint>
#include <string>

namespace axle::inline v0::nn {

// Bytes, or text such as "10GB" (parse_size_to_int in core/text/size_text.h).
struct ShardSize {
    ShardSize(std::int64_t bytes_);      // NOLINT: a size is a number
    ShardSize(const char* text);         // NOLINT: or a text
    ShardSize(const std::string& text);  // NOLINT
    std::int64_t bytes;
};

}  // namespace axle::inline v0::nn
