// Private to the library: checks whether a process can fork and compute in both processes.
#pragma once

#include <string>

namespace axle {

// Returns which state of this process would not survive a fork: "a thread pool", "a CUDA context",
// or "" if there is none.
std::string fork_unsafe_state();

}  // namespace axle
