// ShardSize: the maximum size of a file of weights.
#pragma once

#include <cstdint>
#include <string>

namespace axle::nn {

// The maximum size of a file: a number of bytes, or a text such as "10GB" that parse_size_to_int
// (core/text/size_text.h) can read. The constructors throw ValueError for a negative number and for
// a text that is not a size.
struct ShardSize {
    ShardSize(std::int64_t bytes_);      // NOLINT: implicit by design
    ShardSize(const char* text);         // NOLINT: implicit by design
    ShardSize(const std::string& text);  // NOLINT: implicit by design
    std::int64_t bytes;
};

}  // namespace axle::nn
