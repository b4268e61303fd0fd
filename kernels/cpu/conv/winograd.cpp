// Winograd's algorithm (winograd.h) for a correlation.
//
// The weights are transformed once per call, into panels for each point. A task computes some rows
// of tiles, which can belong to several images. It transforms the source of all channels into
// panels of tiles for each point. Then it multiplies a block of output channels for all points, and
// transforms the sums while they are in L2. The terms of an element are added in an order that
// depends on the shapes only.
#include "kernels/cpu/conv/winograd.h"

namespace axle::kernels {
namespace {

// The target number of tiles per task, and of output channels per block.
constexpr std::int64_t kTiles = 64, kRows = 64;
// The number of channels whose weights are transformed together.
constexpr std::int64_t kChannels = 32;

class Winograd {
  public:
    Winograd(Cpu& on, const Correlation& p, const float* weight)
        : scratch_(on), p_(p), weight_(weight), kernels_(gemm_kernels<float>()) {
        tile_rows_ = tile_rows<float>(p.m);
        block_ = std::max<std::int64_t>(1, kRows / tile_rows_) * tile_rows_;
        width_ = 2 * kernels_.lanes;
        across_ = divide_up(p.w.out, 2), down_ = divide_up(p.h.out, 2);
        lines_ = p.out.shape[0] * down_;
        const std::int64_t fair = divide_up(lines_, static_cast<std::int64_t>(num_threads()));
        task_lines_ = std::max<std::int64_t>(1, std::min({lines_, fair, kTiles / across_}));
        tiles_ = round_up(task_lines_ * across_, kernels_.lanes);
        panels_ = divide_up(tiles_, width_);
        tile_step_ = tiles_ + 2 * kPanelSlack;
        row_step_ = 2 * across_ + 2;
        for (int i = 0; i < 3; ++i)
            for (int j = 0; j < 3; ++j)
                order_[(p.h.offset[i] - p.h.low) * 3 + p.w.offset[j] - p.w.low] =
                    p.h.index[i] * 3 + p.w.index[j];
    }

    void run() {
        u_ = scratch_.take<float>(p_.groups * kWinogradPoints * point_size());
        transform_weights();
        const std::int64_t columns = divide_up(lines_, task_lines_);
        const std::int64_t tasks = p_.groups * columns;
        const std::int64_t slots = slots_for(tasks, 1);
        const std::int64_t size = slot_size();
        float* const memory = scratch_.take<float>(slots * size);
        parallel_slots(tasks, 1, slots, [&](std::int64_t task, std::int64_t slot) {
            const std::int64_t line = task % columns * task_lines_;
            multiply(task / columns, line, std::min(task_lines_, lines_ - line),
                     memory + slot * size);
        });
    }

  private:
    // --- weights

    // The number of transformed weights of one point and group.
    std::int64_t point_size() const { return winograd_point_step(round_up(p_.m, 2) * p_.channels); }
    float* weights_of(std::int64_t group, std::int64_t point) const {
        return u_ + (group * kWinogradPoints + point) * point_size();
    }

    void transform_weights() {
        const std::int64_t panels = divide_up(p_.m, tile_rows_);
        const std::int64_t parts = divide_up(p_.channels, kChannels);
        const std::int64_t tasks = p_.groups * panels * parts;
        const std::int64_t slots = slots_for(tasks, 1);
        const std::int64_t size = round_up(kChannels * 9 * (tile_rows_ + 1), 16);
        float* const buffers = scratch_.take<float>(slots * size);
        parallel_slots(tasks, 1, slots, [&](std::int64_t task, std::int64_t slot) {
            const std::int64_t group = task / parts / panels;
            transform_panel(group, task / parts % panels * tile_rows_, task % parts * kChannels,
                            buffers + slot * size);
        });
    }
    // Transforms the weights of some channels for the rows [row, row + tile_rows_).
    void transform_panel(std::int64_t group, std::int64_t row, std::int64_t channel,
                         float* buffer) const {
        const std::int64_t rows = std::min(tile_rows_, p_.m - row), step = round_up(rows, 2);
        const std::int64_t n = std::min(kChannels, p_.channels - channel);
        const bool adjacent = p_.channel_step == 9;
        const std::int64_t runs = adjacent ? 1 : n, length = adjacent ? 9 * n : 9;
        float* const zeros = buffer + kChannels * 9 * step;
        std::fill(zeros, zeros + length, 0.0F);
        const float* from =
            weight_ + group * p_.group_step + row * p_.row_step + channel * p_.channel_step;
        for (std::int64_t run = 0; run < runs; ++run, from += p_.channel_step)
            for (std::int64_t i = 0; i < step; i += kMaxInterleaved) {
                const float* lines[kMaxInterleaved];
                const int count = static_cast<int>(std::min(kMaxInterleaved, step - i));
                for (int r = 0; r < count; ++r)
                    lines[r] = i + r < rows ? from + (i + r) * p_.row_step : zeros;
                kernels_.interleave(lines, count, length, buffer + run * 9 * step + i, step);
            }
        winograd_kernels().transform_weights(
            buffer, order_, n, step, weights_of(group, 0) + row * p_.channels + channel * step,
            point_size());
    }

