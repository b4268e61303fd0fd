// Private to the library: whether a process may fork and compute in both.
#pragma once

#include <string>

namespace axle::inline v0 {

// What this process has that does not survive a fork: "a thread pool" or "a CUDA context"; empty if
// it has neither.
std::string lost_by_a_fork();

}  // namespace axle::inline v0
