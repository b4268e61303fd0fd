// The result of a profiler recording, and its output as a table or a file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/shape.h"

namespace axle::profiler {

// The kind of a scope. Communication runs concurrently with the scopes of its thread and does not
// reduce their self time.
enum class Category : std::uint8_t { op, backward, optimizer, data, io, user, communication };
// Returns the name of a category: "op", "backward", "optimizer", ...
const char* category_name(Category category);

// A scope that has ended. Times are in nanoseconds of std::chrono::steady_clock.
struct Event {
    std::string name;
    Category category = Category::op;
    int thread = 0;  // threads are numbered in the order in which they first use the profiler
    std::int64_t start = 0, end = 0;
    std::int64_t self = 0;             // time without nested scopes; 0 for communication
    std::int64_t bytes = 0;            // allocated by this thread between start and end
    std::int64_t self_bytes = 0;       // bytes without nested scopes
    std::vector<Shape> operands = {};  // set for ops if shapes are recorded

    std::int64_t total() const { return end - start; }
};

// A sample of the statistics of an allocator: of host memory or of a GPU's memory.
struct MemorySample {
    std::int64_t time = 0;
    std::int64_t current = 0, reserved = 0;  // in bytes
};

struct Trace {
    std::int64_t start = 0, end = 0;
    std::vector<Event> events;  // sorted by thread, then end time, per call of collect() or stop()
    std::vector<MemorySample> samples;
    std::map<int, std::string> threads;  // names by thread number
};

// The totals of all scopes with the same name and category (FunctionEventAvg in PyTorch).
struct Row {
    std::string name;
    Category category = Category::op;
    std::int64_t calls = 0;
    std::int64_t self = 0;   // in ns
    std::int64_t total = 0;  // in ns; nested scopes of the same row are not counted twice
    std::int64_t self_bytes = 0, bytes = 0;  // without and with nested scopes
    double share = 0;                        // self divided by the sum of all self times, 0 to 1
    std::vector<Shape> operands = {};        // set if rows are grouped by shapes
};

// Groups the events by name and category, and by operand shapes if group_by_input_shape is true.
// Returns the rows in the order of the thread and start time of their first event. The events
// "ProfilerStep#0", "ProfilerStep#1", ... are merged into "ProfilerStep*".
std::vector<Row> key_averages(const Trace& trace, bool group_by_input_shape = false);

// Sorts rows with a stable sort, largest first. sort_by is a key of PyTorch, with or without
// "cpu_": self_cpu_time_total, cpu_time_total, cpu_time (total per call), count,
// self_cpu_memory_usage, cpu_memory_usage, or name (alphabetical). Throws ValueError for any other
// key.
void sort_rows(std::vector<Row>& rows, const std::string& sort_by);

struct TableOptions {
    std::string sort_by = "self_cpu_time_total";
    std::size_t row_limit = 100;
    std::size_t max_name_column_width = 55;  // longer names are shortened
};
// Returns the rows as a text table. Throws ValueError for a sort_by that sort_rows() rejects.
std::string table(std::vector<Row> rows, const TableOptions& options = {});

// Return a time as text such as "1.234ms", and a size as text such as "12.50 MiB".
std::string format_time(std::int64_t ns);
std::string format_bytes(std::int64_t bytes);

// Writes a file for chrome://tracing and Perfetto, with complete events per thread, asynchronous
// events for communication, and two counters for the allocator. `process` distinguishes the files
// of several ranks when they are merged. Throws FileError if the file cannot be written.
void export_chrome_trace(const Trace& trace, const std::string& path, int process = 0);

}  // namespace axle::profiler
