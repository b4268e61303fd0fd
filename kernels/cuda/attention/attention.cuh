// Private to kernels: tiles in shared memory for attention and its gradients.
//
// A block of 256 threads processes kTile rows (queries or keys) and iterates over the other
// dimension (keys or queries) in tiles of kTile. Operands are stored in shared memory, row by row,
// in the type of the arithmetic. Thread (y, x) of 16 x 16 computes rows 4 y to 4 y + 3 of every
// product, so half a warp computes each row. Shuffles combine the statistics of a row, and a half
// warp reads only the weights of the tile that it has written itself. Heads with more than kDepth
// columns are split. Products along the depth are computed in chunks of kDepth. A block computes
// one window of kDepth columns of the result.
#pragma once

#include "kernels/cuda/attention/attention_call.cuh"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/start.cuh"
#include "kernels/ops/attention.h"

namespace axle::kernels::attend {

inline constexpr int kThreads = 256;
inline constexpr int kSide = 16;             // threads along each side of a tile
inline constexpr int kEach = kTile / kSide;  // rows per thread, and columns of weights per thread

// The number of elements in 16 bytes, the unit of shared memory access.
template <class C>
inline constexpr int kVector = 16 / static_cast<int>(sizeof(C));
// The distance between rows in shared memory, chosen so that rows start in different banks.
template <class C, int kWidth>
inline constexpr int kPitch = kWidth + kVector<C>;

// The number of blocks that a multiprocessor must be able to run concurrently. The compiler limits
// the registers per thread accordingly.
template <class C, int kDepth>
inline constexpr int kBlocks = sizeof(C) * kDepth <= 256 ? 2 : 1;

__device__ inline int row_of_thread() { return static_cast<int>(threadIdx.x) / kSide * kEach; }
__device__ inline int lane_of_row() { return static_cast<int>(threadIdx.x) % kSide; }

// Returns the number of columns in the tile that begins at column `first`: at most `most`, and none
// beyond `depth`.
__device__ inline int width_at(int depth, int first, int most) {
    return depth - first < most ? depth - first : most;
}

// Loads rows [first, first + kTile) of a matrix, `width` columns starting at `column`, multiplied
// by `factor`. Rows with an index of `rows` or more are set to zero, and so are the columns that
// fill the last vector.
template <int kDepth, class T, class C>
__device__ inline void load_tile(const Operand<const T>& x, const T* head, int first, int rows,
                                 int column, int width, C factor, C* tile) {
    constexpr int kRow = kPitch<C, kDepth>, kStep = kVector<C>;
    if (x.packed) {
        constexpr int kN = kPack<T>, kPacks = kDepth / kN;
#pragma unroll 2
        for (int i = static_cast<int>(threadIdx.x); i < kTile * kPacks; i += kThreads) {
            const int r = i / kPacks, c = i % kPacks * kN;
            if (c >= width) continue;
            Pack<T, kN> pack = {};
            if (first + r < rows) pack = load_pack(head + (first + r) * x.stride[2] + column + c);
#pragma unroll
            for (int e = 0; e < kN; e += kStep) {
                Pack<C, kStep> part;
#pragma unroll
                for (int f = 0; f < kStep; ++f)
                    part.at[f] = static_cast<C>(pack.at[e + f]) * factor;
                store_pack(tile + r * kRow + c + e, part);
            }
        }
        return;
    }
    const int whole = (width + kStep - 1) / kStep * kStep;
#pragma unroll 1
    for (int i = static_cast<int>(threadIdx.x); i < kTile * kDepth; i += kThreads) {
        const int r = i / kDepth, c = i % kDepth;
        if (c >= whole) continue;
        C value = 0;
        if (first + r < rows && c < width)
            value = static_cast<C>(head[(first + r) * x.stride[2] + (column + c) * x.stride[3]]) *
                    factor;
        tile[r * kRow + c] = value;
    }
}

// Adds the product of row 4 y + r of a and row x + 16 c of b to sum[r][c].
template <int kDepth, class C>
__device__ inline void add_products(const C* a, const C* b, int width, C (&sum)[kEach][kEach]) {
    constexpr int kRow = kPitch<C, kDepth>, kStep = kVector<C>;
    a += row_of_thread() * kRow, b += lane_of_row() * kRow;
#pragma unroll 1
    for (int d = 0; d < width; d += kStep) {
        Pack<C, kStep> left[kEach];
#pragma unroll
        for (int r = 0; r < kEach; ++r) left[r] = load_pack<C, kStep>(a + r * kRow + d);
#pragma unroll
        for (int c = 0; c < kEach; ++c) {
            const auto right = load_pack<C, kStep>(b + c * kSide * kRow + d);
#pragma unroll
            for (int r = 0; r < kEach; ++r)
#pragma unroll
                for (int e = 0; e < kStep; ++e) sum[r][c] += left[r].at[e] * right.at[e];
        }
    }
}

// The part of a result [kTile][kDepth] that a thread computes: rows 4 y + r, columns (x + 16 g)
// kVector + e.
template <int kDepth, class C>
struct Result {
    static constexpr int kGroups = kDepth / (kSide * kVector<C>);
    C at[kEach][kGroups][kVector<C>] = {};

