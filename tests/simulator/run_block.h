// The interface between the simulated runtime and the simulated multiprocessor.
#pragma once

#include <cstddef>
#include <functional>

#include "tests/simulator/device.h"

namespace axle::kernels::simulator {

// Runs all threads of the grid. Two calls must not overlap.
void run_grid(Extent grid, int threads, std::size_t shared_bytes, const std::function<void()>& run);

}  // namespace axle::kernels::simulator
