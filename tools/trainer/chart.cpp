#include "tools/trainer/chart.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <limits>

#include "accel/utils/text.h"
#include "core/text/text.h"
#include "kernels/error.h"
#include "tools/trainer/html.h"

namespace axle::trainer {
namespace {

// The width and height of a chart in SVG units; a unit is about one pixel on a phone.
constexpr double kWidth = 420, kHeight = 230;
constexpr std::size_t kMany = 120;  // curves with this many points are also drawn smoothed
constexpr double kLeft = 52, kRight = 14, kTop = 12, kBottom = 26;

std::string coordinate(double value) { return format_number(value, std::chars_format::fixed, 1); }

// Returns the distance between ticks. It is 1, 2 or 5 times a power of ten, and the smallest such
// number that divides a range into at most `parts` parts.
double tick_of(double range, int parts) {
    const double rough = range / parts;
    const double power = std::pow(10, std::floor(std::log10(rough)));
    for (const double factor : {1.0, 2.0, 5.0})
        if (factor * power >= rough) return factor * power;
    return 10 * power;
}

// An axis, which maps values to coordinates and has ticks.
class Axis {
  public:
    Axis(double low, double high, double from, double to) : from_(from), to_(to) {
        // Values that differ only in their last bits are treated as equal, because the labels of
        // their ticks would be equal.
        const double size = std::max(std::abs(low), std::abs(high));
        if (!(high - low > 1e-9 * size)) {
            const double margin = size == 0 ? 1 : size * 0.1;
            low -= margin, high += margin;
        }
        low_ = low, high_ = high;
    }

    static Axis linear(double low, double high, double from, double to, int parts, bool rounded) {
        Axis axis(low, high, from, to);
        const double tick = tick_of(axis.high_ - axis.low_, parts);
        if (rounded) {
            axis.low_ = std::floor(axis.low_ / tick + 1e-9) * tick;
            axis.high_ = std::ceil(axis.high_ / tick - 1e-9) * tick;
        }
        const double first = std::ceil(axis.low_ / tick - 1e-9);
        for (double i = first; i * tick <= axis.high_ + tick * 1e-9; ++i)
            axis.ticks_.push_back(i * tick + 0.0);  // 0.0 turns -0 into 0
        return axis;
    }
    // Returns an axis with a logarithmic scale, whose ticks are powers of ten.
    static Axis logarithmic(double low, double high, double from, double to) {
        Axis axis(std::log10(low), std::log10(high), from, to);
        axis.logarithmic_ = true;
        const double step = std::max(1.0, std::ceil((axis.high_ - axis.low_) / 5));
        for (double p = std::ceil(axis.low_ - 1e-9); p <= axis.high_ + 1e-9; p += step)
            axis.ticks_.push_back(std::pow(10, p));
        return axis;
    }

    double operator()(double value) const {
        const double v = logarithmic_ ? std::log10(value) : value;
        return from_ + (to_ - from_) * (v - low_) / (high_ - low_);
    }
    const std::vector<double>& ticks() const { return ticks_; }
    std::string attribute() const {
        const auto exact = [](double v) {
            return format_number(v, std::chars_format::general, 17);
        };
        return exact(low_) + ' ' + exact(high_) + ' ' + exact(from_) + ' ' + exact(to_) +
               (logarithmic_ ? " log" : "");
    }

  private:
    double low_ = 0, high_ = 1, from_, to_;
    bool logarithmic_ = false;
    std::vector<double> ticks_;
};

struct Range {
    double low = std::numeric_limits<double>::infinity();
    double high = -std::numeric_limits<double>::infinity();

