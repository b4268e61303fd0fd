#include "kernels/failpoint.h"

#if AXLE_FAILPOINTS

#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <string_view>
#include <thread>

#include "kernels/error.h"

namespace axle {
namespace {

constexpr std::string_view kPrefix = "axle failpoint: ";

constexpr std::array kFailpoints = {
    Failpoint{"join: before the proof", true},
    Failpoint{"join: before the reply", true},
    Failpoint{"connect: before the proof", true},
    Failpoint{"connect: before the reply", true},
    Failpoint{"collective: after the announcement", true},
    Failpoint{"collective: after the agreement", true},
    Failpoint{"collective: after the data", true},
    Failpoint{"heartbeat: before it is sent", false},
    Failpoint{"leave: before it is sent", false},
    Failpoint{"loader: before a batch", true},
    Failpoint{"save: before the states are gathered", true},
    Failpoint{"save: before the commit", true},
    Failpoint{"save: after the commit", true},
    Failpoint{"save: before the rotation", true},
};

std::atomic<const Failpoint*> chosen = nullptr;
std::atomic<FailpointAction> action = FailpointAction::kill;
std::atomic<bool>* reached = nullptr;

const Failpoint* find(std::string_view name) {
    for (const Failpoint& failpoint : kFailpoints)
        if (failpoint.name == name) return &failpoint;
    throw ValueError(str("set_failpoint: the name must be one of failpoints(): ", name));
}

}  // namespace

std::span<const Failpoint> failpoints() { return kFailpoints; }

void set_failpoint(const char* name, FailpointAction to, std::atomic<bool>& flag) {
    const Failpoint* const failpoint = find(name);
    action = to;
    reached = &flag;
    chosen = failpoint;
}

void reach_failpoint(const char* name) {
    if (chosen == nullptr) return;
    const Failpoint* expected = find(std::string_view(name).substr(kPrefix.size()));
    if (!chosen.compare_exchange_strong(expected, nullptr)) return;
    *reached = true;
    switch (action.load()) {
        case FailpointAction::kill:
            std::raise(SIGKILL);
            break;
        case FailpointAction::freeze:
            std::raise(SIGSTOP);
            break;
        case FailpointAction::fail:
            throw Error(str(name, ": a test makes this operation fail"));
        case FailpointAction::wait:
            std::this_thread::sleep_for(std::chrono::milliseconds(500));
    }
}

}  // namespace axle

#endif
