// Private to kernels: the tiles that attention and its gradients are computed in.
//
// A block of 256 threads owns kTile rows (queries or keys) and walks the other side in tiles of
// kTile. Operands lie in shared memory in the type of the arithmetic, one row after another. Thread
// (y, x) of 16 x 16 computes rows 4 y ... 4 y + 3 of every product, so that a row belongs to half a
// warp: its statistics are combined by shuffles, and what the half warp writes of the tile of
// weights it reads back itself. Heads deeper than kDepth are cut: products along the depth run in
// chunks of kDepth, and a block makes one window of kDepth columns of the result.
#pragma once

#include <cassert>

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/start.cuh"
#include "kernels/ops/attention.h"

namespace axle::inline v0::kernels::attend {

inline constexpr int kThreads = 256;
inline constexpr int kTile = 64;
inline constexpr int kSide = 16;             // threads along each side of a tile
inline constexpr int kEach = kTile / kSide;  // rows, and columns of weights, of a thread

// What shared memory is read in: 16 bytes of the arithmetic's type.
template <class C>
inline constexpr int kVector = 16 / static_cast<int>(sizeof(C));
// From row to row, so that rows start in different banks.
template <class C, int kWidth>
inline constexpr int kPitch = kWidth + kVector<C>;

// Blocks that a multiprocessor runs at once, if registers are kept to that.
template <class C, int kDepth>
inline constexpr int kBlocks = sizeof(C) * kDepth <= 256 ? 2 : 1;

template <class C>
inline constexpr C kMinusInfinity = -std::numeric_limits<C>::infinity();

// A 4-d operand; `packed` if its rows can be read in packs of 16 bytes.
template <class T>
struct Operand {
    T* data = nullptr;
    std::int64_t stride[4] = {};
    bool packed = false;

    __device__ T* head(std::int64_t b, std::int64_t h) const {
        return data + b * stride[0] + h * stride[1];
    }
};
template <class T, class V>
Operand<T> operand(const V& x) {
    Operand<T> y;
    y.data = static_cast<T*>(x.data);
    constexpr std::int64_t kAlign = kPack<std::remove_const_t<T>>;
    y.packed = x.data != nullptr && x.stride[3] == 1 && x.shape[3] % kAlign == 0 &&
               reinterpret_cast<std::uintptr_t>(x.data) % 16 == 0;
    for (int d = 0; d < 4; ++d) {
        y.stride[d] = x.stride[d];
        if (d < 3 && x.stride[d] % kAlign != 0 && x.shape[d] != 1) y.packed = false;
    }
    return y;
}

// lse [B, H, Tq], whose heads are found as those of the others.
template <class C, class V>
Operand<C> lse_operand(const V& lse) {
    Operand<C> y;
    y.data = static_cast<C*>(lse.data);
    for (int d = 0; d < 3; ++d) y.stride[d] = lse.stride[d];
    return y;
}

struct Mask {
    const void* data = nullptr;
    DType dtype = DType::boolean;
    std::int64_t stride[4] = {};

    // What is added to a score.
    template <class C>
    __device__ C at(std::int64_t place) const {
        switch (dtype) {
            case DType::boolean:
                return static_cast<const std::uint8_t*>(data)[place] != 0 ? C(0)
                                                                          : kMinusInfinity<C>;
            case DType::f64:
                return static_cast<C>(static_cast<const double*>(data)[place]);
            case DType::f32:
                return static_cast<C>(static_cast<const float*>(data)[place]);
            case DType::f16:
                return static_cast<C>(static_cast<float>(static_cast<const Half*>(data)[place]));
            default:
                return static_cast<C>(
                    static_cast<float>(static_cast<const BFloat16*>(data)[place]));
        }
    }
};

// The call, as kernels see it. Query i sees keys j <= i + offset. Lengths are below 2^30.
struct Call {
    std::int64_t batch;
    int heads, groups, queries, keys, depth, offset;
    Mask mask;
    double scale;
    bool drops;
    float dropout_p;
    double kept;  // what a kept weight is multiplied with
    Philox random;

