// Private to tools: the results of `axle bench`, and the files that contain them.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "core/tree/tree.h"
#include "tools/axle/bench/kernel.h"
#include "tools/axle/bench/machine.h"
#include "tools/axle/bench/timing.h"

namespace axle::bench {

// A measured call.
struct Row {
    std::string kernel;
    std::string implementation = "axle";
    Case call = {};
    int threads = 1;
    bool flushed = false;  // whether the caches were flushed before each call
    Limit limit = Limit::memory;
    double operations = 0, bytes = 0;
    double peak = 0;  // the peak with which the rate is compared, in GFLOP/s or GB/s
    Timing timing = {};
    double axle_seconds = 0;  // the time of Axle's kernel
    double difference = 0;    // difference() of the outputs from the outputs of Axle's kernel
    std::string error = {};   // the reason why there is no time

    double gflops() const { return 1e-9 * operations / timing.seconds; }
    double gigabytes() const { return 1e-9 * bytes / timing.seconds; }
    // Returns the rate in the unit of the kernel's limit, and its share of the peak.
    double rate() const { return limit == Limit::arithmetic ? gflops() : gigabytes(); }
    double share() const { return rate() / peak; }
    std::string cache() const { return flushed ? "flushed" : "hot"; }
    // Returns whether the difference of the outputs is larger than rounding errors can cause.
    bool is_wrong() const;
};

struct Results {
    std::string target;      // the instruction set of the kernels
    double min_seconds = 0;  // the time for which each row was measured
    Tree machine = Tree::map();
    std::map<int, Peaks> peaks = {};  // by number of threads
    std::vector<Row> rows = {};
};

// Returns a line of text for a row, and the line with the titles of the columns.
std::string text_of(const Row& row);
std::string titles();
// Returns a line of text for the peaks with a number of threads.
std::string text_of(const Peaks& peaks, int threads);

// Returns the results as JSON, in the format that docs/kernels.md describes.
std::string to_json(const Results& results);
// Returns the roofline of the rows with a number of threads as an <svg> element, which is also a
// complete file. Rows with an error or without operations are left out.
std::string to_svg(const Results& results, int threads);
// Returns a page with the rooflines and a table of all rows, without scripts or other files.
std::string to_html(const Results& results);

}  // namespace axle::bench
