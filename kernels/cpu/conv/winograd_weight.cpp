// The gradient of the weight of a convolution by Winograd's algorithm (winograd.h): the adjoint of
// the product over channels is, for each point, dU = dM V^T, whose depth is the number of tiles.
// Here dM = A dY A^T for a tile of dy, V is the transformed tile of x, and dw = G^T dU G.
//
// A task processes a block of input channels of one group, with all output channels, and a chunk of
// the rows of tiles. It iterates over these rows in blocks. It copies the pixels of dy and x to
// scratch memory with channels innermost, so that each lane of a transform is another channel. The
// results are panels, whose products are added to sums in scratch memory. If dw is small, several
// chunks have their own sums, which are added in the order of the chunks. The chunks depend on the
// shapes only, and the block of an element does not change its bits.
#include <algorithm>

#include "kernels/cpu/conv/winograd.h"

namespace axle::kernels {
namespace {

// The target number of tiles per block.
constexpr std::int64_t kTiles = 64;
// The maximum number of chunks, and of elements in the sums of several chunks.
constexpr std::int64_t kChunks = 8, kMaxSums = 5 << 18;
// The minimum number of tiles per chunk, unless there is only one.
constexpr std::int64_t kMinTiles = 512;

class WinogradWeight {
  public:
    WinogradWeight(Cpu& on, const ConstView& dy, const ConstView& x, const ConvGeometry& geometry,
                   const View& dw)
        : scratch_(on),
          dy_(dy),
          x_(x),
          dw_(dw),
          geometry_(geometry),
          kernels_(gemm_kernels<float>()) {
        m_ = dw.shape[0] / geometry.groups, channels_ = dw.shape[1];
        tile_rows_ = tile_rows<float>(m_);
        width_ = 2 * kernels_.lanes;
        across_ = divide_up(dy.shape[3], 2), down_ = divide_up(dy.shape[2], 2);
        lines_ = dy.shape[0] * down_;
        block_lines_ = std::clamp<std::int64_t>(kTiles / across_, 1, lines_);
        const std::int64_t size = kWinogradPoints * geometry.groups * m_ * channels_;
        chunks_ = std::clamp<std::int64_t>(std::min(kMaxSums / size, lines_ * across_ / kMinTiles),
                                           1, kChunks);
        chunk_ = round_up(divide_up(lines_, chunks_), block_lines_);
        chunks_ = divide_up(lines_, chunk_);
        const std::int64_t blocks =
            divide_up(2 * static_cast<std::int64_t>(num_threads()), chunks_ * geometry.groups);
        block_ = std::min(round_up(channels_, width_),
                          round_up(std::max(divide_up(channels_, blocks), 2 * width_), width_));
        blocks_ = divide_up(channels_, block_);
        tiles_ = block_lines_ * across_;
    }

    void run() {
        const std::int64_t parts = geometry_.groups * blocks_, tasks = parts * chunks_;
        const std::int64_t slots = slots_for(tasks, 1);
        const std::int64_t size = slot_size();
        float* const memory = scratch_.take<float>(slots * size);
        float* const sums = scratch_.take<float>(tasks * kWinogradPoints * sums_size());
        parallel_slots(tasks, 1, slots, [&](std::int64_t task, std::int64_t slot) {
            add_up(task / chunks_, task % chunks_, memory + slot * size,
                   sums + task * kWinogradPoints * sums_size());
        });
        const std::int64_t panels = divide_up(m_, tile_rows_), finished = parts * panels;
        parallel_slots(finished, 1, slots_for(finished, 1),
                       [&](std::int64_t task, std::int64_t) { finish(task, panels, sums); });
    }

  private:
    // The distance between the channels of adjacent staged pixels.
    std::int64_t dy_step() const { return round_up(m_, 2); }
    std::int64_t staged_dy() const {
        return round_up(2 * block_lines_ * 2 * across_ * dy_step() + kPanelSlack, 16);
    }
    std::int64_t x_rows() const { return 2 * block_lines_ + 2 * images_per_block(); }
    std::int64_t images_per_block() const {
        return std::min(dy_.shape[0], divide_up(block_lines_, down_) + 1);
    }
    std::int64_t staged_x() const {
        return round_up(x_rows() * (2 * across_ + 2) * block_ + kPanelSlack, 16);
    }
    std::int64_t dm_size() const {
        return winograd_point_step(round_up(m_, 2) * tiles_ + kPanelSlack);
    }
    std::int64_t v_size() const { return winograd_point_step(block_ * tiles_); }
    std::int64_t sums_size() const { return winograd_point_step(round_up(m_, 2) * block_); }
    std::int64_t buffer_size() const {
        return round_up(kMaxInterleaved * std::max(x_.shape[3], 2 * across_ + 2), 16);
    }
    std::int64_t slot_size() const {
        return staged_dy() + staged_x() + kWinogradPoints * (dm_size() + v_size()) + buffer_size();
    }
    std::int64_t channels_of(std::int64_t part) const {
        return std::min(block_, channels_ - part % blocks_ * block_);
    }

