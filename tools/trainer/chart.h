// Draws line charts of metrics as SVG.
#pragma once

#include <string>
#include <vector>

namespace axle::trainer {

struct Curve {
    std::string name;          // such as "training"
    std::vector<double> x, y;  // equal lengths; x ascends; a y that is not finite is a gap
    bool strong = false;       // drawn with a thicker line, for evaluations
};

struct Chart {
    std::string title;
    std::vector<Curve> curves;
    // The format of y values: 'g' is a plain number, 'k' has a suffix as in 12.3k, and 'b' is a
    // number of bytes.
    char format = 'g';
    // Whether the y axis begins at 0.
    bool from_zero = false;
};

// Returns at most `points` points of a curve: the first and the last point, and the smallest and
// the largest value of each section, so that peaks stay visible. Returns the whole curve if it has
// at most `points` points, or if `points` is less than 4.
Curve thinned(const Curve& curve, std::size_t points);

// Returns the curve with each value replaced by the mean of the finite values in a window around
// it, or by NaN if there is none.
Curve smoothed(const Curve& curve, std::size_t window);

// Formats a value in a format of Chart, such as "3.142", "12.3k" or "1.2 MB".
std::string format_value(double value, char format);

// Returns an <svg> element, or "" if there is nothing to draw. It has no colors; the style sheet of
// the page sets them for the classes "curve", "c0", "c1" and so on (by the index of the curve),
// "strong", "raw" (the values of a smoothed curve before smoothing) and "grid". If all values are
// positive and span more than two powers of ten, and from_zero is false, the y axis is logarithmic.
// For scripts, the attributes data-x and data-y contain the mapping from values to coordinates:
// "low high from to", and "log" for a logarithmic y axis.
std::string to_svg(const Chart& chart);

}  // namespace axle::trainer
