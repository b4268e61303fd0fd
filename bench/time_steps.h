// Measures training steps.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "core/memory/memory.h"
#include "core/tensor.h"

namespace axle::bench {

// Returns the peak resident memory of the process in bytes, or 0 if the system does not report it.
inline std::int64_t peak_resident_bytes() {
    std::ifstream status("/proc/self/status");
    for (std::string word; status >> word;) {
        if (word != "VmHWM:") continue;
        std::int64_t kilobytes = 0;
        status >> kilobytes;
        return kilobytes * 1024;
    }
    return 0;
}

// Runs a training step several times; `step` returns its loss. Returns the first losses, the median
// and the minimum time of `steps` later steps in milliseconds, and the peak memory.
inline nlohmann::json time_steps(const std::function<Tensor()>& step, std::size_t losses,
                                 int steps) {
    using Clock = std::chrono::steady_clock;
    std::vector<double> first;
    while (first.size() < losses) first.push_back(step().item());
    for (int i = 0; i < 2 + steps / 10; ++i) step();
    std::vector<double> times;
    for (int i = 0; i < steps; ++i) {
        const auto start = Clock::now();
        step();
        times.push_back(std::chrono::duration<double, std::milli>(Clock::now() - start).count());
    }
    std::sort(times.begin(), times.end());
    return {{"engine", "axle"},
            {"steps", steps},
            {"ms_per_step", times[times.size() / 2]},
            {"ms_per_step_min", times.front()},
            {"losses", first},
            {"peak_memory_bytes", host_memory::stats().peak},
            {"peak_resident_bytes", peak_resident_bytes()}};
}

}  // namespace axle::bench
