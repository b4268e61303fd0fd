// Kernels that convert masks to biases for cuDNN's attention, and clear rows without keys (the
// results of queries that attend to no key).
//
// The bias is written once per call. It has the size of the mask: at most B Tq Tk numbers if heads
// share the mask, and much less if queries share it. To find rows without keys, a warp reads a row
// until it finds a visible key. In most rows, this key is among the first 32.
#include <algorithm>

#include "kernels/cuda/attention/attention.cuh"
#include "kernels/cuda/attention/cudnn_scores.h"
#include "kernels/cuda/pointwise/elementwise.cuh"
#include "kernels/cuda/visit.cuh"

namespace axle::kernels::cudnn {
namespace {

constexpr int kThreads = 256;

// kHidden is the bias of a masked key. kLowest is the lowest bias of a visible key; lower values of
// a floating mask are raised to it. In f32 and bf16, both are far above the lowest finite number
// (about -2^128). cuDNN adds the bias to a score and subtracts the row's maximum or log-sum-exp.
// replace_infinity() sets the log-sum-exp to -kLowest in rows without keys. cuDNN may multiply by
// log2(e) = 1.44 before it computes the exponential. The result stays above -2^104. In f16, both
// are the lowest finite number; cuDNN adds f16 biases in f32.
template <class T>
inline constexpr float kHidden = -0x1p101f;
template <class T>
inline constexpr float kLowest = -0x1p100f;
template <>
inline constexpr float kHidden<Half> = -65504;
template <>
inline constexpr float kLowest<Half> = -65504;

template <class From, class To>
struct Bias {
    __device__ To operator()(From mask) const {
        if constexpr (std::is_same_v<From, std::uint8_t>) {
            return convert<To>(mask != 0 ? 0.0F : kHidden<To>);
        } else {
            const auto x = static_cast<float>(static_cast<Compute<From>>(mask));
            if (x == attend::kMinusInfinity<float>) return convert<To>(kHidden<To>);
            return convert<To>(x < kLowest<To> ? kLowest<To> : x);
        }
    }
};

// Returns x with size 1 in each of its first three dimensions in which the mask is broadcast.
template <class V>
V without_repeats(const ConstView& mask, V x) {
    for (int d = 0; d < 3; ++d)
        if (mask.stride[d] == 0) x.shape[d] = 1;
    return x;
}

// Returns whether at least one of the first `keys` keys is visible in this row of the mask. All
// lanes of the warp must call it together.
__device__ inline bool has_visible_key(const attend::Mask& mask, std::int64_t row,
                                       std::int64_t keys) {
    const auto lane = static_cast<std::int64_t>(threadIdx.x % kWarp);
    for (std::int64_t first = 0; first < keys; first += kWarp) {
        const std::int64_t key = first + lane;
        const bool seen = key < keys && mask.at<float>(row + key * mask.stride[3]) !=
                                            attend::kMinusInfinity<float>;
        if (__any_sync(kAllLanes, seen) != 0) return true;
    }
    return false;
}

// Sets out to 0 and lse to -infinity in the rows in which no key is visible. Each warp processes
// one row of out and lse.
__global__ void __launch_bounds__(kThreads)
    blank(attend::Mask mask, bool causal, std::int64_t rows, std::int64_t heads,
          std::int64_t queries, std::int64_t keys, int depth, attend::Operand<std::uint16_t> out,
          attend::Operand<float> lse) {
    for (std::int64_t row = thread_in_grid() / kWarp; row < rows;
         row += threads_in_grid() / kWarp) {
        const std::int64_t head = row / queries, i = row % queries;
        const std::int64_t b = head / heads, h = head % heads;
        const std::int64_t place = b * mask.stride[0] + h * mask.stride[1] + i * mask.stride[2];
        if (has_visible_key(mask, place, causal && i + 1 < keys ? i + 1 : keys)) continue;
        const int lane = static_cast<int>(threadIdx.x) % kWarp;
        for (int d = lane; d < depth; d += kWarp)
            out.head(b, h)[i * out.stride[2] + d * out.stride[3]] = 0;
        if (lane == 0) lse.head(b, h)[i * lse.stride[2]] = attend::kMinusInfinity<float>;
    }
}

struct Finite {
    __device__ float operator()(float lse) const {
        return lse == attend::kMinusInfinity<float> ? -kLowest<float> : lse;
    }
};

__global__ void set_random_state(Philox random, std::int64_t* seed, std::int64_t* offset) {
    const Philox state = random.resolved();
    *seed = static_cast<std::int64_t>(state.seed);
    // cuDNN's offset counts numbers; a Philox block has four numbers.
    *offset = static_cast<std::int64_t>(state.offset * 4);
}

}  // namespace

View bias_like(const ConstView& mask, DType operands, void* data) {
    View bias;
    bias.data = data, bias.ndim = 4;
    bias.dtype = mask.dtype == DType::boolean || mask.dtype == operands ? operands : DType::f32;
    for (int d = 0; d < 4; ++d) bias.shape[d] = mask.shape[d];
    constexpr std::int64_t kRow = 8;  // rows begin at multiples of 8 elements (16 or 32 bytes)
    std::int64_t stride = (mask.shape[3] + kRow - 1) / kRow * kRow;
    bias.stride[3] = 1;
    for (int d = 2; d >= 0; --d) {
        const bool repeats = mask.stride[d] == 0;
        bias.stride[d] = repeats && d == 2 ? 0 : stride;
        if (repeats && d < 2) bias.shape[d] = 1;
        if (!repeats) stride *= mask.shape[d];
    }
    return bias;
}

std::int64_t bias_bytes(const View& bias) {
    std::int64_t numbers = 1;
    for (int d = 0; d < 3; ++d) numbers = std::max(numbers, bias.shape[d] * bias.stride[d]);
    return std::max(numbers, bias.shape[3]) * size_of(bias.dtype);
}

void write_bias(Cuda& on, const ConstView& mask, const View& bias) {
    const ConstView from = without_repeats(mask, mask);
    const View to = without_repeats(mask, bias);
    const auto write = [&]<class From, class To>() {
        elementwise<To, From>(on, Bias<From, To>(), to, from);
    };
    if (mask.dtype == DType::boolean) {
        if (bias.dtype == DType::f16) return write.template operator()<std::uint8_t, Half>();
        return write.template operator()<std::uint8_t, BFloat16>();
    }
    visit_float(mask.dtype, [&]<class From>() {
        if constexpr (!std::is_same_v<From, double>)
            if (mask.dtype == bias.dtype) return write.template operator()<From, From>();
        write.template operator()<From, float>();
    });
}

void clear_rows_without_keys(Cuda& on, const ConstView& mask, bool causal, const View& out,
                             const View& lse) {
    attend::Mask at;
    at.data = mask.data, at.dtype = mask.dtype;
    for (int d = 0; d < 4; ++d) at.stride[d] = mask.stride[d];
    const std::int64_t rows = out.shape[0] * out.shape[1] * out.shape[2];
    start(on, {grid_for(on, rows * kWarp, kThreads), kThreads}, &blank, at, causal, rows,
          out.shape[1], out.shape[2], mask.shape[3], static_cast<int>(out.shape[3]),
          attend::operand<std::uint16_t>(out), attend::lse_operand<float>(lse));
}

void replace_infinity(Cuda& on, const ConstView& lse, const View& to) {
    elementwise<float, float>(on, Finite(), to, lse);
}

void write_random_state(Cuda& on, const Philox& random, std::int64_t* seed, std::int64_t* offset) {
    start(on, {{1}, 1}, &set_random_state, random, seed, offset);
}

}  // namespace axle::kernels::cudnn
