// Private to optim: a line search for the strong Wolfe conditions.
#pragma once

#include <cstdint>
#include <functional>

#include "core/tensor.h"

namespace axle::optim {

// A point x + t d on a line.
struct LinePoint {
    double t = 0;
    double value = 0;
    double slope = 0;  // the derivative with respect to t
    Tensor gradient = {};
};

struct LineSearchResult {
    LinePoint point;
    std::int64_t evaluations = 0;
};

// Returns a point that decreases the value sufficiently (by at least 1e-4 |slope at 0| t), and
// whose slope has at most 0.9 times the magnitude of the slope at t = 0. Implements algorithms 3.5
// and 3.6 of Nocedal and Wright, Numerical Optimization, with the cubic interpolation and the
// safeguards of minFunc, as PyTorch does. After max_steps steps, or if the interval times `length`
// is below min_change, returns the end of the interval with the lower value instead. `start` is the
// point at t = 0; evaluate(t) returns a point; `t` is the first trial.
LineSearchResult strong_wolfe(const std::function<LinePoint(double)>& evaluate,
                              const LinePoint& start, double t, double length, double min_change,
                              std::int64_t max_steps);

}  // namespace axle::optim
