// Private to tools: the options of `axle bench`, and the calls that they select.
#pragma once

#include <string>
#include <vector>

#include "tools/axle/bench/kernel.h"

namespace axle::bench {

// The values of the options of `axle bench`. An empty list selects the default.
struct Settings {
    std::vector<std::string> kernels, dtypes, layouts, caches, libraries, compared;
    std::vector<int> threads;
    std::string target, json, html, svg;
    double min_seconds = 0.1;
    bool list = false;
};

// A kernel, and the operands for its measurement.
struct Job {
    const Kernel* kernel;
    Case call;
};

// Returns the calls to measure. Throws UsageError for invalid settings, such as a dtype that a
// named kernel does not support.
std::vector<Job> jobs_of(const Settings& settings);

// Returns the words, separated by commas.
std::string joined(const std::vector<std::string>& words);
// Returns the short names of dtypes.
std::vector<std::string> names_of(const std::vector<DType>& dtypes);

}  // namespace axle::bench
