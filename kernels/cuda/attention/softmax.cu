// Softmax and log softmax along rows, and their backward passes. A team of up to 512 threads holds
// a row of up to 8192 floats (16384 for 16-bit dtypes, 4096 for f64) in registers. It first
// computes the row's sums and then the result. Memory is read once and written once. Longer rows
// are read a second time, possibly from L2.
//
// If the rows are along a dimension that is not the last, elements of a row are strided but
// neighboring rows are contiguous. If at least 8 rows are contiguous, a block processes 32 adjacent
// rows. Each lane of a warp reads elements of one of these rows, and every warp of the block reads
// a part of each row. These rows are also read twice.
#include <cmath>

#include "kernels/cuda/reduce/exp_sum.cuh"
#include "kernels/cuda/rows.cuh"
#include "kernels/cuda/start.cuh"
#include "kernels/ops/softmax.h"

namespace axle::kernels {
namespace {

constexpr int kPacks = 4;      // packs of a short row per thread
constexpr int kLongPacks = 2;  // packs of a long row per thread and step
constexpr int kMaxThreads = 512;
constexpr int kSlices = 8;  // warps that share 32 adjacent rows

// All passes have the same structure. add() sums over the elements of a row. It reads them from the
// first input a and, in a backward pass, from the second input b. Then result() computes each
// element.

template <class C>
struct Forward {
    static constexpr bool kBackward = false;
    using Sum = ExpSum<C>;
    using Join = JoinExpSums;
    __device__ static Sum none() { return Sum::none(); }
    // Returns the value of the elements after the end of a row.
    __device__ static C nothing() { return -std::numeric_limits<C>::infinity(); }
    template <int kCount>
    __device__ static void add(Sum& sum, const C (&a)[kCount], const C (&)[kCount]) {
        sum.add(a);
    }
};

template <class C>
struct Softmax : Forward<C> {
    C top, scale;
    __device__ explicit Softmax(const ExpSum<C>& of)
        : top(of.top), scale(static_cast<C>(1 / of.sum)) {}
    __device__ C result(C x, C) const { return exp(x - top) * scale; }
};

template <class C>
struct LogSoftmax : Forward<C> {
    C top, log_sum;
    __device__ explicit LogSoftmax(const ExpSum<C>& of)
        : top(of.top), log_sum(static_cast<C>(log(of.sum))) {}
    __device__ C result(C x, C) const { return x - top - log_sum; }
};

template <class C>
struct Backward {
    static constexpr bool kBackward = true;
    using Sum = double;
    using Join = SumOf;
    __device__ static Sum none() { return 0; }
    __device__ static C nothing() { return 0; }
};

template <class C>
struct SoftmaxBackward : Backward<C> {
    C dot;
    __device__ explicit SoftmaxBackward(double of) : dot(static_cast<C>(of)) {}
    template <int kCount>
    __device__ static void add(double& sum, const C (&dy)[kCount], const C (&y)[kCount]) {
        C total = 0;
#pragma unroll
        for (int i = 0; i < kCount; ++i) total += dy[i] * y[i];
        sum += static_cast<double>(total);
    }
    __device__ C result(C dy, C y) const { return y * (dy - dot); }
};

template <class C>
struct LogSoftmaxBackward : Backward<C> {
    C total;
    __device__ explicit LogSoftmaxBackward(double of) : total(static_cast<C>(of)) {}
    template <int kCount>
    __device__ static void add(double& sum, const C (&dy)[kCount], const C (&)[kCount]) {
        C some = 0;
#pragma unroll
        for (int i = 0; i < kCount; ++i) some += dy[i];
        sum += static_cast<double>(some);
    }
    __device__ C result(C dy, C y) const { return dy - exp(y) * total; }
};

// The inputs and the output of a pass. In a forward pass, a and b are the same view.
struct Operands {
    DeviceRows<3> rows;
    const void *a, *b;
    void* out;
    std::int64_t n, stride[3];
    bool dense;

