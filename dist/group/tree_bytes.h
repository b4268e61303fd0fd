// Private to dist: serializes a Tree without loss, to send it to other processes of the job.
// Restored tensors are contiguous and on the CPU.
#pragma once

#include <string>
#include <string_view>

#include "core/tree/tree.h"

namespace axle::dist {

// Serializes a tree. Throws ValueError if the tree is deeper than kMaxTreeDepth, and DeviceError
// for a meta tensor. Their messages begin with `op`.
std::string to_bytes(std::string_view op, const Tree& tree);
// Restores a tree from the result of to_bytes(). Throws CommError for invalid bytes. Needs linear
// time, and at most 128 bytes of memory for each byte (for a list of nulls).
Tree from_bytes(std::string_view bytes);

}  // namespace axle::dist
