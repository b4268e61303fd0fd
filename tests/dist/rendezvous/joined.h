// Pair: a job of two ranks that have joined.
#pragma once

#include <chrono>
#include <memory>
#include <thread>

#include "tests/dist/job.h"

namespace axle::tests {

inline void barrier(dist::Control& control, std::uint64_t sequence) {
    control.announce_call({.sequence = sequence});
    control.wait_for_agreement(0, sequence);
}

// Two ranks that have joined. Any thread may use the object.
struct Pair : ControlJob {
    explicit Pair(std::chrono::milliseconds join_timeout = std::chrono::seconds(20))
        : ControlJob(2) {
        options.join_timeout = join_timeout;
        std::thread second([&] { one = join(1); });
        zero = join(0);
        second.join();
    }
    ~Pair() {
        std::thread second([&] { one.reset(); });
        zero.reset();
        second.join();
    }
    // Checks that a barrier of both ranks succeeds.
    void check(std::uint64_t sequence) {
        std::thread second([&] { barrier(*one, sequence); });
        barrier(*zero, sequence);
        second.join();
    }
    std::unique_ptr<dist::Control> zero, one;
};

}  // namespace axle::tests