    void add(double value) {
        if (!std::isfinite(value)) return;
        low = std::min(low, value);
        high = std::max(high, value);
    }
    bool empty() const { return low > high; }
};

std::string grid(const Axis& x, const Axis& y, char format) {
    std::string svg;
    for (const double tick : y.ticks()) {
        const std::string at = coordinate(y(tick));
        svg += str("<line class=\"grid\" x1=\"", coordinate(kLeft), "\" x2=\"",
                   coordinate(kWidth - kRight), "\" y1=\"", at, "\" y2=\"", at,
                   "\"/><text text-anchor=\"end\" x=\"", coordinate(kLeft - 7), "\" y=\"",
                   coordinate(y(tick) + 4), "\">", format_value(tick, format), "</text>");
    }
    for (const double tick : x.ticks())
        svg += str("<text text-anchor=\"middle\" x=\"", coordinate(x(tick)), "\" y=\"",
                   coordinate(kHeight - 8), "\">", format_value(tick, 'k'), "</text>");
    return svg;
}

std::string line(const Curve& curve, const std::string& classes, const Axis& x, const Axis& y) {
    std::string path;
    bool pen_down = false;
    for (std::size_t i = 0; i < curve.x.size(); ++i) {
        const bool drawn = std::isfinite(curve.y[i]) && std::isfinite(y(curve.y[i]));
        if (drawn) {
            path += pen_down ? 'L' : 'M';
            path += coordinate(x(curve.x[i])) + ',' + coordinate(y(curve.y[i]));
            if (!pen_down) path += "h0";  // draws a single point as a dot
        }
        pen_down = drawn;
    }
    return "<path class=\"curve " + classes + "\" d=\"" + path + "\"/>";
}

std::string lines(const Curve& curve, std::size_t place, const Axis& x, const Axis& y) {
    const std::string classes = str("c", place, curve.strong ? " strong" : "");
    if (curve.x.size() < kMany) return line(curve, classes, x, y);
    return line(curve, classes + " raw", x, y) +
           line(smoothed(curve, curve.x.size() / 25), classes, x, y);
}

}  // namespace

Curve thinned(const Curve& curve, std::size_t points) {
    const std::size_t n = curve.x.size();
    if (n <= points || points < 4) return curve;
    Curve result{.name = curve.name, .x = {}, .y = {}, .strong = curve.strong};
    const auto keep = [&](std::size_t i) {
        if (!result.x.empty() && result.x.back() >= curve.x[i]) return;
        result.x.push_back(curve.x[i]);
        result.y.push_back(curve.y[i]);
    };
    const std::size_t parts = points / 2 - 1;
    keep(0);
    for (std::size_t part = 0; part < parts; ++part) {
        const std::size_t begin = n * part / parts, end = n * (part + 1) / parts;
        std::size_t low = begin, high = begin;
        for (std::size_t i = begin; i < end; ++i) {
            if (curve.y[i] < curve.y[low] || std::isnan(curve.y[low])) low = i;
            if (curve.y[i] > curve.y[high] || std::isnan(curve.y[high])) high = i;
        }
        keep(std::min(low, high));
        keep(std::max(low, high));
    }
    keep(n - 1);
    return result;
}

Curve smoothed(const Curve& curve, std::size_t window) {
    Curve result = curve;
    const std::size_t n = curve.y.size(), half = window / 2;
    for (std::size_t i = 0; i < n; ++i) {
        double sum = 0, count = 0;
        for (std::size_t k = i - std::min(i, half); k < std::min(n, i + half + 1); ++k) {
            if (!std::isfinite(curve.y[k])) continue;
            sum += curve.y[k];
            ++count;
        }
        result.y[i] = sum / count;  // NaN (a gap in the curve) if there are no values
    }
    return result;
}

std::string format_value(double value, char format) {
    constexpr double kMostBytes = 9e18;  // below the maximum of int64
    if (format == 'b')
        return accel::human_bytes(
            static_cast<std::int64_t>(std::clamp(value, -kMostBytes, kMostBytes)));
    const double size = std::abs(value);
    if (format == 'k' && size >= 999.5e3)
        return format_number(value / 1e6, std::chars_format::general, 3) + 'M';
    if (format == 'k' && size >= 999.5)
        return format_number(value / 1e3, std::chars_format::general, 3) + 'k';
    return format_number(value, std::chars_format::general, 4);
}

std::string to_svg(const Chart& chart) {
    Range xs, ys;
    for (const Curve& curve : chart.curves) {
        for (const double x : curve.x) xs.add(x);
        for (const double y : curve.y) ys.add(y);
    }
    if (xs.empty() || ys.empty()) return {};
    if (chart.from_zero) ys.add(0);
    const Axis x = Axis::linear(xs.low, xs.high, kLeft, kWidth - kRight, 6, false);
    const bool decades = ys.low > 0 && ys.high / ys.low > 100;
    const Axis y = decades ? Axis::logarithmic(ys.low, ys.high, kHeight - kBottom, kTop)
                           : Axis::linear(ys.low, ys.high, kHeight - kBottom, kTop, 5, true);
    std::string svg = "<svg viewBox=\"0 0 " + coordinate(kWidth) + ' ' + coordinate(kHeight) +
                      "\" role=\"img\" aria-label=\"" + escape_html(chart.title) + "\" data-x=\"" +
                      x.attribute() + "\" data-y=\"" + y.attribute() + "\">" +
                      grid(x, y, chart.format);
    for (std::size_t i = 0; i < chart.curves.size(); ++i) svg += lines(chart.curves[i], i, x, y);
    return svg + "</svg>";
}

}  // namespace axle::trainer
