// Measures training steps.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <fstream>
#include <functional>
#include <string>
#include <utility>
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

// Measures a training step. `step` returns the loss.
class StepTimer {
  public:
    // Runs the first steps and keeps their losses, and then some steps to warm up. measure() will
    // time `steps` steps.
    StepTimer(std::function<Tensor()> step, std::size_t losses, int steps)
        : step_(std::move(step)), steps_(steps) {
        while (losses_.size() < losses) losses_.push_back(step_().item());
        warm_up();
    }
    void warm_up() {
        for (int i = 0; i < 1 + steps_ / 10; ++i) step_();
    }
    // Returns the first losses, the median and the minimum time of the steps in milliseconds, and
    // the peak memory.
    nlohmann::json measure() {
        using Clock = std::chrono::steady_clock;
        std::vector<double> times;
        for (int i = 0; i < steps_; ++i) {
            const auto start = Clock::now();
            step_();
            times.push_back(
                std::chrono::duration<double, std::milli>(Clock::now() - start).count());
        }
        std::sort(times.begin(), times.end());
        return {{"engine", "axle"},
                {"steps", steps_},
                {"ms_per_step", times[times.size() / 2]},
                {"ms_per_step_min", times.front()},
                {"losses", losses_},
                {"peak_memory_bytes", host_memory::stats().peak},
                {"peak_resident_bytes", peak_resident_bytes()}};
    }

  private:
    std::function<Tensor()> step_;
    int steps_;
    std::vector<double> losses_;
};

}  // namespace axle::bench
