// Private to the library: what fork handlers need from the thread pool.
#pragma once

namespace axle::kernels {

// Returns whether the pool has worker threads. Waits for a running parallel section.
bool has_workers();

}  // namespace axle::kernels
