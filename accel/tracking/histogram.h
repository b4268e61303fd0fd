// Histograms with TensorBoard's buckets.
#pragma once

#include <span>
#include <vector>

namespace axle::accel {

// A histogram. counts[i] is the number of values in [limits[i - 1], limits[i]), and counts[0] is
// the number of values below limits[0].
struct Histogram {
    double min = 0, max = 0, num = 0, sum = 0, sum_squares = 0;
    std::vector<double> limits = {}, counts = {};
};

// Counts values in TensorBoard's buckets. The limits grow by a factor of 1.1 from 1e-12 to 1e20 on
// both sides of zero, with one more bucket at each end. Empty buckets at both ends are removed,
// except one on the left. Values that are not finite are not counted. If no value is finite, num is
// 0 and there are no buckets.
Histogram make_histogram(std::span<const double> values);

}  // namespace axle::accel
