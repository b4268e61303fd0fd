// The parts of matrix products: GemmKernels, which are compiled for each instruction set, and
// functions that pack operands, finish tiles and divide tasks among threads. Convolutions and norms
// also use some of these parts.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "kernels/ops/matmul.h"

namespace axle::kernels {

// The size of the largest register tile of all instruction sets, in elements.
inline constexpr int kMaxTileRows = 32;
inline constexpr int kMaxTileColumns = 32;

// The largest number of rows that GemmKernels::interleave() interleaves.
inline constexpr std::int64_t kMaxInterleaved = 16;

// The conversion of a tile of sums to elements of c: pre = tile + add + bias, and out =
// activation(pre). A step is the number of elements from one row to the next. add, bias and pre can
// be null. out can be the same memory as the tile or add.
template <class T>
struct TileFinish {
    const T* add = nullptr;
    std::int64_t add_step = 0;
    const T* bias = nullptr;
    Activation activation = Activation::none;
    T* pre = nullptr;
    std::int64_t pre_step = 0;
    bool stores_slopes = false;  // `pre` receives activation'(pre)
    T* out = nullptr;
    std::int64_t out_step = 0;
    // If not null, the results are rounded to bf16 and stored here instead of in `out` and `pre`.
    // Only if T is float.
    BFloat16 *pre_bf16 = nullptr, *out_bf16 = nullptr;
};

template <class T>
struct GemmKernels {
    // Computes c[i, j] = (add ? c[i, j] : 0) + sum over p < depth of a[p a_step + i] b[p b_step +
    // j], with the terms added in the order of p. Each function has a fixed number of rows i and of
    // columns j (in vectors of `lanes` columns).
    using Tile = void (*)(std::int64_t depth, const T* a, std::int64_t a_step, const T* b,
                          std::int64_t b_step, T* c, std::int64_t c_step, bool add);

    int max_rows;            // an even number
    int lanes;               // elements per vector; a full tile is two vectors wide
    const Tile (*tiles)[2];  // indexed by [rows / kRowQuantum - 1][vectors - 1]

    // Packs panels of `width` adjacent lines: for i < panels, p < depth and j < width,
    //     to[(i depth + p) width + j] = from[p from_step + i width + j]
    void (*copy_panels)(const T* from, std::int64_t from_step, std::int64_t depth,
                        std::int64_t panels, std::int64_t width, T* to);
    // Interleaves at most kMaxInterleaved rows of n elements: to[p step + i] = rows[i][p] for p <
    // n, i < count.
    void (*interleave)(const T* const* rows, int count, std::int64_t n, T* to, std::int64_t step);
    // Computes sum[i] += the dot product of line and x + i x_step, for n elements and i < kDots.
    // The bits of a sum do not depend on the number of sums. The elements that are read soon after
    // the line are at line + ahead.
    template <class Stored>
    using Dots = void (*)(const Stored* line, std::int64_t ahead, const T* x, std::int64_t x_step,
                          std::int64_t n, T* sum);
    const Dots<T>* dots;              // indexed by kDots - 1
    const Dots<BFloat16>* dots_bf16;  // the same for lines in bf16; null if T is double
    // Computes sum[i sum_step + j] += x[i x_step] rows[0][j] + ... + x[i x_step + 3] rows[3][j],
    // one term after another, for j < n and i < kSums. `ahead` is as above, or 0.
    template <class Stored>
    using AddRows = void (*)(const Stored* const* rows, std::int64_t ahead, const T* x,
                             std::int64_t x_step, std::int64_t n, T* sum, std::int64_t sum_step);
    const AddRows<T>* add_rows;              // indexed by kSums - 1
    const AddRows<BFloat16>* add_rows_bf16;  // the same for rows in bf16; null if T is double
    static constexpr std::int64_t kMaxVectors = 4;  // the largest kDots and kSums
};

// Two adjacent elements along the depth, which bf16 instructions use as one operand. If the depth
// is odd, the last pair is padded with zero.
struct BFloat16Pair {
    BFloat16 first, second;
};
// The same for AMX, whose instruction reads 16 x 16 pairs of each operand. The rows of a block of a
// are contiguous along the depth, with the same distance between all rows. The depth of a block is
// padded with zeros to a multiple of 16 pairs, and its rows to a multiple of 16.
struct AmxPair : BFloat16Pair {};

// The properties of a unit of packed operands, which is an element or a pair.
template <class Unit>
struct UnitTraits {
    using Sum = Unit;
    static constexpr std::int64_t kTerms = 1;  // elements per unit
    // The numbers of units of a panel and of rows of a tile are multiples of these.
    static constexpr std::int64_t kDepthQuantum = 1, kRowQuantum = 2;
    // The approximate speed of products of units relative to f32. Packing is not faster.
    static constexpr std::int64_t kSpeed = 1;
};
template <>
struct UnitTraits<BFloat16Pair> : UnitTraits<float> {
    static constexpr std::int64_t kTerms = 2;
};
template <>
struct UnitTraits<AmxPair> : UnitTraits<BFloat16Pair> {
    static constexpr std::int64_t kDepthQuantum = 16, kRowQuantum = 16, kSpeed = 5;
};
template <class Unit>
using SumOf = typename UnitTraits<Unit>::Sum;

// The kernels for CPUs with bf16 instructions. Sums are in f32. These instructions replace denormal
// operands, products and sums by 0.
template <>
struct GemmKernels<BFloat16Pair> {
    // Computes the same as Tile in GemmKernels; depth, a, b and their steps are counted in pairs.
    using Tile = void (*)(std::int64_t depth, const BFloat16Pair* a, std::int64_t a_step,
                          const BFloat16Pair* b, std::int64_t b_step, float* c, std::int64_t c_step,
                          bool add);

