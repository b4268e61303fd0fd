// ShardSize: the maximum size of a file of weights.
#pragma once

#include <cstdint>
#include <string>

namespace axle::nn {

// A number of bytes, or text such as "10GB" (parse_size_to_int in core/text/size_text.h).
struct ShardSize {
    ShardSize(std::int64_t bytes_);      // NOLINT: implicit by design
    ShardSize(const char* text);         // NOLINT: implicit by design
    ShardSize(const std::string& text);  // NOLINT
    std::int64_t bytes;
};

}  // namespace axle::nn
