// Private to data: what the readers of binary files share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "core/tensor.h"

namespace axle::inline v0::data {

// FileError `name: byte 12: what`. The name may be anybody's text (printable).
[[noreturn]] void throw_at_byte(const std::string& name, std::int64_t offset,
                              const std::string& what);

// Turns each element around: big endian to little endian and back. The span is a whole number of
// elements, `width` is 1, 2, 4 or 8.
void swap_bytes(std::span<std::byte> elements, std::int64_t width);

// The elements of a tensor on the CPU without gaps, as bytes.
std::span<std::byte> bytes_of(const Tensor& contiguous);

}  // namespace axle::inline v0::data