    int max_rows;
    int lanes;
    const Tile (*tiles)[2];

    // Packs one panel of `count` lines, which are `stride` apart and contiguous along the depth of
    // `terms` elements. Pair p of line i is stored in to[p width + i]. Lines from `count` to width
    // - 1 are zeros.
    void (*pack_along)(const BFloat16* from, std::int64_t stride, std::int64_t count,
                       std::int64_t terms, std::int64_t width, BFloat16Pair* to);
    // Packs the elements of `count` adjacent lines at two depths into panels of `width` lines,
    // which are to_step apart: to[i / width to_step + i % width] = {low[i], high[i]} for i < count.
    // The missing lines of the last panel are zeros. If high is null, the second elements are
    // zeros. The elements that are read soon after these are at low + ahead and high + ahead.
    void (*pack_across)(const BFloat16* low, const BFloat16* high, std::int64_t ahead,
                        std::int64_t count, std::int64_t width, BFloat16Pair* to,
                        std::int64_t to_step);
    // Transposes 16 x 16 pairs: to[i to_step + p] = from[p from_step + i].
    void (*transpose)(const BFloat16Pair* from, std::int64_t from_step, BFloat16Pair* to,
                      std::int64_t to_step);
};

// The kernels for CPUs with AMX. The even and the odd terms of 16 pairs are summed separately, and
// then added to the sums of the pairs before. Denormals are replaced by 0, as in the kernels above.
template <>
struct GemmKernels<AmxPair> {
    // Computes c[i, j] = (add ? c[i, j] : 0) + sum over p < depth of a[i a_step + p] b[p b_step +
    // j], in pairs. depth is a multiple of 16. a and b are aligned to 64 bytes, and their steps are
    // multiples of 16.
    using Tile = void (*)(std::int64_t depth, const AmxPair* a, std::int64_t a_step,
                          const AmxPair* b, std::int64_t b_step, float* c, std::int64_t c_step,
                          bool add);

