// What a recording of the profiler holds, as a table and as a file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/shape.h"

namespace axle::inline v0::profiler {

// communication goes on beside the scopes of its thread and takes nothing of their self times.
enum class Category : std::uint8_t { op, backward, optimizer, data, io, user, communication };
// "op", "backward", ...
const char* category_name(Category category);

// A scope that has ended. Times are ns of std::chrono::steady_clock.
struct Event {
    std::string name;
    Category category = Category::op;
    int thread = 0;  // counted from 0 as threads open their first scope
    std::int64_t start = 0, end = 0;
    std::int64_t self = 0;             // of end - start, outside of scopes inside this one
    std::int64_t bytes = 0;            // allocated between start and end by this thread
    std::int64_t self_bytes = 0;       // of these, outside of scopes inside this one
    std::vector<Shape> operands = {};  // if shapes are recorded; empty for what is no op

    std::int64_t total() const { return end - start; }
};

// The host allocator at one moment.
struct MemorySample {
    std::int64_t time = 0;
    std::int64_t current = 0, reserved = 0;  // bytes
};

struct Trace {
    std::int64_t start = 0, end = 0;
    std::vector<Event> events;  // in the order of their ends, thread by thread
    std::vector<MemorySample> samples;
    std::map<int, std::string> threads;  // names by number
};

// All scopes of one name and category: PyTorch's FunctionEventAvg.
struct Row {
    std::string name;
    Category category = Category::op;
    std::int64_t calls = 0;
    std::int64_t self = 0;   // ns
    std::int64_t total = 0;  // ns; a scope inside one of its own row is not counted twice
    std::int64_t self_bytes = 0, bytes = 0;  // likewise
    double share = 0;                        // self of all rows' self, 0 to 1
    std::vector<Shape> operands = {};        // where rows are grouped by them
};

// In the order of first appearance; grouped by name and category, or by the operands' shapes too.
// "ProfilerStep#0", "ProfilerStep#1" and so on are one name, "ProfilerStep*".
std::vector<Row> key_averages(const Trace& trace, bool group_by_input_shape = false);

// The largest first, stable. Keys as PyTorch spells them, with or without "cpu_":
// self_cpu_time_total, cpu_time_total, cpu_time (total by call), count, self_cpu_memory_usage,
// cpu_memory_usage; and name, in alphabetical order. ValueError for another.
void sort_rows(std::vector<Row>& rows, const std::string& sort_by);

struct TableOptions {
    std::string sort_by = "self_cpu_time_total";
    std::size_t row_limit = 100;
    std::size_t max_name_column_width = 55;  // longer names are cut
};
// For a terminal.
std::string table(std::vector<Row> rows, const TableOptions& options = {});

// "1.234ms"; "12.50 MiB"
std::string format_time(std::int64_t ns);
std::string format_bytes(std::int64_t bytes);

// For chrome://tracing and Perfetto: complete events by thread, asynchronous ones for communication
// and two counters of the allocator.
// `process` tells the files of several ranks apart when they are put together. FileError.
void export_chrome_trace(const Trace& trace, const std::string& path, int process = 0);

}  // namespace axle::inline v0::profiler
