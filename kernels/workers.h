// Private to the library: thread pool functions that fork handlers need.
#pragma once

namespace axle::kernels {

// Returns whether the pool has worker threads. Waits for a running parallel section, so it must not
// be called inside a task.
bool has_workers();

}  // namespace axle::kernels