    // Adds the product of weights [kTile][kTile] and b [kTile][kDepth]. Only the first `width`
    // columns of b and of the result are used.
    __device__ void add(const C* weights, const C* b, int width) {
        constexpr int kRow = kPitch<C, kDepth>, kStep = kVector<C>;
        weights += row_of_thread() * kPitch<C, kTile>, b += lane_of_row() * kStep;
#pragma unroll 1
        for (int j = 0; j < kTile; j += kStep) {
            Pack<C, kStep> left[kEach];
#pragma unroll
            for (int r = 0; r < kEach; ++r)
                left[r] = load_pack<C, kStep>(weights + r * kPitch<C, kTile> + j);
#pragma unroll
            for (int i = 0; i < kStep; ++i) {
#pragma unroll
                for (int g = 0; g < kGroups; ++g) {
                    if (g * kSide * kStep >= width) break;
                    const auto right = load_pack<C, kStep>(b + (j + i) * kRow + g * kSide * kStep);
#pragma unroll
                    for (int r = 0; r < kEach; ++r)
#pragma unroll
                        for (int e = 0; e < kStep; ++e) at[r][g][e] += left[r].at[i] * right.at[e];
                }
            }
        }
    }

    __device__ void scale_row(int r, C factor) {
#pragma unroll
        for (int g = 0; g < kGroups; ++g)
#pragma unroll
            for (int e = 0; e < kVector<C>; ++e) at[r][g][e] *= factor;
    }

