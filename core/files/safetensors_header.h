// Private to core: reads and writes the header of a safetensors file.
//
// Limits: a header has at most kMaxSafetensorsHeader bytes, kMaxSafetensorsTensors tensors and
// kMaxSafetensorsMetadata keys; a name or a text of the metadata has at most kMaxSafetensorsText
// bytes. The parser creates no tree of the JSON text. Reading needs at most 32 MiB of memory plus 8
// bytes per byte of the header, including its text. The slowest step is sorting the names.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/files/safetensors.h"

namespace axle {

inline constexpr std::int64_t kMaxSafetensorsHeader = 100'000'000;
inline constexpr std::size_t kMaxSafetensorsTensors = 1'000'000;
inline constexpr std::size_t kMaxSafetensorsMetadata = 100'000;
inline constexpr std::size_t kMaxSafetensorsText = std::size_t{8} << 20;

struct SafetensorsHeader {
    // The entries in the order of the text. Their `begin` and `end` are counted from the end of the
    // header.
    std::vector<SafetensorsFile::Entry> entries;
    Metadata metadata;
};

// Parses a header. Checks its syntax only: entries can still be inconsistent with each other or
// with the file, and names can repeat. Throws FileError with the reason but without a path.
SafetensorsHeader read_safetensors_header(const std::string& text);

// Returns the header for these tensors in this order, padded to a multiple of 8 bytes. Throws
// ValueError if read_safetensors_header would reject it.
std::string write_safetensors_header(const NamedTensors& sorted, const Metadata& metadata);

// Convert between a dtype and its name in the format, such as "F32". dtype_named() returns nullopt
// for other names. name_in_safetensors() throws ValueError for a dtype that the format lacks.
std::optional<DType> dtype_named(std::string_view name);
std::string name_in_safetensors(DType dtype);

// Returns the position of a dtype in the format's list. Files contain the tensors in decreasing
// order of this position.
int safetensors_rank(DType dtype);

}  // namespace axle
