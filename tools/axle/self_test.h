// Private to tools: what every process of `axle test` does.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "accel/process/partial_state.h"
#include "tools/axle/self_checks.h"

namespace axle::launcher {

// One after the other; `passed` is told of each by every process. Error, in all processes, with the
// first check that failed and the rank that says so.
void run_checks(const PartialState& state, const std::vector<Check>& checks,
                const std::function<void(const std::string& name)>& passed);
// All that there are.
void run_self_test(const PartialState& state,
                   const std::function<void(const std::string& name)>& passed);

}  // namespace axle::launcher
