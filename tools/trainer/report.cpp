#include "tools/trainer/report.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <ctime>
#include <fstream>
#include <string_view>

#include <sys/utsname.h>

#include "accel/tracking/append_file.h"
#include "accel/utils/text.h"
#include "core/files/file.h"
#include "core/version.h"
#include "kernels/thread_pool.h"
#include "tools/trainer/chart.h"
#include "tools/trainer/html.h"
#include "tools/trainer/report_page.h"

namespace axle::trainer {
namespace {

constexpr std::size_t kPoints = 600;     // maximum number of points per curve
constexpr std::size_t kOperations = 15;  // maximum number of rows in the table of operations

#ifdef __clang__
constexpr char kCompiler[] = __VERSION__;  // Clang's text begins with "Clang"
#else
constexpr char kCompiler[] = "g++ " __VERSION__;
#endif

// --- curves

struct Title {
    const char* name;
    const char* title;
};
constexpr Title kTitles[] = {{"loss", "Loss"},
                             {"accuracy", "Accuracy"},
                             {"lr", "Learning rate"},
                             {"grad_norm", "Gradient norm"},
                             {"memory_bytes", "Memory"},
                             {"tokens_per_s", "Tokens per second"},
                             {"samples_per_s", "Samples per second"}};

std::string title_of(const std::string& name) {
    for (const Title& known : kTitles)
        if (name == known.name) return known.title;
    return name;
}

// Returns the names of all curves: the names in kTitles, and then other names in the order of the
// metrics.
std::vector<std::string> names_of(const Metrics& metrics) {
    std::vector<std::string> found = metrics.names(), ordered;
    for (const Title& known : kTitles) {
        const auto at = std::find(found.begin(), found.end(), known.name);
        if (at == found.end()) continue;
        ordered.push_back(*at);
        found.erase(at);
    }
    ordered.insert(ordered.end(), found.begin(), found.end());
    return ordered;
}

// Returns whether a value is a number that is not finite. Such numbers are strings in JSON
// (core/tree/tree.h).
bool is_not_finite(const Tree& value) {
    return value.is_string() && (value.string() == "NaN" || value.string() == "Infinity" ||
                                 value.string() == "-Infinity");
}

Curve curve_of(const Metrics& metrics, const std::string& name, const std::string& label) {
    Curve curve = thinned(metrics.curve(name), kPoints);
    curve.name = label;
    return curve;
}

std::vector<Chart> charts_of(const Metrics& metrics) {
    std::vector<Chart> charts;
    const std::vector<std::string> names = names_of(metrics);
    const auto has = [&](const std::string& name) {
        return std::find(names.begin(), names.end(), name) != names.end();
    };
    for (const std::string& name : names) {
        if (name.starts_with("val_") && has(name.substr(4))) continue;
        Chart chart{.title = title_of(name), .curves = {}};
        if (name == "lr") chart.from_zero = true;
        if (name.ends_with("_per_s")) chart.format = 'k', chart.from_zero = true;
        if (name.ends_with("_bytes")) chart.format = 'b', chart.from_zero = true;
        const bool pair = has("val_" + name);
        chart.curves.push_back(curve_of(metrics, name, pair ? "training" : title_of(name)));
        if (pair) {
            chart.curves.push_back(curve_of(metrics, "val_" + name, "evaluation"));
            chart.curves.back().strong = true;
        }
        charts.push_back(std::move(chart));
    }
    return charts;
}

std::string figure(const Chart& chart, const std::string& svg, std::size_t number) {
    const bool pair = chart.curves.size() > 1;
    std::string html = str("<figure data-chart=\"", number, "\"", pair ? " class=\"pair\"" : "",
                           "><figcaption>", escape_html(chart.title));
    for (std::size_t i = 0; pair && i < chart.curves.size(); ++i)
        html += str("<span class=\"key c", i, "\">", escape_html(chart.curves[i].name), "</span>");
    return html + "</figcaption>" + svg + "</figure>\n";
}

// Returns a chart's values for the script: {"curves": [[name, xs, ys]], "format": "g"}. Values that
// are not finite are null.
Tree values_of(const Chart& chart) {
    const auto list = [](const std::vector<double>& values) {
        Tree numbers = Tree::list();
        for (const double v : values) numbers.push_back(std::isfinite(v) ? Tree(v) : Tree());
        return numbers;
    };
    Tree curves = Tree::list();
    for (const Curve& curve : chart.curves)
        curves.push_back(Tree::list({curve.name, list(curve.x), list(curve.y)}));
    return Tree{{"curves", curves}, {"format", std::string(1, chart.format)}};
}

std::string charts_section(const Metrics& metrics) {
    std::string figures;
    Tree values = Tree::list();
    for (const Chart& chart : charts_of(metrics)) {
        const std::string svg = to_svg(chart);
        if (svg.empty()) continue;
        figures += figure(chart, svg, values.size());
        values.push_back(values_of(chart));
    }
    // "<" is escaped, so that the text cannot contain "</script>" or "<!--".
    std::string json = to_json(values, -1);
    for (std::size_t at = 0; (at = json.find('<', at)) != std::string::npos;)
        json.replace(at, 1, "\\u003c");
    const std::string data =
        "<script type=\"application/json\" id=\"values\">" + json + "</script>\n";
    return figures.empty() ? data : "<div class=\"charts\">\n" + figures + "</div>\n" + data;
}

// --- tables

std::string text_of(const std::string& name, const Tree& value) {
    if (value.is_string()) return value.string();
    if (value.is_integer() && name.ends_with("_bytes")) return accel::human_bytes(value.integer());
    if (value.is_integer()) return std::to_string(value.integer());
    if (value.is_number() && name == "seconds") return accel::human_duration(value.number());
    if (value.is_number())
        return format_value(value.number(), name.ends_with("_per_s") ? 'k' : 'g');
    if (value.is_null()) return "none";
    return to_json(value, -1);
}

std::string rows_of(const Tree& table, const std::string& prefix = {}) {
    std::string html;
    for (const auto& [key, value] : table.entries()) {
        const std::string name = prefix + key;
        if (value.is_map()) {
            html += rows_of(value, name + ".");
            continue;
        }
        html += "<tr><td class=\"key-cell\">" + escape_html(name) + "</td><td>" +
                escape_html(text_of(key, value)) + "</td></tr>\n";
    }
    return html;
}

std::string table_section(const char* title, const Tree& table) {
    if (table.empty()) return {};
    return str("<section><h2>", title, "</h2><div class=\"card\"><table>\n", rows_of(table),
               "</table></div></section>\n");
}

std::string tiles(const Tree& results) {
    std::string html;
    for (const auto& [key, value] : results.entries())
        html += "<div class=\"tile\"><b>" + escape_html(text_of(key, value)) + "</b><span>" +
                escape_html(key) + "</span></div>\n";
    return html.empty() ? html : "<div class=\"tiles\">\n" + html + "</div>\n";
}

std::string operations_section(std::vector<profiler::Row> rows) {
    if (rows.empty()) return {};
    profiler::sort_rows(rows, "self_cpu_time_total");
    const std::size_t shown = std::min(rows.size(), kOperations);
    std::string html =
        "<h2>Where the time went</h2><div class=\"card\"><table class=\"wide\">\n"
        "<tr><th>operation</th><th class=\"n\">calls</th><th class=\"n\">self</th>"
        "<th class=\"n\">total</th><th class=\"n\">allocated</th><th class=\"n\">share</th>"
        "<th class=\"share\"></th></tr>\n";
    const double most = std::max(rows[0].share, 1e-9);
    for (std::size_t i = 0; i < shown; ++i) {
        const profiler::Row& row = rows[i];
        html += str("<tr><td>", escape_html(row.name), "</td><td class=\"n\">", row.calls,
                    "</td><td class=\"n\">", profiler::format_time(row.self),
                    "</td><td class=\"n\">", profiler::format_time(row.total),
                    "</td><td class=\"n\">", profiler::format_bytes(row.bytes),
                    "</td><td class=\"n\">", format_value(std::round(row.share * 1000) / 10, 'g'),
                    " %</td><td class=\"share\"><i style=\"width:",
                    format_value(100 * row.share / most, 'g'), "%\"></i></td></tr>\n");
    }
    html += "</table></div>\n";
    if (rows.size() > shown)
        html += str("<p class=\"soft\">", rows.size() - shown, " more in trace.json</p>\n");
    return html;
}

// --- samples

std::string samples_section(const Report& report) {
    std::string html;
    if (!report.text.empty())
        html += "<h2>Generated text</h2><div class=\"card\"><pre>" + escape_html(report.text) +
                "</pre></div>\n";
    if (report.pictures.empty()) return html;
    html += "<h2>Sample predictions</h2><div class=\"pictures\">\n";
    for (const ReportPicture& picture : report.pictures)
        html += str("<div", picture.wrong ? " class=\"wrong\"" : "", "><img alt=\"\" src=\"",
                    data_uri("image/png", picture.png), "\">", escape_html(picture.caption),
                    "</div>\n");
    return html + "</div>\n";
}

std::string now() {
    const std::time_t time = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
    std::tm parts = {};
    ::gmtime_r(&time, &parts);
    const auto two = [](int v) { return str(v < 10 ? "0" : "", v); };
    return str(parts.tm_year + 1900, "-", two(parts.tm_mon + 1), "-", two(parts.tm_mday), " ",
               two(parts.tm_hour), ":", two(parts.tm_min), " UTC");
}

std::string cpu_model() {
    std::ifstream file("/proc/cpuinfo");
    for (std::string line; std::getline(file, line);)
        if (line.starts_with("model name"))
            return line.substr(std::min(line.find(':') + 2, line.size()));
    return "unknown";
}

}  // namespace

Metrics::Metrics(const std::vector<Tree>& rows) {
    for (const Tree& row : rows) add(row);
}

void Metrics::add(const Tree& row) {
    const double step = row["step"].number();
    ++rows_;
    for (const auto& [name, value] : row.entries()) {
        if (name == "step" || name == "epoch") continue;
        if (!value.is_number() && !is_not_finite(value)) continue;
        auto found = curves_.find(name);
        if (found == curves_.end()) {
            if (curves_.size() == kMaxNames) continue;
            found = curves_.emplace(name, Curve{.name = name, .x = {}, .y = {}}).first;
        }
        Curve& curve = found->second;
        curve.x.push_back(step);
        curve.y.push_back(value.number());
        if (value.is_number() && std::ranges::find(names_, name) == names_.end())
            names_.push_back(name);
    }
}

const Curve& Metrics::curve(const std::string& name) const {
    static const auto* none = new Curve;
    const auto found = curves_.find(name);
    return found == curves_.end() ? *none : found->second;
}

Metrics read_metrics(const std::string& path) {
    constexpr std::size_t kMaxLine = std::size_t{1} << 20;
    Metrics metrics;
    const MappedFile file(path);
    std::string_view rest = accel::text_of(file);
    for (std::size_t end; (end = rest.find('\n')) != std::string_view::npos;) {
        const std::string_view line = rest.substr(0, end);
        rest.remove_prefix(end + 1);
        try {
            if (line.size() > kMaxLine)
                throw ValueError(
                    str("must have at most ", kMaxLine, " bytes: it has ", line.size()));
            metrics.add(from_json(line));
        } catch (const Error& error) {
            throw FileError(
                str(printable(path), ": line ", metrics.rows() + 1, ": ", error.what()));
        }
    }
    return metrics;
}

Tree environment() {
    utsname system = {};
    ::uname(&system);
    return Tree{{"axle", kVersion},
                {"cpu", cpu_model()},
                {"threads", kernels::num_threads()},
                {"system", str(system.sysname, " ", system.release, " ", system.machine)},
                {"compiler", kCompiler},
                {"written", now()}};
}

std::string to_html(const Report& report) {
    const std::string title = escape_html(report.title);
    return "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
           "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>" +
           title + "</title>\n<style>" + kReportStyle + "</style></head>\n<body><main>\n<h1>" +
           title + "</h1>\n" + tiles(report.results) +
           "<h2>Training <span class=\"soft\">by update</span></h2>\n" +
           charts_section(report.metrics) + samples_section(report) +
           operations_section(report.operations) + "<div class=\"columns\">\n" +
           table_section("Configuration", report.configuration) +
           table_section("Environment", report.environment) + "</div>\n</main>\n<script>" +
           kReportScript + "</script>\n</body></html>\n";
}

}  // namespace axle::trainer
