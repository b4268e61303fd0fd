// Private to accel: curves over the updates of a run, as SVG to be put into a page.
#pragma once

#include <string>
#include <vector>

namespace axle::accel {

struct Curve {
    std::string name;          // "training"
    std::vector<double> x, y;  // of equal length, x ascending; where y is not finite there is a gap
    bool strong = false;       // the one to look at: evaluation rather than training
};

struct Chart {
    std::string title;
    std::vector<Curve> curves;
    // How a value of y is written: 'g' plainly, 'k' as in 12.3k, 'b' as bytes.
    char format = 'g';
    // From zero up, whatever the smallest value is.
    bool from_zero = false;
};

// At most `points` of a curve: of each part of it the smallest and the largest value, so that a
// spike stays visible.
Curve thinned(const Curve& curve, std::size_t points);

// Each value replaced by the mean of the finite ones among the `window` values around it.
Curve smoothed(const Curve& curve, std::size_t window);

// "3.1416", "12.3k", "1.2 MB": at most five characters and a unit.
std::string format_value(double value, char format);

// An <svg> without colours of its own: lines have the classes "curve", "strong" and "raw" (behind
// the smoothed curve that goes with many points), or "grid"; the page's style decides. A range of
// over two decades of positive values is drawn logarithmically. Empty text if there is nothing to
// draw. The element carries the transformation from values to its coordinates in data-x and data-y
// ("low high from to"; data-y also "log"), for scripts.
std::string to_svg(const Chart& chart);

}  // namespace axle::accel
