// Correlations, computed as implicit matrix products a b. The columns of b are pixels; its depth is
// channels and taps.
//
// a is packed once per call. The columns (pixels of one or more images) are split into tasks. A
// task iterates over the depth in blocks of channels. It first copies the rows of these channels to
// scratch memory, padded with zeros and converted. The rows are split by the phase of the stride,
// so that adjacent pixels are contiguous for every tap. From these rows, the task packs one panel
// of pixels at a time. It multiplies all rows of a with the panel while the panel is in L1. So the
// source is read from memory about once, and its unfolded matrix is never stored. For m rows,
// packing costs about 2 / m of the multiplications.
//
// Terms are added in the order of the depth, in blocks that depend on the shapes. So the split into
// tasks can depend on the number of threads. The bias is one more step of depth.
#include "kernels/cpu/conv/conv.h"
#include "kernels/cpu/conv/packed_weight.h"
#include "kernels/cpu/conv/staged_source.h"

namespace axle::kernels {
namespace {

// The part of the output that one task computes: rows of a, and columns that are either complete
// images or pixels of one image.
struct Block {
    std::int64_t group, row, rows;  // group, and rows of a
    std::int64_t image, images, pixel, pixels;
    std::int64_t columns() const { return images * pixels; }
};

template <class T>
class Correlator {
  public:
    // Prepares a correlation. The weight must be contiguous.
    Correlator(Cpu& on, const Correlation& p, const T* weight)
        : scratch_(on),
          p_(p),
          kernels_(gemm_kernels<T>()),
          taps_(p.h.count * p.w.count),
          pixels_(p.h.out * p.w.out),
          width_(2 * kernels_.lanes),
          tile_rows_(tile_rows<T>(p.m)),
          block_(channel_block()),
          blocks_(divide_up(p.channels, block_)),
          has_bias_(p.bias.data != nullptr),
          source_(scratch_, p),
          weight_(on, scratch_, p, weight, block_, tile_rows_) {
        linear_out_ = p.h.out == 1 || p.out.stride[2] == p.w.out * p.out.stride[3];
        in_place_ = linear_out_ && is_lanes<T>(p.out.dtype, p.out.stride[3], 2);
        reads_in_place_ = reads_in_place();
        keeps_sums_ = blocks_ > 1 && !(in_place_ && pixels_ % width_ == 0 && p.m % 2 == 0);
        cut();
    }

    void run() {
        const std::int64_t image_blocks = divide_up(p_.source.shape[0], images_);
        const std::int64_t pixel_blocks = divide_up(pixels_, block_pixels_);
        const std::int64_t row_blocks = divide_up(p_.m, block_rows_);
        const std::int64_t tasks = p_.groups * image_blocks * pixel_blocks * row_blocks;
        const std::int64_t work =
            block_rows_ * images_ * block_pixels_ * std::max<std::int64_t>(p_.channels * taps_, 1);
        const std::int64_t group = std::max<std::int64_t>(1, kConvParallel / 2 / work);
        const std::int64_t slots = slots_for(tasks, group);
        const std::int64_t size = slot_size();
        T* const memory = scratch_.take<T>(slots * size);
        parallel_slots(tasks, group, slots, [&](std::int64_t task, std::int64_t slot) {
            Block b;
            b.row = task % row_blocks * block_rows_;
            b.rows = std::min(block_rows_, p_.m - b.row);
            task /= row_blocks;
            b.pixel = task % pixel_blocks * block_pixels_;
            b.pixels = std::min(block_pixels_, pixels_ - b.pixel);
            task /= pixel_blocks;
            b.image = task % image_blocks * images_;
            b.images = std::min(images_, p_.source.shape[0] - b.image);
            b.group = task / image_blocks;
            multiply(b, memory + slot * size);
        });
    }

  private:
    // Returns the number of channels per block of depth. If there are no taps, a single block
    // writes the bias.
    std::int64_t channel_block() const {
        const std::int64_t fit = taps_ == 0 ? p_.channels : kConvDepth / taps_;
        return even_cut(p_.channels, std::max<std::int64_t>(1, fit), 1);
    }

    // Sets the number of columns and rows per task. At least kMin columns let each packed panel be
    // reused from the cache; at most kMax columns keep the staged rows in L2. If there are then too
    // few tasks for all threads, the rows are split too.
    void cut() {
        constexpr std::int64_t kMax = 1024, kMin = 128;
        const std::int64_t images = std::max<std::int64_t>(p_.source.shape[0], 1);
        const std::int64_t tasks = 4 * static_cast<std::int64_t>(num_threads());
        images_ = 1, block_pixels_ = pixels_, block_rows_ = p_.m;
        if (pixels_ > kMax) {
            block_pixels_ = even_cut(pixels_, kMax, width_);
        } else {
            const std::int64_t fair =
                std::max(divide_up(images * p_.groups, tasks), divide_up(kMin, pixels_));
            images_ = std::min({images, std::max<std::int64_t>(1, kMax / pixels_), fair});
        }
        const std::int64_t columns =
            p_.groups * divide_up(images, images_) * divide_up(pixels_, block_pixels_);
        if (columns < tasks / 2)
            block_rows_ = std::min(
                p_.m, round_up(divide_up(p_.m, divide_up(tasks / 2, columns)), tile_rows_));
    }

