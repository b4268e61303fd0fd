// Private to data: distributions of the random numbers of a sample.
#pragma once

#include <cmath>
#include <numbers>

#include "data/transforms.h"

namespace axle::data {

// Returns a number in (0, 1).
inline double open_unit(SampleRandom& random) {
    return (static_cast<double>(random.next()) + 0.5) * 0x1p-32;
}

// Returns a number with mean 0 and standard deviation 1 (Box and Muller, 1958).
inline double normal(SampleRandom& random) {
    const double radius = std::sqrt(-2 * std::log(open_unit(random)));
    return radius * std::cos(2 * std::numbers::pi * open_unit(random));
}

// Returns the logarithm of a sample of the distribution Gamma(alpha, 1), by the method of Marsaglia
// and Tsang, 2000. A small alpha gives samples too small for a double, but not for its logarithm.
inline double log_gamma_sample(SampleRandom& random, double alpha) {
    const double boost = alpha < 1 ? std::log(open_unit(random)) / alpha : 0;
    const double d = (alpha < 1 ? alpha + 1 : alpha) - 1.0 / 3, c = 1 / std::sqrt(9 * d);
    for (;;) {
        const double x = normal(random), root = 1 + c * x;
        if (root <= 0) continue;
        const double v = root * root * root;
        if (std::log(open_unit(random)) < x * x / 2 + d - d * v + d * std::log(v))
            return boost + std::log(d * v);
    }
}

// Returns a sample of the distribution Beta(alpha, alpha), which is in [0, 1]. alpha must be
// positive.
inline double beta_sample(SampleRandom& random, double alpha) {
    const double x = log_gamma_sample(random, alpha), y = log_gamma_sample(random, alpha);
    return 1 / (1 + std::exp(y - x));
}

}  // namespace axle::data
