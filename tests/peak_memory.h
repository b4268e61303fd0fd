// Measures the memory that code needs.
#pragma once

#include <cstdint>
#include <functional>

namespace axle::tests {

// Calls f in a child process. Returns the number of bytes by which the peak of the child's resident
// memory grew. Pages of mapped files count. Throws std::runtime_error if f throws or the child ends
// early. Failed expectations in f are lost, so f should throw instead. With a sanitizer, whose
// memory would count too, calls f in this process and returns 0.
std::int64_t peak_memory(const std::function<void()>& f);

}  // namespace axle::tests
