// The backward pass of layer norm and RMS norm.
//
// Rows of up to 8192 elements (4096 for f64) fit in the registers of a team of up to 512 threads.
// For these rows, dy and x are read once and dx is written once. A block processes many rows, and
// each thread accumulates the sums of its columns for dweight and dbias in registers. At the end
// the block writes its sums, and a second kernel adds the sums of all blocks in a fixed order.
// There are at most as many blocks as the GPU runs concurrently, so the order of summation depends
// on the shape and the GPU. Longer rows use two kernels, one along rows for dx and one along
// columns for the sums, and read memory up to three times.
#include "kernels/cuda/norm/norm.cuh"
#include "kernels/cuda/start.cuh"
#include "kernels/ops/norm.h"

namespace axle::kernels {
namespace {

constexpr int kMaxThreads = 512;
constexpr int kTogether = 256;  // threads per block for teams of at most a warp

// The number of packs of a row that a thread holds. Together they have 16 elements, or 8 for f64.
template <class T>
inline constexpr int kPacks = sizeof(T) == 2 ? 2 : 4;
template <class T>
inline constexpr int kHeld = kPacks<T> * kPack<T>;

struct Operands {
    DeviceRows<3> rows;  // rows of dy, x and dx
    const void *dy, *x;
    void* dx;  // can be null
    std::int64_t n, stride[3];
    bool dense;
    NormVector weight;
    const void *mean, *rstd;  // mean is null for an RMS norm
    void* sums;               // shape [blocks, 2, n], for dweight and dbias; can be null
};

// The part of a row that a thread holds. kernels/ops/norm.h defines g and h.
template <class T>
struct Held {
    using C = Compute<T>;
    static constexpr int kN = kPack<T>, kCount = kPacks<T>;
    Pack<T> dy[kCount], x[kCount];
    C mean, rstd;