    // --- one task

    std::int64_t staged_rows() const { return 2 * std::min(task_lines_, down_) + 2; }
    std::int64_t staged_size() const {
        return round_up(staged_rows() * row_step_ + 4 * kPanelSlack, 16);
    }
    // The size of the transformed source, and of the sums, of one point.
    std::int64_t source_size() const { return winograd_point_step(panels_ * p_.channels * width_); }
    std::int64_t sums_size() const { return winograd_point_step(block_ * tiles_); }
    std::int64_t slot_size() const {
        return staged_size() + kWinogradPoints * (tile_step_ + source_size() + sums_size()) +
               4 * tiles_;
    }

    void multiply(std::int64_t group, std::int64_t line, std::int64_t lines, float* memory) const {
        float* const staged = memory;
        float* const gathered = staged + staged_size();
        float* const source = gathered + kWinogradPoints * tile_step_;
        float* const sums = source + kWinogradPoints * source_size();
        float* const pixels = sums + kWinogradPoints * sums_size();
        const std::int64_t tiles = round_up(lines * across_, kernels_.lanes);
        std::fill(gathered, gathered + kWinogradPoints * tile_step_, 0.0F);
        for (std::int64_t c = 0; c < p_.channels; ++c) {
            gather(group * p_.channels + c, line, lines, staged, gathered);
            winograd_kernels().transform_source(gathered, tile_step_, tiles, source + c * width_,
                                                source_size(), p_.channels * width_);
        }
        for (std::int64_t row = 0; row < p_.m; row += block_) {
            const std::int64_t rows = std::min(block_, p_.m - row);
            for (std::int64_t point = 0; point < kWinogradPoints; ++point)
                multiply_point(weights_of(group, point) + row * p_.channels, rows,
                               source + point * source_size(), tiles, sums + point * sums_size());
            for (std::int64_t r = 0; r < rows; ++r) {
                const std::int64_t channel = group * p_.m + row + r;
                winograd_kernels().transform_sums(sums + r * tiles_, sums_size(), tiles,
                                                  bias(channel), pixels, 2 * tiles_);
                store(channel, line, lines, pixels);
            }
        }
    }

    // Copies the tiles of one channel to `to`, in the layout of transform_source().
    void gather(std::int64_t channel, std::int64_t line, std::int64_t lines, float* staged,
                float* to) const {
        for (std::int64_t done = 0; done < lines;) {
            const std::int64_t image = (line + done) / down_, first = (line + done) % down_;
            const std::int64_t n = std::min(lines - done, down_ - first);
            const std::int64_t start = image * p_.source.stride[0] + channel * p_.source.stride[1];
            for (std::int64_t r = 0; r < 2 * n + 2; ++r)
                stage_row(start, 2 * first + r + p_.h.low, staged + r * row_step_);
            for (std::int64_t i = 0; i < n; ++i, ++done)
                winograd_kernels().gather_tiles(staged + 2 * i * row_step_, row_step_, across_,
                                                to + done * across_, tile_step_);
        }
    }
    // Copies a row of the source, padded with zeros.
    void stage_row(std::int64_t start, std::int64_t row, float* to) const {
        const ConstView& x = p_.source;
        if (row < 0 || row >= p_.h.source) {
            std::fill(to, to + row_step_, 0.0F);
            return;
        }
        const std::int64_t begin = std::clamp<std::int64_t>(-p_.w.low, 0, row_step_);
        const std::int64_t end = std::clamp(p_.w.source - p_.w.low, begin, row_step_);
        std::fill(to, to + begin, 0.0F);
        std::fill(to + end, to + row_step_, 0.0F);
        if (begin == end) return;
        const std::int64_t from = start + row * x.stride[2] + (begin + p_.w.low) * x.stride[3];
        const float* line = load_lanes<float>(at(x.data, x.dtype, from), x.dtype, x.stride[3],
                                              end - begin, to + begin);
        if (line != to + begin) std::copy(line, line + (end - begin), to + begin);
    }

