// The gradient of a convolution's weight for few output channels. Its sums over the pixels are
// computed from vectors of adjacent pixels: the gradient of an element of the weight is the product
// of a row of dy and a row of x, which begins at the element's tap.
//
// A task computes all elements of one input channel for a chunk of the images. It copies the
// channel of some images, with zero padding, to scratch memory, and adds their products to a vector
// of sums per element, in tiles of a few output channels and kTileTaps taps. The lanes of the sums,
// and the sums of the chunks, are added at the end in a fixed order. No split depends on the number
// of threads.
#include "kernels/cpu/conv/conv.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/conv/direct_weight.cpp"
#include "kernels/cpu/targets.h"
//
#include <hwy/foreach_target.h>
//
#include "kernels/cpu/simd-inl.h"

#ifndef AXLE_KERNELS_CPU_CONV_DIRECT_WEIGHT_TILE_
#define AXLE_KERNELS_CPU_CONV_DIRECT_WEIGHT_TILE_
namespace axle::kernels {
namespace {

constexpr int kTileTaps = 5;

// Pixels of dy, and the elements of x that they read through the first tap. Steps are distances
// between images and between rows.
struct PixelRows {
    std::int64_t images, rows, width;
    std::int64_t dy_image_step, dy_row_step;
    std::int64_t x_image_step, x_row_step;
};

template <class T>
struct WeightTile {
    const T* dy;
    std::int64_t dy_step;  // distance between output channels
    const T* x;
    const std::int64_t* tap;  // kTileTaps offsets
    T* sums;                  // a vector per output channel and tap
};

template <class T>
struct DirectWeightKernels {
    std::int64_t lanes;
    std::int64_t max_rows;  // 4, or 2 if there are 16 registers
    // Adds the products of all pixels to the sums of 1, 2 or 4 output channels.
    using Tile = void (*)(const WeightTile<T>& tile, const PixelRows& pixels);
    Tile tiles[3];  // indexed by rows / 2
    // Sets to[i] to the sum of the lanes of vector i, for i < n.
    void (*add_lanes)(const T* sums, std::int64_t n, T* to);
};

}  // namespace
}  // namespace axle::kernels
#endif

HWY_BEFORE_NAMESPACE();
namespace axle::kernels::HWY_NAMESPACE {
namespace {

// Loads vectors whose first n lanes are pixels.
template <class T>
struct LastPixels {
    using Tag = hn::ScalableTag<T>;

    explicit LastPixels(std::int64_t n_)
        : n(n_), mask(hn::FirstN(Tag(), static_cast<std::size_t>(n_))) {}
    HWY_INLINE hn::Vec<Tag> operator()(const T* p) const {
#if HWY_MEM_OPS_MIGHT_FAULT && HWY_TARGET != HWY_AVX2
        return load_first(Tag(), p, n);
#else
        return hn::MaskedLoad(mask, Tag(), p);
#endif
    }

