// Helpers of both passes of attention, for the current SIMD target: vectors of doubles, conversion
// and transposition, small matrix products, scores, masks and dropout.
//
// Highway's foreach_target.h includes this file once per target; the toggle below is its include
// guard.
#if defined(AXLE_KERNELS_CPU_ATTENTION_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef AXLE_KERNELS_CPU_ATTENTION_TILE_INL_H_
#undef AXLE_KERNELS_CPU_ATTENTION_TILE_INL_H_
#else
#define AXLE_KERNELS_CPU_ATTENTION_TILE_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include <hwy/highway.h>

#include "kernels/cpu/attention/attention_job.h"
#include "kernels/cpu/lanes.h"
#include "kernels/cpu/random/philox-inl.h"
#include "kernels/cpu/simd-inl.h"
#include "kernels/walk.h"

HWY_BEFORE_NAMESPACE();
namespace axle::kernels::HWY_NAMESPACE {

// A Pack of doubles with the operations that attention needs.
struct DoublePack {
    using Tag = hn::ScalableTag<double>;
    using Mask = hn::Mask<Tag>;
    static constexpr std::int64_t kLanes = hn::MaxLanes(Tag());

    StoredVec<Tag> v;

    DoublePack() = default;
    HWY_INLINE DoublePack(hn::Vec<Tag> x) : v(x) {}  // NOLINT
    HWY_INLINE explicit DoublePack(double x) : v(hn::Set(Tag(), x)) {}
    static HWY_INLINE DoublePack load(const double* p) { return hn::LoadU(Tag(), p); }
    HWY_INLINE void store(double* p) const { hn::StoreU(v, Tag(), p); }