    int max_rows;
    int lanes;
    const Tile (*tiles)[2];
    // Tiles can be computed only between start() and stop(), which set the state of this thread.
    void (*start)();
    void (*stop)();
};

// Returns the kernels for this CPU. Unit is float or double, BFloat16Pair if multiplies_bf16(), or
// AmxPair if has_amx().
template <class Unit>
const GemmKernels<Unit>& gemm_kernels();
template <>
const GemmKernels<float>& gemm_kernels();
template <>
const GemmKernels<double>& gemm_kernels();
template <>
const GemmKernels<BFloat16Pair>& gemm_kernels();
template <>
const GemmKernels<AmxPair>& gemm_kernels();
// Returns whether products of bf16 operands without AMX use BFloat16Pair; otherwise the operands
// are converted to f32. The first call on a CPU with AVX512_BF16 measures both, which takes less
// than 1 ms, unless AXLE_CPU_TARGET=avx512_bf16 selects pairs.
bool uses_bf16_pairs();

// Applies `how` to a tile of sums with `rows` rows of `columns` elements. The rows are tile_step
// elements apart.
template <class T>
void finish_tile(const T* tile, std::int64_t tile_step, std::int64_t rows, std::int64_t columns,
                 const TileFinish<T>& how);
template <>
void finish_tile(const float* tile, std::int64_t tile_step, std::int64_t rows, std::int64_t columns,
                 const TileFinish<float>& how);
template <>
void finish_tile(const double* tile, std::int64_t tile_step, std::int64_t rows,
                 std::int64_t columns, const TileFinish<double>& how);

// Writes a tile to memory without reading `out` into the caches first. The rows of the tile and of
// `out` are aligned to vectors, and `columns` is a number of whole vectors. Call hwy::FlushStream()
// before another thread reads `out`.
void stream_tile(const float* tile, std::int64_t tile_step, std::int64_t rows, std::int64_t columns,
                 float* out, std::int64_t out_step);

// Multiplies n elements of c by the slopes of the epilogue: c[i] *= activation'(slope_of[i]), or
// slope_of[i] if stores_slopes is true. c and slope_of have the given dtype; the computation is in
// f64 for f64 and in f32 otherwise.
void multiply_slopes(const MatmulEpilogue& epilogue, DType dtype, void* c, std::int64_t c_stride,
                     const void* slope_of, std::int64_t slope_stride, std::int64_t n);

// An operand as lines along the depth: rows of a, or columns of b. The functions that use it get
// the number of lines (`extent`) and of elements per line (`depth`) as arguments.
struct Lines {
    const void* data = nullptr;
    DType dtype = DType::f32;
    std::int64_t stride = 0;        // distance between lines
    std::int64_t depth_stride = 0;  // distance between elements of a line
};

// Packs lines, converted to T, into panels of `width` adjacent lines. In a panel, the elements of
// all lines at one depth are contiguous. The panel that begins with line i starts at to + i *
// depth. The width of the last panel is the number of remaining lines, rounded up to `quantum` (a
// divisor of width) and padded with zeros. buffer has pack_buffer(extent, depth) elements.
template <class T>
void pack_panels(const Lines& lines, std::int64_t extent, std::int64_t depth, std::int64_t width,
                 std::int64_t quantum, T* to, T* buffer);
// Packs bf16 lines as pairs. The panel that begins with line i starts at to + i * pairs, where
// pairs is depth / 2, rounded up. Does not use the buffer.
template <>
void pack_panels(const Lines& lines, std::int64_t extent, std::int64_t depth, std::int64_t width,
                 std::int64_t quantum, BFloat16Pair* to, BFloat16Pair* buffer);
// Does the same for columns of b with AMX: pairs is rounded up to a multiple of 16.
template <>
void pack_panels(const Lines& lines, std::int64_t extent, std::int64_t depth, std::int64_t width,
                 std::int64_t quantum, AmxPair* to, AmxPair* buffer);
// Packs bf16 rows of a for AMX. Row i starts at to + i * pairs, where pairs is depth / 2, rounded
// up to a multiple of 16.
void pack_rows(const Lines& lines, std::int64_t extent, std::int64_t depth, AmxPair* to);
constexpr std::int64_t pack_buffer(std::int64_t extent, std::int64_t depth) {
    return extent > kMaxInterleaved * depth ? extent : kMaxInterleaved * depth;
}

constexpr std::int64_t divide_up(std::int64_t n, std::int64_t by) { return (n + by - 1) / by; }
constexpr std::int64_t round_up(std::int64_t n, std::int64_t quantum) {
    return divide_up(n, quantum) * quantum;
}
// Returns the number of units in a panel of `depth` elements.
template <class Unit>
constexpr std::int64_t units_of(std::int64_t depth) {
    return round_up(divide_up(depth, UnitTraits<Unit>::kTerms), UnitTraits<Unit>::kDepthQuantum);
}

// Returns the offset in v of matrix number `batch` of a product; v has the batch dimensions of c.
template <class AnyView>
std::int64_t matrix_offset(const AnyView& v, const View& c, std::int64_t batch) {
    std::int64_t offset = 0;
    for (int d = c.ndim - 3; d >= 0; --d) {
        offset += batch % c.shape[d] * v.stride[d];
        batch /= c.shape[d];
    }
    return offset;
}

// parallel_slots() calls f(task, slot) for every task, in groups of `group` tasks. Tasks of one
// slot never run concurrently, so each slot can have its own scratch memory. slots_for() returns
// the maximum number of slots that can run concurrently.
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

// The largest M of products that vector_matmul() can compute with N > 1.
inline constexpr std::int64_t kFewRows = 16;

// Returns whether a product of a few rows and a large matrix b is faster if b is read in memory
// order without packing.
bool is_few_rows(const ConstView& a, const ConstView& b, const View& c);

// Compute products without packing the operands: vector_matmul() if N is 1 or M is at most
// kFewRows, integer_matmul() if the elements are integers.
void vector_matmul(Cpu& on, const ConstView& a, const ConstView& b, const View& c,
                   const MatmulEpilogue& epilogue);
void integer_matmul(const ConstView& a, const ConstView& b, const View& c, bool accumulate);

}  // namespace axle::kernels