    template <class T>
    __device__ const T* row_a(const DeviceRows<3>::Place& at) const {
        return static_cast<const T*>(a) + at.at[0];
    }
    template <class T>
    __device__ const T* row_b(const DeviceRows<3>::Place& at) const {
        return static_cast<const T*>(b) + at.at[1];
    }
    template <class T>
    __device__ T* row_out(const DeviceRows<3>::Place& at) const {
        return static_cast<T*>(out) + at.at[2];
    }
};

// The packs of a row that a thread holds at one time: kCount packs of a and, in a backward pass, of
// b.
template <class T, class Op, int kCount>
struct Held {
    using C = Compute<T>;
    static constexpr int kN = kPack<T>;
    Pack<T> a[kCount], b[Op::kBackward ? kCount : 1];

    // Loads this thread's packs of the elements [first, first + n) of a row.
    __device__ void load(const Operands& o, const DeviceRows<3>::Place& at, std::int64_t first,
                         int n, const Team& team) {
        const T nothing = convert<T>(Op::nothing());
        load_row(a, o.row_a<T>(at) + first * o.stride[0], o.stride[0], o.dense, n, team, nothing);
        if constexpr (Op::kBackward)
            load_row(b, o.row_b<T>(at) + first * o.stride[1], o.stride[1], o.dense, n, team,
                     nothing);
    }
    __device__ C second(int p, int j) const {
        if constexpr (Op::kBackward) return static_cast<C>(b[p].at[j]);
        return C(0);
    }
    __device__ void add_to(typename Op::Sum& sum) const {
        C of_a[kCount * kN], of_b[kCount * kN];
#pragma unroll
        for (int i = 0; i < kCount * kN; ++i) {
            of_a[i] = static_cast<C>(a[i / kN].at[i % kN]);
            of_b[i] = second(i / kN, i % kN);
        }
        Op::add(sum, of_a, of_b);
    }
    __device__ void store(const Op& op, const Operands& o, const DeviceRows<3>::Place& at,
                          std::int64_t first, int n, const Team& team) const {
        T* const out = o.row_out<T>(at) + first * o.stride[2];
#pragma unroll
        for (int p = 0; p < kCount; ++p) {
            Pack<T> result;
#pragma unroll
            for (int j = 0; j < kN; ++j)
                result.at[j] = convert<T>(op.result(static_cast<C>(a[p].at[j]), second(p, j)));
            store_part(result, out, o.stride[2], o.dense, (p * team.size + team.rank) * kN, n);
        }
    }
};

template <class T, class Op>
__global__ void __launch_bounds__(kMaxThreads) short_rows(Operands o, int team_size) {
    const Team team(team_size);
    const int teams = static_cast<int>(blockDim.x) / team_size;
    const std::int64_t row =
        static_cast<std::int64_t>(blockIdx.x) * teams + static_cast<int>(threadIdx.x) / team_size;
    const bool mine = row < o.rows.count;  // other threads only take part in the sums
    const auto place = o.rows.place(mine ? row : 0);
    const int n = mine ? static_cast<int>(o.n) : 0;
    Held<T, Op, kPacks> held;
    held.load(o, place, 0, n, team);
    auto sum = Op::none();
    held.add_to(sum);
    held.store(Op(team.combine(sum, typename Op::Join())), o, place, 0, n, team);
}

template <class T, class Op>
__global__ void __launch_bounds__(kMaxThreads) long_rows(Operands o) {
    const Team team(kMaxThreads);
    const auto place = o.rows.place(blockIdx.x);
    constexpr std::int64_t kStep = std::int64_t{kMaxThreads} * kLongPacks * kPack<T>;
    Held<T, Op, kLongPacks> held;
    auto sum = Op::none();
#pragma unroll 1
    for (std::int64_t i = 0; i < o.n; i += kStep) {
        held.load(o, place, i, static_cast<int>(o.n - i < kStep ? o.n - i : kStep), team);
        held.add_to(sum);
    }
    const Op op(team.combine(sum, typename Op::Join()));
#pragma unroll 1
    for (std::int64_t i = 0; i < o.n; i += kStep) {
        const int n = static_cast<int>(o.n - i < kStep ? o.n - i : kStep);
        held.load(o, place, i, n, team);
        held.store(op, o, place, i, n, team);
    }
}

template <class T, class Op>
__global__ void __launch_bounds__(kWarp* kSlices) side_by_side(Operands o) {
    using C = Compute<T>;
    using Sum = typename Op::Sum;
    constexpr int kAtOnce = sizeof(C) == 8 ? 2 : 4;
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    const int slice = static_cast<int>(threadIdx.x) / kWarp;
    const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * kWarp + lane;
    const auto place = o.rows.place(row < o.rows.count ? row : 0);
    const std::int64_t n = row < o.rows.count ? o.n : 0;
    const T* a = o.row_a<T>(place);
    const T* b = o.row_b<T>(place);
    T* out = o.row_out<T>(place);

    Sum sum = Op::none();
    for (std::int64_t i = slice; i < n; i += kSlices * kAtOnce) {
        C of_a[kAtOnce], of_b[kAtOnce];
#pragma unroll
        for (int k = 0; k < kAtOnce; ++k) {
            const std::int64_t at = i + k * kSlices;
            of_a[k] = at < n ? static_cast<C>(a[at * o.stride[0]]) : Op::nothing();
            if constexpr (Op::kBackward)
                of_b[k] = at < n ? static_cast<C>(b[at * o.stride[1]]) : C(0);
        }
        Op::add(sum, of_a, of_b);
    }
    __shared__ Sum parts[kSlices][kWarp];
    parts[slice][lane] = sum;
    __syncthreads();
    sum = parts[0][lane];
    for (int s = 1; s < kSlices; ++s) sum = typename Op::Join()(sum, parts[s][lane]);
    const Op op(sum);
#pragma unroll 4
    for (std::int64_t i = slice; i < n; i += kSlices) {
        const C second = Op::kBackward ? static_cast<C>(b[i * o.stride[1]]) : C(0);
        out[i * o.stride[2]] = convert<T>(op.result(static_cast<C>(a[i * o.stride[0]]), second));
    }
}

template <template <class> class Op>
void run(Cuda& on, const ConstView& a, const ConstView& b, const View& out) {
    if (out.numel() == 0) return;
    Operands o = {DeviceRows<3>({a, b, out}),
                  a.data,
                  b.data,
                  out.data,
                  out.back(1),
                  {a.back_stride(1), b.back_stride(1), out.back_stride(1)},
                  false};
    const bool unit = o.stride[0] == 1 && o.stride[1] == 1 && o.stride[2] == 1;
    const int last = o.rows.ndim - 1;
    const bool neighbors =
        o.n > 1 && o.stride[0] != 1 && o.rows.stride[0][last] == 1 && o.rows.size[last] >= 8;
    visit_float(out.dtype, [&]<class T>() {
        using ThisOp = Op<Compute<T>>;
        o.dense = unit && o.n % kPack<T> == 0 && o.rows.packs_in<T>(0, a.data) &&
                  o.rows.packs_in<T>(1, b.data) && o.rows.packs_in<T>(2, out.data);
        if (neighbors) {
            start(on, {{(o.rows.count + kWarp - 1) / kWarp}, kWarp * kSlices},
                  &side_by_side<T, ThisOp>, o);
        } else if (o.n <= std::int64_t{kMaxThreads} * kPacks * kPack<T>) {
            const std::int64_t units = (o.n + kPack<T> - 1) / kPack<T>;
            const TeamLayout layout(team_for(units, kPacks, kMaxThreads), 128);
            start(on, {{layout.blocks(o.rows.count)}, layout.threads}, &short_rows<T, ThisOp>, o,
                  layout.team);
        } else {
            start(on, {{o.rows.count}, kMaxThreads}, &long_rows<T, ThisOp>, o);
        }
    });
}

}  // namespace

void softmax(Cuda& on, ConstView x, View y) { run<Softmax>(on, x, x, y); }

void log_softmax(Cuda& on, ConstView x, View y) { run<LogSoftmax>(on, x, x, y); }

void softmax_backward(Cuda& on, ConstView dy, ConstView y, View dx) {
    run<SoftmaxBackward>(on, dy, y, dx);
}

void log_softmax_backward(Cuda& on, ConstView dy, ConstView y, View dx) {
    run<LogSoftmaxBackward>(on, dy, y, dx);
}

}  // namespace axle::kernels
