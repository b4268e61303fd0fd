// The idx format of MNIST: a magic number, the sizes, and the elements in big endian.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "core/tensor.h"

namespace axle::inline v0::data {

struct IdxOptions {
    // Elements of a gzip file may take no more than this: a megabyte of it can claim, and inflate
    // to, a gigabyte. Larger plain files are taken as they are.
    std::int64_t max_inflated = std::int64_t{1} << 32;
};

// The tensor of an idx file, plain or gzip (by its first bytes, not by its name): u8, i8, i16, i32,
// f32 or f64, up to 8 dimensions. FileError with the offset and the reason for a file that is not
// whole, has bytes to spare, lies about its sizes, or fails gzip's checksum. Offsets are those in
// the inflated data unless the compression itself is damaged. The file must not be truncated
// meanwhile (MappedFile).
Tensor read_idx(const std::string& path, IdxOptions options = {});

// The same from memory; `name` stands for the path in messages.
Tensor parse_idx(std::span<const std::byte> bytes, const std::string& name,
                 IdxOptions options = {});

}  // namespace axle::inline v0::data
