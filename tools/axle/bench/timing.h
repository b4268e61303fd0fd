// Measures the time of a call, with its operands in the caches or in memory.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/thread_pool.h"
#include "tools/axle/bench/machine.h"

namespace axle::bench {

struct Timing {
    double seconds = 0;      // median time of a call
    double spread = 0;       // interquartile range of the times, divided by the median
    int samples = 0;         // number of measured times
    std::int64_t calls = 0;  // number of calls in each measured time
};

// Returns the median and the spread of times in seconds, which must not be empty.
inline Timing timing_of(std::vector<double> times, std::int64_t calls) {
    std::sort(times.begin(), times.end());
    const auto quantile = [&](double share) {
        const double at = share * static_cast<double>(times.size() - 1);
        const auto low = static_cast<std::size_t>(at);
        const std::size_t high = std::min(low + 1, times.size() - 1);
        return times[low] + (at - static_cast<double>(low)) * (times[high] - times[low]);
    };
    const double median = quantile(0.5);
    return {.seconds = median,
            .spread = median > 0 ? (quantile(0.75) - quantile(0.25)) / median : 0,
            .samples = static_cast<int>(times.size()),
            .calls = calls};
}

inline constexpr int kMinSamples = 5, kMaxSamples = 10'000;

// Measures a call whose operands stay in the caches, until the calls have taken min_seconds, but
// with at least kMinSamples and at most kMaxSamples samples. Short calls are repeated in a sample,
// because the clock is not precise enough for a single short call. The first two calls are not
// part of the result; the second one determines the number of repetitions.
template <class Call>
Timing time_hot(double min_seconds, Call&& call) {
    call();
    auto start = Clock::now();
    call();
    const double once = std::max(seconds_since(start), 1e-9);
    const double sample = std::min(min_seconds / 10, 1e-3);
    const auto calls = std::max<std::int64_t>(1, static_cast<std::int64_t>(sample / once));
    std::vector<double> times;
    for (double total = 0; std::ssize(times) < kMinSamples ||
                           (total < min_seconds && std::ssize(times) < kMaxSamples);) {
        start = Clock::now();
        for (std::int64_t i = 0; i < calls; ++i) call();
        const double seconds = seconds_since(start);
        total += seconds;
        times.push_back(seconds / static_cast<double>(calls));
    }
    return timing_of(std::move(times), calls);
}

// Measures single calls with the limits of time_hot(), but after kMinSamples samples also stops if
// 10 * min_seconds have passed, including all flushes. flush() is called before each call and
// removes the operands from the caches. Then an empty parallel section wakes the workers, because
// in a program they are usually awake.
template <class Flush, class Call>
Timing time_flushed(double min_seconds, Flush&& flush, Call&& call) {
    call();
    const int threads = kernels::num_threads();
    std::vector<double> times;
    const auto begin = Clock::now();
    for (double total = 0; std::ssize(times) < kMinSamples ||
                           (total < min_seconds && std::ssize(times) < kMaxSamples &&
                            seconds_since(begin) < 10 * min_seconds);) {
        flush();
        kernels::parallel(threads, [](std::int64_t) {});
        const auto start = Clock::now();
        call();
        times.push_back(seconds_since(start));
        total += times.back();
    }
    return timing_of(std::move(times), 1);
}

}  // namespace axle::bench