    std::int64_t n;
    StoredMask<Tag> mask;
};

template <class T, int kRows>
void weight_tile(const WeightTile<T>& tile, const PixelRows& given) {
    const hn::ScalableTag<T> d;
    using Vec = StoredVec<decltype(d)>;
    constexpr std::int64_t kLanes = hn::MaxLanes(d);
    const PixelRows pixels = given;
    std::int64_t tap[kTileTaps];
    Vec sum[kRows][kTileTaps];
    HWY_UNROLL(5)
    for (int t = 0; t < kTileTaps; ++t) {
        tap[t] = tile.tap[t];
        HWY_UNROLL(4)
        for (int i = 0; i < kRows; ++i)
            sum[i][t] = hn::LoadU(d, tile.sums + (i * kTileTaps + t) * kLanes);
    }
    const std::int64_t step = tile.dy_step;
    const auto add = [&](const T* dy, const T* x, const auto& load) HWY_ATTR {
        Vec gradient[kRows];
        HWY_UNROLL(4)
        for (int i = 0; i < kRows; ++i) gradient[i] = load(dy + i * step);
        HWY_UNROLL(5)
        for (int t = 0; t < kTileTaps; ++t) {
            const Vec source = load(x + tap[t]);
            HWY_UNROLL(4)
            for (int i = 0; i < kRows; ++i) sum[i][t] = hn::MulAdd(gradient[i], source, sum[i][t]);
        }
    };
    const std::int64_t whole = pixels.width / kLanes * kLanes;
    const bool is_whole = whole == pixels.width;
    const LastPixels<T> last(pixels.width - whole);
    for (std::int64_t n = 0; n < pixels.images; ++n) {
        const T* dy = tile.dy + n * pixels.dy_image_step;
        const T* x = tile.x + n * pixels.x_image_step;
        for (std::int64_t r = 0; r < pixels.rows; ++r) {
            for (std::int64_t c = 0; c < whole; c += kLanes)
                add(dy + c, x + c, [&](const T* p) HWY_ATTR { return hn::LoadU(d, p); });
            if (!is_whole) add(dy + whole, x + whole, last);
            dy += pixels.dy_row_step, x += pixels.x_row_step;
        }
    }
    HWY_UNROLL(4)
    for (int i = 0; i < kRows; ++i) {
        HWY_UNROLL(5)
        for (int t = 0; t < kTileTaps; ++t)
            hn::StoreU(sum[i][t], d, tile.sums + (i * kTileTaps + t) * kLanes);
    }
}

template <class T>
void add_lanes(const T* sums, std::int64_t n, T* to) {
    const hn::ScalableTag<T> d;
    constexpr std::int64_t kLanes = hn::MaxLanes(d);
    for (std::int64_t i = 0; i < n; ++i)
        to[i] = hn::GetLane(hn::SumOfLanes(d, hn::LoadU(d, sums + i * kLanes)));
}

#if HWY_TARGET <= HWY_AVX3 || HWY_ARCH_ARM_A64
constexpr int kWeightTileRows = 4;
#else
constexpr int kWeightTileRows = 2;
#endif

template <class T>
DirectWeightKernels<T> direct_weight_table() {
    return {hn::MaxLanes(hn::ScalableTag<T>()),
            kWeightTileRows,
            {&weight_tile<T, 1>, &weight_tile<T, 2>, &weight_tile<T, kWeightTileRows>},
            &add_lanes<T>};
}

}  // namespace

DirectWeightKernels<float> direct_weight_f32() { return direct_weight_table<float>(); }
DirectWeightKernels<double> direct_weight_f64() { return direct_weight_table<double>(); }

}  // namespace axle::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

#include <type_traits>

#include "kernels/cpu/conv/staged_source.h"

namespace axle::kernels {
namespace {

AXLE_DISPATCH(direct_weight_f32);
AXLE_DISPATCH(direct_weight_f64);

template <class T>
const DirectWeightKernels<T>& direct_weight_kernels() {
    static const DirectWeightKernels<T> kernels = [] {
        if constexpr (std::is_same_v<T, float>)
            return AXLE_CALL(direct_weight_f32)();
        else
            return AXLE_CALL(direct_weight_f64)();
    }();
    return kernels;
}

// The maximum number of output channels of a group: more share a packed panel at less cost. The
// same is true if vectors are filled by less than 3 / 4, except for one channel (by measurement).
constexpr std::int64_t kMaxOutputChannels = 16;
// The minimum number of tasks, if the images suffice.
constexpr std::int64_t kMinTasks = 16;
// The target number of elements of dy and x that a tile reads, which stay in L1.
constexpr std::int64_t kTileElements = 6144;

template <class T>
class DirectWeightGradient {
  public:
    DirectWeightGradient(Cpu& on, const Correlation& p, const ConstView& dy, const View& dw)
        : scratch_(on),
          p_(p),
          dy_(dy),
          dw_(dw),
          kernels_(direct_weight_kernels<T>()),
          source_(scratch_, p),
          reads_lanes_(is_lanes<T>(dy.dtype, dy.stride[3], p.w.out)),
          taps_(p.h.count * p.w.count),
          tap_tiles_(divide_up(taps_, kTileTaps)),
          batch_(dy.shape[0]) {
        planes_ = p.groups * p.channels;
        chunk_ =
            divide_up(batch_, std::clamp<std::int64_t>(divide_up(kMinTasks, planes_), 1, batch_));
        chunks_ = divide_up(batch_, chunk_);
        const std::int64_t row = kernels_.max_rows * p.w.out + p.h.step * source_.row_step();
        rows_ = even_cut(p.h.out, std::max<std::int64_t>(1, kTileElements / row), 1);
        images_ = std::clamp<std::int64_t>(kTileElements / (row * rows_), 1, chunk_);
        // The taps of the last tile are filled up with the last tap.
        tap_ = scratch_.take<std::int64_t>(tap_tiles_ * kTileTaps);
        for (std::int64_t t = 0; t < tap_tiles_ * kTileTaps; ++t)
            tap_[t] = source_.taps()[std::min(t, taps_ - 1)];
    }

