#include "tests/close.h"

#include <algorithm>
#include <cmath>
#include <iomanip>
#include <vector>

namespace axle::tests {

namespace {

// Returns the indices of the i-th element in row-major order.
Dims place(std::int64_t i, const Shape& shape) {
    Dims at = shape;
    for (int d = shape.size() - 1; d >= 0; --d) at[d] = i % shape[d], i /= shape[d];
    return at;
}

bool is_close(double actual, double expected, double bound) {
    if (std::isnan(expected)) return std::isnan(actual);
    if (std::isinf(expected)) return actual == expected;
    return std::abs(actual - expected) <= bound;
}

}  // namespace

std::string difference(const Tensor& actual, const Tensor& expected, double tolerance) {
    if (!actual.defined() || !expected.defined())
        return actual.defined() == expected.defined() ? "" : "one of the two is undefined";
    if (actual.shape() != expected.shape())
        return str("shape ", actual.shape(), " instead of ", expected.shape());
    const std::vector<double> a = actual.to_vector(), e = expected.to_vector();
    double scale = 1;
    for (const double value : e)
        if (std::abs(value) < 1e6) scale = std::max(scale, std::abs(value));

    std::int64_t count = 0, worst = -1;
    double excess = 0;
    for (std::size_t i = 0; i < e.size(); ++i) {
        const double bound = tolerance * std::max(scale, std::abs(e[i]));
        if (is_close(a[i], e[i], bound)) continue;
        ++count;
        const double by = std::abs(a[i] - e[i]) - bound;
        if (worst < 0 || by > excess) worst = static_cast<std::int64_t>(i), excess = by;
    }
    if (count == 0) return "";
    const auto w = static_cast<std::size_t>(worst);
    std::ostringstream text;
    text << std::setprecision(12) << count << " of " << e.size()
         << " elements differ, the worst at " << place(worst, actual.shape()) << ": " << a[w]
         << " instead of " << e[w] << " (off by " << std::setprecision(3) << std::abs(a[w] - e[w])
         << ", allowed " << tolerance * std::max(scale, std::abs(e[w])) << ")";
    return text.str();
}

void expect_close(const Tensor& actual, const Tensor& expected, double tolerance,
                  std::source_location at) {
    const std::string text = difference(actual, expected, tolerance);
    if (!text.empty()) ADD_FAILURE_AT(at.file_name(), at.line()) << text;
}

void expect_same_bits(const Tensor& actual, const Tensor& expected, std::source_location at) {
    std::string text = difference(actual, expected, 0);
    if (text.empty() && actual.defined() && actual.dtype() != expected.dtype())
        text = str("dtype ", actual.dtype(), " instead of ", expected.dtype());
    if (!text.empty()) ADD_FAILURE_AT(at.file_name(), at.line()) << text;
}

}  // namespace axle::tests
