// Cross entropy over many long rows.
//
// The forward pass reads memory once. A team of threads (a block, if there are more than a few
// hundred classes) reads a row. Each thread keeps the largest logit and the sum of exponentials so
// far, and rescales the sum when a larger logit is found; then the sums of all threads are
// combined. The backward pass reads the logits once and writes the gradient once. It recomputes the
// probabilities from the log-sum-exp. A thread reads only the elements that it writes, so that the
// gradient can overwrite the logits. Both passes load packs of 16 bytes, starting at the row's
// first aligned element, because vocabulary sizes are often odd.
#include <cmath>

#include "kernels/cuda/error_reporter.cuh"
#include "kernels/cuda/reduce/exp_sum.cuh"
#include "kernels/cuda/rows.cuh"
#include "kernels/cuda/start.cuh"
#include "kernels/ops/loss.h"

namespace axle::kernels {
namespace {

constexpr int kMaxThreads = 512;
constexpr int kTogether = 128;  // threads per block of teams of at most a warp
constexpr int kAtOnce = 4;      // packs or elements that a thread loads at a time

struct Targets {
    const void* data;
    bool wide;  // true for i64, false for i32
    std::int64_t stride, ignore_index, classes;

    Targets(const ConstView& targets, std::int64_t classes_, std::int64_t ignore_index_)
        : data(targets.data),
          wide(targets.dtype == DType::i64),
          stride(targets.stride[0]),
          ignore_index(ignore_index_),
          classes(classes_) {}
    __device__ std::int64_t operator[](std::int64_t row) const {
        const std::int64_t at = row * stride;
        return wide ? static_cast<const std::int64_t*>(data)[at]
                    : std::int64_t{static_cast<const std::int32_t*>(data)[at]};
    }
    __device__ bool good(std::int64_t target) const { return target >= 0 && target < classes; }
    __device__ bool counts(std::int64_t target) const {
        return target != ignore_index && good(target);
    }
};

// A row split into the elements before the first aligned pack, the packs, and the elements after
// the packs. If a row is not contiguous, all its elements are in the last part.
struct Cut {
    std::int64_t head = 0, packs = 0;

    template <class T>
    __device__ Cut(const T* row, std::int64_t n, std::int64_t stride) {
        if (stride != 1) return;
        const auto over = static_cast<int>(reinterpret_cast<std::uintptr_t>(row) % 16);
        head = over == 0 ? 0 : (16 - over) / static_cast<int>(sizeof(T));
        if (head > n) head = n;
        packs = (n - head) / kPack<T>;
    }
    // Returns the index in the row of the i-th element outside of the packs.
    template <class T>
    __device__ std::int64_t edge(std::int64_t i) const {
        return i < head ? i : i + packs * kPack<T>;
    }
};

template <class T>
struct RowSums {
    ExpSum<Compute<T>> exponentials;
    double sum;  // sum of the logits, computed only if requested

