// Random tensors from Philox 4x32-10. Element i of a call depends only on (seed, offset, i), so the
// numbers are the same for any number of threads and on CPU and GPU.
#pragma once

#include "kernels/exec.h"
#include "kernels/philox.h"
#include "kernels/view.h"

namespace axle::kernels {

// Computes y = low + (high - low) u. Element i uses word i % 4 of block offset + i / 4, so a call
// consumes ceil(numel / 4) blocks. u in [0, 1) is the upper 24 bits of the word, for f64 as well,
// so that every dtype draws the same numbers. y is a contiguous floating view, and low <= high.
// Results are never above the largest value of y's dtype below high, so they are in [low, high)
// even after rounding.
void uniform(Cpu& on, Philox random, double low, double high, View y);
void uniform(Cuda& on, Philox random, double low, double high, View y);

// Fills y with normally distributed numbers by the Box-Muller transform. Elements 2j and 2j + 1 are
// computed from words 2j and 2j + 1 (v and w), numbered as in uniform(). They are mean + std r
// cos(t) and mean + std r sin(t), where r = sqrt(-2 ln u), u = (v + 1/2) / 2^32 rounded to f32 (so
// that r reaches 6.7), and t = 2 pi times the upper 24 bits of w over 2^24. f64 uses the same u and
// t and computes in f64.
void normal(Cpu& on, Philox random, double mean, double std, View y);
void normal(Cuda& on, Philox random, double mean, double std, View y);

// Fills y with uniform integers in [low, high), where 1 <= high - low <= 2^32, computed as low +
// floor(word (high - low) / 2^32). The probability of a value deviates by at most a factor of (high
// - low) / 2^32. y is contiguous, i64 or i32.
void randint(Cpu& on, Philox random, std::int64_t low, std::int64_t high, View y);
void randint(Cuda& on, Philox random, std::int64_t low, std::int64_t high, View y);

// Computes y = x * mask / (1 - p), where mask = uniform >= p. The mask is never stored: the
// backward pass recomputes it from the same Philox state. A dropped element is 0 even if x is
// infinite or NaN. x and y are contiguous and can alias.
void dropout(Cpu& on, Philox random, double p, ConstView x, View y);
void dropout(Cuda& on, Philox random, double p, ConstView x, View y);

// Draws y.back(1) indices of the last dimension of weights [..., n] (floating) for each row, with
// probabilities proportional to the weights. y [..., samples] is i64. With replacement, sample s of
// row r inverts the cumulative distribution at word r * samples + s. Without replacement, the
// samples are the indices with the largest weight / -ln(u), in descending order, where u is from
// word r * n + i; this has the same distribution as drawing one after another. The rows must have
// passed find_bad_weights or check_weights.
void multinomial(Cpu& on, Philox random, bool replacement, ConstView weights, View y);
void multinomial(Cuda& on, Philox random, bool replacement, ConstView weights, View y);

// The first row of weights [..., n] that cannot be sampled, and why.
struct BadWeights {
    enum Why { none, negative, not_finite, zero_sum, too_few };
    Why why = none;
    std::int64_t row = 0;
};
// Returns a description of the reason for an error message.
constexpr const char* reason(BadWeights::Why why) {
    if (why == BadWeights::negative) return "a weight is negative";
    if (why == BadWeights::not_finite) return "the weights have no finite sum";
    if (why == BadWeights::zero_sum) return "all weights are zero";
    return "fewer nonzero weights than samples";
}
// Returns the first row with an error. `needed` is the number of weights of a row that must be
// nonzero (1 with replacement).
BadWeights find_bad_weights(Cpu& on, ConstView weights, std::int64_t needed);
// Checks weights on a GPU without waiting and reports the first bad row to Cuda::take_error() as
// bad_weights: position is the row, value the reason. multinomial draws index 0 from such a row.
void check_weights(Cuda& on, ConstView weights, std::int64_t needed);

}  // namespace axle::kernels
