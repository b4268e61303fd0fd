#include "core/profiler/trace.h"

#include <algorithm>
#include <functional>
#include <tuple>
#include <utility>

#include <nlohmann/json.hpp>

#include "core/files/file.h"
#include "core/text/text.h"
#include "kernels/error.h"

namespace axle::profiler {

const char* category_name(Category category) {
    switch (category) {
        case Category::op:
            return "op";
        case Category::backward:
            return "backward";
        case Category::optimizer:
            return "optimizer";
        case Category::data:
            return "data";
        case Category::io:
            return "io";
        case Category::user:
            return "user";
        case Category::communication:
            return "communication";
    }
    return "?";
}

// --- output as a table

namespace {

std::string shapes_text(const std::vector<Shape>& shapes) {
    std::string text;
    for (std::size_t i = 0; i < shapes.size(); ++i) text += str(i == 0 ? "" : ", ", shapes[i]);
    return text;
}

std::string fixed(double value, int precision) {
    return format_number(value, std::chars_format::fixed, precision);
}

// Returns the name of the event's row. As in PyTorch, the steps of a loop are merged into one row.
std::string key_of(const Event& event) {
    return event.name.starts_with("ProfilerStep#") ? "ProfilerStep*" : event.name;
}

// Returns the indices of the events, sorted so that each scope is before the scopes nested in it.
std::vector<std::size_t> sort_outermost_first(const std::vector<Event>& events) {
    std::vector<std::size_t> order(events.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    // If two scopes have equal times, the scope that was recorded later is the outer scope.
    std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
        const Event &x = events[a], &y = events[b];
        return std::tuple(x.thread, x.start, -x.end, -static_cast<std::int64_t>(a)) <
               std::tuple(y.thread, y.start, -y.end, -static_cast<std::int64_t>(b));
    });
    return order;
}

}  // namespace

std::vector<Row> key_averages(const Trace& trace, bool group_by_input_shape) {
    std::vector<Row> rows;
    std::map<std::tuple<std::string, Category, std::string>, std::size_t> row_index;
    struct Open {
        std::int64_t end;
        std::size_t row;
    };
    std::vector<Open> open_scopes;
    int thread = -1;
    std::int64_t all = 0;
    for (const std::size_t i : sort_outermost_first(trace.events)) {
        const Event& event = trace.events[i];
        const std::string name = key_of(event);
        const auto [entry, added] = row_index.try_emplace(
            {name, event.category, group_by_input_shape ? shapes_text(event.operands) : ""},
            rows.size());
        const std::size_t at = entry->second;
        if (added)
            rows.push_back(
                {.name = name,
                 .category = event.category,
                 .operands = group_by_input_shape ? event.operands : std::vector<Shape>()});
        if (event.thread != thread) open_scopes.clear();
        thread = event.thread;
        bool nested = false;
        if (event.category != Category::communication) {
            while (!open_scopes.empty() && open_scopes.back().end < event.end)
                open_scopes.pop_back();
            while (!open_scopes.empty() && open_scopes.back().end <= event.start)
                open_scopes.pop_back();
            nested = std::any_of(open_scopes.begin(), open_scopes.end(),
                                 [at](const Open& open) { return open.row == at; });
            open_scopes.push_back({event.end, at});
        }
        Row& row = rows[at];
        ++row.calls;
        row.self += event.self;
        row.self_bytes += event.self_bytes;
        all += event.self;
        if (nested) continue;
        row.total += event.total();
        row.bytes += event.bytes;
    }
    for (Row& row : rows)
        row.share = all > 0 ? static_cast<double>(row.self) / static_cast<double>(all) : 0;
    return rows;
}