    void run() {
        const std::int64_t tasks = planes_ * chunks_;
        const std::int64_t work = p_.m * taps_ * chunk_ * p_.h.out * p_.w.out;
        const std::int64_t group = std::max<std::int64_t>(1, kConvParallel / 2 / work);
        const std::int64_t slots = slots_for(tasks, group);
        const std::int64_t size = staged_size() + dy_size() + sums_size();
        T* const memory = scratch_.take<T>(slots * size);
        T* const totals = scratch_.take<T>(tasks * total_size());
        parallel_slots(tasks, group, slots, [&](std::int64_t task, std::int64_t slot) {
            add_up(task / chunks_, task % chunks_, memory + slot * size,
                   totals + task * total_size());
        });
        for (std::int64_t plane = 0; plane < planes_; ++plane)
            finish(plane, totals + plane * chunks_ * total_size());
    }

  private:
    std::int64_t image_size() const { return source_.rows_for(rows_) * source_.row_step(); }
    std::int64_t staged_size() const { return round_up(images_ * image_size() + kPanelSlack, 16); }
    std::int64_t dy_size() const {
        return reads_lanes_ ? 0 : round_up(p_.m * images_ * rows_ * p_.w.out, 16);
    }
    std::int64_t tile_size() const { return tap_tiles_ * kTileTaps; }
    // The number of vectors of sums, and the number of sums of a chunk.
    std::int64_t total_size() const { return p_.m * tile_size(); }
    std::int64_t sums_size() const { return round_up(total_size() * kernels_.lanes, 16); }

    // Computes the sums of a chunk of images for one input channel.
    void add_up(std::int64_t plane, std::int64_t chunk, T* memory, T* totals) const {
        const std::int64_t end = std::min(batch_, (chunk + 1) * chunk_);
        T* const sums = memory + staged_size() + dy_size();
        std::fill(sums, sums + sums_size(), T(0));
        for (std::int64_t n = chunk * chunk_; n < end; n += images_)
            for (std::int64_t r = 0; r < p_.h.out; r += rows_)
                add_pixels(plane, n, std::min(images_, end - n), r, std::min(rows_, p_.h.out - r),
                           memory, sums);
        kernels_.add_lanes(sums, total_size(), totals);
    }

    void add_pixels(std::int64_t plane, std::int64_t image, std::int64_t images, std::int64_t row,
                    std::int64_t rows, T* staged, T* sums) const {
        const std::int64_t staged_rows = source_.rows_for(rows), width = p_.w.out;
        const std::int64_t group = plane / p_.channels;
        T* to = staged;
        for (std::int64_t n = 0; n < images; ++n)
            to = source_.stage(image + n, group, plane % p_.channels, 1, row, staged_rows, to);
        PixelRows pixels;
        pixels.images = images, pixels.rows = rows, pixels.width = width;
        pixels.x_image_step = staged_rows * source_.row_step();
        pixels.x_row_step = p_.h.step * source_.row_step();
        const std::int64_t start =
            image * dy_.stride[0] + group * p_.m * dy_.stride[1] + row * dy_.stride[2];
        WeightTile<T> tile;
        tile.x = staged;
        if (reads_lanes_) {
            tile.dy = dy_.template as<T>() + start;
            tile.dy_step = dy_.stride[1];
            pixels.dy_image_step = dy_.stride[0], pixels.dy_row_step = dy_.stride[2];
        } else {
            tile.dy = load_dy(start, images, rows, staged + staged_size());
            tile.dy_step = images * rows * width;
            pixels.dy_image_step = rows * width, pixels.dy_row_step = width;
        }
        for (std::int64_t i = 0; i < p_.m;) {
            const std::int64_t height = tile_height(i);
            for (std::int64_t t = 0; t < tap_tiles_; ++t) {
                tile.tap = tap_ + t * kTileTaps;
                tile.sums = sums + (i * tap_tiles_ + t * height) * kTileTaps * kernels_.lanes;
                kernels_.tiles[height / 2](tile, pixels);
            }
            i += height, tile.dy += height * tile.dy_step;
        }
    }
    // Returns the number of output channels of the tile that begins with channel i.
    std::int64_t tile_height(std::int64_t i) const {
        std::int64_t height = kernels_.max_rows;
        while (height > p_.m - i) height /= 2;
        return height;
    }
    // Converts the rows of dy to [output channel][image][row][column].
    const T* load_dy(std::int64_t start, std::int64_t images, std::int64_t rows, T* to) const {
        T* next = to;
        for (std::int64_t i = 0; i < p_.m; ++i)
            for (std::int64_t n = 0; n < images; ++n)
                for (std::int64_t r = 0; r < rows; ++r, next += p_.w.out) {
                    const std::int64_t from =
                        start + i * dy_.stride[1] + n * dy_.stride[0] + r * dy_.stride[2];
                    const T* line = load_lanes<T>(at(dy_.data, dy_.dtype, from), dy_.dtype,
                                                  dy_.stride[3], p_.w.out, next);
                    if (line != next) std::copy(line, line + p_.w.out, next);
                }
        return to;
    }