    friend HWY_INLINE DoublePack operator+(DoublePack a, DoublePack b) { return hn::Add(a.v, b.v); }
    friend HWY_INLINE DoublePack operator-(DoublePack a, DoublePack b) { return hn::Sub(a.v, b.v); }
    friend HWY_INLINE DoublePack operator*(DoublePack a, DoublePack b) { return hn::Mul(a.v, b.v); }
    friend HWY_INLINE Mask operator==(DoublePack a, DoublePack b) { return hn::Eq(a.v, b.v); }
    friend HWY_INLINE DoublePack select(Mask m, DoublePack yes, DoublePack no) {
        return hn::IfThenElse(m, yes.v, no.v);
    }
};
HWY_INLINE DoublePack fma(DoublePack a, DoublePack b, DoublePack c) {
    return hn::MulAdd(a.v, b.v, c.v);
}
HWY_INLINE DoublePack max(DoublePack a, DoublePack b) { return hn::Max(a.v, b.v); }
HWY_INLINE double sum_of(DoublePack a) {
    return hn::GetLane(hn::SumOfLanes(DoublePack::Tag(), hn::Vec<DoublePack::Tag>(a.v)));
}
HWY_INLINE DoublePack exp(DoublePack x) {
    double lane[DoublePack::kLanes];
    x.store(lane);
    for (double& value : lane) value = std::exp(value);
    return DoublePack::load(lane);
}

template <class Lane>
struct PackFor {
    using type = Pack;
};
template <>
struct PackFor<double> {
    using type = DoublePack;
};
template <class Lane>
using PackOf = typename PackFor<Lane>::type;

template <class Lane>
inline constexpr Lane kMinusInfinity = -std::numeric_limits<Lane>::infinity();

static_assert(kStep % Pack::kLanes == 0 && kPad % Pack::kLanes == 0);

// Computes c[m][n] = (add ? c[m][n] : 0) + sum over k of a[m * a_row + k * a_column] b[k * b_row +
// n]. kRows rows of c and kPacks packs of columns stay in registers.
template <int kRows, int kPacks, class Lane>
HWY_INLINE void product_registers(std::int64_t depth, const Lane* HWY_RESTRICT a,
                                  std::int64_t a_row, std::int64_t a_column,
                                  const Lane* HWY_RESTRICT b, std::int64_t b_row,
                                  Lane* HWY_RESTRICT c, std::int64_t c_row, bool add) {
    using V = PackOf<Lane>;
    V sum[kRows][kPacks];
    HWY_UNROLL(8)
    for (int r = 0; r < kRows; ++r) {
        HWY_UNROLL(4)
        for (int p = 0; p < kPacks; ++p) sum[r][p] = V(Lane(0));
    }
    for (std::int64_t k = 0; k < depth; ++k) {
        V row[kPacks];
        HWY_UNROLL(4)
        for (int p = 0; p < kPacks; ++p) row[p] = V::load(b + k * b_row + p * V::kLanes);
        HWY_UNROLL(8)
        for (int r = 0; r < kRows; ++r) {
            const V factor(a[r * a_row + k * a_column]);
            HWY_UNROLL(4)
            for (int p = 0; p < kPacks; ++p) sum[r][p] = fma(factor, row[p], sum[r][p]);
        }
    }
    HWY_UNROLL(8)
    for (int r = 0; r < kRows; ++r) {
        HWY_UNROLL(4)
        for (int p = 0; p < kPacks; ++p) {
            Lane* const at_c = c + r * c_row + p * V::kLanes;
            (add ? V::load(at_c) + sum[r][p] : sum[r][p]).store(at_c);
        }
    }
}

template <int kPacks, class Lane>
HWY_NOINLINE void product_columns(std::int64_t rows, std::int64_t depth, const Lane* a,
                                  std::int64_t a_row, std::int64_t a_column, const Lane* b,
                                  std::int64_t b_row, Lane* c, std::int64_t c_row, bool add) {
    std::int64_t r = 0;
    const auto compute = [&]<int kRows>() HWY_ATTR {
        for (; r + kRows <= rows; r += kRows)
            product_registers<kRows, kPacks>(depth, a + r * a_row, a_row, a_column, b, b_row,
                                             c + r * c_row, c_row, add);
    };
    // At least eight sums hide the latency of multiply-adds.
    if constexpr (kPacks <= 2) compute.template operator()<8>();
    compute.template operator()<4>();
    compute.template operator()<1>();
}

// Computes c [rows, columns] = (add ? c : 0) + a [rows, depth] b [depth, columns], where columns is
// a multiple of the number of lanes. If a is transposed in memory, a_row is 1.
template <class Lane>
void product(std::int64_t rows, std::int64_t columns, std::int64_t depth, const Lane* a,
             std::int64_t a_row, std::int64_t a_column, const Lane* b, std::int64_t b_row, Lane* c,
             std::int64_t c_row, bool add) {
    // 4 x 2 sums and their operands fit in the 16 vector registers of AVX2, and 4 x 4 sums in 32
    // registers.
    constexpr std::int64_t kMaxPacks = HWY_TARGET == HWY_AVX2 ? 2 : 4;
    constexpr std::int64_t kLanes = PackOf<Lane>::kLanes;
    for (std::int64_t n = 0; n < columns;) {
        const std::int64_t packs = std::min(kMaxPacks, (columns - n) / kLanes);
        const auto compute = packs == 4   ? product_columns<4, Lane>
                             : packs == 3 ? product_columns<3, Lane>
                             : packs == 2 ? product_columns<2, Lane>
                                          : product_columns<1, Lane>;
        compute(rows, depth, a, a_row, a_column, b + n, b_row, c + n, c_row, add);
        n += packs * kLanes;
    }
}

#if HWY_TARGET == HWY_SCALAR
// Computes y[c][r] = x[r][c] for r < rows, c < columns.
template <class Lane>
void transpose(const Lane* x, std::int64_t x_row, std::int64_t rows, std::int64_t columns, Lane* y,
               std::int64_t y_row) {
    for (std::int64_t r = 0; r < rows; ++r)
        for (std::int64_t c = 0; c < columns; ++c) y[c * y_row + r] = x[r * x_row + c];
}
#else
// Loads four floats from each of kCount rows into one vector. The rows are x_step elements apart.
template <int kCount>
HWY_INLINE auto load_quads(const float* x, std::int64_t x_step) {
    const hn::CappedTag<float, 4 * kCount> d;
    if constexpr (kCount == 1) {
        return hn::LoadU(d, x);
    } else {
        return hn::Combine(d, load_quads<kCount / 2>(x + kCount / 2 * x_step, x_step),
                           load_quads<kCount / 2>(x, x_step));
    }
}
// Computes y[c][r] = x[r][c] for r < Pack::kLanes and c < 4. The 128-bit blocks at one position of
// the four vectors form a 4 x 4 matrix, which is transposed.
HWY_INLINE void transpose_quads(const float* x, std::int64_t x_row, float* y, std::int64_t y_row) {
    constexpr int kQuads = static_cast<int>(Pack::kLanes) / 4;
    const FloatTag d;
    const auto r0 = load_quads<kQuads>(x, 4 * x_row);
    const auto r1 = load_quads<kQuads>(x + x_row, 4 * x_row);
    const auto r2 = load_quads<kQuads>(x + 2 * x_row, 4 * x_row);
    const auto r3 = load_quads<kQuads>(x + 3 * x_row, 4 * x_row);
    const auto even_low = hn::InterleaveLower(d, r0, r2), odd_low = hn::InterleaveLower(d, r1, r3);
    const auto even_high = hn::InterleaveUpper(d, r0, r2),
               odd_high = hn::InterleaveUpper(d, r1, r3);
    hn::StoreU(hn::InterleaveLower(d, even_low, odd_low), d, y);
    hn::StoreU(hn::InterleaveUpper(d, even_low, odd_low), d, y + y_row);
    hn::StoreU(hn::InterleaveLower(d, even_high, odd_high), d, y + 2 * y_row);
    hn::StoreU(hn::InterleaveUpper(d, even_high, odd_high), d, y + 3 * y_row);
}
// Computes y[c][r] = x[r][c] for r < rows, c < columns. rows and columns are multiples of kStep.
template <class Lane>
void transpose(const Lane* x, std::int64_t x_row, std::int64_t rows, std::int64_t columns, Lane* y,
               std::int64_t y_row) {
    if constexpr (std::is_same_v<Lane, float>) {
        for (std::int64_t r = 0; r < rows; r += Pack::kLanes)
            for (std::int64_t c = 0; c < columns; c += 4)
                transpose_quads(x + r * x_row + c, x_row, y + c * y_row + r, y_row);
    } else {
        for (std::int64_t r = 0; r < rows; ++r)
            for (std::int64_t c = 0; c < columns; ++c) y[c * y_row + r] = x[r * x_row + c];
    }
}
#endif

// A block of rows, with `step` elements from one row to the next.
template <class Lane>
struct RowBlock {
    const Lane* data;
    std::int64_t step;
};

// Returns whether the rows of a 4-d view are contiguous lanes of length `pitch`.
template <class Lane>
bool are_lanes(const ConstView& x, std::int64_t pitch) {
    return x.dtype == dtype_of<Lane> && x.stride[3] == 1 && x.shape[3] == pitch;
}

// Loads rows [first, first + rows) of head (b, h) of a 4-d view into block[rows][pitch]. The
// elements of a row are followed by zeros up to `pitch`.
template <class Lane>
void load_rows(const ConstView& x, std::int64_t b, std::int64_t h, std::int64_t first,
               std::int64_t rows, std::int64_t pitch, Lane* block) {
    const std::int64_t depth = x.shape[3];
    const std::int64_t head = b * x.stride[0] + h * x.stride[1];
    if (are_lanes<Lane>(x, pitch)) {
        using V = PackOf<Lane>;
        const Lane* from = x.as<Lane>() + head + first * x.stride[2];
        for (std::int64_t r = 0; r < rows; ++r, from += x.stride[2], block += pitch)
            for (std::int64_t d = 0; d < depth; d += V::kLanes) V::load(from + d).store(block + d);
        return;
    }
    for (std::int64_t r = 0; r < rows; ++r, block += pitch) {
        const void* row = at(x.data, x.dtype, head + (first + r) * x.stride[2]);
        const Lane* lanes = load_lanes<Lane>(row, x.dtype, x.stride[3], depth, block);
        if (lanes != block)
            std::memcpy(block, lanes, static_cast<std::size_t>(depth) * sizeof(Lane));
        std::fill(block + depth, block + pitch, Lane(0));
    }
}
// Returns the rows in memory if they need neither conversion nor zeros; otherwise loads them into
// block.
template <class Lane>
RowBlock<Lane> rows_of(const ConstView& x, std::int64_t b, std::int64_t h, std::int64_t first,
                       std::int64_t rows, std::int64_t pitch, Lane* block) {
    if (are_lanes<Lane>(x, pitch))
        return {x.as<Lane>() + b * x.stride[0] + h * x.stride[1] + first * x.stride[2],
                x.stride[2]};
    load_rows(x, b, h, first, rows, pitch, block);
    return {block, pitch};
}
template <class Lane>
void store_rows(const Lane* block, std::int64_t pitch, std::int64_t rows, const View& y,
                std::int64_t b, std::int64_t h, std::int64_t first) {
    const std::int64_t head = b * y.stride[0] + h * y.stride[1], depth = y.shape[3];
    if (y.dtype == dtype_of<Lane> && y.stride[3] == 1 && depth % PackOf<Lane>::kLanes == 0) {
        using V = PackOf<Lane>;
        Lane* to = y.as<Lane>() + head + first * y.stride[2];
        for (std::int64_t r = 0; r < rows; ++r, to += y.stride[2], block += pitch)
            for (std::int64_t d = 0; d < depth; d += V::kLanes) V::load(block + d).store(to + d);
        return;
    }
    for (std::int64_t r = 0; r < rows; ++r)
        store_lanes<Lane>(block + r * pitch, at(y.data, y.dtype, head + (first + r) * y.stride[2]),
                          y.dtype, y.stride[3], y.shape[3]);
}

template <class Lane>
HWY_INLINE void scale_block(Lane* x, std::int64_t n, Lane factor) {
    using V = PackOf<Lane>;
    for (std::int64_t i = 0; i < n; i += V::kLanes) (V::load(x + i) * V(factor)).store(x + i);
}

// Adds the mask to the scores of a tile. If the mask is the same for all queries (stride 0), it is
// loaded as one row.
template <class Lane>
void add_mask(const Job& job, const Rows& at_rows, const Keys& keys, Lane* rows_buffer,
              Lane* tile_buffer, Lane* scores) {
    using V = PackOf<Lane>;
    const ConstView& mask = job.mask;
    const std::int64_t head = at_rows.b * mask.stride[0] + at_rows.h * mask.stride[1];
    const std::int64_t count = keys.end - keys.begin;
    const std::int64_t rows = mask.stride[2] == 0 ? 1 : at_rows.count;
    for (std::int64_t r = 0; r < rows; ++r) {
        const void* row =
            at(mask.data, mask.dtype,
               head + (at_rows.first + r) * mask.stride[2] + keys.begin * mask.stride[3]);
        Lane* const buffer = rows_buffer + r * kRowBlock;
        const Lane* lanes = load_lanes<Lane>(row, mask.dtype, mask.stride[3], count, buffer);
        if (mask.dtype == DType::boolean)
            for (std::int64_t j = 0; j < count; ++j)
                buffer[j] = lanes[j] != Lane(0) ? Lane(0) : kMinusInfinity<Lane>;
        else if (lanes != buffer)
            std::memcpy(buffer, lanes, static_cast<std::size_t>(count) * sizeof(Lane));
    }
    if (rows > 1) transpose(rows_buffer, kRowBlock, kRowBlock, kKeyBlock, tile_buffer, kRowBlock);
    for (std::int64_t j = 0; j < count; ++j)
        for (std::int64_t i = keys.first_row; i < kRowBlock; i += V::kLanes) {
            Lane* const score = scores + j * kRowBlock + i;
            const V bias = rows > 1 ? V::load(tile_buffer + j * kRowBlock + i) : V(rows_buffer[j]);
            (V::load(score) + bias).store(score);
        }
}

// Sets the scores of keys j > i + causal_offset to -infinity, for the kStep queries i on the
// diagonal.
template <class Lane>
void hide_future(const Job& job, const Rows& at_rows, const Keys& keys, Lane* scores) {
    for (std::int64_t j = keys.begin; j < keys.end; ++j) {
        const std::int64_t visible = j - job.params.causal_offset - at_rows.first;
        Lane* const row = scores + (j - keys.begin) * kRowBlock;
        for (std::int64_t i = keys.first_row; i < std::min(visible, keys.first_row + kStep); ++i)
            row[i] = kMinusInfinity<Lane>;
    }
}

// Computes factors[j][i] = 1 / (1 - p) if weight (i, j) is kept, else 0, with queries i along the
// lanes. Random numbers are generated in groups of four per query (one Philox block). If `aligned`
// is true, the first key of this block is the first key of a group for every query; factors of type
// float are then stored as packs.
template <class Lane>
void dropout_factors(const Job& job, const Rows& at_rows, const Keys& keys, Lane* factors) {
    const std::int64_t count = keys.end - keys.begin;
    const auto kept = static_cast<Lane>(1 / (1 - job.params.dropout_p));
    const auto p = static_cast<float>(job.params.dropout_p);
    const WeightGrid& grid = job.params.grid;
    const std::int64_t first_key = grid.first_key + keys.begin;
    const bool aligned = grid.keys % 4 == 0 && first_key % 4 == 0;
    float units[4][Pack::kLanes];
    for (std::int64_t i = keys.first_row; i < at_rows.padded; i += Pack::kLanes) {
        const std::int64_t head = at_rows.b * grid.heads + grid.first_head + at_rows.h;
        const std::int64_t row = head * grid.queries + grid.first_query + at_rows.first + i;
        // The index of the random number for weight (i, keys.begin).
        const std::int64_t number = row * grid.keys + first_key;
        // The first group of a lane can begin up to three keys before the block.
        for (std::int64_t four = 0; four < count + (aligned ? 0 : 3); four += 4) {
            philox_units(job.params.random, number + four, grid.keys, units[0]);
            for (std::int64_t lane = 0; lane < (aligned ? 0 : Pack::kLanes); ++lane) {
                const std::int64_t early = (number + lane * grid.keys) % 4;
                for (std::int64_t w = 0; w < 4; ++w) {
                    const std::int64_t j = four + w - early;
                    if (j < 0 || j >= count) continue;
                    factors[j * kRowBlock + i + lane] = units[w][lane] >= p ? kept : Lane(0);
                }
            }
            for (std::int64_t w = 0; w < (aligned ? std::min<std::int64_t>(4, count - four) : 0);
                 ++w) {
                Lane* const to = factors + (four + w) * kRowBlock + i;
                if constexpr (std::is_same_v<Lane, float>)
                    select(Pack::load(units[w]) >= Pack(p), Pack(kept), Pack(0.0f)).store(to);
                else
                    for (std::int64_t lane = 0; lane < Pack::kLanes; ++lane)
                        to[lane] = units[w][lane] >= p ? kept : Lane(0);
            }
        }
    }
}

// Computes scores[j][i] = q_i . k_j + mask for a tile, with queries i along the lanes. q is already
// transposed and scaled.
template <class Lane>
void score_tile(const Job& job, const Rows& at_rows, const Keys& keys, const RowBlock<Lane>& k,
                const Lane* q, Lane* rows_buffer, Lane* tile_buffer, Lane* scores) {
    const std::int64_t count = keys.end - keys.begin;
    product(count, at_rows.padded - keys.first_row, job.depth, k.data, k.step, std::int64_t{1},
            q + keys.first_row, kRowBlock, scores + keys.first_row, kRowBlock, false);
    if (job.mask.data != nullptr) add_mask(job, at_rows, keys, rows_buffer, tile_buffer, scores);
    if (keys.diagonal) hide_future(job, at_rows, keys, scores);
}

}  // namespace axle::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // toggle