    std::int64_t query_tiles() const { return (queries + kTile - 1) / kTile; }
    std::int64_t key_tiles() const { return (keys + kTile - 1) / kTile; }
};
inline Call call_of(const ConstView& q, const ConstView& k, const ConstView& mask,
                    const AttentionParams& params) {
    Call call;
    const auto size = [](std::int64_t n) {
        assert(n < 1 << 30);
        return static_cast<int>(n);
    };
    call.batch = q.shape[0], call.heads = size(q.shape[1]), call.groups = size(k.shape[1]);
    call.queries = size(q.shape[2]), call.keys = size(k.shape[2]), call.depth = size(q.shape[3]);
    call.offset = params.causal ? static_cast<int>(std::clamp<std::int64_t>(
                                      params.causal_offset, -q.shape[2], k.shape[2]))
                                : call.keys;
    call.mask.data = mask.data, call.mask.dtype = mask.dtype;
    for (int d = 0; d < 4; ++d) call.mask.stride[d] = mask.stride[d];
    call.scale = params.scale;
    call.drops = params.dropout_p > 0;
    call.dropout_p = static_cast<float>(params.dropout_p);
    call.kept = 1 / (1 - params.dropout_p);
    call.random = params.random;
    return call;
}

// Which part of the result a block makes. Blocks count windows fastest, then heads; tiles are
// slowest, so that the longest of a causal call can be started first.
struct Share {
    std::int64_t b;
    int tile, h;
    int window;  // first column

    __device__ Share(std::int64_t block, int heads, std::int64_t batch, int depth, int width) {
        const std::int64_t windows = depth > width ? (depth + width - 1) / width : 1;
        window = static_cast<int>(block % windows) * width;
        block /= windows;
        h = static_cast<int>(block % heads), block /= heads;
        b = block % batch, tile = static_cast<int>(block / batch);
    }
};
inline std::int64_t shares(std::int64_t tiles, std::int64_t heads, std::int64_t batch, int depth,
                           int width) {
    return tiles * heads * batch * std::max(1, (depth + width - 1) / width);
}

__device__ inline int row_of_thread() { return static_cast<int>(threadIdx.x) / kSide * kEach; }
__device__ inline int lane_of_row() { return static_cast<int>(threadIdx.x) % kSide; }

// Columns that a tile holds of `depth`, from `first`.
__device__ inline int width_at(int depth, int first, int most) {
    return depth - first < most ? depth - first : most;
}

// Rows [first, first + kTile) of a matrix, `width` columns from `column` on, times `factor`. Rows
// from `rows` on are zero, as are columns up to a whole vector.
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

// sum[r][c] += row (4 y + r) of a . row (x + 16 c) of b
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

// A thread's part of a result [kTile][kDepth]: rows 4 y + r, columns (x + 16 g) kVector + e.
template <int kDepth, class C>
struct Result {
    static constexpr int kGroups = kDepth / (kSide * kVector<C>);
    C at[kEach][kGroups][kVector<C>] = {};

    // += weights [kTile][kTile] b [kTile][kDepth], of which `width` columns matter.
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

