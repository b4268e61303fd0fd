// Multinomial sampling, with one pass over each row in f64. With replacement, each sample is found
// by a search in the row's cumulative sums. Without replacement, every nonzero weight gets a random
// key, and the largest keys are selected.
#include <algorithm>
#include <cmath>

#include "kernels/cpu/index/select.h"
#include "kernels/cpu/lanes.h"
#include "kernels/cpu/rows.h"
#include "kernels/ops/random.h"
#include "kernels/walk.h"

namespace axle::kernels {
namespace {

constexpr std::int64_t kTask = 16384;
constexpr std::int64_t kMaxTasks = 32;  // maximum number of tasks, to limit scratch memory

// Returns (word + 1/2) / 2^32, which is strictly between 0 and 1.
double open_unit(std::uint32_t word) { return (word + 0.5) * 0x1p-32; }

// Calls f(i, weight) for the n weights of a row, in order.
template <class F>
void for_weights(ConstView weights, std::int64_t offset, F&& f) {
    const std::int64_t n = weights.back(1), stride = weights.back_stride(1);
    double block[kBlock];
    for (std::int64_t begin = 0; begin < n; begin += kBlock) {
        const std::int64_t count = std::min(kBlock, n - begin);
        const void* from = at(weights.data, weights.dtype, offset + begin * stride);
        const double* values = load_lanes(from, weights.dtype, stride, count, block);
        for (std::int64_t i = 0; i < count; ++i) f(begin + i, values[i]);
    }
}

std::int64_t rows_of_task(std::int64_t rows, std::int64_t n) {
    return std::max((rows + kMaxTasks - 1) / kMaxTasks, (kTask + n - 1) / n);
}

// Draws the samples of a row. Each sample inverts the row's cumulative distribution.
void draw_with_replacement(const Philox& random, ConstView weights, std::int64_t offset,
                           std::int64_t row, std::int64_t samples, double* sums, std::int64_t* out,
                           std::int64_t out_stride) {
    const std::int64_t n = weights.back(1);
    double total = 0;
    std::int64_t last = 0;  // index of the last nonzero weight; no later index may be drawn
    for_weights(weights, offset, [&](std::int64_t i, double weight) {
        if (weight > 0) last = i;
        sums[i] = total += weight;
    });
    for (std::int64_t s = 0; s < samples; ++s) {
        const auto word = static_cast<std::uint64_t>(row * samples + s);
        const double target = open_unit(random.word(word)) * total;
        const std::int64_t found = std::upper_bound(sums, sums + n, target) - sums;
        out[s * out_stride] = std::min(found, last);
    }
}

// Selects the elements with the largest weight / -ln(u). The reciprocals of these numbers are
// exponential random variables with the weights as rates.
void draw_without_replacement(const Philox& random, ConstView weights, std::int64_t offset,
                              std::int64_t row, std::int64_t samples, Keyed* buffer,
                              std::int64_t* out, std::int64_t out_stride) {
    const auto first_word = static_cast<std::uint64_t>(row * weights.back(1));
    BestK best(samples, buffer);
    std::uint64_t block = UINT64_MAX;
    std::array<std::uint32_t, 4> words = {};
    for_weights(weights, offset, [&](std::int64_t i, double weight) {
        const std::uint64_t word = first_word + static_cast<std::uint64_t>(i);
        if (word / 4 != block) words = random.block(block = word / 4);
        if (weight > 0) best.push(key_of(weight / -std::log(open_unit(words[word % 4]))), i);
    });
    const Keyed* chosen = best.finish();
    for (std::int64_t s = 0; s < samples; ++s) out[s * out_stride] = chosen[s].index;
}

BadWeights::Why find_error(ConstView weights, std::int64_t offset, std::int64_t needed) {
    double total = 0;
    std::int64_t positive = 0;
    bool negative = false;
    for_weights(weights, offset, [&](std::int64_t, double weight) {
        negative |= weight < 0;
        positive += weight > 0;
        total += weight;
    });
    if (negative) return BadWeights::negative;
    if (!std::isfinite(total)) return BadWeights::not_finite;
    if (positive == 0) return BadWeights::zero_sum;
    return positive < needed ? BadWeights::too_few : BadWeights::none;
}

}  // namespace

void multinomial(Cpu& on, Philox random, bool replacement, ConstView weights, View y) {
    if (y.numel() == 0) return;
    const Rows<2> rows({weights, y});
    const std::int64_t n = weights.back(1), samples = y.back(1);
    const std::int64_t grain = rows_of_task(rows.count(), n);
    const std::int64_t tasks = (rows.count() + grain - 1) / grain;
    Scratch scratch(on);
    double* sums = replacement ? scratch.take<double>(tasks * n) : nullptr;
    const std::int64_t buffer = BestK::buffer_size(samples);
    Keyed* buffers = replacement ? nullptr : scratch.take<Keyed>(tasks * buffer);
    parallel_ranges(rows.count(), grain, [&](std::int64_t first, std::int64_t last) {
        for (std::int64_t row = first; row < last; ++row) {
            const auto offset = rows.offsets(row);
            std::int64_t* out = y.as<std::int64_t>() + offset[1];
            const std::int64_t task = first / grain, stride = y.back_stride(1);
            if (replacement)
                draw_with_replacement(random, weights, offset[0], row, samples, sums + task * n,
                                      out, stride);
            else
                draw_without_replacement(random, weights, offset[0], row, samples,
                                         buffers + task * buffer, out, stride);
        }
    });
}

BadWeights find_bad_weights(Cpu& on, ConstView weights, std::int64_t needed) {
    const Rows<1> rows({weights});
    const std::int64_t n = weights.back(1);
    if (rows.count() == 0) return {};
    if (n == 0) return {BadWeights::zero_sum, 0};
    const std::int64_t grain = rows_of_task(rows.count(), n);
    const std::int64_t tasks = (rows.count() + grain - 1) / grain;
    Scratch scratch(on);
    BadWeights* found = scratch.take<BadWeights>(tasks);
    parallel_ranges(rows.count(), grain, [&](std::int64_t first, std::int64_t last) {
        BadWeights& bad = found[first / grain] = {};
        for (std::int64_t row = first; row < last && bad.why == BadWeights::none; ++row)
            bad = {find_error(weights, rows.offsets(row)[0], needed), row};
    });
    for (std::int64_t task = 0; task < tasks; ++task)
        if (found[task].why != BadWeights::none) return found[task];
    return {};
}

}  // namespace axle::kernels