    // --- one task

    std::int64_t most_rows_staged() const {
        if (block_pixels_ == pixels_) return source_.rows_for(p_.h.out);
        return source_.rows_for(std::min(p_.h.out, divide_up(block_pixels_, p_.w.out) + 1));
    }
    std::int64_t staged_size() const {
        if (reads_in_place_) return 0;
        return round_up(images_ * block_ * most_rows_staged() * source_.row_step() + kPanelSlack,
                        16);
    }
    std::int64_t panel_size() const {
        return round_up((block_ * taps_ + 1) * width_ + kPanelSlack, 16);
    }
    std::int64_t sums_step() const { return round_up(images_ * block_pixels_, kernels_.lanes); }
    std::int64_t slot_size() const {
        return staged_size() + panel_size() +
               (keeps_sums_ ? round_up(round_up(block_rows_, 2) * sums_step(), 16) : 0);
    }

    void multiply(const Block& b, T* memory) const {
        T* const panel = memory + staged_size();
        T* const sums = panel + panel_size();
        const std::int64_t first_row = b.pixel / p_.w.out;
        const std::int64_t rows =
            source_.rows_for((b.pixel + b.pixels - 1) / p_.w.out - first_row + 1);
        const std::int64_t channel_step = rows * source_.row_step();
        PanelRun from[kMaxTileColumns], to[kMaxTileColumns];
        for (std::int64_t k = 0; k < blocks_; ++k) {
            if (!reads_in_place_) stage(b, k, first_row, rows, memory);
            for (std::int64_t j = 0; j < b.columns(); j += width_) {
                const std::int64_t columns = std::min(width_, b.columns() - j);
                const std::int64_t width = round_up(columns, kernels_.lanes);
                T* lines = panel;
                if (k == 0 && has_bias_) lines = std::fill_n(panel, width, T(1));
                if (reads_in_place_) {
                    pack_in_place(b, k, j, columns, width, from, lines);
                } else {
                    const std::int64_t runs = source_runs(
                        b, j, columns, first_row, channel_step * weight_.channels_of(k), from);
                    conv_kernels<T>().pack_taps(from, runs, memory, weight_.channels_of(k),
                                                channel_step, source_.taps(), taps_, width, lines);
                }
                const std::int64_t targets = out_runs(b, j, columns, to);
                multiply_panel(b, k, panel, j, columns, to, targets, sums);
            }
        }
    }

    // Copies the channels of a block of depth to scratch memory, image by image.
    void stage(const Block& b, std::int64_t block, std::int64_t out_row, std::int64_t rows,
               T* to) const {
        for (std::int64_t n = b.image; n < b.image + b.images; ++n)
            to = source_.stage(n, b.group, block * block_, weight_.channels_of(block), out_row,
                               rows, to);
    }

    // Returns whether panels can be packed from the source itself: pixels are then at the same
    // place in source and output, and runs fill vectors, so copies do not read beyond the source.
    bool reads_in_place() const {
        const ConstView& x = p_.source;
        return taps_ == 1 && p_.h.step == 1 && p_.w.step == 1 && p_.h.low == 0 && p_.w.low == 0 &&
               p_.h.out == p_.h.source && p_.w.out == p_.w.source &&
               pixels_ % kernels_.lanes == 0 && is_lanes<T>(x.dtype, x.stride[3], 2) &&
               (p_.h.out == 1 || x.stride[2] == p_.w.out);
    }

    // Sets `runs` to the runs of pixels that form columns [j, j + n) of a block. A run is a part of
    // `line` adjacent pixels. place(image, line, pixel) returns the position of a pixel of a line.
    // Images are counted from the first image of the block.
    template <class Place>
    static std::int64_t runs_of(const Block& b, std::int64_t j, std::int64_t n, std::int64_t line,
                                PanelRun* runs, Place place) {
        std::int64_t count = 0;
        std::int64_t image = j / b.pixels, pixel = b.pixel + j % b.pixels;
        for (std::int64_t to = 0; to < n; ++count) {
            const std::int64_t row = pixel / line, column = pixel % line;
            const std::int64_t left = std::min({line - column, b.pixel + b.pixels - pixel, n - to});
            runs[count] = {place(image, row, column), to, left};
            to += left, pixel += left;
            if (pixel == b.pixel + b.pixels) pixel = b.pixel, ++image;
        }
        return count;
    }
    // Sets `runs` to the runs in the staged rows.
    std::int64_t source_runs(const Block& b, std::int64_t j, std::int64_t n, std::int64_t first_row,
                             std::int64_t image_step, PanelRun* runs) const {
        return runs_of(b, j, n, p_.w.out, runs,
                       [&](std::int64_t image, std::int64_t row, std::int64_t column) {
                           return image * image_step +
                                  (row - first_row) * p_.h.step * source_.row_step() + column;
                       });
    }
    // Sets `runs` to the runs in the output. PanelRun::from is then a position in the output.
    std::int64_t out_runs(const Block& b, std::int64_t j, std::int64_t n, PanelRun* runs) const {
        return runs_of(b, j, n, linear_out_ ? pixels_ : p_.w.out, runs,
                       [&](std::int64_t image, std::int64_t row, std::int64_t column) {
                           return (b.image + image) * p_.out.stride[0] + row * p_.out.stride[2] +
                                  column * p_.out.stride[3];
                       });
    }
    // Packs columns [j, j + n) of a block of depth from the source itself.
    void pack_in_place(const Block& b, std::int64_t block, std::int64_t j, std::int64_t n,
                       std::int64_t width, PanelRun* runs, T* to) const {
        const ConstView& x = p_.source;
        const std::int64_t channel = b.group * p_.channels + block * block_;
        const T* from = x.as<T>() + b.image * x.stride[0] + channel * x.stride[1];
        const std::int64_t count = runs_of(
            b, j, n, pixels_, runs, [&](std::int64_t image, std::int64_t, std::int64_t pixel) {
                return image * x.stride[0] + pixel;
            });
        conv_kernels<T>().pack_lines(runs, count, from, x.stride[1], weight_.channels_of(block),
                                     width, to);
    }

