// Private to the library: checks whether a process can fork and then compute in parent and child.
#pragma once

#include <string>

namespace axle {

// Returns what a fork of this process would break: "a thread pool" or "a CUDA context". Returns ""
// if the process can fork.
std::string fork_unsafe_state();

}  // namespace axle
