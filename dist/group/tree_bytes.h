// Private to dist: lossless serialization of a Tree for other processes of the job. Tensors become
// contiguous and are restored on the CPU.
#pragma once

#include <string>
#include <string_view>

#include "core/tree/tree.h"

namespace axle::dist {

// Throws ValueError for a tree deeper than kMaxTreeDepth, and DeviceError for a meta tensor.
std::string to_bytes(const Tree& tree);
// Throws CommError for bytes that to_bytes() does not write.
Tree from_bytes(std::string_view bytes);

}  // namespace axle::dist