    template <int kN>
    __device__ void add(const Pack<T, kN>& pack, bool with_sum) {
        using C = Compute<T>;
        C x[kN];
        C total = 0;
#pragma unroll
        for (int j = 0; j < kN; ++j) x[j] = static_cast<C>(pack.at[j]);
        exponentials.add(x);
        if (!with_sum) return;
#pragma unroll
        for (int j = 0; j < kN; ++j) total += x[j];
        sum += static_cast<double>(total);
    }
};

struct JoinRowSums {
    template <class T>
    __device__ RowSums<T> operator()(const RowSums<T>& a, const RowSums<T>& b) const {
        return {JoinExpSums()(a.exponentials, b.exponentials), a.sum + b.sum};
    }
};

// Returns the sums of this thread's part of a row.
template <class T>
__device__ RowSums<T> scan(const T* row, std::int64_t n, std::int64_t stride, const Team& team,
                           bool with_sum) {
    constexpr int kN = kPack<T>;
    const Cut cut(row, n, stride);
    const T* const body = row + cut.head;
    const std::int64_t step = team.size;
    RowSums<T> sums = {ExpSum<Compute<T>>::none(), 0};
    std::int64_t k = team.rank;
#pragma unroll 1
    for (; k + (kAtOnce - 1) * step < cut.packs; k += kAtOnce * step) {
        Pack<T> packs[kAtOnce];
#pragma unroll
        for (int q = 0; q < kAtOnce; ++q) packs[q] = load_pack(body + (k + q * step) * kN);
#pragma unroll
        for (int q = 0; q < kAtOnce; ++q) sums.add(packs[q], with_sum);
    }
#pragma unroll 1
    for (; k < cut.packs; k += step) sums.add(load_pack(body + k * kN), with_sum);
    const std::int64_t edges = n - cut.packs * kN;
#pragma unroll 1
    for (k = team.rank; k + (kAtOnce - 1) * step < edges; k += kAtOnce * step) {
        Pack<T, kAtOnce> some;
#pragma unroll
        for (int q = 0; q < kAtOnce; ++q) some.at[q] = row[cut.edge<T>(k + q * step) * stride];
        sums.add(some, with_sum);
    }
#pragma unroll 1
    for (; k < edges; k += step) sums.add(Pack<T, 1>{{row[cut.edge<T>(k) * stride]}}, with_sum);
    return sums;
}

struct ForwardOperands {
    const void* logits;
    std::int64_t rows, row_stride, stride;
    Targets targets;
    double smoothing;
    void *loss, *lse;
    std::int64_t loss_stride, lse_stride;
};

template <class T>
__global__ void __launch_bounds__(kMaxThreads) forward(ForwardOperands o, int team_size) {
    using C = Compute<T>;
    const Team team(team_size);
    const std::int64_t row = thread_in_grid() / team_size;
    const bool mine = row < o.rows;  // other threads only take part in the sums
    const std::int64_t classes = o.targets.classes;
    const T* const logits = static_cast<const T*>(o.logits) + (mine ? row : 0) * o.row_stride;
    const RowSums<T> sums = team.combine(
        scan(logits, mine ? classes : 0, o.stride, team, o.smoothing > 0), JoinRowSums());
    if (!mine || team.rank != 0) return;
    const double lse = static_cast<double>(sums.exponentials.top) + log(sums.exponentials.sum);
    const std::int64_t target = o.targets[row];
    double loss = 0;
    if (o.targets.counts(target)) {
        const auto hit = static_cast<double>(static_cast<C>(logits[target * o.stride]));
        loss = (1 - o.smoothing) * (lse - hit);
        if (o.smoothing > 0) loss += o.smoothing * (lse - sums.sum / static_cast<double>(classes));
    }
    static_cast<C*>(o.loss)[row * o.loss_stride] = static_cast<C>(loss);
    static_cast<C*>(o.lse)[row * o.lse_stride] = static_cast<C>(lse);
}

struct BackwardOperands {
    const void* logits;
    std::int64_t rows, row_stride, stride;
    Targets targets;
    double smoothing;
    const void *lse, *dloss;
    std::int64_t lse_stride, dloss_stride;
    DType dloss_dtype;
    void* dlogits;
    std::int64_t to_row_stride, to_stride;
    std::int64_t part;  // number of elements of a row per block, a multiple of all pack sizes
};

// The function that computes the gradient of a row.
template <class C>
struct RowGradient {
    C lse, shift, factor, hit;
    std::int64_t target;  // -1 if the row is ignored or its target is invalid