    // Rows from `first` on below `rows`, columns from `column` on.
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

// Writes a thread's weights into the tile that Result::add reads, rows of half a warp by itself.
template <class C>
__device__ inline void put_weights(const C (&weight)[kEach][kEach], C* tile) {
    __syncwarp();  // the last ones have been read
#pragma unroll
    for (int r = 0; r < kEach; ++r)
#pragma unroll
        for (int c = 0; c < kEach; ++c)
            tile[(row_of_thread() + r) * kPitch<C, kTile> + lane_of_row() + c * kSide] =
                weight[r][c];
    __syncwarp();
}

// The score of (query i, key j) of a head whose mask starts at `mask`, or minus infinity.
template <class C>
__device__ inline C masked(const Call& call, std::int64_t mask, int i, int j, C score) {
    if (i >= call.queries || j >= call.keys || j > i + call.offset) return kMinusInfinity<C>;
    if (call.mask.data == nullptr) return score;
    return score + call.mask.at<C>(mask + i * call.mask.stride[2] + j * call.mask.stride[3]);
}

// exp, to the precision that the result is stored with.
template <class T, class C>
__device__ inline C exponential(C x) {
    if constexpr (sizeof(T) == 2)
        return __expf(x);
    else
        return exp(x);
}

// Four bits: which of the numbers 4 block ... 4 block + 3 are at least p.
__device__ inline unsigned kept_bits(const Philox& random, std::uint64_t block, float p) {
    const auto words = random.block(block);
    unsigned bits = 0;
#pragma unroll
    for (unsigned w = 0; w < 4; ++w) bits |= (Philox::to_unit(words[w]) >= p ? 1u : 0u) << w;
    return bits;
}

// Bit 4 r + c: whether the thread's weight (query first + 4 y + r, key + x + 16 c) is kept. A row's
// blocks of four numbers are dealt to the lanes of its half warp. `row` is the number of the tile's
// first query among all of the call.
__device__ inline unsigned kept_in_rows(const Call& call, std::int64_t row, int key) {
    static_assert(kTile == 4 * kSide);
    const Philox random = call.random.resolved();
    unsigned kept = 0;
#pragma unroll
    for (int r = 0; r < kEach; ++r) {
        const auto number =
            static_cast<std::uint64_t>((row + row_of_thread() + r) * call.keys + key);
        const auto early = static_cast<int>(number % 4);
        const auto lane = static_cast<unsigned>(lane_of_row());
        const unsigned mine = kept_bits(random, number / 4 + lane, call.dropout_p);
        const unsigned last =
            call.keys % 4 == 0 ? 0 : kept_bits(random, number / 4 + kSide, call.dropout_p);
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
// The same where rows are keys: weight (query row + x + 16 c, key + 4 y + r), whose four numbers
// follow each other.
__device__ inline unsigned kept_in_columns(const Call& call, std::int64_t row, int key) {
    static_assert(kEach == 4);
    const Philox random = call.random.resolved();
    unsigned kept = 0;
#pragma unroll
    for (int c = 0; c < kEach; ++c) {
        const auto number = static_cast<std::uint64_t>(
            (row + lane_of_row() + c * kSide) * call.keys + key + row_of_thread());
        const auto early = static_cast<int>(number % 4);
        unsigned bits = kept_bits(random, number / 4, call.dropout_p);
        if (early != 0) bits |= kept_bits(random, number / 4 + 1, call.dropout_p) << 4;
        bits >>= early;
#pragma unroll
        for (int r = 0; r < kEach; ++r) kept |= (bits >> r & 1u) << (kEach * r + c);
    }
    return kept;
}

// f<T, kDepth>() with the columns that a block keeps of a head.
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

// A row's log-sum-exp, such that a row that sees nothing has weights of 0.
template <class C>
__device__ inline C finite_lse(C lse) {
    return lse == kMinusInfinity<C> ? -kMinusInfinity<C> : lse;
}

// The gradients of keys and values, with delta = rowsum(dout out), [B, H, Tq] in the type of lse.
void keys_backward(Cuda& on, const Call& call, const ConstView& dout, const ConstView& q,
                   const ConstView& k, const ConstView& v, const ConstView& lse, const void* delta,
                   const View& dk, const View& dv);

// Bytes of `operands` tiles and one of weights.
template <class C, int kDepth>
constexpr std::size_t tile_bytes(int operands) {
    return sizeof(C) * kTile *
           static_cast<std::size_t>(operands * kPitch<C, kDepth> + kPitch<C, kTile>);
}

}  // namespace axle::inline v0::kernels::attend