void sort_rows(std::vector<Row>& rows, const std::string& sort_by) {
    const auto average = [](const Row& row) {
        return static_cast<double>(row.total) /
               static_cast<double>(std::max<std::int64_t>(1, row.calls));
    };
    using Less = std::function<bool(const Row&, const Row&)>;
    const std::pair<const char*, Less> keys[] = {
        {"self_time_total", [](const Row& a, const Row& b) { return a.self > b.self; }},
        {"time_total", [](const Row& a, const Row& b) { return a.total > b.total; }},
        {"time", [&](const Row& a, const Row& b) { return average(a) > average(b); }},
        {"count", [](const Row& a, const Row& b) { return a.calls > b.calls; }},
        {"self_memory_usage",
         [](const Row& a, const Row& b) { return a.self_bytes > b.self_bytes; }},
        {"memory_usage", [](const Row& a, const Row& b) { return a.bytes > b.bytes; }},
        {"name", [](const Row& a, const Row& b) { return a.name < b.name; }}};
    std::string key_name = sort_by;
    if (const std::size_t at = key_name.find("cpu_"); at != std::string::npos)
        key_name.erase(at, 4);
    for (const auto& [key, less] : keys)
        if (key_name == key) return std::stable_sort(rows.begin(), rows.end(), less);
    throw ValueError(str("profiler: unknown sort key: '", printable(sort_by),
                         "'; expected self_cpu_time_total, cpu_time_total, cpu_time, count, "
                         "self_cpu_memory_usage, cpu_memory_usage or name"));
}

std::string format_time(std::int64_t ns) {
    const auto value = static_cast<double>(ns);
    if (value >= 1e9) return fixed(value / 1e9, 3) + "s";
    if (value >= 1e6) return fixed(value / 1e6, 3) + "ms";
    return fixed(value / 1e3, 3) + "us";
}

std::string format_bytes(std::int64_t bytes) {
    static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    auto value = static_cast<double>(bytes);
    std::size_t unit = 0;
    while (value >= 1024 && unit + 1 < std::size(kUnits)) value /= 1024, ++unit;
    return fixed(value, unit == 0 ? 0 : 2) + ' ' + kUnits[unit];
}

namespace {

std::string percent(std::int64_t part, std::int64_t whole) {
    const double share = static_cast<double>(part) / static_cast<double>(whole);
    return fixed(whole > 0 ? 100.0 * share : 0.0, 2) + '%';
}

using Line = std::vector<std::string>;

// Returns the lines as a table with rules. Cells are padded to the widest cell of their column.
// Columns for which `left` is true are aligned left, the other columns right.
std::string align_columns(const std::vector<Line>& lines, const std::vector<bool>& left) {
    std::vector<std::size_t> width(left.size(), 0);
    for (const Line& line : lines)
        for (std::size_t c = 0; c < line.size(); ++c) width[c] = std::max(width[c], line[c].size());
    std::string rule, text;
    for (const std::size_t w : width) rule += std::string(w, '-') + "  ";
    rule.resize(rule.size() - 2);
    for (std::size_t l = 0; l < lines.size(); ++l) {
        if (l < 2) text += rule + "\n";
        std::string row;
        for (std::size_t c = 0; c < left.size(); ++c) {
            const std::string& cell = lines[l][c];
            const std::string gap(width[c] - cell.size(), ' ');
            row += (left[c] ? cell + gap : gap + cell) + "  ";
        }
        row.erase(row.find_last_not_of(' ') + 1);
        text += row + "\n";
    }
    return text + rule + "\n";
}

}  // namespace

std::string table(std::vector<Row> rows, const TableOptions& options) {
    sort_rows(rows, options.sort_by);
    std::int64_t all = 0;
    for (const Row& row : rows) all += row.self;
    const bool shapes =
        std::any_of(rows.begin(), rows.end(), [](const Row& row) { return !row.operands.empty(); });
    std::vector<Line> lines = {{"Name", "Category", "Self %", "Self", "Total %", "Total",
                                "Time avg", "Calls", "Self mem", "Mem"}};
    std::vector<bool> left(lines[0].size(), false);
    left[0] = left[1] = true;
    if (shapes) lines[0].emplace_back("Input shapes"), left.push_back(true);
    for (std::size_t i = 0; i < std::min(rows.size(), options.row_limit); ++i) {
        const Row& row = rows[i];
        std::string name = printable(row.name);
        if (const std::size_t max_width = std::max<std::size_t>(4, options.max_name_column_width);
            name.size() > max_width)
            name = name.substr(0, max_width - 3) + "...";
        lines.push_back({name, category_name(row.category), percent(row.self, all),
                         format_time(row.self), percent(row.total, all), format_time(row.total),
                         format_time(row.total / std::max<std::int64_t>(1, row.calls)),
                         str(row.calls), format_bytes(row.self_bytes), format_bytes(row.bytes)});
        if (shapes) lines.back().push_back(shapes_text(row.operands));
    }
    return align_columns(lines, left) + "Self time total: " + format_time(all) + "\n";
}

