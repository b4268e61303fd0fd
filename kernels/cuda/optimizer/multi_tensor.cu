// Norms, scaling, clamping and checks of many gradients in one call. The gradients are read at most
// once, in packs of 16 bytes if a tensor is aligned, and memory bandwidth limits the speed. Up to
// 16 blocks per multiprocessor iterate over the chunks of a table.
//
// Norms are summed in f64. Every block writes its partial result, and one block combines the
// partial results in a fixed order. The assignment of chunks to blocks depends only on the rows and
// the number of multiprocessors.
#include <cmath>

#include "kernels/cuda/optimizer/multi_tensor.cuh"

namespace axle::kernels {
namespace {

constexpr int kThreads = 256;
constexpr std::int32_t kChunk = 16384;

Grid grid_of(const Cuda& on, const Table<Run>& table) {
    return {std::min<std::int64_t>(table.chunks(), std::int64_t{16} * on.multiprocessors())};
}

// Calls pack(x + i) for the full packs and one(x + i) for the remaining elements of this thread's
// part of elements [from, to).
template <class T, class OfPack, class OfOne>
__device__ void for_elements(T* x, std::int64_t from, std::int64_t to, OfPack pack, OfOne one) {
    constexpr int kN = kPack<T>;
    if (reinterpret_cast<std::uintptr_t>(x) % 16 == 0) {
        const std::int64_t end = to - (to - from) % kN;
#pragma unroll 4
        for (std::int64_t i = from + static_cast<int>(threadIdx.x) * kN; i < end;
             i += kThreads * kN)
            pack(x + i);
        from = end;
    }
    for (std::int64_t i = from + threadIdx.x; i < to; i += kThreads) one(x + i);
}

// Calls f(elements, from, to) for each chunk of this block. `elements` has the type of the row's
// dtype.
template <class F>
__device__ void for_each_chunk(const Table<Run>& table, F f) {
    for (std::uint32_t chunk = blockIdx.x; chunk < table.chunks(); chunk += gridDim.x) {
        const auto [row, from, to] = stretch_of(table, chunk);
        void* const data = table.row[row].data;
        switch (table.row[row].dtype) {
            case DType::f64:
                f(static_cast<double*>(data), from, to);
                break;
            case DType::f16:
                f(static_cast<Half*>(data), from, to);
                break;
            case DType::bf16:
                f(static_cast<BFloat16*>(data), from, to);
                break;
            default:
                f(static_cast<float*>(data), from, to);
        }
    }
}

// Calls f(x) for all elements in the chunks of this block.
template <class F>
__device__ void read_elements(const Table<Run>& table, F f) {
    for_each_chunk(table, [&]<class T>(const T* x, std::int64_t from, std::int64_t to) {
        const auto pack = [&](const T* p) {
            const Pack<T> values = load_pack(p);
#pragma unroll
            for (int j = 0; j < kPack<T>; ++j) f(static_cast<Compute<T>>(values.at[j]));
        };
        for_elements(x, from, to, pack, [&](const T* p) { f(static_cast<Compute<T>>(*p)); });
    });
}

// Sets x = f(x) for all elements in the chunks of this block.
template <class F>
__device__ void change_elements(const Table<Run>& table, F f) {
    for_each_chunk(table, [&]<class T>(T* x, std::int64_t from, std::int64_t to) {
        const auto pack = [&](T* p) {
            Pack<T> values = load_pack(p);
#pragma unroll
            for (int j = 0; j < kPack<T>; ++j)
                values.at[j] = convert<T>(f(static_cast<Compute<T>>(values.at[j])));
            store_pack(p, values);
        };
        for_elements(x, from, to, pack,
                     [&](T* p) { *p = convert<T>(f(static_cast<Compute<T>>(*p))); });
    });
}

// The operations that compute a norm. each() transforms |x|, operator() combines two partial
// results, and root() transforms the total.
struct OfOnes {
    __device__ double each(double a) const { return a; }
    __device__ double operator()(double a, double b) const { return a + b; }
    __device__ double root(double x) const { return x; }
};
struct OfSquares : OfOnes {
    __device__ double each(double a) const { return a * a; }
    __device__ double root(double x) const { return sqrt(x); }
};
struct OfPowers : OfOnes {
    double p;
    explicit OfPowers(double p_) : p(p_) {}
    __device__ double each(double a) const { return pow(a, p); }
    __device__ double root(double x) const { return pow(x, 1 / p); }
};
struct Largest : OfOnes {
    // Returns the larger number, or NaN if a or b is NaN.
    __device__ double operator()(double a, double b) const { return a > b || a != a ? a : b; }
};

template <class Power>
__global__ void __launch_bounds__(kThreads)
    norm_of_chunks(AXLE_TABLE(Run) table, Power power, double* partial) {
    double mine = 0;
    read_elements(table, [&](double x) { mine = power(mine, power.each(fabs(x))); });
    mine = block_combine<kThreads>(mine, power, 0.0);
    if (threadIdx.x == 0) partial[blockIdx.x] = mine;
}

template <class Power>
__global__ void norm_of_partials(Power power, std::int64_t n, const double* partial, double* norm) {
    double mine = 0;
    for (std::int64_t i = threadIdx.x; i < n; i += kThreads) mine = power(mine, partial[i]);
    mine = block_combine<kThreads>(mine, power, 0.0);
    if (threadIdx.x == 0) *norm = n == 0 ? 0 : power.root(mine);
}

// Calls f(table) for tables that together contain all rows that are not empty.
template <class F>
void for_each_table(std::span<const Run> runs, F&& f) {
    for_each_table(
        runs, kChunk, [](const Run& run) { return run.numel > 0; }, f);
}

template <class Power>
void norm_by(Cuda& on, std::span<const Run> runs, Power power, double* norm) {
    std::int64_t blocks = 0;
    for_each_table(runs, [&](const Table<Run>& table) { blocks += grid_of(on, table).x; });
    DeviceScratch scratch(on);
    double* const partial = scratch.take<double>(blocks);
    double* next = partial;
    for_each_table(runs, [&](const Table<Run>& table) {
        const Grid grid = grid_of(on, table);
        start(on, {grid, kThreads}, &norm_of_chunks<Power>, table, power, next);
        next += grid.x;
    });
    start(on, {{1}, kThreads}, &norm_of_partials<Power>, power, blocks, partial, norm);
}

__global__ void coefficient_of_norm(const double* norm, double max_norm, double* coefficient) {
    const double ratio = max_norm / (*norm + 1e-6);
    *coefficient = ratio > 1 ? 1 : ratio;
}

__global__ void __launch_bounds__(kThreads)
    scale_chunks(AXLE_TABLE(Run) table, const double* factor) {
    const double f = *factor;
    if (f == 1) return;
    change_elements(table, [=]<class C>(C x) { return x * static_cast<C>(f); });
}

__global__ void __launch_bounds__(kThreads)
    clamp_chunks(AXLE_TABLE(Run) table, double low, double high) {
    change_elements(table, [=]<class C>(C x) {
        const C l = static_cast<C>(low), h = static_cast<C>(high);
        return x < l ? l : x > h ? h : x;
    });
}

__global__ void __launch_bounds__(kThreads) check_chunks(AXLE_TABLE(Run) table, double* found_inf) {
    bool found = false;
    read_elements(table, [&](auto x) { found |= x - x != 0; });
    if (found) *found_inf = 1;
}

template <class Kernel, class... Arguments>
void start_chunks(Cuda& on, std::span<const Run> runs, Kernel kernel, Arguments... arguments) {
    for_each_table(runs, [&](const Table<Run>& table) {
        start(on, {grid_of(on, table), kThreads}, kernel, table, arguments...);
    });
}

}  // namespace

void norm(Cuda& on, std::span<const Run> runs, double p, double* norm) {
    if (p == 2) return norm_by(on, runs, OfSquares(), norm);
    if (p == 1) return norm_by(on, runs, OfOnes(), norm);
    if (std::isinf(p)) return norm_by(on, runs, Largest(), norm);
    norm_by(on, runs, OfPowers(p), norm);
}

void clip_coefficient(Cuda& on, const double* norm, double max_norm, double* coefficient) {
    start(on, {{1}, 1}, &coefficient_of_norm, norm, max_norm, coefficient);
}

void scale(Cuda& on, std::span<const Run> runs, const double* factor) {
    start_chunks(on, runs, &scale_chunks, factor);
}

void clamp(Cuda& on, std::span<const Run> runs, double low, double high) {
    start_chunks(on, runs, &clamp_chunks, low, high);
}

void find_non_finite(Cuda& on, std::span<const Run> runs, double* found_inf) {
    start_chunks(on, runs, &check_chunks, found_inf);
}

}  // namespace axle::kernels
