// Cumulative sums and products of rows, and the gradient of products. A block processes tiles of a
// row in shared memory: each thread combines adjacent elements, and the results of all threads are
// scanned. If rows are adjacent in memory, short, or very many, one thread per row is used instead,
// which loads a few elements ahead. If there are too few rows to fill the GPU, rows are split into
// chunks. Then x is read once for the totals of the chunks, and a second time for the result.
//
// CUB's DeviceScan reads memory only once, but its order of additions depends on which block runs
// first. Floating-point sums would differ from run to run.
#include <algorithm>
#include <cstdlib>

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/reduce/scan.cuh"
#include "kernels/cuda/rows.cuh"
#include "kernels/cuda/start.cuh"
#include "kernels/ops/scan.h"

namespace axle::kernels {
namespace {

constexpr int kThreads = 256;
constexpr int kEach = 8;  // adjacent elements per thread in a tile, and elements loaded together
constexpr int kTile = kThreads * kEach;
constexpr std::int64_t kShortRow = 64;
constexpr std::int64_t kMinPiece = 64;  // minimum size of a chunk of one thread
constexpr std::int64_t kMaxPieces = 128;

struct Task {
    DeviceRows<2> rows;
    std::int64_t n, x_step, y_step;
    std::int64_t chunk = 0, chunks = 1;  // elements per chunk, and chunks per row