    // Computes the sums of a chunk. `part` identifies a group and a block of channels.
    void add_up(std::int64_t part, std::int64_t chunk, float* memory, float* sums) const {
        float* const x = memory + staged_dy();
        float* const dm = x + staged_x();
        float* const v = dm + kWinogradPoints * dm_size();
        float* const buffer = v + kWinogradPoints * v_size();
        const std::int64_t first = chunk * chunk_, end = std::min(lines_, first + chunk_);
        for (std::int64_t line = first; line < end; line += block_lines_) {
            const std::int64_t lines = std::min(block_lines_, end - line);
            stage(part, line, lines, memory, x, buffer);
            transform(part, line, lines, memory, x, dm, v);
            multiply(part, lines * across_, dm, v, sums, line > first);
        }
    }

    // Calls f(done, image, row, n) for each run of n rows of tiles that are in one image.
    template <class F>
    void for_images(std::int64_t line, std::int64_t lines, F&& f) const {
        for (std::int64_t done = 0; done < lines;) {
            const std::int64_t row = (line + done) % down_;
            const std::int64_t n = std::min(lines - done, down_ - row);
            f(done, (line + done) / down_, row, n);
            done += n;
        }
    }

    // Copies the pixels of some rows of tiles, in the order [row][column][channel]. An image of x
    // has two rows more than its tiles.
    void stage(std::int64_t part, std::int64_t line, std::int64_t lines, float* dy, float* x,
               float* buffer) const {
        const std::int64_t group = part / blocks_;
        const std::int64_t channel = group * channels_ + part % blocks_ * block_;
        for_images(
            line, lines, [&](std::int64_t, std::int64_t image, std::int64_t row, std::int64_t n) {
                dy = stage_rows(dy_, image, group * m_, m_, 2 * row, 2 * n, 0, 2 * across_,
                                dy_step(), dy, buffer);
                x = stage_rows(x_, image, channel, channels_of(part), 2 * row - geometry_.h.padding,
                               2 * n + 2, -geometry_.w.padding, 2 * across_ + 2, block_, x, buffer);
            });
    }
    // Copies rows of an image, padded with zeros. Returns the end of the copy.
    float* stage_rows(const ConstView& from, std::int64_t image, std::int64_t channel,
                      std::int64_t channels, std::int64_t row, std::int64_t rows,
                      std::int64_t column, std::int64_t columns, std::int64_t step, float* to,
                      float* buffer) const {
        const std::int64_t begin = std::clamp<std::int64_t>(-column, 0, columns);
        const std::int64_t end = std::clamp(from.shape[3] - column, begin, columns);
        for (std::int64_t r = row; r < row + rows; ++r, to += columns * step) {
            if (r < 0 || r >= from.shape[2]) {
                std::fill_n(to, columns * step, 0.0F);
                continue;
            }
            std::fill_n(to, begin * step, 0.0F);
            std::fill_n(to + end * step, (columns - end) * step, 0.0F);
            const std::int64_t start = image * from.stride[0] + channel * from.stride[1] +
                                       r * from.stride[2] + (begin + column) * from.stride[3];
            stage_row(from, start, end - begin, channels, to + begin * step, step, buffer);
        }
        return to;
    }
    void stage_row(const ConstView& from, std::int64_t start, std::int64_t n, std::int64_t channels,
                   float* to, std::int64_t step, float* buffer) const {
        for (std::int64_t c = 0; c < step; c += kMaxInterleaved) {
            const int count = static_cast<int>(std::min(kMaxInterleaved, step - c));
            const float* lines[kMaxInterleaved];
            for (int k = 0; k < count; ++k) {
                float* const line = buffer + k * n;
                if (c + k >= channels) std::fill_n(line, n, 0.0F);
                lines[k] = c + k >= channels
                               ? line
                               : load_lanes<float>(
                                     at(from.data, from.dtype, start + (c + k) * from.stride[1]),
                                     from.dtype, from.stride[3], n, line);
            }
            kernels_.interleave(lines, count, n, to + c, step);
        }
    }

    // Transforms the staged pixels into panels of dm, [tile][output channel], and of v, [tile]
    // [input channel].
    void transform(std::int64_t part, std::int64_t line, std::int64_t lines, const float* dy,
                   const float* x, float* dm, float* v) const {
        const std::int64_t tiles = lines * across_;
        const std::int64_t dy_row = 2 * across_ * dy_step(), x_row = (2 * across_ + 2) * block_;
        for (std::int64_t i = 0; i < m_; i += tile_rows_) {
            const std::int64_t rows = round_up(std::min(tile_rows_, m_ - i), 2);
            for (std::int64_t k = 0; k < lines; ++k)
                winograd_kernels().transform_dy(dy + 2 * k * dy_row + i, dy_row, dy_step(), across_,
                                                rows, dm + i * tiles + k * across_ * rows,
                                                dm_size());
        }
        for (std::int64_t j = 0; j < channels_of(part); j += width_)
            for_images(line, lines,
                       [&](std::int64_t done, std::int64_t image, std::int64_t, std::int64_t n) {
                           const std::int64_t before =
                               image - line / down_;  // images in this block
                           for (std::int64_t k = done; k < done + n; ++k)
                               winograd_kernels().transform_x(
                                   x + (2 * k + 2 * before) * x_row + j, x_row, block_, across_,
                                   v + j * tiles + k * across_ * width_, v_size());
                       });
    }

