// Kernels that fill tensors with random numbers from Philox 4x32-10. Element i of a call depends
// only on (seed, offset, i), so the numbers are the same for any number of threads. CPU and GPU
// give the same numbers, except for rounding errors in normal() and multinomial().
#pragma once

#include "kernels/exec.h"
#include "kernels/philox.h"
#include "kernels/view.h"

namespace axle::kernels {

// Computes y = low + (high - low) u, where u in [0, 1) is uniform. Element i uses word i % 4 of
// block offset + i / 4, so a call consumes ceil(numel / 4) blocks. u is the upper 24 bits of the
// word, divided by 2^24, also for f64, so that every dtype gets the same numbers. y is a contiguous
// floating view, and low <= high. Results that rounding would make equal to high become the largest
// value below high. So all results are in [low, high), or equal to low if low equals high, except
// that values close to a low that y's dtype does not contain can be rounded to a value below it.
void uniform(Cpu& on, Philox random, double low, double high, View y);
void uniform(Cuda& on, Philox random, double low, double high, View y);

// Fills y with normally distributed numbers by the Box-Muller transform. Elements 2j and 2j + 1 are
// computed from words 2j and 2j + 1 (called v and w here), numbered as in uniform(). The elements
// are mean + std r cos(t) and mean + std r sin(t), where
//     r = sqrt(-2 ln u), and u = (v + 1/2) / 2^32 is rounded to f32 (so r is at most about 6.8)
//     t = 2 pi times the upper 24 bits of w, divided by 2^24
// For f64, u and t are the same, and all other steps are computed in f64. y is contiguous and
// floating.
void normal(Cpu& on, Philox random, double mean, double std, View y);
void normal(Cuda& on, Philox random, double mean, double std, View y);

// Fills y with uniform integers in [low, high), computed as low + floor(word (high - low) / 2^32),
// where 1 <= high - low <= 2^32. The relative error of a value's probability is at most (high -
// low) / 2^32. y is contiguous, i64 or i32.
void randint(Cpu& on, Philox random, std::int64_t low, std::int64_t high, View y);
void randint(Cuda& on, Philox random, std::int64_t low, std::int64_t high, View y);

// Computes y = x * mask / (1 - p), where mask = (uniform number >= p). The mask is never stored:
// the backward pass recomputes it from the same Philox state. A dropped element is 0 even if x is
// infinite or NaN; with p = 1, all elements are dropped. x and y are contiguous, have one floating
// dtype and can be the same memory.
void dropout(Cpu& on, Philox random, double p, ConstView x, View y);
void dropout(Cuda& on, Philox random, double p, ConstView x, View y);

// Draws y.back(1) indices of the last dimension of weights [..., n] (floating) for each row, with
// probabilities proportional to the weights. y [..., samples] is i64.
//
// With replacement, sample s of row r inverts the cumulative distribution at u = (w + 1/2) / 2^32,
// where w is word r * samples + s. Without replacement, the samples are the indices i with the
// largest weight / -ln(u), in descending order, where u is computed in the same way from word r * n
// + i; this has the same distribution as drawing one index after another. find_bad_weights must
// have accepted the rows, or check_weights must have checked them.
void multinomial(Cpu& on, Philox random, bool replacement, ConstView weights, View y);
void multinomial(Cuda& on, Philox random, bool replacement, ConstView weights, View y);

// The first row of weights [..., n] from which the samples cannot be drawn, and the reason.
struct BadWeights {
    enum Why { none, negative, not_finite, zero_sum, too_few };
    Why why = none;
    std::int64_t row = 0;
};
// Returns the text that describes a reason in an error message.
constexpr const char* reason(BadWeights::Why why) {
    if (why == BadWeights::negative) return "a weight is negative";
    if (why == BadWeights::not_finite) return "the weights have no finite sum";
    if (why == BadWeights::zero_sum) return "all weights are zero";
    return "fewer nonzero weights than samples";
}
// Returns the first bad row, or a result with Why::none. `needed` is the number of nonzero weights
// that a row must have (1 with replacement).
BadWeights find_bad_weights(Cpu& on, ConstView weights, std::int64_t needed);
// Checks weights on a GPU without waiting. Cuda::take_error() returns one of the bad rows, as an
// error of kind bad_weights whose position is the row and whose value is the reason. multinomial
// draws index 0 from such a row.
void check_weights(Cuda& on, ConstView weights, std::int64_t needed);

}  // namespace axle::kernels