    // Multiplies one panel of pixels with all rows of the task. Writes the results to the output
    // after the last block of depth, or in every block if tiles are accumulated there.
    void multiply_panel(const Block& b, std::int64_t k, const T* panel, std::int64_t j,
                        std::int64_t columns, const PanelRun* runs, std::int64_t run_count,
                        T* sums) const {
        alignas(64) T buffer[kMaxTileRows * kMaxTileColumns];
        const std::int64_t vectors = divide_up(columns, kernels_.lanes);
        const std::int64_t width = vectors * kernels_.lanes, depth = weight_.depth_of(k);
        const bool last = k + 1 == blocks_;
        const bool in_place = in_place_ && !keeps_sums_ && run_count == 1 && columns == width;
        for (std::int64_t i = 0; i < b.rows; i += tile_rows_) {
            const std::int64_t rows = std::min(tile_rows_, b.rows - i);
            const std::int64_t pairs = divide_up(rows, 2);
            const std::int64_t channel = b.group * p_.m + b.row + i;
            const std::int64_t start = channel * p_.out.stride[1];
            const bool direct = in_place && rows == 2 * pairs;
            T* to = buffer;
            std::int64_t step = width;
            if (direct) {
                to = p_.out.template as<T>() + start + runs[0].from, step = p_.out.stride[1];
            } else if (keeps_sums_) {
                to = sums + i * sums_step() + j, step = sums_step();
            }
            const T* a = weight_.panel(b.group, k, b.row + i);
            kernels_.tiles[pairs - 1][vectors - 1](depth, a, 2 * pairs, panel, width, to, step,
                                                   k > 0);
            if (direct || !last) continue;
            for (std::int64_t r = 0; r < rows; ++r)
                store(to + r * step, start + r * p_.out.stride[1], runs, run_count);
        }
    }
    // Writes one row of a tile of sums to the output. If no conversion is needed, runs are copied
    // here, because they are often too short for a function call.
    void store(const T* line, std::int64_t start, const PanelRun* runs, std::int64_t count) const {
        const std::int64_t stride = p_.out.stride[3];
        for (const PanelRun* run = runs; run != runs + count; ++run) {
            const T* const from = line + run->to;
            if (p_.out.dtype != dtype_of<T>) {
                store_lanes(from, at(p_.out.data, p_.out.dtype, start + run->from), p_.out.dtype,
                            stride, run->count);
                continue;
            }
            T* const to = p_.out.template as<T>() + start + run->from;
            if (stride == 1) {
                std::copy(from, from + run->count, to);
            } else {
                for (std::int64_t i = 0; i < run->count; ++i) to[i * stride] = from[i];
            }
        }
    }

    Scratch scratch_;
    const Correlation& p_;
    const GemmKernels<T>& kernels_;
    std::int64_t taps_, pixels_;
    std::int64_t width_, tile_rows_;  // columns and rows of a full tile
    std::int64_t block_, blocks_;     // channels per block of depth, and number of blocks
    bool has_bias_;
    StagedSource<T> source_;
    PackedWeight<T> weight_;
    bool reads_in_place_;  // whether panels are packed from the source itself
    bool linear_out_;
    bool in_place_;    // whether the output's layout permits storing tiles directly
    bool keeps_sums_;  // whether tiles are accumulated in scratch memory
    std::int64_t images_ = 1, block_pixels_ = 0, block_rows_ = 0;  // numbers per task
};

}  // namespace

template <class T>
void correlate(Cpu& on, const Correlation& problem, const T* weight) {
    Correlator<T>(on, problem, weight).run();
}
template void correlate(Cpu&, const Correlation&, const float*);
template void correlate(Cpu&, const Correlation&, const double*);

}  // namespace axle::kernels
