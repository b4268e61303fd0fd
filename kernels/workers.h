// Private to the library: what a fork must know of the thread pool.
#pragma once

namespace axle::inline v0::kernels {

// Whether there are threads beside the callers'. Waits for a running parallel section.
bool has_workers();

}  // namespace axle::inline v0::kernels
