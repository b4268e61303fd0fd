// Histograms as TensorBoard draws them.
#pragma once

#include <span>
#include <vector>

namespace axle::accel {

// counts[i] values lie in [limits[i - 1], limits[i]). The first count is of an empty bucket, or all
// that lies below the first limit.
struct Histogram {
    double min = 0, max = 0, num = 0, sum = 0, sum_squares = 0;
    std::vector<double> limits = {}, counts = {};
};

// TensorBoard's buckets: each limit 1.1 times the one before it, from 1e-12 to 1e20 on either side
// of zero, and one more on either side for all that lies beyond. Empty buckets outside those that
// hold something are left out, all but one on the left. Values that aren't finite are not counted;
// without any that is, num is 0 and there are no buckets.
Histogram make_histogram(std::span<const double> values);

}  // namespace axle::accel
