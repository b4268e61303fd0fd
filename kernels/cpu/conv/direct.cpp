// Correlations with few output channels, for example depthwise convolutions and the first layer of
// a small network. Packing panels of pixels would take most of the time, because few rows of the
// weight share them. So each tap reads a vector of adjacent pixels directly from the staged rows.
//
// A task computes some rows of the output in one group of one image, in tiles of up to kMaxRows
// channels and a few vectors of pixels. A vector never contains pixels of two rows; its lanes after
// the end of a row are undefined and not stored. Every output is one sum, in the order of the bias,
// the channels and the taps, and so it does not depend on the number of threads.
#include "kernels/cpu/conv/conv.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/conv/direct.cpp"
#include "kernels/cpu/targets.h"
//
#include <hwy/foreach_target.h>
//
#include "kernels/cpu/simd-inl.h"

#ifndef AXLE_KERNELS_CPU_CONV_DIRECT_TILE_
#define AXLE_KERNELS_CPU_CONV_DIRECT_TILE_
namespace axle::kernels {
namespace {

// The rows of a tile have 1, 2, 4, 6 or 8 elements; narrow ones have more vectors, so that there
// are enough independent sums.
constexpr int kMaxRows = 8;
constexpr int kMaxVectors = 4;
constexpr int vectors_of(std::int64_t rows) { return rows <= 2 ? 4 : 2; }

// A vector of adjacent pixels.
struct PixelVector {
    std::int64_t from;   // position in the staged rows
    std::int64_t to;     // position in the output
    std::int64_t count;  // number of pixels
};

template <class T>
struct DirectTile {
    const T* source;  // staged rows
    std::int64_t channels, channel_step;
    const std::int64_t* tap;
    std::int64_t taps;
    const T* a;  // a panel of the weight, with a line per bias, channel and tap
    std::int64_t a_step;
    bool has_bias;
    std::int64_t rows;  // number of rows to store
    T* out;
    std::int64_t out_step;  // distance between the rows of the output
};

template <class T>
struct DirectKernels {
    std::int64_t lanes;
    // Computes vectors_of(rows) vectors of pixels for a tile of 1, 2, 4, 6 or 8 rows. Reads up to
    // kPanelSlack elements after the last pixel.
    using Tile = void (*)(const DirectTile<T>& tile, const PixelVector* pixels);
    Tile tiles[kMaxRows / 2 + 1];  // indexed by rows / 2
};

}  // namespace
}  // namespace axle::kernels
#endif

HWY_BEFORE_NAMESPACE();
namespace axle::kernels::HWY_NAMESPACE {
namespace {

template <class T, int kRows>
void direct_tile(const DirectTile<T>& tile, const PixelVector* pixels) {
    const hn::ScalableTag<T> d;
    constexpr int kVectors = vectors_of(kRows);
    const T* HWY_RESTRICT a = tile.a;
    StoredVec<decltype(d)> sum[kRows][kVectors];
    HWY_UNROLL(8)
    for (int i = 0; i < kRows; ++i) {
        const auto first = tile.has_bias ? hn::Set(d, a[i]) : hn::Zero(d);
        HWY_UNROLL(4)
        for (int j = 0; j < kVectors; ++j) sum[i][j] = first;
    }
    if (tile.has_bias) a += tile.a_step;
    const T* from[kVectors];
    for (int j = 0; j < kVectors; ++j) from[j] = tile.source + pixels[j].from;
    const std::int64_t taps = tile.taps, a_step = tile.a_step;
    const std::int64_t* const tap = tile.tap;
    for (std::int64_t c = 0; c < tile.channels; ++c) {
        for (std::int64_t t = 0; t < taps; ++t) {
            StoredVec<decltype(d)> x[kVectors];
            HWY_UNROLL(4)
            for (int j = 0; j < kVectors; ++j) x[j] = hn::LoadU(d, from[j] + tap[t]);
            HWY_UNROLL(8)
            for (int i = 0; i < kRows; ++i) {
                const auto element = hn::Set(d, a[i]);
                HWY_UNROLL(4)
                for (int j = 0; j < kVectors; ++j) sum[i][j] = hn::MulAdd(element, x[j], sum[i][j]);
            }
            a += a_step;
        }
        HWY_UNROLL(4)
        for (int j = 0; j < kVectors; ++j) from[j] += tile.channel_step;
    }
    HWY_UNROLL(8)
    for (int i = 0; i < kRows; ++i) {
        if (i >= tile.rows) break;
        T* const row = tile.out + i * tile.out_step;
        HWY_UNROLL(4)
        for (int j = 0; j < kVectors; ++j)
            store_first(sum[i][j], d, row + pixels[j].to, pixels[j].count);
    }
}

}  // namespace

template <class T>
DirectKernels<T> direct_table() {
    return {hn::MaxLanes(hn::ScalableTag<T>()),
            {&direct_tile<T, 1>, &direct_tile<T, 2>, &direct_tile<T, 4>, &direct_tile<T, 6>,
             &direct_tile<T, 8>}};
}
DirectKernels<float> direct_f32() { return direct_table<float>(); }
DirectKernels<double> direct_f64() { return direct_table<double>(); }

}  // namespace axle::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

