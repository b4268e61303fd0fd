// Private to optim: helpers shared by the schedules.
#pragma once

#include <cstdint>
#include <numbers>

#include "core/tree/tree.h"
#include "optim/schedules/scheduler.h"

namespace axle::optim {

inline constexpr double kPi = std::numbers::pi;
inline constexpr const char* kAnnealNames[] = {"cos", "linear"};
inline constexpr const char* kThresholdModes[] = {"rel", "abs"};

// Returns n. Throws ValueError unless n is positive.
inline std::int64_t positive(const char* op, const char* what, std::int64_t n) {
    if (n <= 0) throw ValueError(str(op, ": ", what, " must be positive: ", n));
    return n;
}

// Returns a field that saves `value`, an enum of one byte, by its name.
template <class E>
ScheduleChoice choice(E& value, std::span<const char* const> names) {
    static_assert(sizeof(E) == 1);
    return {reinterpret_cast<std::uint8_t*>(&value), names};
}

}  // namespace axle::optim
