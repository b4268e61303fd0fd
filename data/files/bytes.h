// Private to data: helpers for reading binary files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "core/tensor.h"

namespace axle::data {

// Throws FileError "name: byte <offset>: what". Replaces unprintable characters in the name.
[[noreturn]] void throw_at_byte(const std::string& name, std::int64_t offset,
                                const std::string& what);

// Reverses the bytes of each element, to convert between big and little endian. `width` is the size
// of an element in bytes: 1, 2, 4 or 8. The size of the span must be a multiple of `width`.
void swap_bytes(std::span<std::byte> elements, std::int64_t width);

// Returns the memory of a contiguous CPU tensor, which must outlive the span.
std::span<std::byte> bytes_of(const Tensor& contiguous);

}  // namespace axle::data
