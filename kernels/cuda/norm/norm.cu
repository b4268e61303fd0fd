// Layer norm and RMS norm. Rows of up to 8192 floats are held in the registers of a team of up to
// 512 threads. Memory is read once and written once. The sum of the elements and the sum of their
// squared deviations from the mean are computed from registers. Longer rows are read again for each
// sum and for the result, possibly from L2. An RMS norm is computed as a layer norm with mean 0.
#include <cmath>

#include "kernels/cuda/norm/norm.cuh"
#include "kernels/cuda/start.cuh"
#include "kernels/ops/norm.h"

namespace axle::kernels {
namespace {

constexpr int kPacks = 4;  // packs of a row that a thread holds at a time
constexpr int kMaxThreads = 512;

struct Operands {
    DeviceRows<2> rows;
    const void* x;
    void* y;
    std::int64_t n, x_stride, y_stride;
    bool dense;
    NormVector weight, bias;
    double eps;
    void *mean, *rstd;  // mean is null for an RMS norm
};

// The packs of a row of n elements that a thread holds.
template <class T>
struct Held {
    using C = Compute<T>;
    static constexpr int kN = kPack<T>;
    Pack<T> x[kPacks];

    __device__ static int start(int p, const Team& team) {
        return (p * team.size + team.rank) * kN;
    }
    __device__ double sum() const {
        C total = 0;
#pragma unroll
        for (int p = 0; p < kPacks; ++p)
#pragma unroll
            for (int j = 0; j < kN; ++j) total += static_cast<C>(x[p].at[j]);
        return static_cast<double>(total);
    }
    // Returns the sum of the deviations from the centre, and the sum of their squares.
    __device__ PairOf<double> deviations(C centre, int n, const Team& team) const {
        C sum = 0, square = 0;
#pragma unroll
        for (int p = 0; p < kPacks; ++p)
#pragma unroll
            for (int j = 0; j < kN; ++j) {
                const C d = start(p, team) + j < n ? static_cast<C>(x[p].at[j]) - centre : C(0);
                sum += d, square += d * d;
            }
        return {static_cast<double>(sum), static_cast<double>(square)};
    }
    __device__ void store(const Operands& o, T* y, std::int64_t first, int n, C mean, C rstd,
                          const Team& team) const {
#pragma unroll
        for (int p = 0; p < kPacks; ++p) {
            const int i = start(p, team);
            if (i >= n) continue;
            C w[kN], b[kN];
            o.weight.load(first + i, o.n, C(1), w);
            o.bias.load(first + i, o.n, C(0), b);
            Pack<T> result;
#pragma unroll
            for (int j = 0; j < kN; ++j) {
                const C h = (static_cast<C>(x[p].at[j]) - mean) * rstd;
                result.at[j] = convert<T>(h * w[j] + b[j]);
            }
            store_part(result, y, o.y_stride, o.dense, i, n);
        }
    }
};

// The mean and the reciprocal standard deviation of a row. In layer norm, `centre` approximates the
// mean, and the sum of the deviations corrects its rounding error. In RMS norm, `centre` is 0 and
// rstd is the reciprocal root mean square.
template <class C>
struct Moments {
    C mean, rstd;
    __device__ Moments(const Operands& o, C centre, const PairOf<double>& deviations) {
        const auto n = static_cast<double>(o.n);
        const double off = o.mean == nullptr ? 0 : deviations.a / n;
        const double variance = deviations.b / n - off * off;
        mean = static_cast<C>(static_cast<double>(centre) + off);
        rstd = static_cast<C>(1 / sqrt((variance < 0 ? 0 : variance) + o.eps));
    }
    __device__ void keep(const Operands& o, std::int64_t row) const {
        if (o.mean != nullptr) static_cast<C*>(o.mean)[row] = mean;
        static_cast<C*>(o.rstd)[row] = rstd;
    }
};

template <class T>
__global__ void __launch_bounds__(kMaxThreads) short_rows(Operands o, int team_size) {
    using C = Compute<T>;
    const Team team(team_size);
    const std::int64_t row = thread_in_grid() / team_size;
    const bool mine = row < o.rows.count;  // other threads only take part in the sums
    const auto place = o.rows.place(mine ? row : 0);
    const int n = mine ? static_cast<int>(o.n) : 0;
    Held<T> held;
    load_row(held.x, static_cast<const T*>(o.x) + place.at[0], o.x_stride, o.dense, n, team,
             convert<T>(C(0)));
    C centre = 0;
    if (o.mean != nullptr) centre = static_cast<C>(team.sum(held.sum()) / static_cast<double>(o.n));
    const Moments<C> moments(o, centre, team.sum(held.deviations(centre, n, team)));
    if (mine && team.rank == 0) moments.keep(o, row);
    held.store(o, static_cast<T*>(o.y) + place.at[1], 0, n, moments.mean, moments.rstd, team);
}

template <class T>
__global__ void __launch_bounds__(kMaxThreads) long_rows(Operands o) {
    using C = Compute<T>;
    const Team team(kMaxThreads);
    const std::int64_t row = blockIdx.x;
    const auto place = o.rows.place(row);
    const T* const x = static_cast<const T*>(o.x) + place.at[0];
    T* const y = static_cast<T*>(o.y) + place.at[1];
    constexpr std::int64_t kStep = std::int64_t{kMaxThreads} * kPacks * kPack<T>;
    Held<T> held;
    const auto load = [&](std::int64_t first) {
        const int n = static_cast<int>(o.n - first < kStep ? o.n - first : kStep);
        load_row(held.x, x + first * o.x_stride, o.x_stride, o.dense, n, team, convert<T>(C(0)));
        return n;
    };
    C centre = 0;
    if (o.mean != nullptr) {
        double sum = 0;
#pragma unroll 1
        for (std::int64_t i = 0; i < o.n; i += kStep) load(i), sum += held.sum();
        centre = static_cast<C>(team.sum(sum) / static_cast<double>(o.n));
    }
    PairOf<double> deviations = {0, 0};
#pragma unroll 1
    for (std::int64_t i = 0; i < o.n; i += kStep) {
        const int n = load(i);
        deviations = deviations + held.deviations(centre, n, team);
    }
    const Moments<C> moments(o, centre, team.sum(deviations));
    if (team.rank == 0) moments.keep(o, row);
#pragma unroll 1
    for (std::int64_t i = 0; i < o.n; i += kStep) {
        const int n = load(i);
        held.store(o, y + i * o.y_stride, i, n, moments.mean, moments.rstd, team);
    }
}

}  // namespace

void layer_norm(Cuda& on, ConstView x, ConstView weight, ConstView bias, double eps, View y,
                View mean, View rstd) {
    if (x.numel() == 0) return;
    const DType dtype = norm_dtype({x, y});
    DeviceScratch scratch(on);
    const ConstView from = as_dtype(on, scratch, x, dtype);
    const View to =
        y.dtype == dtype ? y : dense_like(y, scratch.take<char>(y.numel() * size_of(dtype)), dtype);
    Operands o = {DeviceRows<2>({from, to}),
                  from.data,
                  to.data,
                  x.back(1),
                  from.back_stride(1),
                  to.back_stride(1),
                  false,
                  NormVector(weight),
                  NormVector(bias),
                  eps,
                  mean.data,
                  rstd.data};
    visit_float(dtype, [&]<class T>() {
        o.dense = o.x_stride == 1 && o.y_stride == 1 && o.n % kPack<T> == 0 &&
                  o.rows.packs_in<T>(0, o.x) && o.rows.packs_in<T>(1, o.y);
        if (o.n <= std::int64_t{kMaxThreads} * kPacks * kPack<T>) {
            const std::int64_t units = (o.n + kPack<T> - 1) / kPack<T>;
            const TeamLayout layout(team_for(units, kPacks, kMaxThreads), 128);
            start(on, {{layout.blocks(o.rows.count)}, layout.threads}, &short_rows<T>, o,
                  layout.team);
        } else {
            start(on, {{o.rows.count}, kMaxThreads}, &long_rows<T>, o);
        }
    });
    if (y.dtype != dtype) copy(on, to, y);
}

void rms_norm(Cuda& on, ConstView x, ConstView weight, double eps, View y, View rstd) {
    layer_norm(on, x, weight, {}, eps, y, {}, rstd);
}

}  // namespace axle::kernels
