// Special functions for formulas. The C++ library lacks these functions or computes them with
// global state. They compute in f64 on all devices.
#pragma once

#include <cmath>
#include <limits>

#include "kernels/half.h"

namespace axle::kernels {

// Returns ln |gamma(x)|.
template <class T>
AXLE_HOST_DEVICE T log_gamma(T x) {
#ifdef __CUDA_ARCH__
    return static_cast<T>(::lgamma(static_cast<double>(x)));
#else
    int sign = 0;  // std::lgamma() would write it to a global variable
    return static_cast<T>(::lgamma_r(static_cast<double>(x), &sign));
#endif
}

// Returns the derivative of order n + 1 of ln gamma(x), for n = 0 (the digamma function), 1 and 2.
// It is computed by the recurrence, the reflection and the asymptotic series of Abramowitz and
// Stegun, "Handbook of Mathematical Functions", 6.3 and 6.4. At integers x <= 0, it is NaN, except
// that the digamma function of 0 is, as in PyTorch, an infinity with the opposite sign of the zero.
template <class T>
AXLE_HOST_DEVICE T polygamma(int n, T at) {
    constexpr double kPi = 3.14159265358979323846;
    double x = static_cast<double>(at), reflected = 0, sign = 1;
    if (x == 0 && n == 0) return static_cast<T>(-1 / x);
    if (x <= 0) {
        if (x == std::floor(x)) return static_cast<T>(std::numeric_limits<double>::quiet_NaN());
        const double part = kPi * (x - std::rint(x));  // the formulas have the period 1
        const double sine = std::sin(part), cotangent = std::cos(part) / sine;
        if (n == 0) reflected = -kPi * cotangent;
        if (n == 1) reflected = kPi * kPi / (sine * sine), sign = -1;
        if (n == 2) reflected = -2 * kPi * kPi * kPi * cotangent / (sine * sine);
        x = 1 - x;
    }
    double sum = 0;
    for (; x < 12; x += 1) sum += n == 0 ? -1 / x : n == 1 ? 1 / (x * x) : -2 / (x * x * x);
    const double z = 1 / (x * x);
    double series = 0;
    if (n == 0) {
        series = 1.0 / 12;
        series = -691.0 / 32760 + z * series;
        series = 1.0 / 132 + z * series;
        series = -1.0 / 240 + z * series;
        series = 1.0 / 252 + z * series;
        series = -1.0 / 120 + z * series;
        series = 1.0 / 12 + z * series;
        sum += std::log(x) - 0.5 / x - z * series;
    } else {
        // The Bernoulli numbers B_14, B_12, ..., B_2; for n = 2 with the factors of the derivative.
        const double d = n == 2 ? 1 : 0;
        series = 7.0 / 6 * (1 + 14 * d);
        series = -691.0 / 2730 * (1 + 12 * d) + z * series;
        series = 5.0 / 66 * (1 + 10 * d) + z * series;
        series = -1.0 / 30 * (1 + 8 * d) + z * series;
        series = 1.0 / 42 * (1 + 6 * d) + z * series;
        series = -1.0 / 30 * (1 + 4 * d) + z * series;
        series = 1.0 / 6 * (1 + 2 * d) + z * series;
        sum += n == 1 ? 1 / x + 0.5 * z + z / x * series : -z - z / x - z * z * series;
    }
    return static_cast<T>(reflected + sign * sum);
}

// Returns the x with erf(x) = y. An approximation (S. Winitzki, "A handy approximation for the
// error function and its inverse", 2008) is refined by Halley's method.
template <class T>
AXLE_HOST_DEVICE T inverse_erf(T y) {
    const double magnitude = std::abs(static_cast<double>(y)), rest = 1 - magnitude;
    if (!(rest > 0))
        return static_cast<T>(rest == 0 ? std::copysign(std::numeric_limits<double>::infinity(),
                                                        static_cast<double>(y))
                                        : std::numeric_limits<double>::quiet_NaN());
    constexpr double kA = 0.147, kTwoOverPiA = 4.33074972;
    const double log = std::log(rest * (1 + magnitude)), t = kTwoOverPiA + log / 2;
    double x = std::sqrt(std::sqrt(t * t - log / kA) - t);
    for (int i = 0; i < 3; ++i) {
        const double error = magnitude < 0.5 ? std::erf(x) - magnitude : rest - std::erfc(x);
        const double step = error / (1.12837916709551257390 * std::exp(-x * x));
        x -= step / (1 + x * step);
    }
    return static_cast<T>(std::copysign(x, static_cast<double>(y)));
}

}  // namespace axle::kernels