    // Adds the totals of the chunks of one input channel, and writes them to dw.
    void finish(std::int64_t plane, T* totals) const {
        for (std::int64_t chunk = 1; chunk < chunks_; ++chunk)
            for (std::int64_t i = 0; i < total_size(); ++i)
                totals[i] += totals[chunk * total_size() + i];
        for (std::int64_t i = 0; i < p_.m;) {
            const std::int64_t height = tile_height(i);
            for (std::int64_t k = 0; k < height; ++k, ++i)
                for (std::int64_t t = 0; t < taps_; ++t) {
                    const std::int64_t tile = (i - k) * tap_tiles_ + t / kTileTaps * height;
                    store(plane, i, t, totals + (tile + k) * kTileTaps + t % kTileTaps);
                }
        }
    }
    void store(std::int64_t plane, std::int64_t row, std::int64_t tap, const T* value) const {
        const std::int64_t to = (plane / p_.channels * p_.m + row) * dw_.stride[0] +
                                plane % p_.channels * dw_.stride[1] +
                                tap / p_.w.count * dw_.stride[2] + tap % p_.w.count * dw_.stride[3];
        store_lanes(value, at(dw_.data, dw_.dtype, to), dw_.dtype, 1, 1);
    }

    Scratch scratch_;
    const Correlation& p_;
    const ConstView& dy_;
    const View& dw_;
    const DirectWeightKernels<T>& kernels_;
    StagedSource<T> source_;
    bool reads_lanes_;  // whether tiles read dy in place
    std::int64_t taps_, tap_tiles_, batch_;
    std::int64_t planes_ = 0;              // input channels of all groups
    std::int64_t chunks_ = 1, chunk_ = 0;  // number of chunks, and images per chunk
    std::int64_t images_ = 1, rows_ = 1;   // images and rows that are copied together
    std::int64_t* tap_ = nullptr;
};

}  // namespace

template <class T>
bool suits_direct_weight(const ConstView& dy, const ConvGeometry& geometry, const View& dw) {
    const std::int64_t m = dw.shape[0] / geometry.groups, width = dy.shape[3];
    const std::int64_t lanes = direct_weight_kernels<T>().lanes;
    const bool fills_vectors = 4 * width >= 3 * round_up(width, lanes);
    return dy.numel() > 0 && m <= kMaxOutputChannels && (m == 1 || fills_vectors) &&
           dw.shape[2] * dw.shape[3] > 1;
}
template bool suits_direct_weight<float>(const ConstView&, const ConvGeometry&, const View&);
template bool suits_direct_weight<double>(const ConstView&, const ConvGeometry&, const View&);

template <class T>
void direct_weight_gradient(Cpu& on, const ConstView& dy, const ConstView& x,
                            const ConvGeometry& geometry, const View& dw) {
    Scratch scratch(on);
    Correlation p;
    p.source = x;
    p.h = forward_taps(scratch, x.shape[2], dy.shape[2], dw.shape[2], geometry.h);
    p.w = forward_taps(scratch, x.shape[3], dy.shape[3], dw.shape[3], geometry.w);
    p.groups = geometry.groups, p.m = dw.shape[0] / geometry.groups, p.channels = dw.shape[1];
    DirectWeightGradient<T>(on, p, dy, dw).run();
}
template void direct_weight_gradient<float>(Cpu&, const ConstView&, const ConstView&,
                                            const ConvGeometry&, const View&);
template void direct_weight_gradient<double>(Cpu&, const ConstView&, const ConstView&,
                                             const ConvGeometry&, const View&);

}  // namespace axle::kernels

#endif  // HWY_ONCE
