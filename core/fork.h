// Private to the library: checks whether a process can fork and then compute in parent and child.
#pragma once

#include <string>

namespace axle {

// Returns the name of state in this process that a fork would break, "a thread pool" or "a CUDA
// context", or "" if there is none.
std::string fork_unsafe_state();

}  // namespace axle
