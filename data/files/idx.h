// Reads MNIST's idx format: a magic number, the sizes, and the elements in big endian.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "core/tensor.h"

namespace axle::data {

struct IdxOptions {
    // Maximum size of the decompressed elements: one megabyte of gzip can expand to a gigabyte.
    // Does not limit uncompressed files.
    std::int64_t max_inflated = std::int64_t{1} << 32;
};

// Reads an idx file, plain or gzip (detected by content): u8, i8, i16, i32, f32 or f64, up to 8
// dimensions. Throws FileError with offset and reason if the file is truncated, has trailing bytes
// or wrong sizes, or fails gzip's checksum. Offsets refer to the decompressed data unless the
// compression itself is corrupt. The file must not be truncated while it is read (MappedFile).
Tensor read_idx(const std::string& path, IdxOptions options = {});

// Parses the contents of an idx file. `name` is used as the path in messages.
Tensor parse_idx(std::span<const std::byte> bytes, const std::string& name,
                 IdxOptions options = {});

}  // namespace axle::data
