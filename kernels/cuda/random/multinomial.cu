// Multinomial sampling. With replacement, a block writes the cumulative sums of a row to scratch
// memory and finds each sample by binary search. Without replacement, every nonzero weight gets a
// random key, and the elements with the largest keys are selected by the code that topk uses.
//
// The samples are the same as with sequential sums, although the scan adds in another order. In
// both orders, at most n roundings separate a sum from the exact sum. In rare cases, a target is so
// close to a sum that rounding could change the sample. Then one thread adds the row in order, and
// the row is sampled again.
#include <algorithm>

#include "kernels/cuda/error_reporter.cuh"
#include "kernels/cuda/index/cub.h"
#include "kernels/cuda/index/select.cuh"
#include "kernels/cuda/reduce/scan.cuh"
#include "kernels/cuda/rows.cuh"
#include "kernels/cuda/start.cuh"
#include "kernels/ops/random.h"

namespace axle::kernels {
namespace {

constexpr int kThreads = 256;
constexpr int kEach = 4;  // number of adjacent weights per thread in a scan

struct Weights {
    std::int64_t n, step;
};

// Returns the error in a row, or none. All threads of the block must call it together; all get the
// same result.
template <class T>
__device__ BadWeights::Why find_error(const T* row, const Weights& weights, std::int64_t needed) {
    double total = 0;
    std::int64_t positive = 0;
    int negative = 0;
    for (std::int64_t i = threadIdx.x; i < weights.n; i += kThreads) {
        const auto weight = static_cast<double>(static_cast<Compute<T>>(row[i * weights.step]));
        if (weight < 0) negative = 1;
        if (weight > 0) ++positive;
        total += weight;
    }
    total = block_sum<kThreads>(total);
    positive = block_sum<kThreads>(positive);
    negative = block_max<kThreads>(negative);
    if (negative != 0) return BadWeights::negative;
    if (!(total <= std::numeric_limits<double>::max())) return BadWeights::not_finite;
    if (positive == 0) return BadWeights::zero_sum;
    return positive < needed ? BadWeights::too_few : BadWeights::none;
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    report_rows(DeviceRows<1> rows, Weights weights, std::int64_t needed, const T* x,
                ErrorReporter report) {
    for (std::int64_t row = blockIdx.x; row < rows.count; row += gridDim.x) {
        const BadWeights::Why why = find_error(x + rows.place(row).at[0], weights, needed);
        if (why != BadWeights::none && threadIdx.x == 0) report(row, why, 0);
    }
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    judge_rows(DeviceRows<2> rows, Weights weights, std::int64_t needed, const T* x,
               bool* drawable) {
    for (std::int64_t row = blockIdx.x; row < rows.count; row += gridDim.x) {
        const BadWeights::Why why = find_error(x + rows.place(row).at[0], weights, needed);
        if (threadIdx.x == 0) drawable[row] = why == BadWeights::none;
    }
}

// Returns (word + 1/2) / 2^32, which is strictly between 0 and 1.
__device__ inline double open_unit(std::uint32_t word) { return (word + 0.5) * 0x1p-32; }

// --- with replacement

// Writes the cumulative sums of a row and returns the last sum.
template <class T>
__device__ double scan_row(const T* row, const Weights& weights, double* sums) {
    double carry = 0;
    for (std::int64_t first = 0; first < weights.n; first += kThreads * kEach) {
        double mine[kEach], sum = 0;
        const std::int64_t begin = first + threadIdx.x * kEach;
#pragma unroll
        for (int j = 0; j < kEach; ++j) {
            const bool exists = begin + j < weights.n;
            if (exists)
                sum +=
                    static_cast<double>(static_cast<Compute<T>>(row[(begin + j) * weights.step]));
            mine[j] = sum;
        }
        double total = 0;
        const double before = carry + block_scan<kThreads>(sum, total);
        carry += total;
#pragma unroll
        for (int j = 0; j < kEach; ++j)
            if (begin + j < weights.n) sums[begin + j] = before + mine[j];
    }
    return carry;
}

// Computes the cumulative sums sequentially in one thread. Sets `last` to the last index with a
// nonzero weight.
template <class T>
__device__ void add_in_order(const T* row, const Weights& weights, double* sums,
                             std::int64_t& last) {
    double sum = 0;
    for (std::int64_t i = 0; i < weights.n; ++i) {
        const auto weight = static_cast<double>(static_cast<Compute<T>>(row[i * weights.step]));
        if (weight > 0) last = i;
        sums[i] = sum += weight;
    }
}

// Returns the index of the first cumulative sum above the target.
__device__ inline std::int64_t upper_bound(const double* sums, std::int64_t n, double target) {
    std::int64_t low = 0;
    while (n > 0) {
        const std::int64_t half = n / 2;
        if (sums[low + half] > target) {
            n = half;
        } else {
            low += half + 1;
            n -= half + 1;
        }
    }
    return low;
}

struct Draws {
    std::int64_t samples, step;
};

// Draws samples with replacement, or writes 0 in rows that are not drawable. `all_sums` is scratch
// memory of n elements per block.
template <class T>
__global__ void __launch_bounds__(kThreads)
    draw_with_replacement(Philox given, DeviceRows<2> rows, Weights weights, Draws draws,
                          const bool* drawable, double* all_sums, const T* x, std::int64_t* y) {
    const Philox random = given.resolved();
    const std::int64_t n = weights.n;
    double* const sums = all_sums + blockIdx.x * n;
    __shared__ std::int64_t last;
    for (std::int64_t row = blockIdx.x; row < rows.count; row += gridDim.x) {
        const auto place = rows.place(row);
        std::int64_t* const out = y + place.at[1];
        if (!drawable[row]) {
            for (std::int64_t s = threadIdx.x; s < draws.samples; s += kThreads)
                out[s * draws.step] = 0;
            continue;
        }
        const double total = scan_row(x + place.at[0], weights, sums);
        __syncthreads();
        const double margin = static_cast<double>(n) * 8 * 0x1p-53 * total;
        int close = 0;
        for (std::int64_t s = threadIdx.x; s < draws.samples; s += kThreads) {
            const auto word = static_cast<std::uint64_t>(row * draws.samples + s);
            const double target = open_unit(random.word(word)) * total;
            const std::int64_t found = upper_bound(sums, n, target);
            out[s * draws.step] = found;
            if (found == n || sums[found] - target <= margin ||
                (found > 0 && target - sums[found - 1] <= margin))
                close = 1;
        }
        if (__syncthreads_or(close) == 0) continue;
        if (threadIdx.x == 0) add_in_order(x + place.at[0], weights, sums, last);
        __syncthreads();
        for (std::int64_t s = threadIdx.x; s < draws.samples; s += kThreads) {
            const auto word = static_cast<std::uint64_t>(row * draws.samples + s);
            const double target = open_unit(random.word(word)) * sums[n - 1];
            const std::int64_t found = upper_bound(sums, n, target);
            out[s * draws.step] = found < last ? found : last;
        }
        __syncthreads();  // wait before the sums change
    }
}

// --- without replacement

// Ranks elements by weight / -ln(u). The reciprocal of this number is an exponential random
// variable with the weight as its rate. So the first k elements are a sample without replacement.
template <class T>
struct Clocks {
    Philox random;
    const T* row;
    std::int64_t step, first_word;
    __device__ Ranked operator()(std::int64_t i) const {
        const auto weight = static_cast<double>(static_cast<Compute<T>>(row[i * step]));
        if (!(weight > 0)) return no_element();
        const auto word = static_cast<std::uint64_t>(first_word + i);
        return {key_of(weight / -log(open_unit(random.word(word))), true), i};
    }
};

template <class T>
__global__ void __launch_bounds__(kSelectThreads)
    draw_best(Philox given, DeviceRows<2> rows, Weights weights, Draws draws, const bool* drawable,
              const T* x, std::int64_t* y) {
    const Philox random = given.resolved();
    for (std::int64_t row = blockIdx.x; row < rows.count; row += gridDim.x) {
        const auto place = rows.place(row);
        const Clocks<T> clocks{random, x + place.at[0], weights.step, row * weights.n};
        int found = 0;
        const Ranked* best = select_best(clocks, weights.n, static_cast<int>(draws.samples), found);
        for (int s = static_cast<int>(threadIdx.x); s < draws.samples; s += kSelectThreads)
            y[place.at[1] + s * draws.step] = drawable[row] ? best[s].index : 0;
    }
}

template <class T>
__global__ void rank_weights(Philox given, DeviceRows<2> rows, Weights weights, std::int64_t row,
                             const T* x, Ranks<std::uint64_t> ranked) {
    const Clocks<T> clocks{given.resolved(), x + rows.place(row).at[0], weights.step,
                           row * weights.n};
    for (std::int64_t i = thread_in_grid(); i < weights.n; i += threads_in_grid()) {
        ranked.keys[i] = clocks(i).key;
        ranked.indices[i] = static_cast<std::uint32_t>(i);
    }
}

__global__ void write_first(DeviceRows<2> rows, Draws draws, std::int64_t row, const bool* drawable,
                            const std::uint32_t* sorted, std::int64_t* y) {
    std::int64_t* const out = y + rows.place(row).at[1];
    for (std::int64_t s = thread_in_grid(); s < draws.samples; s += threads_in_grid())
        out[s * draws.step] = drawable[row] ? sorted[s] : 0;
}

Grid block_for_each(std::int64_t rows) { return {std::min<std::int64_t>(rows, 0x7fffffff)}; }

}  // namespace

void multinomial(Cuda& on, Philox random, bool replacement, ConstView weights, View y) {
    if (y.numel() == 0) return;
    const DeviceRows<2> rows({weights, y});
    const Weights row{weights.back(1), weights.back_stride(1)};
    const Draws draws{y.back(1), y.back_stride(1)};
    auto* const out = y.as<std::int64_t>();
    DeviceScratch scratch(on);
    bool* const drawable = scratch.take<bool>(rows.count);
    visit_float(weights.dtype, [&]<class T>() {
        const T* const x = weights.as<T>();
        start(on, {block_for_each(rows.count), kThreads}, &judge_rows<T>, rows, row,
              replacement ? 1 : draws.samples, x, drawable);
        if (replacement) {
            const std::int64_t blocks =
                std::min<std::int64_t>(rows.count, 2 * on.multiprocessors());
            double* const sums = scratch.take<double>(blocks * row.n);
            start(on, {{blocks}, kThreads}, &draw_with_replacement<T>, random, rows, row, draws,
                  drawable, sums, x, out);
            return;
        }
        if (draws.samples <= kMaxSelected) {
            start(on, {block_for_each(rows.count), kSelectThreads}, &draw_best<T>, random, rows,
                  row, draws, drawable, x, out);
            return;
        }
        for (std::int64_t r = 0; r < rows.count; ++r) {
            DeviceScratch memory(on);
            const auto ranked = take_ranks<std::uint64_t>(memory, row.n);
            start(on, {grid_for(on, row.n, kThreads), kThreads}, &rank_weights<T>, random, rows,
                  row, r, x, ranked);
            const std::uint32_t* const sorted =
                sort_by_keys(on, memory, ranked, 1, row.n, kKeyBits<double>).indices;
            start(on, {grid_for(on, draws.samples, kThreads), kThreads}, &write_first, rows, draws,
                  r, drawable, sorted, out);
        }
    });
}

void check_weights(Cuda& on, ConstView weights, std::int64_t needed) {
    const DeviceRows<1> rows({weights});
    if (rows.count == 0) return;
    const ErrorReporter report(on, DeviceErrorRecord::bad_weights);
    const Weights row{weights.back(1), weights.back_stride(1)};
    visit_float(weights.dtype, [&]<class T>() {
        start(on, {block_for_each(rows.count), kThreads}, &report_rows<T>, rows, row, needed,
              weights.as<T>(), report);
    });
}

}  // namespace axle::kernels