    void multiply(std::int64_t part, std::int64_t tiles, const float* dm, const float* v,
                  float* sums, bool add) const {
        const std::int64_t channels = channels_of(part);
        for (std::int64_t p = 0; p < kWinogradPoints;
             ++p, dm += dm_size(), v += v_size(), sums += sums_size())
            for (std::int64_t j = 0; j < channels; j += width_) {
                const std::int64_t vectors =
                    divide_up(std::min(width_, channels - j), kernels_.lanes);
                for (std::int64_t i = 0; i < m_; i += tile_rows_) {
                    const std::int64_t rows = round_up(std::min(tile_rows_, m_ - i), 2);
                    kernels_.tiles[rows / 2 - 1][vectors - 1](tiles, dm + i * tiles, rows,
                                                              v + j * tiles, width_,
                                                              sums + i * block_ + j, block_, add);
                }
            }
    }

    // Adds the sums of all chunks for one panel of rows, and writes the weights.
    void finish(std::int64_t task, std::int64_t panels, float* all) const {
        const std::int64_t part = task / panels, begin = task % panels * tile_rows_;
        const std::int64_t rows = std::min(tile_rows_, m_ - begin), channels = channels_of(part);
        float* const sums = all + part * chunks_ * kWinogradPoints * sums_size() + begin * block_;
        for (std::int64_t chunk = 1; chunk < chunks_; ++chunk)
            for (std::int64_t p = 0; p < kWinogradPoints; ++p) {
                float* const to = sums + p * sums_size();
                const float* const from = to + chunk * kWinogradPoints * sums_size();
                for (std::int64_t i = 0; i < rows * block_; ++i) to[i] += from[i];
            }
        float taps[9 * kMaxTileColumns], line[9 * kMaxTileColumns];
        for (std::int64_t i = 0; i < rows; ++i)
            for (std::int64_t j = 0; j < channels; j += kernels_.lanes) {
                const std::int64_t n = std::min<std::int64_t>(kernels_.lanes, channels - j);
                winograd_kernels().transform_du(sums + i * block_ + j, sums_size(), taps);
                for (std::int64_t c = 0; c < n; ++c)
                    for (std::int64_t t = 0; t < 9; ++t)
                        line[c * 9 + t] = taps[t * kernels_.lanes + c];
                store((part / blocks_ * m_ + begin + i) * dw_.stride[0] +
                          (part % blocks_ * block_ + j) * dw_.stride[1],
                      line, n);
            }
    }
    void store(std::int64_t start, const float* line, std::int64_t n) const {
        if (dw_.stride[3] == 1 && dw_.stride[2] == 3 && dw_.stride[1] == 9)
            return store_lanes(line, at(dw_.data, dw_.dtype, start), dw_.dtype, 1, 9 * n);
        for (std::int64_t c = 0; c < n; ++c)
            for (std::int64_t r = 0; r < 3; ++r)
                store_lanes(line + c * 9 + r * 3,
                            at(dw_.data, dw_.dtype, start + c * dw_.stride[1] + r * dw_.stride[2]),
                            dw_.dtype, dw_.stride[3], 3);
    }

    Scratch scratch_;
    const ConstView& dy_;
    const ConstView& x_;
    const View& dw_;
    const ConvGeometry& geometry_;
    const GemmKernels<float>& kernels_;
    std::int64_t m_, channels_;           // output and input channels per group
    std::int64_t tile_rows_, width_;      // rows and columns of a full register tile
    std::int64_t across_, down_, lines_;  // tiles in a row, and rows of an image and of all images
    std::int64_t block_lines_, tiles_;    // rows of tiles, and tiles, per block
    std::int64_t chunks_, chunk_;         // number of chunks, and rows of tiles per chunk
    std::int64_t block_, blocks_;         // channels per block, and number of blocks
};

}  // namespace

bool suits_winograd(const ConvGeometry& geometry, const ConstView& dy, const View& dw) {
    const auto fits = [](const ConvAxis& axis) { return axis.stride == 1 && axis.dilation == 1; };
    const std::int64_t across = divide_up(dy.shape[3], 2), m = dw.shape[0] / geometry.groups;
    const std::int64_t tiles = dy.shape[0] * divide_up(dy.shape[2], 2) * across;
    return dw.shape[2] == 3 && dw.shape[3] == 3 && fits(geometry.h) && fits(geometry.w) &&
           m >= 32 && dw.shape[1] >= 32 && tiles >= kMinTiles / 2 &&
           kWinogradPoints * std::max(m, dw.shape[1]) * across <= kWinogradMaxRow;
}

void winograd_weight_gradient(Cpu& on, const ConstView& dy, const ConstView& x,
                              const ConvGeometry& geometry, const View& dw) {
    WinogradWeight(on, dy, x, geometry, dw).run();
}

}  // namespace axle::kernels
