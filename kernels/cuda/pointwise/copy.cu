// Copies, conversions, fills, arange() and triangles of matrices. Copies between equal dtypes copy
// bits. Contiguous runs are copied in packs of 16 bytes, transposed matrices through tiles in
// shared memory, and all other operands element by element. The tiles let transposed copies access
// x and y along their contiguous dimensions. Conversions read and write every element once. fill
// and arange only write.
#include "kernels/cuda/pointwise/elementwise.cuh"
#include "kernels/cuda/visit.cuh"
#include "kernels/ops/copy.h"

namespace axle::kernels {
namespace {

// Converts x in the same way as the CPU. A number is converted to an integer through i64, so that
// negative numbers wrap around in u8. NaN and values outside of i64 become the minimum of i64.
template <class To, class From>
AXLE_HOST_DEVICE To converted(From x) {
    using C = Compute<From>;
    if constexpr (std::is_integral_v<To> && !std::is_same_v<To, bool> &&
                  std::is_floating_point_v<C>) {
        const C value = x;
        const bool fits = value >= C(-0x1p63) && value < C(0x1p63);
        return static_cast<To>(fits ? static_cast<std::int64_t>(value)
                                    : std::numeric_limits<std::int64_t>::min());
    } else {
        return convert<To>(x);
    }
}

template <class To, class From>
struct Converted {
    __device__ To operator()(From x) const { return converted<To>(x); }
};

template <class Bits>
struct Same {
    __device__ Bits operator()(Bits x) const { return x; }
};

template <class Bits>
struct Constant {
    Bits value;
    __device__ Bits operator()() const { return value; }
};

// --- transposed copies

constexpr int kTile = 32;
constexpr int kTileThreads = 256;

// The tiles of a copy, one per block. The last dimension of the walk counts tiles along y's
// contiguous dimension, and the dimension before it counts tiles along x's contiguous dimension.
// The outer dimensions of the walk iterate over the matrices.
struct Tiles {
    DeviceWalk<2> walk;  // over {y, x}, with one tile per step
    std::int64_t height, width;
    std::int64_t y_step, x_step;  // distance between rows in y, and between columns in x
};

template <class Bits>
__global__ void __launch_bounds__(kTileThreads)
    copy_tiles(Tiles tiles, const Bits* __restrict__ x, Bits* __restrict__ y) {
    __shared__ Bits tile[kTile][kTile + 1];
    const auto& walk = tiles.walk;
    const auto place = walk.place(blockIdx.x);
    const std::uint32_t above = walk.by[walk.ndim - 1].quotient(blockIdx.x);
    const std::uint32_t tile_x = blockIdx.x - above * walk.size[walk.ndim - 1];
    const std::uint32_t beyond = walk.by[walk.ndim - 2].quotient(above);
    const std::uint32_t tile_y = above - beyond * walk.size[walk.ndim - 2];
    // The size of the part of the matrix that begins at this tile's corner.
    const std::int64_t height = tiles.height - std::int64_t{tile_y} * kTile;
    const std::int64_t width = tiles.width - std::int64_t{tile_x} * kTile;
    const int column = static_cast<int>(threadIdx.x) % kTile;
    const int first = static_cast<int>(threadIdx.x) / kTile;
#pragma unroll
    for (int row = first; row < kTile; row += kTileThreads / kTile)
        if (row < width && column < height)
            tile[row][column] = x[place.at[1] + row * tiles.x_step + column];
    __syncthreads();
#pragma unroll
    for (int row = first; row < kTile; row += kTileThreads / kTile)
        if (row < height && column < width)
            y[place.at[0] + row * tiles.y_step + column] = tile[column][row];
}

// Starts a copy in tiles and returns true if x is transposed relative to y; otherwise returns
// false.
template <class Bits>
bool copy_transposed(Cuda& on, ConstView x, View y) {
    const Walk<2> walk({y, x});
    const int last = walk.ndim() - 1;
    if (walk.rows() == 0 || walk.stride(0, last) != 1 || walk.size(last) < kTile / 2) return false;
    int dense = -1;  // dimension in which x has stride 1
    for (int d = 0; d < last; ++d)
        if (walk.stride(1, d) == 1 && walk.size(d) >= kTile / 2) dense = d;
    if (dense < 0 || walk.stride(1, last) == 0) return false;

    Tiles tiles;
    tiles.height = walk.size(dense), tiles.width = walk.size(last);
    tiles.y_step = walk.stride(0, dense), tiles.x_step = walk.stride(1, last);
    std::int64_t blocks = 1;
    tiles.walk.ndim = 0;
    const auto append = [&](int d, std::int64_t step) {
        const std::int64_t size = (walk.size(d) + step - 1) / step;
        const int to = tiles.walk.ndim++;
        tiles.walk.size[to] = static_cast<std::uint32_t>(size);
        tiles.walk.by[to] = Divider(size);
        for (int k = 0; k < 2; ++k) tiles.walk.stride[k][to] = walk.stride(k, d) * step;
        blocks *= size;
    };
    if (walk.rows() > std::numeric_limits<std::int32_t>::max() / (walk.width() / kTile + 1))
        return false;
    for (int d = 0; d < last; ++d)
        if (d != dense) append(d, 1);
    append(dense, kTile);
    append(last, kTile);
    tiles.walk.numel = static_cast<std::uint32_t>(blocks);
    start(on, {{blocks}, kTileThreads}, &copy_tiles<Bits>, tiles, x.as<Bits>(), y.as<Bits>());
    return true;
}

// --- arange and triangle

constexpr int kThreads = 256;

template <class T>
__global__ void arange_kernel(double start, double step, std::int64_t n, T* y,
                              std::int64_t stride) {
    for (std::int64_t i = thread_in_grid(); i < n; i += threads_in_grid()) {
        // The product and the sum are rounded separately, so that the GPU gives the same bits as
        // the CPU.
        const double value = __dadd_rn(start, __dmul_rn(static_cast<double>(i), step));
        if constexpr (std::is_integral_v<T>)
            y[i * stride] = static_cast<T>(converted<std::int64_t>(value));
        else
            y[i * stride] = convert<T>(value);
    }
}

// The shape of a batch of matrices, and the strides of the batch in x and y.
struct Matrices {
    int ndim;
    std::int64_t numel;
    std::int64_t shape[kMaxDims], x_stride[kMaxDims], y_stride[kMaxDims];
};

template <class Bits>
__global__ void triangle_kernel(bool lower, std::int64_t diagonal, Matrices m, const Bits* x,
                                Bits* y) {
    for (std::int64_t i = thread_in_grid(); i < m.numel; i += threads_in_grid()) {
        std::int64_t rest = i, from = 0, to = 0,
                     above_diagonal = 0;  // column index minus row index
        for (int d = m.ndim - 1; d >= 0; --d) {
            const std::int64_t next = rest / m.shape[d];
            const std::int64_t here = rest - next * m.shape[d];
            from += here * m.x_stride[d];
            to += here * m.y_stride[d];
            if (d == m.ndim - 1) above_diagonal = here;
            if (d == m.ndim - 2) above_diagonal -= here;
            rest = next;
        }
        const bool kept = lower ? above_diagonal <= diagonal : above_diagonal >= diagonal;
        y[to] = kept ? x[from] : Bits(0);
    }
}

}  // namespace

void copy(Cuda& on, ConstView x, View y) {
    const auto stored = [](DType t) { return t == DType::boolean ? DType::u8 : t; };
    if (x.dtype == y.dtype || (x.dtype == DType::boolean && y.dtype == DType::u8))
        return visit_bits(y.dtype, [&]<class Bits>() {
            if (!copy_transposed<Bits>(on, x, y)) elementwise<Bits, Bits>(on, Same<Bits>(), y, x);
        });
    visit_compute(y.dtype, [&]<class To>() {
        visit_compute(stored(x.dtype), [&]<class From>() {
            if constexpr (!std::is_same_v<To, From> && !std::is_same_v<From, bool>)
                elementwise<To, From>(on, Converted<To, From>(), y, x);
        });
    });
}

namespace {

template <class T>
void fill_with(Cuda& on, T value, View y) {
    visit_bits(y.dtype, [&]<class Bits>() {
        if constexpr (sizeof(Bits) == sizeof(T))
            elementwise<Bits>(on, Constant<Bits>{std::bit_cast<Bits>(value)}, y);
    });
}

}  // namespace

void fill(Cuda& on, double value, View y) {
    visit_compute(y.dtype, [&]<class T>() { fill_with(on, converted<T>(value), y); });
}

void fill(Cuda& on, std::int64_t value, View y) {
    if (!is_integral(y.dtype)) return fill(on, static_cast<double>(value), y);
    visit_compute(y.dtype, [&]<class T>() {
        if constexpr (std::is_integral_v<T>) fill_with(on, convert<T>(value), y);
    });
}

void arange(Cuda& on, double first, double step, View y) {
    const std::int64_t n = y.numel(), stride = y.ndim == 0 ? 1 : y.stride[0];
    if (n == 0) return;
    visit_compute(y.dtype, [&]<class T>() {
        start(on, {grid_for(on, n, kThreads), kThreads}, &arange_kernel<T>, first, step, n,
              y.as<T>(), stride);
    });
}

void triangle(Cuda& on, bool lower, std::int64_t diagonal, ConstView x, View y) {
    Matrices m = {y.ndim, y.numel(), {}, {}, {}};
    if (m.numel == 0) return;
    for (int d = 0; d < y.ndim; ++d)
        m.shape[d] = y.shape[d], m.x_stride[d] = x.stride[d], m.y_stride[d] = y.stride[d];
    visit_bits(y.dtype, [&]<class Bits>() {
        start(on, {grid_for(on, m.numel, kThreads), kThreads}, &triangle_kernel<Bits>, lower,
              diagonal, m, x.as<Bits>(), y.as<Bits>());
    });
}

}  // namespace axle::kernels