#include <type_traits>

#include "kernels/cpu/conv/packed_weight.h"
#include "kernels/cpu/conv/staged_source.h"

namespace axle::kernels {
namespace {

AXLE_DISPATCH(direct_f32);
AXLE_DISPATCH(direct_f64);

template <class T>
const DirectKernels<T>& direct_kernels() {
    static const DirectKernels<T> kernels = [] {
        if constexpr (std::is_same_v<T, float>)
            return AXLE_CALL(direct_f32)();
        else
            return AXLE_CALL(direct_f64)();
    }();
    return kernels;
}

// The maximum number of output channels of a group: more share a packed panel at less cost.
constexpr std::int64_t kMaxChannels = 16;
// The target number of staged elements of a task, which stay in L2, and their maximum.
constexpr std::int64_t kStaged = std::int64_t{1} << 14, kMaxStaged = std::int64_t{1} << 17;

template <class T>
class DirectCorrelator {
  public:
    DirectCorrelator(Cpu& on, const Correlation& p, const T* weight)
        : scratch_(on),
          p_(p),
          tile_rows_(rows_of_tiles(p.m)),
          source_(scratch_, p),
          weight_(on, scratch_, p, weight, p.channels, tile_rows_),
          writes_lanes_(is_lanes<T>(p.out.dtype, p.out.stride[3], p.w.out)) {
        const std::int64_t row = p.channels * source_.row_step();
        rows_ = std::max<std::int64_t>(1, (kStaged / row - p.h.span()) / p.h.step);
        rows_ = even_cut(p.h.out, rows_, 1);
    }

    void run() {
        const std::int64_t cuts = divide_up(p_.h.out, rows_);
        const std::int64_t tasks = p_.groups * p_.source.shape[0] * cuts;
        const std::int64_t work = p_.m * rows_ * p_.w.out * p_.channels * p_.h.count * p_.w.count;
        const std::int64_t group = std::max<std::int64_t>(1, kConvParallel / 2 / work);
        const std::int64_t slots = slots_for(tasks, group);
        const std::int64_t size = staged_size() + sums_size();
        T* const memory = scratch_.take<T>(slots * size);
        PixelVector* const pixels = scratch_.take<PixelVector>(slots * most_vectors());
        parallel_slots(tasks, group, slots, [&](std::int64_t task, std::int64_t slot) {
            const std::int64_t row = task % cuts * rows_;
            const std::int64_t plane = task / cuts;
            compute(plane / p_.groups, plane % p_.groups, row, std::min(rows_, p_.h.out - row),
                    memory + slot * size, pixels + slot * most_vectors());
        });
    }

  private:
    static std::int64_t rows_of_tiles(std::int64_t m) {
        return m == 1 ? 1 : round_up(divide_up(m, divide_up(m, kMaxRows)), 2);
    }
    std::int64_t staged_size() const {
        return round_up(p_.channels * source_.rows_for(rows_) * source_.row_step() + kPanelSlack,
                        16);
    }
    std::int64_t sums_size() const {
        return writes_lanes_ ? 0 : round_up(tile_rows_ * rows_ * p_.w.out, 16);
    }
    std::int64_t most_vectors() const {
        return rows_ * divide_up(p_.w.out, direct_kernels<T>().lanes) + kMaxVectors;
    }

