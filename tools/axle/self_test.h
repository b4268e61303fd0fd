// Private to tools: runs the checks in each process of `axle test`.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "accel/process/partial_state.h"
#include "tools/axle/self_checks.h"

namespace axle::launcher {

// Runs the checks in order, and calls `passed` on every process after each check that has passed.
// If a check fails, throws Error with the name of the check and the rank. All processes throw; a
// process that has passed the check may throw the error of a collective instead.
void run_checks(const PartialState& state, const std::vector<Check>& checks,
                const std::function<void(const std::string& name)>& passed);
// Calls run_checks() with all checks.
void run_self_test(const PartialState& state,
                   const std::function<void(const std::string& name)>& passed);

}  // namespace axle::launcher
