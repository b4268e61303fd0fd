// Private to data: helpers of the readers of binary files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "core/tensor.h"

namespace axle::data {

// Throws FileError `name: byte 12: what`. The name is made printable.
[[noreturn]] void throw_at_byte(const std::string& name, std::int64_t offset,
                                const std::string& what);

// Reverses the bytes of each element (big to little endian and back). `width` is 1, 2, 4 or 8; the
// span must be a whole number of elements.
void swap_bytes(std::span<std::byte> elements, std::int64_t width);

// Returns the elements of a contiguous CPU tensor as bytes.
std::span<std::byte> bytes_of(const Tensor& contiguous);

}  // namespace axle::data
