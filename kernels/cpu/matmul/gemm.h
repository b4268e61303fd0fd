// The parts of a matrix product that are compiled for each instruction set. The driver in
// matmul.cpp partitions and packs the operands with them and contains no SIMD code.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "kernels/ops/matmul.h"

namespace axle::kernels {

// The largest register tile of all instruction sets, in elements.
inline constexpr int kMaxTileRows = 14;
inline constexpr int kMaxTileColumns = 32;

// How a tile of sums is converted to elements of c, by out = activation(tile + add + bias). Steps
// are in elements from row to row. Null pointers are ignored. out can be the tile or add.
template <class T>
struct TileFinish {
    const T* add = nullptr;
    std::int64_t add_step = 0;
    const T* bias = nullptr;
    Activation activation = Activation::none;
    T* pre = nullptr;
    std::int64_t pre_step = 0;
    T* out = nullptr;
    std::int64_t out_step = 0;
};

template <class T>
struct GemmKernels {
    // Computes c[i, j] = (add ? c[i, j] : 0) + sum over p < depth of a[p a_step + i] b[p b_step +
    // j], summed in the order of p, for a fixed number of rows i and of vectors of `lanes` columns
    // j.
    using Tile = void (*)(std::int64_t depth, const T* a, std::int64_t a_step, const T* b,
                          std::int64_t b_step, T* c, std::int64_t c_step, bool add);

    int max_rows;            // even
    int lanes;               // elements per vector; a full tile is two vectors wide
    const Tile (*tiles)[2];  // indexed by [rows / 2 - 1][vectors - 1]

    // Computes to[p width + i] = from[p from_step + i] for p < n, i < width
    void (*copy_rows)(const T* from, std::int64_t from_step, std::int64_t n, std::int64_t width,
                      T* to);
    // Computes to[p step + i] = rows[i][p] for p < n, i < count; count is 2 or 4
    void (*interleave)(const T* const* rows, int count, std::int64_t n, T* to, std::int64_t step);
    T (*dot)(const T* x, const T* y, std::int64_t n);
    // Computes sum[j] += x[0] rows[0][j] + ... + x[3] rows[3][j], one term after another
    void (*add_rows)(const T* const* rows, const T* x, T* sum, std::int64_t n);
};

// Two adjacent elements along the depth, which are the operand of bf16 instructions. If the depth
// is odd, the last pair is padded with zero.
struct BFloat16Pair {
    BFloat16 first, second;
};

// Packed operands consist of units: single elements or pairs. UnitTraits defines the type of their
// sums and the number of elements per unit.
template <class Unit>
struct UnitTraits {
    using Sum = Unit;
    static constexpr std::int64_t kTerms = 1;
};
template <>
struct UnitTraits<BFloat16Pair> {
    using Sum = float;
    static constexpr std::int64_t kTerms = 2;
};
template <class Unit>
using SumOf = typename UnitTraits<Unit>::Sum;

// The kernels for CPUs with bf16 instructions. Sums are in f32; denormal operands, products and
// sums count as 0.
template <>
struct GemmKernels<BFloat16Pair> {
    // Like Tile in GemmKernels, with depth, a, b and their steps counted in pairs.
    using Tile = void (*)(std::int64_t depth, const BFloat16Pair* a, std::int64_t a_step,
                          const BFloat16Pair* b, std::int64_t b_step, float* c, std::int64_t c_step,
                          bool add);

    int max_rows;
    int lanes;
    const Tile (*tiles)[2];

