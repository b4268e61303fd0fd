// Cross entropy over many long rows.
//
// The forward pass reads memory once. A row is read in blocks that stay in L1. For each block, the
// task computes the maximum and then the sum of exponentials; the running sum is rescaled when the
// maximum grows. An element costs one exponential and one read from memory. The backward pass reads
// the logits once and writes the gradient once; it recomputes the probabilities from the
// log-sum-exp. A task processes complete rows.
#include "kernels/ops/loss.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/loss/loss.cpp"
#include "kernels/cpu/targets.h"
//
#include <hwy/foreach_target.h>
//
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace axle::kernels::HWY_NAMESPACE {

// Returns the maximum of n elements, where n is at least 1.
float block_max(const float* x, std::int64_t n) {
    Pack highest(-INFINITY);
    std::int64_t i = 0;
    for (; i + Pack::kLanes <= n; i += Pack::kLanes) highest = max(highest, Pack::load(x + i));
    float best = max_of(highest);
    for (; i < n; ++i) best = x[i] > best ? x[i] : best;
    return best;
}

float block_sum(const float* x, std::int64_t n) {
    Pack total(0.0f);
    std::int64_t i = 0;
    for (; i + Pack::kLanes <= n; i += Pack::kLanes) total = total + Pack::load(x + i);
    if (i < n) total = total + Pack::load(x + i, n - i);
    return sum_of(total);
}

float block_sum_exp(const float* x, std::int64_t n, float base) {
    const Pack low(base);
    Pack even(0.0f), odd(0.0f);
    std::int64_t i = 0;
    for (; i + 2 * Pack::kLanes <= n; i += 2 * Pack::kLanes) {
        even = even + exp(Pack::load(x + i) - low);
        odd = odd + exp(Pack::load(x + i + Pack::kLanes) - low);
    }
    for (; i < n; i += Pack::kLanes) {
        float rest[Pack::kLanes];
        for (std::int64_t k = 0; k < Pack::kLanes; ++k) rest[k] = i + k < n ? x[i + k] : -INFINITY;
        even = even + exp(Pack::load(rest) - low);
    }
    return sum_of(even + odd);
}

// Computes y = (e^(x - lse) - shift) factor for n elements. x and y can be the same.
void block_gradient(const float* x, std::int64_t n, float lse, float shift, float factor,
                    float* y) {
    const Pack low(lse), less(shift), by(factor);
    std::int64_t i = 0;
    for (; i + Pack::kLanes <= n; i += Pack::kLanes)
        ((exp(Pack::load(x + i) - low) - less) * by).store(y + i);
    if (i < n) ((exp(Pack::load(x + i, n - i) - low) - less) * by).store(y + i, n - i);
}

}  // namespace axle::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

#include <algorithm>
#include <limits>

#include "kernels/cpu/lanes.h"
#include "kernels/thread_pool.h"
#include "kernels/walk.h"

