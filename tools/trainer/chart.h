// Line charts of metrics as SVG.
#pragma once

#include <string>
#include <vector>

namespace axle::trainer {

struct Curve {
    std::string name;          // "training"
    std::vector<double> x, y;  // equal lengths, x ascending; gaps where y is not finite
    bool strong = false;       // emphasized: evaluation rather than training
};

struct Chart {
    std::string title;
    std::vector<Curve> curves;
    // The format of y: 'g' plain, 'k' with a suffix as in 12.3k, 'b' bytes.
    char format = 'g';
    // The y axis begins at 0.
    bool from_zero = false;
};

// Returns at most `points` points of a curve: the smallest and the largest value of each section,
// so that spikes stay visible.
Curve thinned(const Curve& curve, std::size_t points);

// Replaces each value by the mean of the finite values in a window around it.
Curve smoothed(const Curve& curve, std::size_t window);

// Formats a value with at most five characters and a unit: "3.1416", "12.3k", "1.2 MB".
std::string format_value(double value, char format);

// Returns an <svg> without colors; the page's style uses the classes "curve", "strong", "raw" (the
// original of a curve that is smoothed because it has many points) and "grid". Positive values over
// more than two decades are drawn logarithmically. Returns empty text if there is nothing to draw.
// The attributes data-x and data-y hold the mapping from values to coordinates for scripts: "low
// high from to", and "log" for a logarithmic y axis.
std::string to_svg(const Chart& chart);

}  // namespace axle::trainer
