// Private to tools: what every process of `axle test` does.
#pragma once

#include <functional>
#include <string>

#include "accel/accelerator.h"

namespace axle::launcher {

// Collectives, a share of the data, and training that must come out as on one process. All
// processes of the accelerator call it; `passed` is told of each part by every process. Error names
// the check that failed.
void run_self_test(Accelerator& accelerator,
                   const std::function<void(const std::string& what)>& passed);

}  // namespace axle::launcher
