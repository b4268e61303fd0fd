// Private to Axle: failpoints, which are named points of the code at which a test kills or stops
// the process, throws an exception, or waits.
//
//     AXLE_FAILPOINT("save: before the commit");
//
// Failpoints exist only in builds with the CMake option AXLE_FAILPOINTS. In other builds the macro
// does nothing and the names are not in the library, which a test checks.
#pragma once

#include "kernels/failpoints_option.h"

#if AXLE_FAILPOINTS

#include <atomic>
#include <cstdint>
#include <span>

namespace axle {

enum class FailpointAction : std::uint8_t {
    kill,    // end the process with SIGKILL
    freeze,  // stop the process with SIGSTOP
    fail,    // throw Error
    wait,    // wait for half a second
};

struct Failpoint {
    const char* name;
    bool may_throw;  // whether FailpointAction::fail is allowed at this failpoint
};

// Returns all failpoints of the library.
std::span<const Failpoint> failpoints();

// Sets the action of a failpoint in this process for the next time that it is reached, and removes
// the action of other failpoints. `reached` is set before the action. If `reached` is in shared
// memory, another process can wait for it. Throws ValueError if no failpoint has this name.
void set_failpoint(const char* name, FailpointAction action, std::atomic<bool>& reached);

// Called by the macro AXLE_FAILPOINT; other code must not call it.
void reach_failpoint(const char* name);

}  // namespace axle

// The prefix lets a test find the names in a binary.
#define AXLE_FAILPOINT(name) ::axle::reach_failpoint("axle failpoint: " name)

#else

#define AXLE_FAILPOINT(name) static_cast<void>(0)

#endif
