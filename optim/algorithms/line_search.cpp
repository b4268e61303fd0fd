#include "optim/algorithms/line_search.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

namespace axle::optim {
namespace {

constexpr double kDecrease = 1e-4, kCurvature = 0.9;

// Returns the position of the minimum of the cubic polynomial through two points with their slopes,
// limited to [low, high]. Returns the middle of [low, high] if the polynomial has no minimum.
double cubic_minimum(const LinePoint& a, const LinePoint& b, double low, double high) {
    const double d1 = a.slope + b.slope - 3 * (a.value - b.value) / (a.t - b.t);
    const double square = d1 * d1 - a.slope * b.slope;
    if (!(square >= 0)) return (low + high) / 2;
    const double d2 = std::sqrt(square);
    const LinePoint &left = a.t <= b.t ? a : b, &right = a.t <= b.t ? b : a;
    const double minimum = right.t - (right.t - left.t) * ((right.slope + d2 - d1) /
                                                           (right.slope - left.slope + 2 * d2));
    return std::min(std::max(minimum, low), high);
}

class Search {
  public:
    Search(const std::function<LinePoint(double)>& evaluate, const LinePoint& start,
           std::int64_t max_steps)
        : evaluate_(evaluate), start_(start), max_steps_(max_steps) {}

    LineSearchResult run(double t, double length, double min_change) {
        bracket(t);
        if (!done_) zoom(length, min_change);
        return {low(), evaluations_};
    }

  private:
    LinePoint evaluate(double t) {
        ++evaluations_;
        return evaluate_(t);
    }
    bool decreases(const LinePoint& p) const {
        return p.value <= start_.value + kDecrease * p.t * start_.slope;
    }
    bool is_flat(const LinePoint& p) const {
        return std::abs(p.slope) <= -kCurvature * start_.slope;
    }
    LinePoint& low() { return ends_[low_]; }
    LinePoint& high() { return ends_[1 - low_]; }
    void set_ends(const LinePoint& a, const LinePoint& b) {
        ends_ = {a, b};
        low_ = a.value <= b.value ? 0 : 1;
    }

    // Moves outwards until an interval contains a point that satisfies the Wolfe conditions, at
    // most max_steps_ times.
    void bracket(double t) {
        LinePoint previous = start_, point = evaluate(t);
        for (; steps_ < max_steps_; ++steps_) {
            if (!decreases(point) || (steps_ > 1 && point.value >= previous.value))
                return set_ends(previous, point);
            if (is_flat(point)) {
                done_ = true;
                return set_ends(point, point);
            }
            if (point.slope >= 0) return set_ends(previous, point);
            const double smallest = point.t + 0.01 * (point.t - previous.t);
            const double next = cubic_minimum(previous, point, smallest, point.t * 10);
            previous = std::exchange(point, evaluate(next));
        }
        set_ends(start_, point);
    }

    // Returns a trial inside the interval, at a distance from its ends if the search is slow.
    double trial() {
        const double left = std::min(ends_[0].t, ends_[1].t);
        const double right = std::max(ends_[0].t, ends_[1].t);
        const double t = cubic_minimum(ends_[0], ends_[1], left, right);
        const double margin = 0.1 * (right - left);
        const bool is_near = std::min(right - t, t - left) < margin;
        const bool moves = is_near && (slow_ || t >= right || t <= left);
        slow_ = is_near && !moves;
        if (!moves) return t;
        return std::abs(t - right) < std::abs(t - left) ? right - margin : left + margin;
    }

    // Shrinks the interval until a point satisfies the Wolfe conditions, the interval is small, or
    // max_steps_ is reached.
    void zoom(double length, double min_change) {
        for (; !done_ && steps_ < max_steps_; ++steps_) {
            if (std::abs(ends_[1].t - ends_[0].t) * length < min_change) return;
            const LinePoint point = evaluate(trial());
            if (!decreases(point) || point.value >= low().value) {
                high() = point;
                low_ = ends_[0].value <= ends_[1].value ? 0 : 1;
                continue;
            }
            if (is_flat(point)) {
                done_ = true;
            } else if (point.slope * (high().t - low().t) >= 0) {
                high() = low();
            }
            low() = point;
        }
    }

    const std::function<LinePoint(double)>& evaluate_;
    const LinePoint& start_;
    std::array<LinePoint, 2> ends_;
    std::size_t low_ = 0;  // the index of the end with the lower value
    std::int64_t max_steps_, steps_ = 0, evaluations_ = 0;
    bool done_ = false, slow_ = false;
};

}  // namespace

LineSearchResult strong_wolfe(const std::function<LinePoint(double)>& evaluate,
                              const LinePoint& start, double t, double length, double min_change,
                              std::int64_t max_steps) {
    return Search(evaluate, start, max_steps).run(t, length, min_change);
}

}  // namespace axle::optim
