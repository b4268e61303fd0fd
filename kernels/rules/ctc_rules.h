// Private to kernels: the recursions of the CTC loss (kernels/ops/loss.h), shared by CPU and GPU.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "kernels/half.h"
#include "kernels/ops/loss.h"

namespace axle::kernels {

inline constexpr double kNoPath = -std::numeric_limits<double>::infinity();

// Returns ln(e^a + e^b + e^c). An operand of -infinity needs no exponential.
AXLE_HOST_DEVICE inline double log_sum_exp(double a, double b, double c) {
    double top = a;
    if (b > top) top = b, b = a;
    if (c > top) {
        const double before = top;
        top = c, c = before;
    }
    if (top == kNoPath) return a + b + c;  // -infinity, or NaN if an operand is NaN
    double sum = 1;
    if (b != kNoPath) sum += std::exp(b - top);
    if (c != kNoPath) sum += std::exp(c - top);
    return top + std::log(sum);
}

// One sample: its states, and its column of log_probs [T, N, C].
template <class T>
struct CtcSample {
    const T* log_probs;
    std::int64_t step, class_step;  // strides
    const std::int64_t* labels;
    std::int64_t label_count, steps, classes, blank;
    std::int64_t column;  // column of the sample's first state in rows of states
    std::int64_t width;   // length of rows of states

    AXLE_HOST_DEVICE CtcSample(const ConstView& from, const CtcTargets& targets, std::int64_t n)
        : log_probs(static_cast<const T*>(from.data) + n * from.stride[1]),
          step(from.stride[0]),
          class_step(from.stride[2]),
          classes(from.shape[2]),
          blank(targets.blank) {
        const std::int64_t total = targets.labels.shape[0];
        const auto at = [n](const ConstView& x) {
            return static_cast<const std::int64_t*>(x.data)[n];
        };
        const std::int64_t first = limited(at(targets.starts), total);
        labels = static_cast<const std::int64_t*>(targets.labels.data) + first;
        label_count = limited(at(targets.target_lengths), total - first);
        steps = limited(at(targets.input_lengths), from.shape[0]);
        column = 2 * first + n;
        width = 2 * total + from.shape[1];
    }
    AXLE_HOST_DEVICE static std::int64_t limited(std::int64_t x, std::int64_t most) {
        return x < 0 ? 0 : x > most ? most : x;
    }

    AXLE_HOST_DEVICE std::int64_t states() const { return 2 * label_count + 1; }
    // Returns the class of label k, or the blank if it is not a class (a reported error).
    AXLE_HOST_DEVICE std::int64_t label(std::int64_t k) const {
        const std::int64_t c = labels[k];
        return c >= 0 && c < classes ? c : blank;
    }
    AXLE_HOST_DEVICE std::int64_t class_of(std::int64_t state) const {
        return state % 2 == 0 ? blank : label(state / 2);
    }
    AXLE_HOST_DEVICE double log_prob(std::int64_t t, std::int64_t c) const {
        return static_cast<double>(log_probs[t * step + c * class_step]);
    }
    // Returns whether a path can move from state - 2 to this state.
    AXLE_HOST_DEVICE bool skips_to(std::int64_t state) const {
        return state % 2 == 1 && state >= 3 && label(state / 2) != label(state / 2 - 1);
    }

    // Returns element `state` of row t of alphas. before is the row of the previous step, whose
    // first element is the first state of this sample.
    AXLE_HOST_DEVICE double alpha(std::int64_t t, std::int64_t state, const double* before) const {
        const double here = log_prob(t, class_of(state));
        if (t == 0) return state < 2 ? here : kNoPath;
        return here + log_sum_exp(before[state], state >= 1 ? before[state - 1] : kNoPath,
                                  skips_to(state) ? before[state - 2] : kNoPath);
    }
    // Returns the logarithm of the probability of all paths that begin in a state and end, at the
    // last step, in one of the last two states. after is the row of the next step.
    AXLE_HOST_DEVICE double beta(std::int64_t t, std::int64_t state, const double* after) const {
        const std::int64_t last = states() - 1;
        const double here = log_prob(t, class_of(state));
        if (t == steps - 1) return state >= last - 1 ? here : kNoPath;
        return here +
               log_sum_exp(after[state], state < last ? after[state + 1] : kNoPath,
                           state + 2 <= last && skips_to(state + 2) ? after[state + 2] : kNoPath);
    }
    // Returns the loss, given the last row of alphas.
    AXLE_HOST_DEVICE double loss(const double* last_row) const {
        if (steps == 0) return label_count == 0 ? 0 : -kNoPath;
        const std::int64_t last = states() - 1;
        return -log_sum_exp(last_row[last], last > 0 ? last_row[last - 1] : kNoPath, kNoPath);
    }
    // Returns the probability that a path is in a state at step t.
    AXLE_HOST_DEVICE double probability(std::int64_t t, std::int64_t state, double alpha,
                                        double beta, double loss) const {
        if (alpha == kNoPath || beta == kNoPath) return 0;
        return std::exp(alpha + beta + loss - log_prob(t, class_of(state)));
    }
};

}  // namespace axle::kernels