    void cut(std::int64_t wanted, std::int64_t unit) {
        chunks = std::max<std::int64_t>(1, wanted);
        chunk = ((n + chunks - 1) / chunks + unit - 1) / unit * unit;
        chunks = (n + chunk - 1) / chunk;
    }
    AXLE_HOST_DEVICE std::int64_t pieces() const { return rows.count * chunks; }
};

// A chunk of a row, elements first to end - 1. The index of its total in `sums` is row * chunks +
// number.
struct Piece {
    std::int64_t row, number, first, end;
    __device__ Piece(const Task& task, std::int64_t piece)
        : row(piece / task.chunks),
          number(piece - row * task.chunks),
          first(number * task.chunk),
          end(first + task.chunk < task.n ? first + task.chunk : task.n) {}
};

// --- one block per chunk

// Combines the values x of all threads of a block, in a fixed order, and returns the result.
template <class Op, class T>
__device__ inline T block_total(Op op, T x) {
    T total = Op::kIdentity;
    block_scan<kThreads>(x, total, op);
    return total;
}

template <class T, class Op>
__global__ void __launch_bounds__(kThreads)
    total_of_piece(Task task, Op op, const T* x, Compute<T>* sums) {
    const Piece piece(task, blockIdx.x);
    const T* const from = x + task.rows.place(piece.row).at[0];
    Compute<T> sum = Op::kIdentity;
    for (std::int64_t i = piece.first + threadIdx.x; i < piece.end; i += kThreads)
        sum = op(sum, static_cast<Compute<T>>(from[i * task.x_step]));
    sum = block_total(op, sum);
    if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

// Returns the position of element i in shared memory. There is a gap after the adjacent elements of
// each thread, so that 32 threads access 32 different banks.
__device__ inline int padded(int i) { return i + i / kEach; }

template <class T, class Op>
__global__ void __launch_bounds__(kThreads)
    scan_tiles(Task task, Op op, const Compute<T>* sums, const T* x, T* y) {
    using C = Compute<T>;
    __shared__ C tile[kTile + kThreads];
    const int thread = static_cast<int>(threadIdx.x);
    for (std::int64_t p = blockIdx.x; p < task.pieces(); p += gridDim.x) {
        const Piece piece(task, p);
        const auto place = task.rows.place(piece.row);
        const T* const from = x + place.at[0];
        T* const to = y + place.at[1];
        C carry = Op::kIdentity;
        if (piece.number > 0) {
            for (std::int64_t c = thread; c < piece.number; c += kThreads)
                carry = op(carry, sums[piece.row * task.chunks + c]);
            carry = block_total(op, carry);
        }
        for (std::int64_t first = piece.first; first < piece.end; first += kTile) {
#pragma unroll
            for (int j = 0; j < kEach; ++j) {
                const int i = j * kThreads + thread;
                tile[padded(i)] = first + i < piece.end
                                      ? static_cast<C>(from[(first + i) * task.x_step])
                                      : C(Op::kIdentity);
            }
            __syncthreads();
            C mine[kEach], sum = Op::kIdentity;
#pragma unroll
            for (int j = 0; j < kEach; ++j)
                mine[j] = sum = op(sum, tile[padded(thread * kEach + j)]);
            C total = Op::kIdentity;
            const C before = op(carry, block_scan<kThreads>(sum, total, op));
            carry = op(carry, total);
#pragma unroll
            for (int j = 0; j < kEach; ++j) tile[padded(thread * kEach + j)] = op(before, mine[j]);
            __syncthreads();
#pragma unroll
            for (int j = 0; j < kEach; ++j) {
                const int i = j * kThreads + thread;
                if (first + i < piece.end)
                    to[(first + i) * task.y_step] = convert<T>(tile[padded(i)]);
            }
            __syncthreads();  // wait before the tile is filled again
        }
    }
}

// --- one thread per chunk; adjacent threads process adjacent rows

__device__ inline std::int64_t piece_of_thread(const Task& task, std::int64_t t) {
    const std::int64_t number = t / task.rows.count;
    return (t - number * task.rows.count) * task.chunks + number;
}

// Calls f(i, x) for the elements of a piece, in order, and loads some elements ahead.
template <class T, class F>
__device__ inline void walk_ahead(const Task& task, const Piece& piece, const T* from, F f) {
    for (std::int64_t first = piece.first; first < piece.end; first += kEach) {
        Compute<T> next[kEach];
#pragma unroll
        for (int j = 0; j < kEach; ++j)
            if (first + j < piece.end)
                next[j] = static_cast<Compute<T>>(from[(first + j) * task.x_step]);
#pragma unroll
        for (int j = 0; j < kEach; ++j)
            if (first + j < piece.end) f(first + j, next[j]);
    }
}

template <class T, class Op>
__global__ void __launch_bounds__(kThreads)
    total_of_piece_alone(Task task, Op op, const T* x, Compute<T>* sums) {
    for (std::int64_t t = thread_in_grid(); t < task.pieces(); t += threads_in_grid()) {
        const std::int64_t p = piece_of_thread(task, t);
        const Piece piece(task, p);
        Compute<T> sum = Op::kIdentity;
        walk_ahead(task, piece, x + task.rows.place(piece.row).at[0],
                   [&](std::int64_t, Compute<T> value) { sum = op(sum, value); });
        sums[p] = sum;
    }
}

template <class T, class Op>
__global__ void __launch_bounds__(kThreads)
    scan_alone(Task task, Op op, const Compute<T>* sums, const T* x, T* y) {
    for (std::int64_t t = thread_in_grid(); t < task.pieces(); t += threads_in_grid()) {
        const Piece piece(task, piece_of_thread(task, t));
        const auto place = task.rows.place(piece.row);
        T* const to = y + place.at[1];
        Compute<T> sum = Op::kIdentity;
        for (std::int64_t c = 0; c < piece.number; ++c)
            sum = op(sum, sums[piece.row * task.chunks + c]);
        walk_ahead(task, piece, x + place.at[0], [&](std::int64_t i, Compute<T> value) {
            sum = op(sum, value);
            to[i * task.y_step] = convert<T>(sum);
        });
    }
}

bool side_by_side(const Task& task) {
    const int last = task.rows.ndim - 1;
    return task.rows.size[last] >= kWarp &&
           std::abs(task.rows.stride[1][last]) < std::abs(task.y_step);
}

template <class T, class Op>
void scan_rows(Cuda& on, Task task, Op op, const T* x, T* y) {
    const std::int64_t rows = task.rows.count, room = std::int64_t{4} * on.multiprocessors();
    DeviceScratch scratch(on);
    Compute<T>* sums = nullptr;
    if (side_by_side(task) || task.n <= kShortRow || rows >= room * kThreads / 2) {
        task.cut(std::min({room * kThreads / rows, task.n / kMinPiece, kMaxPieces}), 1);
        const Grid grid = grid_for(on, task.pieces(), kThreads);
        if (task.chunks > 1) {
            sums = scratch.take<Compute<T>>(task.pieces());
            start(on, {grid, kThreads}, &total_of_piece_alone<T, Op>, task, op, x, sums);
        }
        start(on, {grid, kThreads}, &scan_alone<T, Op>, task, op, sums, x, y);
        return;
    }
    task.cut(std::min(room / rows, task.n / (4 * kTile)), kTile);
    if (task.chunks > 1) {
        sums = scratch.take<Compute<T>>(task.pieces());
        start(on, {{task.pieces()}, kThreads}, &total_of_piece<T, Op>, task, op, x, sums);
    }
    const std::int64_t blocks = std::min<std::int64_t>(task.pieces(), 0x7fffffff);
    start(on, {{blocks}, kThreads}, &scan_tiles<T, Op>, task, op, sums, x, y);
}

template <class Op>
void scan(Cuda& on, Op op, ConstView x, View y) {
    if (x.numel() == 0) return;
    const Task task{DeviceRows<2>({x, y}), x.back(1), x.back_stride(1), y.back_stride(1)};
    // Integers are computed as unsigned integers, which wrap around on overflow.
    if (x.dtype == DType::i64)
        return scan_rows(on, task, op, x.as<std::uint64_t>(), y.as<std::uint64_t>());
    visit_float(x.dtype, [&]<class T>() { scan_rows(on, task, op, x.as<T>(), y.as<T>()); });
}

struct ProductGradient {
    DeviceRows<4> rows;  // rows of dy, x, y and dx
    std::int64_t n, step[4];
};

// Runs the backward pass of cumprod with one thread per row. If the scanned dimension is not the
// last dimension in memory, adjacent threads read adjacent elements.
template <class T>
__global__ void __launch_bounds__(kThreads)
    product_gradient(ProductGradient task, const T* dy, const T* x, const T* y, T* dx) {
    using C = Compute<T>;
    for (std::int64_t row = thread_in_grid(); row < task.rows.count; row += threads_in_grid()) {
        const auto place = task.rows.place(row);
        C suffix = 0, next = 0;
        for (std::int64_t i = task.n - 1; i >= 0; --i) {
            suffix = static_cast<C>(dy[place.at[0] + i * task.step[0]]) + next * suffix;
            next = static_cast<C>(x[place.at[1] + i * task.step[1]]);
            const C before = i > 0 ? static_cast<C>(y[place.at[2] + (i - 1) * task.step[2]]) : C(1);
            dx[place.at[3] + i * task.step[3]] = convert<T>(before * suffix);
        }
    }
}

}  // namespace

void cumsum(Cuda& on, ConstView x, View y) { scan(on, Plus(), x, y); }
void cumprod(Cuda& on, ConstView x, View y) { scan(on, Times(), x, y); }

void cumprod_backward(Cuda& on, ConstView dy, ConstView x, ConstView y, View dx) {
    if (x.numel() == 0) return;
    const ProductGradient task{
        DeviceRows<4>({dy, x, y, dx}),
        x.back(1),
        {dy.back_stride(1), x.back_stride(1), y.back_stride(1), dx.back_stride(1)}};
    visit_float(x.dtype, [&]<class T>() {
        start(on, {grid_for(on, task.rows.count, kThreads), kThreads}, &product_gradient<T>, task,
              dy.as<T>(), x.as<T>(), y.as<T>(), dx.as<T>());
    });
}

}  // namespace axle::kernels