namespace axle::kernels {
namespace {

AXLE_DISPATCH(block_max);
AXLE_DISPATCH(block_sum);
AXLE_DISPATCH(block_sum_exp);
AXLE_DISPATCH(block_gradient);

constexpr std::int64_t kGrain = 32 * 1024;  // elements per task

float max_in(const float* x, std::int64_t n) { return AXLE_CALL(block_max)(x, n); }
float sum_in(const float* x, std::int64_t n) { return AXLE_CALL(block_sum)(x, n); }
float sum_exp_in(const float* x, std::int64_t n, float base) {
    return AXLE_CALL(block_sum_exp)(x, n, base);
}
void gradient_in(const float* x, std::int64_t n, float lse, float shift, float factor, float* y) {
    AXLE_CALL(block_gradient)(x, n, lse, shift, factor, y);
}

double max_in(const double* x, std::int64_t n) { return *std::max_element(x, x + n); }
double sum_in(const double* x, std::int64_t n) {
    double total = 0;
    for (std::int64_t i = 0; i < n; ++i) total += x[i];
    return total;
}
double sum_exp_in(const double* x, std::int64_t n, double base) {
    double total = 0;
    for (std::int64_t i = 0; i < n; ++i) total += std::exp(x[i] - base);
    return total;
}
void gradient_in(const double* x, std::int64_t n, double lse, double shift, double factor,
                 double* y) {
    for (std::int64_t i = 0; i < n; ++i) y[i] = (std::exp(x[i] - lse) - shift) * factor;
}

template <class T>
T element(const ConstView& x, std::int64_t i) {
    T buffer;
    return *load_lanes<T>(at(x.data, x.dtype, i), x.dtype, 1, 1, &buffer);
}
std::int64_t target_of(const ConstView& targets, std::int64_t row) {
    return element<std::int64_t>(targets, row * targets.stride[0]);
}

struct RowSums {
    double lse, sum;  // log-sum-exp; sum of the logits, if requested
};

template <class Lane>
RowSums scan_row(const ConstView& logits, std::int64_t row, bool with_sum) {
    const std::int64_t classes = logits.shape[1], step = logits.stride[1];
    const std::int64_t start = row * logits.stride[0];
    Lane buffer[kBlock];
    Lane highest = -std::numeric_limits<Lane>::infinity();
    double exponentials = 0, sum = 0;
    for (std::int64_t c = 0; c < classes; c += kBlock) {
        const std::int64_t n = std::min(kBlock, classes - c);
        const Lane* x = load_lanes<Lane>(at(logits.data, logits.dtype, start + c * step),
                                         logits.dtype, step, n, buffer);
        const Lane best = max_in(x, n);
        if (best > highest) {
            exponentials *= std::exp(static_cast<double>(highest) - static_cast<double>(best));
            highest = best;
        }
        const bool nothing = highest == -std::numeric_limits<Lane>::infinity();
        exponentials += static_cast<double>(sum_exp_in(x, n, nothing ? Lane(0) : highest));
        if (with_sum) sum += static_cast<double>(sum_in(x, n));
    }
    return {static_cast<double>(highest) + std::log(exponentials), sum};
}

template <class Lane>
void forward_row(const ConstView& logits, std::int64_t row, std::int64_t target,
                 const CrossEntropyParams& params, const View& loss, const View& lse) {
    const bool ignored = target == params.ignore_index;
    const double smoothing = params.label_smoothing;
    const RowSums sums = scan_row<Lane>(logits, row, smoothing > 0);
    double value = 0;
    if (!ignored) {
        const std::int64_t at_target = row * logits.stride[0] + target * logits.stride[1];
        value =
            (1 - smoothing) * (sums.lse - static_cast<double>(element<Lane>(logits, at_target)));
        if (smoothing > 0)
            value += smoothing * (sums.lse - sums.sum / static_cast<double>(logits.shape[1]));
    }
    loss.as<Lane>()[row * loss.stride[0]] = static_cast<Lane>(value);
    lse.as<Lane>()[row * lse.stride[0]] = static_cast<Lane>(sums.lse);
}

template <class Lane>
void backward_row(const ConstView& logits, std::int64_t row, std::int64_t target, Lane lse,
                  Lane factor, const CrossEntropyParams& params, const View& dlogits) {
    const std::int64_t classes = logits.shape[1];
    const std::int64_t start = row * logits.stride[0], start_to = row * dlogits.stride[0];
    const std::int64_t step = logits.stride[1], step_to = dlogits.stride[1];
    const auto smoothing = static_cast<Lane>(params.label_smoothing);
    const Lane shift = smoothing / static_cast<Lane>(classes);
    Lane from[kBlock], to[kBlock];
    for (std::int64_t c = 0; c < classes; c += kBlock) {
        const std::int64_t n = std::min(kBlock, classes - c);
        void* const out = at(dlogits.data, dlogits.dtype, start_to + c * step_to);
        Lane* const y = is_lanes<Lane>(dlogits.dtype, step_to, n) ? static_cast<Lane*>(out) : to;
        if (target == params.ignore_index) {
            std::fill(y, y + n, Lane(0));
        } else {
            const Lane* x = load_lanes<Lane>(at(logits.data, logits.dtype, start + c * step),
                                             logits.dtype, step, n, from);
            gradient_in(x, n, lse, shift, factor, y);
            if (target >= c && target < c + n) y[target - c] -= (Lane(1) - smoothing) * factor;
        }
        store_lanes<Lane>(y, out, dlogits.dtype, step_to, n);
    }
}

std::int64_t grain_for(const ConstView& logits) {
    return std::max<std::int64_t>(1, kGrain / std::max<std::int64_t>(1, logits.shape[1]));
}

}  // namespace

std::int64_t first_bad_target(ConstView targets, std::int64_t classes, std::int64_t ignore_index) {
    for (std::int64_t row = 0; row < targets.shape[0]; ++row) {
        const std::int64_t target = target_of(targets, row);
        if (target != ignore_index && (target < 0 || target >= classes)) return row;
    }
    return -1;
}

void cross_entropy(Cpu&, ConstView logits, ConstView targets, const CrossEntropyParams& params,
                   View loss, View lse) {
    visit_f32_f64(lane_dtype(logits.dtype), [&]<class Lane>() {
        parallel_ranges(
            logits.shape[0], grain_for(logits), [&](std::int64_t begin, std::int64_t end) {
                for (std::int64_t row = begin; row < end; ++row)
                    forward_row<Lane>(logits, row, target_of(targets, row), params, loss, lse);
            });
    });
}

void cross_entropy_backward(Cpu&, ConstView logits, ConstView targets, ConstView lse,
                            ConstView dloss, const CrossEntropyParams& params, View dlogits) {
    visit_f32_f64(lane_dtype(logits.dtype), [&]<class Lane>() {
        parallel_ranges(logits.shape[0], grain_for(logits),
                        [&](std::int64_t begin, std::int64_t end) {
                            for (std::int64_t row = begin; row < end; ++row)
                                backward_row<Lane>(logits, row, target_of(targets, row),
                                                   element<Lane>(lse, row * lse.stride[0]),
                                                   element<Lane>(dloss, row * dloss.stride[0]),
                                                   params, dlogits);
                        });
    });
}

}  // namespace axle::kernels

#endif  // HWY_ONCE
