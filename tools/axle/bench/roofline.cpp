// Draws rooflines (Williams et al., 2009) and writes the page with them.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <string>
#include <vector>

#include "core/text/text.h"
#include "core/version.h"
#include "kernels/error.h"
#include "tools/axle/bench/row.h"
#include "tools/trainer/html.h"
#include "tools/trainer/report_page.h"

namespace axle::bench {
namespace {

using trainer::escape_html;

constexpr double kWidth = 860, kHeight = 520;
constexpr double kLeft = 64, kRight = 24, kTop = 76, kBottom = 48;
constexpr const char* kColors[] = {"#2f5fc4", "#d4611c", "#3d8b4f",
                                   "#8a4bb0", "#a03c4e", "#5b6472"};

std::string fixed(double value, int digits) {
    return format_number(value, std::chars_format::fixed, digits);
}
std::string short_number(double value) {
    return value >= 10 ? fixed(value, 0) : format_number(value, std::chars_format::general, 2);
}

// Returns the distinct implementations of rows without errors, in the order of the rows. The colors
// have the same order.
std::vector<std::string> implementations_of(const std::vector<Row>& rows) {
    std::vector<std::string> names;
    for (const Row& row : rows)
        if (row.error.empty() && std::ranges::count(names, row.implementation) == 0)
            names.push_back(row.implementation);
    return names;
}
const char* color_of(const std::vector<std::string>& names, const std::string& name) {
    const auto place = static_cast<std::size_t>(std::ranges::find(names, name) - names.begin());
    return kColors[place % std::size(kColors)];
}

// A logarithmic axis with space around the values from `low` to `high`. It spans at least a decade,
// and its ticks are powers of ten.
class LogAxis {
  public:
    LogAxis(double low, double high, double from, double to)
        : low_(std::log10(low) - 0.15),
          high_(std::max(std::log10(high) + 0.15, low_ + 1.2)),
          from_(from),
          to_(to) {}
    double operator()(double value) const {
        return from_ + (to_ - from_) * (std::log10(value) - low_) / (high_ - low_);
    }
    double low() const { return std::pow(10, low_); }
    std::vector<double> ticks() const {
        std::vector<double> ticks;
        for (double power = std::ceil(low_); power <= high_; ++power)
            ticks.push_back(std::pow(10, power));
        return ticks;
    }

  private:
    double low_, high_, from_, to_;
};

struct Box {
    double x, y, width, height;
    bool overlaps(const Box& other) const {
        return x < other.x + other.width && other.x < x + width && y < other.y + other.height &&
               other.y < y + height;
    }
};

// Places labels so that they cover neither points nor other labels, and no lines if possible.
class Labels {
  public:
    void block(const Box& box) { taken_.push_back(box); }
    void avoid(const Box& box) { lines_.push_back(box); }

    // Returns a <text> element next to the point, or "" if there is no space.
    std::string place(const std::string& text, double x, double y) {
        const double width = 7 * static_cast<double>(text.size());
        const Box choices[] = {
            {x + 8, y - 6, width, 12},          {x - 8 - width, y - 6, width, 12},
            {x - width / 2, y - 20, width, 12}, {x - width / 2, y + 8, width, 12},
            {x + 6, y - 18, width, 12},         {x + 6, y + 7, width, 12},
            {x - 6 - width, y - 18, width, 12}, {x - 6 - width, y + 7, width, 12}};
        for (const bool may_cover_lines : {false, true})
            for (const Box& box : choices) {
                if (box.x < kLeft || box.x + width > kWidth - kRight || box.y < kTop ||
                    box.y > kHeight - kBottom - 12 || overlaps(taken_, box) ||
                    (!may_cover_lines && overlaps(lines_, box)))
                    continue;
                taken_.push_back(box);
                return str("<text class=\"label\" x=\"", fixed(box.x, 1), "\" y=\"",
                           fixed(box.y + 10, 1), "\">", escape_html(text), "</text>\n");
            }
        return {};
    }