    __device__ RowGradient(const BackwardOperands& o, std::int64_t row) {
        target = o.targets[row];
        lse = static_cast<const C*>(o.lse)[row * o.lse_stride];
        factor = load_as<C>(o.dloss, o.dloss_dtype, row * o.dloss_stride);
        shift = static_cast<C>(o.smoothing) / static_cast<C>(o.targets.classes);
        hit = (C(1) - static_cast<C>(o.smoothing)) * factor;
        if (!o.targets.counts(target)) target = -1;
    }
    // Returns the gradient of classes [first, first + kN).
    template <class To, class T, int kN>
    __device__ Pack<To, kN> operator()(const Pack<T, kN>& x, std::int64_t first) const {
        Pack<To, kN> y;
        const std::int64_t at = target - first;
#pragma unroll
        for (int j = 0; j < kN; ++j) {
            C value = (exp(static_cast<C>(x.at[j]) - lse) - shift) * factor;
            if (j == at) value -= hit;
            y.at[j] = convert<To>(target < 0 ? C(0) : value);
        }
        return y;
    }
};

template <class T, class To>
__global__ void __launch_bounds__(kMaxThreads) backward(BackwardOperands o, int team_size) {
    using C = Compute<T>;
    constexpr int kN = kPack<T>;
    const Team team(team_size);
    const std::int64_t row = thread_in_grid() / team_size;
    if (row >= o.rows) return;
    const RowGradient<C> gradient(o, row);
    const std::int64_t begin = blockIdx.y * o.part;
    const std::int64_t left = o.targets.classes - begin, n = left < o.part ? left : o.part;
    const T* const x = static_cast<const T*>(o.logits) + row * o.row_stride + begin * o.stride;
    To* const y = static_cast<To*>(o.dlogits) + row * o.to_row_stride + begin * o.to_stride;

    Cut cut(x, n, o.stride);
    const bool packs_out =
        o.to_stride == 1 &&
        reinterpret_cast<std::uintptr_t>(y + cut.head) % sizeof(Pack<To, kN>) == 0;
    if (!packs_out) cut.head = 0, cut.packs = 0;
    const std::int64_t step = team.size;
    std::int64_t k = team.rank;
#pragma unroll 1
    for (; k + step < cut.packs; k += 2 * step) {
        const std::int64_t i = cut.head + k * kN, next = i + step * kN;
        const Pack<T> a = load_pack(x + i), b = load_pack(x + next);
        store_pack(y + i, gradient.template operator()<To>(a, begin + i));
        store_pack(y + next, gradient.template operator()<To>(b, begin + next));
    }
    if (k < cut.packs) {
        const std::int64_t i = cut.head + k * kN;
        store_pack(y + i, gradient.template operator()<To>(load_pack(x + i), begin + i));
    }
    const std::int64_t edges = n - cut.packs * kN;
#pragma unroll 4
    for (k = team.rank; k < edges; k += step) {
        const std::int64_t i = cut.edge<T>(k);
        const Pack<T, 1> one = {{x[i * o.stride]}};
        y[i * o.to_stride] = gradient.template operator()<To>(one, begin + i).at[0];
    }
}

__global__ void check(ErrorReporter report, Targets targets, std::int64_t rows) {
    for (std::int64_t row = thread_in_grid(); row < rows; row += threads_in_grid()) {
        const std::int64_t target = targets[row];
        if (target != targets.ignore_index && !targets.good(target))
            report(row, target, targets.classes);
    }
}

// Calls f<T, To>() with the types of the logits and of their gradient. For f32 logits, the gradient
// can also be f16 or bf16.
template <class F>
void visit_gradient(DType from, DType to, F&& f) {
    if (from == DType::f32 && to == DType::f16) return f.template operator()<float, Half>();
    if (from == DType::f32 && to == DType::bf16) return f.template operator()<float, BFloat16>();
    assert(from == to);
    visit_float(from, [&]<class T>() { f.template operator()<T, T>(); });
}

}  // namespace

void check_targets(Cuda& on, ConstView targets, std::int64_t classes, std::int64_t ignore_index) {
    const std::int64_t rows = targets.shape[0];
    if (rows == 0) return;
    start(on, {grid_for(on, rows, 256), 256}, &check,
          ErrorReporter(on, DeviceErrorRecord::bad_target), Targets(targets, classes, ignore_index),
          rows);
}

void cross_entropy(Cuda& on, ConstView logits, ConstView targets, const CrossEntropyParams& params,
                   View loss, View lse) {
    const std::int64_t rows = logits.shape[0], classes = logits.shape[1];
    if (rows == 0) return;
    const ForwardOperands o = {logits.data,
                               rows,
                               logits.stride[0],
                               logits.stride[1],
                               Targets(targets, classes, params.ignore_index),
                               params.label_smoothing,
                               loss.data,
                               lse.data,
                               loss.stride[0],
                               lse.stride[0]};
    visit_float(logits.dtype, [&]<class T>() {
        const TeamLayout layout(team_for(classes / kPack<T> + 1, kAtOnce, kMaxThreads), kTogether);
        start(on, {{layout.blocks(rows)}, layout.threads}, &forward<T>, o, layout.team);
    });
}

void cross_entropy_backward(Cuda& on, ConstView logits, ConstView targets, ConstView lse,
                            ConstView dloss, const CrossEntropyParams& params, View dlogits) {
    const std::int64_t rows = logits.shape[0], classes = logits.shape[1];
    if (rows == 0 || classes == 0) return;
    constexpr std::int64_t kMaxParts = 16384;
    std::int64_t part = 16384;
    while (part * kMaxParts < classes) part *= 2;
    const BackwardOperands o = {logits.data,
                                rows,
                                logits.stride[0],
                                logits.stride[1],
                                Targets(targets, classes, params.ignore_index),
                                params.label_smoothing,
                                lse.data,
                                dloss.data,
                                lse.stride[0],
                                dloss.stride[0],
                                dloss.dtype,
                                dlogits.data,
                                dlogits.stride[0],
                                dlogits.stride[1],
                                part};
    visit_gradient(logits.dtype, dlogits.dtype, [&]<class T, class To>() {
        const TeamLayout layout(team_for(std::min(classes, part) / kPack<T> + 1, 2, kMaxThreads),
                                kTogether);
        start(on, {{layout.blocks(rows), (classes + part - 1) / part}, layout.threads},
              &backward<T, To>, o, layout.team);
    });
}

}  // namespace axle::kernels
