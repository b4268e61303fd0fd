// Random tensors from Philox 4x32-10: element i of a call depends on (seed, offset, i) alone, so
// the numbers are the same for any thread count, and on CPU and GPU.
#pragma once

#include "kernels/exec.h"
#include "kernels/philox.h"
#include "kernels/view.h"

namespace axle::inline v0::kernels {

// Element i takes word i % 4 of block offset + i / 4; a call uses up ceil(numel / 4) blocks. Its
// upper 24 bits are u in [0, 1), in f64 as well, so that every dtype draws the same numbers.
// y is a contiguous floating view. y = low + (high - low) u, but never above the largest value of
// y's dtype below high: uniform in [low, high) after rounding too. low <= high.
void uniform(Cpu& on, Philox random, double low, double high, View y);
void uniform(Cuda& on, Philox random, double low, double high, View y);

// Box-Muller: elements 2j and 2j + 1 share words 2j and 2j + 1 of the same numbering, v and w. They
// are mean + std r cos(t) and mean + std r sin(t) with r = sqrt(-2 ln u), u = (v + 1/2) / 2^32
// rounded to f32 (so that r reaches 6.7), and t = 2 pi times the upper 24 bits of w over 2^24. f64
// computes in f64 from the same u and t.
void normal(Cpu& on, Philox random, double mean, double std, View y);
void normal(Cuda& on, Philox random, double mean, double std, View y);

// Integers in [low, high), 1 <= high - low <= 2^32: low + floor(word (high - low) / 2^32), which
// favours no value by more than (high - low) / 2^32. y is contiguous, i64 or i32.
void randint(Cpu& on, Philox random, std::int64_t low, std::int64_t high, View y);
void randint(Cuda& on, Philox random, std::int64_t low, std::int64_t high, View y);

// y = x * mask / (1 - p), mask = uniform >= p: the mask is recomputed in the backward pass from the
// same Philox state, never stored. A dropped element is 0 whatever x is. x and y are contiguous and
// may alias.
void dropout(Cpu& on, Philox random, double p, ConstView x, View y);
void dropout(Cuda& on, Philox random, double p, ConstView x, View y);

// Draws y.back(1) indices of the last dimension of the floating weights [..., n] for each row, each
// as likely as its weight. y [..., samples] is i64. With replacement, sample s of row r inverts the
// cumulative distribution at word r * samples + s. Without, the samples are the largest of
// weight / -ln(u), u from word r * n + i, in order: the race that has the law of drawing one after
// another. The rows have passed find_bad_weights.
void multinomial(Cpu& on, Philox random, bool replacement, ConstView weights, View y);
void multinomial(Cuda& on, Philox random, bool replacement, ConstView weights, View y);

// The first row [..., n] that nothing can be drawn from.
struct BadWeights {
    enum Why { none, negative, not_finite, zero_sum, too_few };
    Why why = none;
    std::int64_t row = 0;
};
// needed: how many weights of a row must not be zero (1 with replacement).
// In words.
constexpr const char* reason(BadWeights::Why why) {
    if (why == BadWeights::negative) return "a weight is negative";
    if (why == BadWeights::not_finite) return "the weights have no finite sum";
    if (why == BadWeights::zero_sum) return "all weights are zero";
    return "fewer nonzero weights than samples";
}
BadWeights find_bad_weights(Cpu& on, ConstView weights, std::int64_t needed);
// The same as trouble of kind bad_weights: position is the row, value the reason. multinomial draws
// index 0 from such a row.
void check_weights(Cuda& on, ConstView weights, std::int64_t needed);

}  // namespace axle::inline v0::kernels
