#include "tools/axle/bench/row.h"

#include <charconv>
#include <cmath>
#include <cstddef>

#include <nlohmann/json.hpp>

#include "core/text/text.h"
#include "core/version.h"
#include "kernels/error.h"
#include "tools/axle/bench/library.h"

namespace axle::bench {
namespace {

using nlohmann::ordered_json;

std::string fixed(double value, int digits) {
    return format_number(value, std::chars_format::fixed, digits);
}
// Returns a number with four decimals below 0.1, else with two, one or none, the fewer the larger
// it is.
std::string rounded(double value) {
    return fixed(value, value >= 99.95 ? 0 : value >= 9.995 ? 1 : value >= 0.1 ? 2 : 4);
}

std::string time_text(double seconds) {
    if (seconds < 1e-3) return rounded(seconds * 1e6) + " us";
    return seconds < 1 ? rounded(seconds * 1e3) + " ms" : rounded(seconds) + " s";
}

std::string left(std::string text, std::size_t width) {
    if (text.size() < width) text.append(width - text.size(), ' ');
    return text;
}
std::string right(const std::string& text, std::size_t width) {
    return text.size() < width ? std::string(width - text.size(), ' ') + text : text;
}

std::string columns(const std::vector<std::string>& cells) {
    constexpr std::size_t kWidths[] = {22, 10, 20, 5, 6, 7, 7};
    std::string line;
    for (std::size_t i = 0; i < std::size(kWidths); ++i) line += left(cells[i], kWidths[i]) + ' ';
    return line;
}

ordered_json json_of(const Row& row) {
    ordered_json object = {{"kernel", row.kernel},      {"implementation", row.implementation},
                           {"shape", row.call.shape},   {"dtype", short_name(row.call.dtype)},
                           {"layout", row.call.layout}, {"threads", row.threads},
                           {"cache", row.cache()}};
    if (!row.error.empty()) {
        object["error"] = row.error;
        return object;
    }
    object.update({{"seconds", row.timing.seconds},
                   {"spread", row.timing.spread},
                   {"samples", row.timing.samples},
                   {"calls", row.timing.calls},
                   {"operations", row.operations},
                   {"bytes", row.bytes},
                   {"gflops", row.gflops()},
                   {"gb_per_s", row.gigabytes()},
                   {"limit", row.limit == Limit::arithmetic ? "arithmetic" : "memory"},
                   {"share_of_peak", row.share()},
                   {"speed_of_axle", row.timing.seconds / row.axle_seconds}});
    if (row.implementation != "axle") {
        object["difference"] = row.difference;  // null if it is NaN
        object["wrong"] = row.is_wrong();
    }
    return object;
}

ordered_json json_of(const Tree& tree) { return ordered_json::parse(axle::to_json(tree, -1)); }

}  // namespace

bool Row::is_wrong() const { return !(difference <= tolerance(call.dtype)); }

std::string titles() {
    return columns({"kernel", "from", "shape", "dtype", "layout", "threads", "cache"}) +
           right("time", 8) + right("spread", 8) + right("rate", 14) + right("of peak", 9) +
           right("of axle", 9);
}

std::string text_of(const Row& row) {
    std::string line =
        columns({row.kernel, row.implementation, shape_text(row.call.shape),
                 short_name(row.call.dtype), row.call.layout, str(row.threads), row.cache()});
    if (!row.error.empty()) return line + row.error;
    const std::string unit = row.limit == Limit::arithmetic ? " GFLOP/s" : " GB/s";
    line += right(time_text(row.timing.seconds), 8) +
            right(fixed(100 * row.timing.spread, 0) + "%", 8) +
            right(rounded(row.rate()) + unit, 14) + right(fixed(100 * row.share(), 0) + "%", 9);
    if (row.implementation == "axle") return line;
    line += right(fixed(row.axle_seconds / row.timing.seconds, 2) + "x", 9);
    if (row.is_wrong())
        line += str("  WRONG: differs by ",
                    format_number(row.difference, std::chars_format::general, 3));
    return line;
}

std::string text_of(const Peaks& peaks, int threads) {
    const std::string half =
        peaks.bf16 > 0 ? ", " + rounded(peaks.bf16) + " in bf16" : std::string();
    return str("Peaks with ", threads,
               threads == 1 ? " thread: " : " threads: ", rounded(peaks.f32), " GFLOP/s in f32, ",
               rounded(peaks.f64), " in f64", half, "; ", rounded(peaks.memory),
               " GB/s from memory, ", rounded(peaks.cache), " from L2");
}

std::string to_json(const Results& results) {
    ordered_json root = {{"format", 1},
                         {"axle", kVersion},
                         {"machine", json_of(results.machine)},
                         {"target", results.target},
                         {"min_time", results.min_seconds},
                         {"peaks", ordered_json::array()},
                         {"rows", ordered_json::array()}};
    for (const auto& [threads, peaks] : results.peaks) {
        ordered_json object = {{"threads", threads},
                               {"f32_gflops", peaks.f32},
                               {"f64_gflops", peaks.f64},
                               {"memory_gb_per_s", peaks.memory},
                               {"l2_gb_per_s", peaks.cache}};
        if (peaks.bf16 > 0) object["bf16_gflops"] = peaks.bf16;
        root["peaks"].push_back(object);
    }
    for (const Row& row : results.rows) root["rows"].push_back(json_of(row));
    return root.dump(2) + "\n";
}

}  // namespace axle::bench