    // Stores up to kTile rows of the result, [first, rows), in `width` columns of y that start at
    // `column`.
    template <class T>
    __device__ void store(const Operand<T>& y, T* head, int first, int rows, int column,
                          int width) const {
        constexpr int kStep = kVector<C>;
#pragma unroll
        for (int r = 0; r < kEach; ++r) {
            const int row = first + row_of_thread() + r;
            if (row >= rows) break;
#pragma unroll
            for (int g = 0; g < kGroups; ++g) {
                const int c = (lane_of_row() + g * kSide) * kStep;
                if (c >= width) break;
                if (y.packed) {
                    Pack<T, kStep> pack;
#pragma unroll
                    for (int e = 0; e < kStep; ++e) pack.at[e] = convert<T>(at[r][g][e]);
                    store_pack(head + row * y.stride[2] + column + c, pack);
                    continue;
                }
#pragma unroll
                for (int e = 0; e < kStep; ++e)
                    if (c + e < width)
                        head[row * y.stride[2] + (column + c + e) * y.stride[3]] =
                            convert<T>(at[r][g][e]);
            }
        }
    }
};

// Stores a thread's weights in the tile that Result::add reads. Each half warp accesses only its
// own rows.
template <class C>
__device__ inline void store_weights(const C (&weight)[kEach][kEach], C* tile) {
    __syncwarp();  // wait until the previous weights have been read
#pragma unroll
    for (int r = 0; r < kEach; ++r)
#pragma unroll
        for (int c = 0; c < kEach; ++c)
            tile[(row_of_thread() + r) * kPitch<C, kTile> + lane_of_row() + c * kSide] =
                weight[r][c];
    __syncwarp();
}

// Returns the score of query i and key j plus the mask, or -infinity if the query does not attend
// to the key or one of them does not exist. `mask` is the offset of the head's mask.
template <class C>
__device__ inline C masked(const Call& call, std::int64_t mask, int i, int j, C score) {
    if (i >= call.queries || j >= call.keys || j > i + call.offset) return kMinusInfinity<C>;
    if (call.mask.data == nullptr) return score;
    return score + call.mask.at<C>(mask + i * call.mask.stride[2] + j * call.mask.stride[3]);
}

// Returns exp(x). The precision is sufficient for a result of dtype T.
template <class T, class C>
__device__ inline C exponential(C x) {
    if constexpr (sizeof(T) == 2)
        return __expf(x);
    else
        return exp(x);
}

// Returns four bits; bit i is set if random number 4 block + i is at least p.
__device__ inline unsigned kept_bits(const Philox& random, std::uint64_t block, float p) {
    const auto words = random.block(block);
    unsigned bits = 0;
#pragma unroll
    for (unsigned w = 0; w < 4; ++w) bits |= (Philox::to_unit(words[w]) >= p ? 1u : 0u) << w;
    return bits;
}

// Returns the index of the random number for the weight of query `row` and key 0. `row` is the
// index of the query among all queries of the call.
__device__ inline std::int64_t first_number(const Call& call, std::int64_t row) {
    const WeightGrid& grid = call.grid;
    const std::int64_t head = row / call.queries, query = row % call.queries;
    const std::int64_t b = head / call.heads, h = head % call.heads;
    const std::int64_t grid_row =
        (b * grid.heads + grid.first_head + h) * grid.queries + grid.first_query + query;
    return grid_row * grid.keys + grid.first_key;
}

// Returns 16 bits; bit 4 r + c is set if dropout keeps the thread's weight of query `row` + 4 y + r
// and key `key` + x + 16 c. The lanes of a half warp compute different blocks of four random
// numbers of a row and exchange them. `row` is the index of the tile's first query among all
// queries of the call.
__device__ inline unsigned kept_in_rows(const Call& call, std::int64_t row, int key) {
    static_assert(kTile == 4 * kSide);
    const Philox random = call.random.resolved();
    const std::int64_t first = first_number(call, row);
    unsigned kept = 0;
#pragma unroll
    for (int r = 0; r < kEach; ++r) {
        const auto number =
            static_cast<std::uint64_t>(first + (row_of_thread() + r) * call.grid.keys + key);
        const auto early = static_cast<int>(number % 4);
        const auto lane = static_cast<unsigned>(lane_of_row());
        const unsigned mine = kept_bits(random, number / 4 + lane, call.dropout_p);
        const unsigned last =
            early == 0 ? 0 : kept_bits(random, number / 4 + kSide, call.dropout_p);
#pragma unroll
        for (int c = 0; c < kEach; ++c) {
            const int element = lane_of_row() + c * kSide + early;
            const unsigned theirs = __shfl_sync(kAllLanes, mine, element / 4 % kSide, kSide);
            const unsigned bits = element / 4 < kSide ? theirs : last;
            kept |= (bits >> (element % 4) & 1u) << (kEach * r + c);
        }
    }
    return kept;
}
// Returns the same bits as kept_in_rows, for tiles whose rows are keys. Bit 4 r + c is for the
// weight of query `row` + x + 16 c and key `key` + 4 y + r. Each thread uses four consecutive
// numbers per query.
__device__ inline unsigned kept_in_columns(const Call& call, std::int64_t row, int key) {
    static_assert(kEach == 4);
    const Philox random = call.random.resolved();
    const std::int64_t first = first_number(call, row);
    unsigned kept = 0;
#pragma unroll
    for (int c = 0; c < kEach; ++c) {
        const auto number = static_cast<std::uint64_t>(
            first + (lane_of_row() + c * kSide) * call.grid.keys + key + row_of_thread());
        const auto early = static_cast<int>(number % 4);
        unsigned bits = kept_bits(random, number / 4, call.dropout_p);
        if (early != 0) bits |= kept_bits(random, number / 4 + 1, call.dropout_p) << 4;
        bits >>= early;
#pragma unroll
        for (int r = 0; r < kEach; ++r) kept |= (bits >> r & 1u) << (kEach * r + c);
    }
    return kept;
}

// Calls f<T, kDepth>() with the type of the dtype and the number of columns of a head in a tile.
template <class F>
void visit_depth(DType t, std::int64_t depth, F&& f) {
    if (t == DType::f64) return f.template operator()<double, 64>();
    visit_float(t, [&]<class T>() {
        if constexpr (!std::is_same_v<T, double>) {
            if (depth <= 64)
                f.template operator()<T, 64>();
            else
                f.template operator()<T, 128>();
        }
    });
}

// Returns lse. For a row without keys, returns a number that makes all weights of the row 0.
template <class C>
__device__ inline C finite_lse(C lse) {
    return lse == kMinusInfinity<C> ? -kMinusInfinity<C> : lse;
}

// Computes the gradients of keys and values; dk or dv can be without data. delta = rowsum(dout *
// out) is [B, H, Tq], contiguous, in lse's dtype.
void keys_backward(Cuda& on, const Call& call, const ConstView& dout, const ConstView& q,
                   const ConstView& k, const ConstView& v, const ConstView& lse, const void* delta,
                   const View& dk, const View& dv);

// Returns the size in bytes of `operands` tiles and one tile of weights.
template <class C, int kDepth>
constexpr std::size_t tile_bytes(int operands) {
    return sizeof(C) * kTile *
           static_cast<std::size_t>(operands * kPitch<C, kDepth> + kPitch<C, kTile>);
}

}  // namespace axle::kernels::attend
