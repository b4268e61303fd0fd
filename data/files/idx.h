// Reads the idx format of MNIST: a magic number, the sizes, and the elements in big endian.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "core/tensor.h"

namespace axle::data {

struct IdxOptions {
    // The maximum number of bytes of the elements in a compressed file. A megabyte of gzip data can
    // expand to a gigabyte. Uncompressed files are not limited.
    std::int64_t max_inflated = std::int64_t{1} << 32;
};

// Reads an idx file, which can be compressed with gzip. Returns a tensor of dtype u8, i8, i16, i32,
// f32 or f64 with up to 8 dimensions. Throws FileError if the file is missing. Throws FileError
// with the byte offset and the reason if the file is truncated, has trailing bytes, an invalid
// magic number, invalid sizes or a wrong gzip checksum, or exceeds max_inflated. The offset refers
// to the decompressed data, except for errors of the compression. The file must not be truncated
// while it is read (MappedFile in core/files/file.h).
Tensor read_idx(const std::string& path, IdxOptions options = {});

// Parses the contents of an idx file. Throws FileError for the same errors as read_idx(), with
// `name` as the path.
Tensor parse_idx(std::span<const std::byte> bytes, const std::string& name,
                 IdxOptions options = {});

}  // namespace axle::data