    __device__ static int start(int p, const Team& team) {
        return (p * team.size + team.rank) * kN;
    }
    __device__ void load(const Operands& o, const DeviceRows<3>::Place& at, std::int64_t first,
                         int n, const Team& team) {
        const T zero = convert<T>(C(0));
        load_row(dy, static_cast<const T*>(o.dy) + at.at[0] + first * o.stride[0], o.stride[0],
                 o.dense, n, team, zero);
        load_row(x, static_cast<const T*>(o.x) + at.at[1] + first * o.stride[1], o.stride[1],
                 o.dense, n, team, zero);
    }
    __device__ void load_moments(const Operands& o, std::int64_t row, bool mine) {
        mean = mine && o.mean != nullptr ? static_cast<const C*>(o.mean)[row] : C(0);
        rstd = mine ? static_cast<const C*>(o.rstd)[row] : C(0);
    }
    __device__ C dy_at(int p, int j) const { return static_cast<C>(dy[p].at[j]); }
    // Returns h of an element. After the end of the row, dy is 0, so the product of dy and h is 0.
    __device__ C h_at(int p, int j) const { return (static_cast<C>(x[p].at[j]) - mean) * rstd; }
    // Returns the sums of g and of g h over this thread's part of the row.
    __device__ PairOf<C> sums(const Operands& o, std::int64_t first, int n,
                              const Team& team) const {
        PairOf<C> sum = {0, 0};
#pragma unroll
        for (int p = 0; p < kCount; ++p) {
            C w[kN];
            if (start(p, team) >= n) continue;
            o.weight.load(first + start(p, team), o.n, C(1), w);
#pragma unroll
            for (int j = 0; j < kN; ++j) {
                const C g = dy_at(p, j) * w[j];
                sum.a += g, sum.b += g * h_at(p, j);
            }
        }
        return sum;
    }
    __device__ void store(const Operands& o, const DeviceRows<3>::Place& at, std::int64_t first,
                          int n, const PairOf<C>& sum, const Team& team) const {
        T* const dx = static_cast<T*>(o.dx) + at.at[2] + first * o.stride[2];
        const C mean_g = o.mean == nullptr ? C(0) : sum.a / static_cast<C>(o.n);
        const C mean_gh = sum.b / static_cast<C>(o.n);
#pragma unroll
        for (int p = 0; p < kCount; ++p) {
            const int i = start(p, team);
            if (i >= n) continue;
            C w[kN];
            o.weight.load(first + i, o.n, C(1), w);
            Pack<T> result;
#pragma unroll
            for (int j = 0; j < kN; ++j)
                result.at[j] =
                    convert<T>(rstd * ((dy_at(p, j) * w[j] - mean_g) - h_at(p, j) * mean_gh));
            store_part(result, dx, o.stride[2], o.dense, i, n);
        }
    }
};

// Adds the sums of a block's teams for each column, and writes the totals to `out` [2, n].
template <class C, int kN, int kCount>
__device__ void store_sums(const C (&weight)[kN], const C (&bias)[kN], const Team& team, int n,
                           C* out) {
    constexpr int kPackSize = kN / kCount;
    if (team.size > kWarp) {
#pragma unroll
        for (int k = 0; k < kN; ++k) {
            const int i = (k / kPackSize * team.size + team.rank) * kPackSize + k % kPackSize;
            if (i < n) out[i] = weight[k], out[n + i] = bias[k];
        }
        return;
    }
    __shared__ C total[2 * kN * kWarp];
    const int warp = static_cast<int>(threadIdx.x) / kWarp;
    // True for the threads of the first team in each warp.
    const bool first = static_cast<int>(threadIdx.x) % kWarp < team.size;
#pragma unroll 1
    for (int turn = 0; turn < kTogether / kWarp; ++turn) {
        if (warp == turn) {
#pragma unroll
            for (int k = 0; k < 2 * kN; ++k) {
                C sum = k < kN ? weight[k % kN] : bias[k % kN];
                for (int offset = kWarp / 2; offset >= team.size; offset /= 2)
                    sum += __shfl_xor_sync(kAllLanes, sum, offset);
                C* const at = total + k * kWarp + team.rank;
                if (first) *at = turn == 0 ? sum : *at + sum;
            }
        }
        __syncthreads();
    }
    if (warp != 0 || !first) return;
    for (int k = 0; k < 2 * kN; ++k) {
        const int q = k % kN;
        const int i = (q / kPackSize * team.size + team.rank) * kPackSize + q % kPackSize;
        if (i < n) out[(k < kN ? 0 : n) + i] = total[k * kWarp + team.rank];
    }
}

template <class T>
__global__ void __launch_bounds__(kMaxThreads) short_rows(Operands o, int team_size) {
    using C = Compute<T>;
    constexpr int kCount = kHeld<T>;
    const Team team(team_size);
    const int teams = static_cast<int>(blockDim.x) / team_size;
    const std::int64_t own = static_cast<int>(threadIdx.x) / team_size;
    const int columns = static_cast<int>(o.n);
    C weight[kCount] = {}, bias[kCount] = {};
#pragma unroll 1
    for (std::int64_t group = blockIdx.x * std::int64_t{teams}; group < o.rows.count;
         group += gridDim.x * std::int64_t{teams}) {
        const bool mine = group + own < o.rows.count;  // other threads only take part in the sums
        const std::int64_t row = mine ? group + own : 0;
        const auto place = o.rows.place(row);
        const int n = mine ? columns : 0;
        Held<T> held;
        held.load(o, place, 0, n, team);
        held.load_moments(o, row, mine);
#pragma unroll
        for (int k = 0; k < kCount; ++k) {
            const int p = k / kPack<T>, j = k % kPack<T>;
            const C dy = held.dy_at(p, j);
            weight[k] += dy * held.h_at(p, j), bias[k] += dy;
        }
        if (o.dx == nullptr) continue;
        held.store(o, place, 0, n, team.sum(held.sums(o, 0, n, team)), team);
    }
    if (o.sums == nullptr) return;
    store_sums<C, kCount, kPacks<T>>(
        weight, bias, team, columns,
        static_cast<C*>(o.sums) + blockIdx.x * std::int64_t{2} * columns);
}

template <class T>
__global__ void __launch_bounds__(kMaxThreads) long_rows(Operands o) {
    using C = Compute<T>;
    const Team team(kMaxThreads);
    const auto place = o.rows.place(blockIdx.x);
    constexpr std::int64_t kStep = std::int64_t{kMaxThreads} * kHeld<T>;
    Held<T> held;
    held.load_moments(o, blockIdx.x, true);
    PairOf<C> sum = {0, 0};
#pragma unroll 1
    for (std::int64_t i = 0; i < o.n; i += kStep) {
        const int n = static_cast<int>(o.n - i < kStep ? o.n - i : kStep);
        held.load(o, place, i, n, team);
        sum = sum + held.sums(o, i, n, team);
    }
    sum = team.sum(sum);
#pragma unroll 1
    for (std::int64_t i = 0; i < o.n; i += kStep) {
        const int n = static_cast<int>(o.n - i < kStep ? o.n - i : kStep);
        held.load(o, place, i, n, team);
        held.store(o, place, i, n, sum, team);
    }
}

// Sums columns. Each thread processes one column, and each blockIdx.y processes a part of the rows.
template <class T>
__global__ void __launch_bounds__(kTogether) long_columns(Operands o, std::int64_t height) {
    using C = Compute<T>;
    const std::int64_t i = thread_in_grid();
    if (i >= o.n) return;
    const std::int64_t begin = blockIdx.y * height;
    const std::int64_t end = begin + height < o.rows.count ? begin + height : o.rows.count;
    C weight = 0, bias = 0;
#pragma unroll 4
    for (std::int64_t row = begin; row < end; ++row) {
        const auto place = o.rows.place(row);
        const C dy = static_cast<C>(static_cast<const T*>(o.dy)[place.at[0] + i * o.stride[0]]);
        const C x = static_cast<C>(static_cast<const T*>(o.x)[place.at[1] + i * o.stride[1]]);
        const C mean = o.mean == nullptr ? C(0) : static_cast<const C*>(o.mean)[row];
        weight += dy * ((x - mean) * static_cast<const C*>(o.rstd)[row]), bias += dy;
    }
    C* const out = static_cast<C*>(o.sums) + blockIdx.y * 2 * o.n;
    out[i] = weight, out[o.n + i] = bias;
}

// Computes dweight and dbias from the sums of `parts` blocks. Each block adds 32 columns, and its
// warps share the parts.
template <class C>
__global__ void __launch_bounds__(kTogether)
    add_sums(const C* sums, std::int64_t parts, std::int64_t n, C* dweight, C* dbias) {
    constexpr int kSlices = kTogether / kWarp;
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    const int slice = static_cast<int>(threadIdx.x) / kWarp;
    const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * kWarp + lane;
    double total = 0;
#pragma unroll 8
    for (std::int64_t part = slice; part < parts; part += kSlices)
        if (column < 2 * n) total += static_cast<double>(sums[part * 2 * n + column]);
    __shared__ double shared[kSlices][kWarp];
    shared[slice][lane] = total;
    __syncthreads();
    if (slice != 0 || column >= 2 * n) return;
    for (int s = 1; s < kSlices; ++s) total += shared[s][lane];
    C* const out = column < n ? dweight : dbias;
    if (out != nullptr) out[column < n ? column : column - n] = static_cast<C>(total);
}

template <class T>
void run(Cuda& on, Operands o, void* dweight, void* dbias) {
    using C = Compute<T>;
    o.dense = o.stride[0] == 1 && o.stride[1] == 1 && o.stride[2] == 1 && o.n % kPack<T> == 0 &&
              o.rows.packs_in<T>(0, o.dy) && o.rows.packs_in<T>(1, o.x) &&
              o.rows.packs_in<T>(2, o.dx);
    const bool sums = dweight != nullptr || dbias != nullptr;
    const std::int64_t rows = o.rows.count, units = (o.n + kPack<T> - 1) / kPack<T>;
    const bool fits = units <= std::int64_t{kMaxThreads} * kPacks<T>;
    DeviceScratch scratch(on);
    std::int64_t parts = 0;
    if (fits) {
        const TeamLayout layout(team_for(units, kPacks<T>, kMaxThreads), kTogether);
        // If there are enough rows, each team processes at least four rows; with fewer rows,
        // writing the sums would cost too much.
        const std::int64_t most = on.multiprocessors() * std::int64_t{kMaxThreads / layout.threads};
        parts = std::clamp<std::int64_t>(layout.blocks(rows) / 4, 1, most);
        if (sums) o.sums = scratch.take<C>(parts * 2 * o.n);
        start(on, {{parts}, layout.threads}, &short_rows<T>, o, layout.team);
    } else {
        const std::int64_t height = std::max<std::int64_t>(16, (rows + 63) / 64);
        parts = (rows + height - 1) / height;
        if (sums) {
            o.sums = scratch.take<C>(parts * 2 * o.n);
            start(on, {{(o.n + kTogether - 1) / kTogether, parts}, kTogether}, &long_columns<T>, o,
                  height);
        }
        // This kernel runs after the sums, because dx can be the same memory as dy or x.
        if (o.dx != nullptr) start(on, {{rows}, kMaxThreads}, &long_rows<T>, o);
    }
    if (sums)
        start(on, {{(2 * o.n + kWarp - 1) / kWarp}, kTogether}, &add_sums<C>,
              static_cast<const C*>(o.sums), parts, o.n, static_cast<C*>(dweight),
              static_cast<C*>(dbias));
}

}  // namespace

void layer_norm_backward(Cuda& on, ConstView dy, ConstView x, ConstView weight, ConstView mean,
                         ConstView rstd, View dx, View dweight, View dbias) {
    if (x.numel() == 0) {
        for (const View& v : {dweight, dbias})
            if (v.data != nullptr && v.numel() > 0) fill(on, 0.0, v);
        return;
    }
    const DType dtype = norm_dtype({x, dy, dx});
    DeviceScratch scratch(on);
    const ConstView from_dy = as_dtype(on, scratch, dy, dtype);
    const ConstView from_x = as_dtype(on, scratch, x, dtype);
    View to = dx;
    if (dx.data != nullptr && dx.dtype != dtype)
        to = dense_like(dx, scratch.take<char>(dx.numel() * size_of(dtype)), dtype);
    const ConstView like_dx = dx.data == nullptr ? from_x : ConstView(to);
    const Operands o = {DeviceRows<3>({from_dy, from_x, like_dx}),
                        from_dy.data,
                        from_x.data,
                        to.data,
                        x.back(1),
                        {from_dy.back_stride(1), from_x.back_stride(1), like_dx.back_stride(1)},
                        false,
                        NormVector(weight),
                        mean.data,
                        rstd.data,
                        nullptr};
    visit_float(dtype, [&]<class T>() { run<T>(on, o, dweight.data, dbias.data); });
    if (dx.data != nullptr && dx.dtype != dtype) copy(on, to, dx);
}

void rms_norm_backward(Cuda& on, ConstView dy, ConstView x, ConstView weight, ConstView rstd,
                       View dx, View dweight) {
    layer_norm_backward(on, dy, x, weight, {}, rstd, dx, dweight, {});
}

}  // namespace axle::kernels
