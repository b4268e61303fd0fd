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
        : scratch_(on), p_(p), weight_(weight), kernels_(gemm_kernels<T>()) {
        taps_ = p.h.count * p.w.count;
        pixels_ = p.h.out * p.w.out;
        width_ = 2 * kernels_.lanes;
        tile_rows_ = tile_rows<T>(p.m);
        // If there are no taps, a single block writes the bias.
        const std::int64_t fit = taps_ == 0 ? p.channels : kConvDepth / taps_;
        block_ = even_cut(p.channels, std::max<std::int64_t>(1, fit), 1);
        blocks_ = divide_up(p.channels, block_);
        has_bias_ = p.bias.data != nullptr;
        depth_ = p.channels * taps_ + (has_bias_ ? 1 : 0);
        linear_out_ = p.h.out == 1 || p.out.stride[2] == p.w.out * p.out.stride[3];
        in_place_ = linear_out_ && is_lanes<T>(p.out.dtype, p.out.stride[3], 2);
        keeps_sums_ = blocks_ > 1 && !(in_place_ && pixels_ % width_ == 0 && p.m % 2 == 0);
        lay_out_source();
        cut();
    }

    void run() {
        a_ = scratch_.take<T>(p_.groups * round_up(p_.m, 2) * depth_);
        pack_a();
        const std::int64_t image_blocks = divide_up(p_.source.shape[0], images_);
        const std::int64_t pixel_blocks = divide_up(pixels_, block_pixels_);
        const std::int64_t row_blocks = divide_up(p_.m, block_rows_);
        const std::int64_t tasks = p_.groups * image_blocks * pixel_blocks * row_blocks;
        const std::int64_t work =
            block_rows_ * images_ * block_pixels_ * std::max<std::int64_t>(depth_, 1);
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
    // Chooses the layout of a staged row. For each phase of the stride, the row contains the
    // elements of that phase that pixels read. Taps become offsets into the staged rows.
    void lay_out_source() {
        phase_width_ = p_.w.out + p_.w.span() / p_.w.step;
        row_step_ = phase_width_ * p_.w.step;
        tap_ = scratch_.take<std::int64_t>(taps_);
        uses_phase_ = scratch_.take<bool>(p_.w.step);
        uses_row_ = scratch_.take<bool>(p_.h.step);
        std::fill(uses_phase_, uses_phase_ + p_.w.step, false);
        std::fill(uses_row_, uses_row_ + p_.h.step, false);
        for (std::int64_t i = 0; i < p_.h.count; ++i) {
            const std::int64_t row = p_.h.offset[i] - p_.h.low;
            uses_row_[row % p_.h.step] = true;
            for (std::int64_t j = 0; j < p_.w.count; ++j) {
                const std::int64_t column = p_.w.offset[j] - p_.w.low;
                uses_phase_[column % p_.w.step] = true;
                tap_[i * p_.w.count + j] =
                    row * row_step_ + column % p_.w.step * phase_width_ + column / p_.w.step;
            }
        }
    }
    std::int64_t staged_rows(std::int64_t out_rows) const {
        return (out_rows - 1) * p_.h.step + p_.h.span() + 1;
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

    // --- packing a

    std::int64_t channels_of(std::int64_t block) const {
        return std::min(block_, p_.channels - block * block_);
    }
    std::int64_t depth_of(std::int64_t block) const {
        return channels_of(block) * taps_ + (block == 0 && has_bias_ ? 1 : 0);
    }
    // Returns the start of a block of depth of a group. The panels of a block are contiguous.
    T* a_block(std::int64_t group, std::int64_t block) const {
        const std::int64_t before = block * block_ * taps_ + (block > 0 && has_bias_ ? 1 : 0);
        return a_ + round_up(p_.m, 2) * (group * depth_ + before);
    }

    void pack_a() {
        const std::int64_t panels = divide_up(p_.m, tile_rows_);
        const std::int64_t tasks = p_.groups * blocks_ * panels;
        const std::int64_t most = block_ * taps_;
        const std::int64_t group =
            std::max<std::int64_t>(1, 32768 / std::max<std::int64_t>(1, tile_rows_ * most));
        const std::int64_t slots = slots_for(tasks, group);
        const std::int64_t size = round_up(std::max(pack_buffer(tile_rows_, most), 5 * taps_), 16);
        T* const buffers = scratch_.take<T>(slots * size);
        parallel_slots(tasks, group, slots, [&](std::int64_t task, std::int64_t slot) {
            const std::int64_t row = task % panels * tile_rows_;
            const std::int64_t block = task / panels % blocks_;
            pack_a_panel(task / panels / blocks_, block, row, buffers + slot * size);
        });
    }

    void pack_a_panel(std::int64_t group, std::int64_t block, std::int64_t row, T* buffer) const {
        const std::int64_t rows = std::min(tile_rows_, p_.m - row), step = round_up(rows, 2);
        T* to = a_block(group, block) + row * depth_of(block);
        if (block == 0 && has_bias_) {
            const std::int64_t at_bias = (group * p_.m + row) * p_.bias.stride[0];
            const T* bias = load_lanes<T>(at(p_.bias.data, p_.bias.dtype, at_bias), p_.bias.dtype,
                                          p_.bias.stride[0], rows, buffer);
            std::copy(bias, bias + rows, to);
            std::fill(to + rows, to + step, T(0));
            to += step;
        }
        const T* from =
            weight_ + group * p_.group_step + row * p_.row_step + block * block_ * p_.channel_step;
        const bool all = p_.h.all && p_.w.all;
        const bool one = taps_ == 1;
        if (one) from += p_.h.index[0] * p_.kernel_w + p_.w.index[0];
        if (one || (all && p_.channel_step == p_.kernel_size)) {
            const Lines lines = {from, dtype_of<T>, p_.row_step, one ? p_.channel_step : 1};
            pack_panels(lines, rows, channels_of(block) * taps_, tile_rows_, 2, to, buffer);
            return;
        }
        for (std::int64_t k = 0; k < channels_of(block); ++k, from += p_.channel_step)
            for (std::int64_t i = 0; i < step; i += 4)
                pack_taps_of(from, i, rows, step, all, to + k * taps_ * step, buffer);
    }
    // Packs all taps of one channel for the rows [i, i + 4) of a panel.
    void pack_taps_of(const T* from, std::int64_t i, std::int64_t rows, std::int64_t step, bool all,
                      T* to, T* buffer) const {
        const int count = static_cast<int>(std::min<std::int64_t>(4, step - i));
        const T* lines[4] = {};
        for (int r = 0; r < count; ++r) {
            const T* line = from + (i + r) * p_.row_step;
            T* const gathered = buffer + r * taps_;
            lines[r] = all && i + r < rows ? line : gathered;
            if (i + r >= rows) {
                std::fill(gathered, gathered + taps_, T(0));
            } else if (!all) {
                gather_taps(line, gathered);
            }
        }
        kernels_.interleave(lines, count, taps_, to + i, step);
    }
    void gather_taps(const T* line, T* to) const {
        for (std::int64_t i = 0; i < p_.h.count; ++i)
            for (std::int64_t j = 0; j < p_.w.count; ++j)
                *to++ = line[p_.h.index[i] * p_.kernel_w + p_.w.index[j]];
    }

    // --- one task

    std::int64_t most_rows_staged() const {
        if (block_pixels_ == pixels_) return staged_rows(p_.h.out);
        return staged_rows(std::min(p_.h.out, divide_up(block_pixels_, p_.w.out) + 1));
    }
    std::int64_t staged_size() const {
        return round_up(images_ * block_ * most_rows_staged() * row_step_ + kPanelSlack, 16);
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
        const std::int64_t rows = staged_rows((b.pixel + b.pixels - 1) / p_.w.out - first_row + 1);
        const std::int64_t channel_step = rows * row_step_;
        PanelRun from[kMaxTileColumns], to[kMaxTileColumns];
        for (std::int64_t k = 0; k < blocks_; ++k) {
            stage(b, k, first_row * p_.h.step + p_.h.low, rows, memory);
            for (std::int64_t j = 0; j < b.columns(); j += width_) {
                const std::int64_t columns = std::min(width_, b.columns() - j);
                const std::int64_t width = round_up(columns, kernels_.lanes);
                T* lines = panel;
                if (k == 0 && has_bias_) lines = std::fill_n(panel, width, T(1));
                const std::int64_t runs =
                    source_runs(b, j, columns, first_row, channel_step * channels_of(k), from);
                conv_kernels<T>().pack_taps(from, runs, memory, channels_of(k), channel_step, tap_,
                                            taps_, width, lines);
                const std::int64_t targets = out_runs(b, j, columns, to);
                multiply_panel(b, k, panel, j, columns, to, targets, sums);
            }
        }
    }

    // Copies the channels of a block of depth to scratch memory as
    // [image][channel][row][phase][pixel].
    void stage(const Block& b, std::int64_t block, std::int64_t first, std::int64_t rows,
               T* to) const {
        const ConstView& x = p_.source;
        for (std::int64_t n = b.image; n < b.image + b.images; ++n)
            for (std::int64_t k = 0; k < channels_of(block); ++k) {
                const std::int64_t channel = b.group * p_.channels + block * block_ + k;
                const std::int64_t start = n * x.stride[0] + channel * x.stride[1];
                for (std::int64_t r = 0; r < rows; ++r, to += row_step_)
                    if (uses_row_[r % p_.h.step]) stage_row(start, first + r, to);
            }
    }
    void stage_row(std::int64_t start, std::int64_t row, T* to) const {
        const ConstView& x = p_.source;
        if (row < 0 || row >= p_.h.source) {
            std::fill(to, to + row_step_, T(0));
            return;
        }
        start += row * x.stride[2];
        for (std::int64_t f = 0; f < p_.w.step; ++f, to += phase_width_) {
            if (!uses_phase_[f]) continue;
            // Element v of a phase is read from column v * step + low of the source.
            const std::int64_t low = f + p_.w.low;
            const std::int64_t begin =
                std::min(phase_width_, low >= 0 ? 0 : divide_up(-low, p_.w.step));
            const std::int64_t end =
                std::clamp(divide_up(p_.w.source - low, p_.w.step), begin, phase_width_);
            std::fill(to, to + begin, T(0));
            std::fill(to + end, to + phase_width_, T(0));
            if (begin == end) continue;
            const std::int64_t from = start + (low + begin * p_.w.step) * x.stride[3];
            const T* line = load_lanes<T>(at(x.data, x.dtype, from), x.dtype,
                                          p_.w.step * x.stride[3], end - begin, to + begin);
            if (line != to + begin) std::copy(line, line + (end - begin), to + begin);
        }
    }

    // Sets `runs` to the runs in the staged rows that form columns [j, j + n) of a block.
    std::int64_t source_runs(const Block& b, std::int64_t j, std::int64_t n, std::int64_t first_row,
                             std::int64_t image_step, PanelRun* runs) const {
        std::int64_t count = 0;
        std::int64_t image = j / b.pixels, pixel = b.pixel + j % b.pixels;
        for (std::int64_t to = 0; to < n; ++count) {
            const std::int64_t row = pixel / p_.w.out, column = pixel % p_.w.out;
            const std::int64_t left =
                std::min({p_.w.out - column, b.pixel + b.pixels - pixel, n - to});
            runs[count] = {image * image_step + (row - first_row) * p_.h.step * row_step_ + column,
                           to, left};
            to += left, pixel += left;
            if (pixel == b.pixel + b.pixels) pixel = b.pixel, ++image;
        }
        return count;
    }
    // Sets `runs` to the runs in the output that form columns [j, j + n) of a block. PanelRun::from
    // is then a position in the output.
    std::int64_t out_runs(const Block& b, std::int64_t j, std::int64_t n, PanelRun* runs) const {
        const std::int64_t line = linear_out_ ? pixels_ : p_.w.out;
        std::int64_t count = 0;
        std::int64_t image = b.image + j / b.pixels, pixel = b.pixel + j % b.pixels;
        for (std::int64_t to = 0; to < n; ++count) {
            const std::int64_t row = pixel / line, column = pixel % line;
            const std::int64_t left = std::min({line - column, b.pixel + b.pixels - pixel, n - to});
            runs[count] = {
                image * p_.out.stride[0] + row * p_.out.stride[2] + column * p_.out.stride[3], to,
                left};
            to += left, pixel += left;
            if (pixel == b.pixel + b.pixels) pixel = b.pixel, ++image;
        }
        return count;
    }

    // Multiplies one panel of pixels with all rows of the task. Writes the results to the output
    // after the last block of depth, or in every block if tiles are accumulated there.
    void multiply_panel(const Block& b, std::int64_t k, const T* panel, std::int64_t j,
                        std::int64_t columns, const PanelRun* runs, std::int64_t run_count,
                        T* sums) const {
        alignas(64) T buffer[kMaxTileRows * kMaxTileColumns];
        const std::int64_t vectors = divide_up(columns, kernels_.lanes);
        const std::int64_t width = vectors * kernels_.lanes, depth = depth_of(k);
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
            const T* a = a_block(b.group, k) + (b.row + i) * depth;
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
    const T* weight_;
    const GemmKernels<T>& kernels_;
    std::int64_t taps_, pixels_;
    std::int64_t width_, tile_rows_;  // columns and rows of a full tile
    std::int64_t block_, blocks_;     // channels per block of depth, and number of blocks
    std::int64_t depth_;              // total depth, including the bias
    bool has_bias_, linear_out_;
    bool in_place_;    // whether the output's layout permits storing tiles directly
    bool keeps_sums_;  // whether tiles are accumulated in scratch memory
    std::int64_t phase_width_ = 0, row_step_ = 0;
    std::int64_t* tap_ = nullptr;
    bool* uses_phase_ = nullptr;
    bool* uses_row_ = nullptr;
    std::int64_t images_ = 1, block_pixels_ = 0, block_rows_ = 0;  // numbers per task
    T* a_ = nullptr;
};

}  // namespace

template <class T>
void correlate(Cpu& on, const Correlation& problem, const T* weight) {
    Correlator<T>(on, problem, weight).run();
}
template void correlate(Cpu&, const Correlation&, const float*);
template void correlate(Cpu&, const Correlation&, const double*);

}  // namespace axle::kernels
