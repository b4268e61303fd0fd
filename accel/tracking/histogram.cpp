#include "accel/tracking/histogram.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace axle::accel {
namespace {

std::vector<double> make_limits() {
    std::vector<double> positive;
    for (double v = 1e-12; v < 1e20; v *= 1.1) positive.push_back(v);
    positive.push_back(std::numeric_limits<double>::max());
    std::vector<double> limits;
    std::for_each(positive.rbegin(), positive.rend(), [&](double v) { limits.push_back(-v); });
    limits.push_back(0);
    limits.insert(limits.end(), positive.begin(), positive.end());
    return limits;
}

}  // namespace

Histogram make_histogram(std::span<const double> values) {
    static const std::vector<double>& limits = *new std::vector<double>(make_limits());
    Histogram h;
    // counts[i] is the number of finite values in [limits[i], limits[i + 1]); the last bucket
    // includes its upper limit.
    std::vector<double> counts(limits.size() - 1);
    for (const double v : values) {
        if (!std::isfinite(v)) continue;
        h.min = h.num == 0 ? v : std::min(h.min, v);
        h.max = h.num == 0 ? v : std::max(h.max, v);
        ++h.num;
        h.sum += v;
        h.sum_squares += v * v;
        const auto above = std::upper_bound(limits.begin(), limits.end() - 1, v);
        ++counts[static_cast<std::size_t>(above - limits.begin()) - 1];
    }
    if (h.num == 0) return h;
    const auto some = [](double count) { return count > 0; };
    const auto first = std::find_if(counts.begin(), counts.end(), some) - counts.begin();
    const auto last = counts.rend() - std::find_if(counts.rbegin(), counts.rend(), some);
    h.counts.push_back(0);
    h.counts.insert(h.counts.end(), counts.begin() + first, counts.begin() + last);
    h.limits.assign(limits.begin() + first, limits.begin() + last + 1);
    return h;
}

}  // namespace axle::accel