    // Packs one panel of `count` lines, `stride` apart and contiguous along the depth of `terms`
    // elements: pair p of line i is stored in to[p width + i], with zeros for i in count .. width.
    void (*pack_along)(const BFloat16* from, std::int64_t stride, std::int64_t count,
                       std::int64_t terms, std::int64_t width, BFloat16Pair* to);
    // Packs one pair of depth of `count` adjacent lines: to[i] = {low[i], high[i]} for i < count,
    // with zeros for i in count .. width. If high is null, the second elements are zeros.
    void (*pack_across)(const BFloat16* low, const BFloat16* high, std::int64_t count,
                        std::int64_t width, BFloat16Pair* to);
};

// Returns the kernels for this CPU. Unit is float, double, or BFloat16Pair if multiplies_bf16().
template <class Unit>
const GemmKernels<Unit>& gemm_kernels();
template <>
const GemmKernels<float>& gemm_kernels();
template <>
const GemmKernels<double>& gemm_kernels();
template <>
const GemmKernels<BFloat16Pair>& gemm_kernels();

// Applies `how` to a tile of sums with `rows` rows of `columns` elements, tile_step apart.
template <class T>
void finish_tile(const T* tile, std::int64_t tile_step, std::int64_t rows, std::int64_t columns,
                 const TileFinish<T>& how);
template <>
void finish_tile(const float* tile, std::int64_t tile_step, std::int64_t rows, std::int64_t columns,
                 const TileFinish<float>& how);
template <>
void finish_tile(const double* tile, std::int64_t tile_step, std::int64_t rows,
                 std::int64_t columns, const TileFinish<double>& how);

// Computes c[i] *= activation'(slope_of[i]) for n elements of one dtype, computed in f64 for f64
// and f32 otherwise.
void multiply_slopes(Activation activation, DType dtype, void* c, std::int64_t c_stride,
                     const void* slope_of, std::int64_t slope_stride, std::int64_t n);

// An operand as lines along the depth: `extent` lines (rows of a, or columns of b) of `depth`
// elements each.
struct Lines {
    const void* data = nullptr;
    DType dtype = DType::f32;
    std::int64_t stride = 0;        // distance between lines
    std::int64_t depth_stride = 0;  // distance between elements of a line
};

// Packs lines, converted to T, into panels of `width` adjacent lines; the elements of all lines at
// one depth are contiguous. The panel that begins with line i starts at to + i * depth. The last
// panel is as wide as the remaining lines, rounded up to `quantum` (a divisor of width) and padded
// with zeros. buffer has pack_buffer elements.
template <class T>
void pack_panels(const Lines& lines, std::int64_t extent, std::int64_t depth, std::int64_t width,
                 std::int64_t quantum, T* to, T* buffer);
// Packs bf16 lines as pairs: the panel that begins with line i starts at to + i * pairs, where
// pairs is depth / 2, rounded up. Does not use the buffer.
template <>
void pack_panels(const Lines& lines, std::int64_t extent, std::int64_t depth, std::int64_t width,
                 std::int64_t quantum, BFloat16Pair* to, BFloat16Pair* buffer);
constexpr std::int64_t pack_buffer(std::int64_t extent, std::int64_t depth) {
    return extent > 4 * depth ? extent : 4 * depth;
}

constexpr std::int64_t divide_up(std::int64_t n, std::int64_t by) { return (n + by - 1) / by; }
constexpr std::int64_t round_up(std::int64_t n, std::int64_t quantum) {
    return divide_up(n, quantum) * quantum;
}

// Returns the offset in v of matrix number `batch` of a product of c's shape.
template <class AnyView>
std::int64_t matrix_offset(const AnyView& v, const View& c, std::int64_t batch) {
    std::int64_t offset = 0;
    for (int d = c.ndim - 3; d >= 0; --d) {
        offset += batch % c.shape[d] * v.stride[d];
        batch /= c.shape[d];
    }
    return offset;
}

// Calls f(task, slot) for every task, assigned in groups. Tasks of one slot never run concurrently,
// so each slot can have its own scratch memory. slots_for(tasks, group) returns the useful number
// of slots.
inline std::int64_t slots_for(std::int64_t tasks, std::int64_t group) {
    const std::int64_t groups = divide_up(tasks, group);
    return groups == 1 ? 1 : std::min<std::int64_t>(groups, num_threads());
}
template <class F>
void parallel_slots(std::int64_t tasks, std::int64_t group, std::int64_t slots, F&& f) {
    std::atomic<std::int64_t> next = 0;
    parallel(slots, [&](std::int64_t slot) {
        for (;;) {
            const std::int64_t begin = group * next.fetch_add(1, std::memory_order_relaxed);
            if (begin >= tasks) return;
            const std::int64_t end = std::min(tasks, begin + group);
            for (std::int64_t task = begin; task < end; ++task) f(task, slot);
        }
    });
}

// Computes products that do not benefit from packing: M or N is 1, or the elements are integers.
void vector_matmul(Cpu& on, const ConstView& a, const ConstView& b, const View& c,
                   const MatmulEpilogue& epilogue);
void integer_matmul(const ConstView& a, const ConstView& b, const View& c, bool accumulate);

}  // namespace axle::kernels
