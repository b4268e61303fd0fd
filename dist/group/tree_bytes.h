// Private to dist: a Tree as bytes between processes of one job, exactly: every bit of a number and
// every byte of a string. Tensors become contiguous and come back on the CPU.
#pragma once

#include <string>
#include <string_view>

#include "core/tree/tree.h"

namespace axle::inline v0::dist {

// ValueError for a tree deeper than kMaxTreeDepth, DeviceError for a meta tensor.
std::string to_bytes(const Tree& tree);
// CommError for bytes that to_bytes doesn't write.
Tree from_bytes(std::string_view bytes);

}  // namespace axle::inline v0::dist