    // Computes the sums of one point for a block of rows.
    void multiply_point(const float* weights, std::int64_t rows, const float* source,
                        std::int64_t tiles, float* sums) const {
        for (std::int64_t t = 0; t < tiles; t += width_, source += p_.channels * width_) {
            const std::int64_t vectors = std::min(width_, tiles - t) / kernels_.lanes;
            for (std::int64_t i = 0; i < rows; i += tile_rows_) {
                const std::int64_t step = round_up(std::min(tile_rows_, rows - i), 2);
                kernels_.tiles[step / 2 - 1][vectors - 1](p_.channels, weights + i * p_.channels,
                                                          step, source, width_,
                                                          sums + i * tiles_ + t, tiles_, false);
            }
        }
    }

    float bias(std::int64_t channel) const {
        float value = 0;
        if (p_.bias.data == nullptr) return value;
        return *load_lanes<float>(at(p_.bias.data, p_.bias.dtype, channel * p_.bias.stride[0]),
                                  p_.bias.dtype, 1, 1, &value);
    }

    // Writes the two lines of pixels of some rows of tiles to the output.
    void store(std::int64_t channel, std::int64_t line, std::int64_t lines,
               const float* pixels) const {
        const View& y = p_.out;
        for (std::int64_t i = 0; i < lines; ++i, pixels += 2 * across_) {
            const std::int64_t image = (line + i) / down_, row = 2 * ((line + i) % down_);
            for (std::int64_t r = row; r < std::min(row + 2, p_.h.out); ++r) {
                const float* const from = pixels + (r - row) * 2 * tiles_;
                const std::int64_t at_row =
                    image * y.stride[0] + channel * y.stride[1] + r * y.stride[2];
                if (y.dtype == DType::f32 && y.stride[3] == 1) {
                    std::copy(from, from + p_.w.out, y.as<float>() + at_row);
                } else {
                    store_lanes(from, at(y.data, y.dtype, at_row), y.dtype, y.stride[3], p_.w.out);
                }
            }
        }
    }

    Scratch scratch_;
    const Correlation& p_;
    const float* weight_;
    const GemmKernels<float>& kernels_;
    std::int64_t tile_rows_, block_;  // rows of a full register tile, and of a block
    std::int64_t width_;              // columns of a panel
    std::int64_t across_, down_;      // tiles in a row, and rows of tiles, of an image
    std::int64_t lines_;              // rows of tiles in all images
    std::int64_t task_lines_;         // rows of tiles per task
    std::int64_t tiles_, panels_;     // tiles and panels per task
    std::int64_t tile_step_, row_step_;
    std::int64_t order_[9] = {};  // positions of the taps in a kernel, in the order of offsets
    float* u_ = nullptr;
};

}  // namespace

bool suits_winograd(const Correlation& p) {
    const auto fits = [](const Taps& taps) {
        return taps.all && taps.count == 3 && taps.step == 1 && taps.span() == 2;
    };
    return fits(p.h) && fits(p.w) && p.m >= 16 && p.channels >= 16 &&
           kWinogradPoints * p.channels * divide_up(p.w.out, 2) <= kWinogradMaxRow;
}

void winograd(Cpu& on, const Correlation& problem, const float* weight) {
    Winograd(on, problem, weight).run();
}

}  // namespace axle::kernels