// --- output as a file

namespace {

std::string quoted(const std::string& text) {
    return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// Writes a trace to a file in pieces, because it can be long.
class TraceWriter {
  public:
    TraceWriter(AtomicFile& file, const Trace& trace, int process)
        : file_(file), trace_(trace), process_(process) {}

    void write() {
        text_ = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[";
        add(str(R"({"ph":"M","name":"process_name","pid":)", process_, R"(,"args":{"name":"rank )",
                process_, "\"}}"));
        for (const auto& [number, name] : trace_.threads)
            add(str(R"({"ph":"M","name":"thread_name","pid":)", process_, R"(,"tid":)", number,
                    R"(,"args":{"name":)", quoted(name), "}}"));
        for (const Event& event : trace_.events) add_event(event);
        for (const MemorySample& sample : trace_.samples) {
            add_counter("allocated bytes", sample.time, sample.current);
            add_counter("reserved bytes", sample.time, sample.reserved);
        }
        text_ += "\n]}\n";
        file_.write(text_);
    }

  private:
    // Returns the time since the start of the trace in microseconds, exact to the nanosecond.
    std::string time(std::int64_t ns) const { return micros(ns - trace_.start); }
    static std::string micros(std::int64_t ns) {
        const std::int64_t size = ns < 0 ? -ns : ns;
        const std::string thousandths = std::to_string(1000 + size % 1000).substr(1);
        return (ns < 0 ? "-" : "") + std::to_string(size / 1000) + '.' + thousandths;
    }

    void add(const std::string& object) {
        text_ += first_ ? "\n" : ",\n";
        first_ = false;
        text_ += object;
        if (text_.size() < std::size_t{1} << 16) return;
        file_.write(text_);
        text_.clear();
    }

    void add_event(const Event& event) {
        if (event.category == Category::communication) {
            ++asynchronous_;
            add_async_end("b", event, event.start);
            add_async_end("e", event, event.end);
            return;
        }
        std::string args = str("{\"self us\":", micros(event.self), ",\"bytes\":", event.bytes,
                               ",\"self bytes\":", event.self_bytes);
        if (!event.operands.empty())
            args += ",\"input shapes\":" + quoted(shapes_text(event.operands));
        add(str(R"({"ph":"X","name":)", quoted(event.name), R"(,"cat":")",
                category_name(event.category), R"(","pid":)", process_, R"(,"tid":)", event.thread,
                R"(,"ts":)", time(event.start), R"(,"dur":)", micros(event.total()), R"(,"args":)",
                args, "}}"));
    }

    // Adds the beginning or the end of an asynchronous event.
    void add_async_end(const char* phase, const Event& event, std::int64_t at) {
        add(str(R"({"ph":")", phase, R"(","name":)", quoted(event.name), R"(,"cat":")",
                category_name(event.category), R"(","id":)", asynchronous_, R"(,"pid":)", process_,
                R"(,"tid":)", event.thread, R"(,"ts":)", time(at), "}"));
    }

    void add_counter(const char* name, std::int64_t at, std::int64_t bytes) {
        add(str(R"({"ph":"C","name":")", name, R"(","pid":)", process_, R"(,"ts":)", time(at),
                R"(,"args":{"bytes":)", bytes, "}}"));
    }

    AtomicFile& file_;
    const Trace& trace_;
    int process_;
    std::string text_;
    bool first_ = true;
    int asynchronous_ = 0;
};

}  // namespace

void export_chrome_trace(const Trace& trace, const std::string& path, int process) {
    write_file_atomically(path,
                          [&](AtomicFile& file) { TraceWriter(file, trace, process).write(); });
}

}  // namespace axle::profiler