    void compute(std::int64_t image, std::int64_t group, std::int64_t row, std::int64_t rows,
                 T* staged, PixelVector* pixels) const {
        const std::int64_t staged_rows = source_.rows_for(rows);
        source_.stage(image, group, 0, p_.channels, row, staged_rows, staged);
        T* const sums = staged + staged_size();
        const View& y = p_.out;
        const std::int64_t row_to = writes_lanes_ ? y.stride[2] : p_.w.out;
        const std::int64_t vectors = list_pixels(rows, row_to, pixels);
        DirectTile<T> tile;
        tile.source = staged;
        tile.channels = p_.channels, tile.channel_step = staged_rows * source_.row_step();
        tile.tap = source_.taps(), tile.taps = p_.h.count * p_.w.count;
        tile.has_bias = p_.bias.data != nullptr;
        for (std::int64_t i = 0; i < p_.m; i += tile_rows_) {
            tile.rows = std::min(tile_rows_, p_.m - i);
            tile.a = weight_.panel(group, 0, i), tile.a_step = round_up(tile.rows, 2);
            const std::int64_t start =
                image * y.stride[0] + (group * p_.m + i) * y.stride[1] + row * y.stride[2];
            tile.out = writes_lanes_ ? p_.out.template as<T>() + start : sums;
            tile.out_step = writes_lanes_ ? y.stride[1] : rows * p_.w.out;
            const std::int64_t height = tile.rows == 1 ? 1 : tile.a_step;
            const auto compute_tile = direct_kernels<T>().tiles[height / 2];
            for (std::int64_t v = 0; v < vectors; v += vectors_of(height))
                compute_tile(tile, pixels + v);
            if (!writes_lanes_) store(sums, tile.rows, rows, start);
        }
    }

    // Lists the vectors of pixels of `rows` rows, filled up with empty vectors.
    std::int64_t list_pixels(std::int64_t rows, std::int64_t row_to, PixelVector* pixels) const {
        const std::int64_t lanes = direct_kernels<T>().lanes;
        std::int64_t count = 0;
        for (std::int64_t r = 0; r < rows; ++r)
            for (std::int64_t c = 0; c < p_.w.out; c += lanes)
                pixels[count++] = {r * p_.h.step * source_.row_step() + c, r * row_to + c,
                                   std::min(lanes, p_.w.out - c)};
        std::fill(pixels + count, pixels + count + kMaxVectors - 1, PixelVector{0, 0, 0});
        return count;
    }

    void store(const T* sums, std::int64_t channels, std::int64_t rows, std::int64_t start) const {
        const View& y = p_.out;
        for (std::int64_t i = 0; i < channels; ++i)
            for (std::int64_t r = 0; r < rows; ++r, sums += p_.w.out)
                store_lanes(sums, at(y.data, y.dtype, start + i * y.stride[1] + r * y.stride[2]),
                            y.dtype, y.stride[3], p_.w.out);
    }

    Scratch scratch_;
    const Correlation& p_;
    std::int64_t tile_rows_;
    StagedSource<T> source_;
    PackedWeight<T> weight_;
    bool writes_lanes_;  // whether tiles are stored in the output directly
    std::int64_t rows_;  // rows of the output per task
};

}  // namespace

bool suits_direct(const Correlation& p) {
    const std::int64_t taps = p.h.count * p.w.count;
    const std::int64_t width = (p.w.out + p.w.span() / p.w.step) * p.w.step;
    return p.m <= kMaxChannels && taps > 1 && p.channels * (p.h.span() + 1) * width <= kMaxStaged;
}

template <class T>
void direct(Cpu& on, const Correlation& problem, const T* weight) {
    DirectCorrelator<T>(on, problem, weight).run();
}
template void direct(Cpu&, const Correlation&, const float*);
template void direct(Cpu&, const Correlation&, const double*);

}  // namespace axle::kernels

#endif  // HWY_ONCE
