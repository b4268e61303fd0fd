// Private to tools: the main function of each process of `axle test`.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "accel/process/partial_state.h"
#include "tools/axle/self_checks.h"

namespace axle::launcher {

// Runs the checks in order and calls `passed` for each in every process. At the first failed check,
// throws Error in all processes, with the check and the rank.
void run_checks(const PartialState& state, const std::vector<Check>& checks,
                const std::function<void(const std::string& name)>& passed);
// Runs all checks.
void run_self_test(const PartialState& state,
                   const std::function<void(const std::string& name)>& passed);

}  // namespace axle::launcher