  private:
    static bool overlaps(const std::vector<Box>& boxes, const Box& box) {
        return std::ranges::any_of(boxes, [&](const Box& other) { return box.overlaps(other); });
    }

    std::vector<Box> taken_, lines_;
};

std::string line(double x1, double y1, double x2, double y2, const std::string& style) {
    return str("<line x1=\"", fixed(x1, 1), "\" y1=\"", fixed(y1, 1), "\" x2=\"", fixed(x2, 1),
               "\" y2=\"", fixed(y2, 1), "\" ", style, "/>\n");
}
std::string text(double x, double y, const std::string& anchor, const std::string& words,
                 const std::string& more = "") {
    return str("<text x=\"", fixed(x, 1), "\" y=\"", fixed(y, 1), "\" text-anchor=\"", anchor, "\"",
               more, ">", escape_html(words), "</text>\n");
}

struct Roof {
    std::string name;
    double value;
};

std::string grid(const LogAxis& x, const LogAxis& y) {
    std::string svg;
    const char* const style = "stroke=\"#e2e5ea\"";
    svg += line(kLeft, kTop, kLeft, kHeight - kBottom, style);
    svg += line(kLeft, kHeight - kBottom, kWidth - kRight, kHeight - kBottom, style);
    for (const double tick : x.ticks()) {
        svg += line(x(tick), kTop, x(tick), kHeight - kBottom, style);
        svg += text(x(tick), kHeight - kBottom + 17, "middle", short_number(tick));
    }
    for (const double tick : y.ticks()) {
        svg += line(kLeft, y(tick), kWidth - kRight, y(tick), style);
        svg += text(kLeft - 8, y(tick) + 4, "end", short_number(tick));
    }
    svg += text((kLeft + kWidth - kRight) / 2, kHeight - 10, "middle",
                "operations per byte of the operands");
    return svg + text(kLeft - 8, kTop - 8, "start", "GFLOP/s");
}

// Returns the peaks of the dtypes of the rows, or of f32 if there are no rows. A dtype without a
// peak of its own has the peak of f32.
std::vector<Roof> flat_roofs(const Peaks& peaks, const std::vector<const Row*>& rows) {
    bool has_f64 = false, has_bf16 = false, has_f32 = rows.empty();
    for (const Row* row : rows) {
        const bool half = row->call.dtype == bf16 && peaks.bf16 > 0;
        (row->call.dtype == f64 ? has_f64 : half ? has_bf16 : has_f32) = true;
    }
    std::vector<Roof> roofs;
    if (has_f64) roofs.push_back({"f64", peaks.f64});
    if (has_f32) roofs.push_back({"f32", peaks.f32});
    if (has_bf16) roofs.push_back({"bf16", peaks.bf16});
    return roofs;
}

// Draws the sloped roofs of bandwidths up to the highest peak, and the flat roofs to the right of
// the higher bandwidth's roof. Their names are above the lines.
std::string roofs(const Peaks& peaks, const std::vector<Roof>& flat, const LogAxis& x,
                  const LogAxis& y, Labels& labels) {
    const double highest = std::ranges::max(flat, {}, &Roof::value).value;
    std::string svg;
    for (const Roof& roof : {Roof{"memory", peaks.memory}, Roof{"L2", peaks.cache}}) {
        const double begin = std::max(x.low(), y.low() / roof.value);
        const double end = highest / roof.value;
        const char* const style =
            roof.name == "L2" ? "class=\"roof\" stroke-dasharray=\"5 4\"" : "class=\"roof\"";
        svg += line(x(begin), y(begin * roof.value), x(end), y(highest), style);
        const double dx = x(end) - x(begin), dy = y(highest) - y(begin * roof.value);
        const double at_x = x(begin) + dx * 0.08, at_y = y(begin * roof.value) + dy * 0.08 - 7;
        svg += text(at_x, at_y, "start", str(roof.name, " ", short_number(roof.value), " GB/s"),
                    str(" class=\"name\" transform=\"rotate(",
                        fixed(std::atan2(dy, dx) * 180 / 3.14159265358979, 1), " ", fixed(at_x, 1),
                        " ", fixed(at_y, 1), ")\""));
        for (double part = 0; part < 1; part += 0.02)
            labels.avoid({x(begin) + dx * part - 3, y(begin * roof.value) + dy * part - 6, 6, 12});
        for (double part = 0; part < 130; part += 10)  // keeps labels off the name
            labels.block({at_x + part * std::cos(std::atan2(dy, dx)) - 4,
                          at_y + part * std::sin(std::atan2(dy, dx)) - 12, 12, 14});
    }
    for (const Roof& roof : flat) {
        const double begin = roof.value / std::max(peaks.memory, peaks.cache);
        svg += line(x(begin), y(roof.value), kWidth - kRight, y(roof.value), "class=\"roof\"");
        const std::string name = str(roof.name, " ", short_number(roof.value), " GFLOP/s");
        svg += text(kWidth - kRight - 4, y(roof.value) - 6, "end", name, " class=\"name\"");
        labels.block({kWidth - kRight - 130, y(roof.value) - 18, 130, 16});
        labels.avoid({x(begin), y(roof.value) - 2, kWidth, 4});
    }
    return svg;
}

std::string legend(const std::vector<std::string>& names, bool hot, bool flushed) {
    std::string svg;
    double x = kLeft;
    const auto add = [&](const std::string& name, const std::string& style) {
        svg += str("<circle cx=\"", fixed(x + 5, 1), "\" cy=\"38\" r=\"4.5\" ", style, "/>\n");
        svg += text(x + 15, 42, "start", name);
        x += 36 + 6.5 * static_cast<double>(name.size());
    };
    for (const std::string& name : names) add(name, str("fill=\"", color_of(names, name), "\""));
    if (hot)
        add("operands in the caches", "fill=\"#5b6472\" stroke=\"#5b6472\" stroke-width=\"2\"");
    if (flushed) add("caches flushed", "fill=\"#fff\" stroke=\"#5b6472\" stroke-width=\"2\"");
    return svg;
}

std::string cell(const std::string& text, bool number) {
    return str(number ? "<td class=\"n\">" : "<td>", escape_html(text), "</td>");
}

std::string table_row(const Row& row) {
    std::string html = "<tr>" + cell(row.kernel, false) + cell(row.implementation, false) +
                       cell(shape_text(row.call.shape), false) +
                       cell(short_name(row.call.dtype), false) + cell(row.call.layout, false) +
                       cell(str(row.threads), true) + cell(row.cache(), false);
    if (!row.error.empty())
        return html + "<td colspan=\"6\">" + escape_html(row.error) + "</td></tr>\n";
    const bool ours = row.implementation == "axle";
    const std::string relative =
        ours ? ""
             : fixed(row.axle_seconds / row.timing.seconds, 2) + (row.is_wrong() ? ", wrong" : "");
    return html + cell(short_number(row.timing.seconds * 1e6), true) +
           cell(fixed(100 * row.timing.spread, 0) + " %", true) +
           cell(row.operations > 0 ? short_number(row.gflops()) : "", true) +
           cell(short_number(row.gigabytes()), true) +
           cell(fixed(100 * row.share(), 0) + " %", true) + cell(relative, true) + "</tr>\n";
}

constexpr char kTitles[] =
    "<tr><th>kernel</th><th>from</th><th>shape</th><th>dtype</th><th>layout</th>"
    "<th class=\"n\">threads</th><th>cache</th><th class=\"n\">µs</th><th class=\"n\">spread</th>"
    "<th class=\"n\">GFLOP/s</th><th class=\"n\">GB/s</th><th class=\"n\">of peak</th>"
    "<th class=\"n\">speed / Axle</th></tr>\n";

}  // namespace

std::string to_svg(const Results& results, int threads) {
    const Peaks& peaks = results.peaks.at(threads);
    std::vector<const Row*> rows;
    for (const Row& row : results.rows)
        if (row.threads == threads && row.error.empty() && row.operations > 0) rows.push_back(&row);
    const std::vector<Roof> flat = flat_roofs(peaks, rows);
    double high_y = std::ranges::max(flat, {}, &Roof::value).value, low_y = high_y / 10;
    double low_x = high_y / peaks.cache / 10, high_x = 2 * high_y / peaks.memory;
    bool hot = false, flushed = false;
    for (const Row* row : rows) {
        low_x = std::min(low_x, row->operations / row->bytes);
        high_x = std::max(high_x, row->operations / row->bytes);
        low_y = std::min(low_y, row->gflops()), high_y = std::max(high_y, row->gflops());
        (row->flushed ? flushed : hot) = true;
    }
    const LogAxis x(low_x, high_x, kLeft, kWidth - kRight);
    const LogAxis y(low_y, high_y, kHeight - kBottom, kTop);
    const std::vector<std::string> names = implementations_of(results.rows);
    Labels labels;
    const std::string lines = grid(x, y) + roofs(peaks, flat, x, y, labels);
    std::string points, words;
    for (const Row* row : rows) {
        const double at_x = x(row->operations / row->bytes), at_y = y(row->gflops());
        labels.block({at_x - 5, at_y - 5, 10, 10});
        const char* const color = color_of(names, row->implementation);
        points +=
            str("<circle cx=\"", fixed(at_x, 1), "\" cy=\"", fixed(at_y, 1), "\" r=\"4.5\" fill=\"",
                row->flushed ? "#fff" : color, "\" stroke=\"", color,
                "\" stroke-width=\"2\"><title>", escape_html(text_of(*row)), "</title></circle>\n");
    }
    // Each kernel of Axle with a shape and dtype has at most one label, next to its first point
    // that has space for it.
    std::vector<std::string> labelled;
    for (const Row* row : rows) {
        const std::string label =
            str(row->kernel, " ", shape_text(row->call.shape),
                row->call.dtype == f32 ? "" : " " + short_name(row->call.dtype));
        if (row->implementation != "axle" || std::ranges::count(labelled, label) > 0) continue;
        const std::string word =
            labels.place(label, x(row->operations / row->bytes), y(row->gflops()));
        if (!word.empty()) labelled.push_back(label);
        words += word;
    }
    const std::string title =
        str("Roofline: ", results.machine["cpu"].string(), ", ", results.target, ", ", threads,
            threads == 1 ? " thread" : " threads");
    return str("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 ", kWidth, " ", kHeight,
               "\" width=\"", kWidth, "\" role=\"img\" aria-label=\"", escape_html(title),
               "\" class=\"roofline\" font-family=\"system-ui, sans-serif\" font-size=\"11.5\" "
               "fill=\"#1d2129\">\n"
               "<style>.roofline text{fill:#1d2129} .roof{stroke:#1d2129;stroke-width:1.6} "
               ".name{font-weight:600}</style>\n"
               "<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n",
               text(kLeft - 8, 22, "start", title, " font-size=\"15\" font-weight=\"600\""), lines,
               legend(names, hot, flushed), points, words, "</svg>\n");
}

std::string to_html(const Results& results) {
    std::string html =
        str("<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
            "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
            "<title>axle bench</title>\n<style>",
            trainer::kReportStyle,
            "</style></head>\n<body><main>\n<h1>axle bench</h1>\n<p class=\"soft\">",
            escape_html(str("Axle ", kVersion, ", ", results.machine["cpu"].string(), ", target ",
                            results.target, ", ", results.machine["system"].string(), ", ",
                            results.machine["compiler"].string(), ", ",
                            results.machine["written"].string())),
            "</p>\n");
    for (const auto& [threads, peaks] : results.peaks)
        html += str("<h2>", threads, threads == 1 ? " thread" : " threads", "</h2>\n<figure>\n",
                    to_svg(results, threads), "</figure>\n<p class=\"soft\">",
                    escape_html(text_of(peaks, threads)), "</p>\n");
    html += str("<h2>Rows</h2>\n<div class=\"card\"><table class=\"wide\">\n", kTitles);
    for (const Row& row : results.rows) html += table_row(row);
    return html + "</table></div>\n</main></body></html>\n";
}

}  // namespace axle::bench
