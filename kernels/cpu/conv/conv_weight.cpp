// The gradient of a convolution's weight, computed as an implicit matrix product: dw[o, (tap, c)] =
// dy[o, pixel] unfolded(x)[pixel, (tap, c)]. The depth of the product is the number of pixels in
// all images.
//
// A task processes a block of input channels of one group (with all taps and all rows o) and a
// chunk of the images. It iterates over the pixels of these images in blocks, in which pixels are
// ordered by row, column and image. dy is packed into panels with o innermost. x is copied to
// scratch memory with channels innermost and zero padding. So a line of a panel consists of runs of
// channels, one per tap. If the width of a panel divides the number of channels, each panel has one
// tap. Pixel rows for which this tap is in the padding are then skipped, and so are columns if
// enough pixels remain. Sums stay in scratch memory, with
// channels innermost, until the task's last pixel, and are transposed when they are written to dw.
// If dw is small, several chunks of images have their own sums, which are added in the order of the
// images. No split depends on the number of threads.
#include "kernels/cpu/conv/conv.h"
#include "kernels/cpu/conv/pixel_rows.h"
#include "kernels/cpu/conv/winograd.h"
#include "kernels/ops/conv.h"

namespace axle::kernels {
namespace {

// The target number of pixels per block.
constexpr std::int64_t kPixels = 256;
// The target number of tasks, which is also the maximum number of chunks, and the maximum number of
// elements in the sums of several chunks.
constexpr std::int64_t kTasks = 8;
constexpr std::int64_t kMaxSums = 5 << 18;
// The minimum depth for which pixels in the padding are skipped with separate products.
constexpr std::int64_t kMinDepth = 48;

// A block of pixels, which are rows [row, row + rows) of dy in images [image, image + images).
struct Pixels {
    std::int64_t image, images, row, rows;
};

template <class T>
class WeightGradient {
  public:
    WeightGradient(Cpu& on, const ConstView& dy, const ConstView& x, const ConvGeometry& geometry,
                   const View& dw)
        : scratch_(on), dy_(dy), x_(x), dw_(dw), geometry_(geometry), kernels_(gemm_kernels<T>()) {
        batch_ = dy.shape[0], out_h_ = dy.shape[2], out_w_ = dy.shape[3];
        m_ = dw.shape[0] / geometry.groups, channels_ = dw.shape[1];
        taps_ = dw.shape[2] * dw.shape[3];
        width_ = 2 * kernels_.lanes;
        tile_rows_ = tile_rows<T>(m_);
        cut();
        staged_width_ =
            (out_w_ - 1) * geometry.w.stride + (dw.shape[3] - 1) * geometry.w.dilation + 1;
    }

    void run() {
        const std::int64_t tasks = geometry_.groups * blocks_ * chunks_;
        const std::int64_t work =
            m_ * block_ * taps_ * std::max<std::int64_t>(1, chunk_ * out_h_ * out_w_);
        const std::int64_t group = std::max<std::int64_t>(1, kConvParallel / 2 / work);
        const std::int64_t slots = slots_for(tasks, group);
        const std::int64_t size = slot_size() + (chunks_ == 1 ? sums_size() : 0);
        T* const memory = scratch_.take<T>(slots * size);
        T* const shared = scratch_.take<T>(chunks_ == 1 ? 0 : tasks * sums_size());
        parallel_slots(tasks, group, slots, [&](std::int64_t task, std::int64_t slot) {
            T* const own = memory + slot * size;
            T* const sums = chunks_ == 1 ? own + slot_size() : shared + task * sums_size();
            add_up(task / chunks_, task % chunks_, own, sums);
            if (chunks_ == 1) finish(task / chunks_, 0, m_, sums, own);
        });
        if (chunks_ > 1) combine(shared);
    }

  private:
    // Chooses the chunks of images and the blocks of channels, so that there are kTasks tasks if
    // possible. Each chunk has sums of its own, and each block packs dy again, so the split with
    // the fewest accesses to memory is chosen.
    void cut() {
        const std::int64_t size = geometry_.groups * m_ * channels_ * taps_;
        const std::int64_t most = std::min(std::clamp<std::int64_t>(kMaxSums / size, 1, kTasks),
                                           std::max<std::int64_t>(1, batch_));
        std::int64_t tasks = 0, accesses = 0;
        for (std::int64_t wanted = 1; wanted <= most; ++wanted) {
            const std::int64_t chunk = divide_up(batch_, wanted);
            const std::int64_t chunks = chunk == 0 ? 1 : divide_up(batch_, chunk);
            const std::int64_t parts = divide_up(kTasks, chunks * geometry_.groups);
            const std::int64_t block =
                std::min(channels_, round_up(divide_up(channels_, parts), width_));
            const std::int64_t blocks = divide_up(channels_, block);
            const std::int64_t found = std::min(kTasks, geometry_.groups * blocks * chunks);
            const std::int64_t cost =
                4 * chunks * size + 2 * blocks * geometry_.groups * m_ * batch_ * out_h_ * out_w_;
            if (found < tasks || (found == tasks && cost >= accesses)) continue;
            tasks = found, accesses = cost;
            chunks_ = chunks, chunk_ = chunk, block_ = block, blocks_ = blocks;
        }
        // If panels have one tap, a block has several images. Adjacent lines of a panel are then
        // the same pixel of different images, so the products that skip padding have a larger
        // depth.
        one_tap_ = block_ % width_ == 0;
        images_ = one_tap_ ? std::clamp<std::int64_t>(kPixels / out_w_, 1,
                                                      std::clamp<std::int64_t>(chunk_, 1, 16))
                           : 1;
        rows_ = even_cut(out_h_, std::max<std::int64_t>(1, kPixels / (images_ * out_w_)), 1);
    }

    std::int64_t depth() const { return images_ * rows_ * out_w_; }
    std::int64_t staged_rows(std::int64_t rows) const {
        return (rows - 1) * geometry_.h.stride + (dw_.shape[2] - 1) * geometry_.h.dilation + 1;
    }
    std::int64_t sums_step() const { return round_up(block_ * taps_, 16); }
    std::int64_t sums_size() const { return round_up(round_up(m_, 2) * sums_step(), 16); }
    // Return the sizes of the parts of a slot's scratch memory, in elements. The parts are the
    // panels of dy, the staged x, one panel of x, and a buffer for lines or a row of dw.
    std::int64_t dy_size() const { return round_up(round_up(m_, 2) * depth(), 16); }
    std::int64_t staged_size() const {
        return round_up(staged_rows(rows_) * staged_width_ * images_ * block_ + kPanelSlack, 16);
    }
    std::int64_t panel_size() const { return round_up(depth() * width_ + kPanelSlack, 16); }
    std::int64_t buffer_size() const {
        return round_up(std::max({kMaxInterleaved * out_w_ * rows_, kMaxInterleaved * x_.shape[3],
                                  2 * block_ * taps_}),
                        16);
    }
    std::int64_t slot_size() const {
        return dy_size() + staged_size() + panel_size() + buffer_size();
    }

    // Computes the sums of a chunk of images. `part` identifies a group and a block of channels.
    void add_up(std::int64_t part, std::int64_t chunk, T* memory, T* sums) const {
        T* const staged = memory + dy_size();
        T* const panel = staged + staged_size();
        T* const buffer = panel + panel_size();
        const std::int64_t end = std::min(batch_, (chunk + 1) * chunk_);
        std::fill(sums, sums + sums_size(), T(0));
        for (std::int64_t n = chunk * chunk_; n < end; n += images_)
            for (std::int64_t r = 0; r < out_h_; r += rows_) {
                const Pixels p = {n, std::min(images_, end - n), r, std::min(rows_, out_h_ - r)};
                pack_dy(part / blocks_, p, memory, buffer);
                stage_x(part, p, staged, buffer);
                multiply(part, p, memory, staged, panel, sums);
            }
    }

    std::int64_t channels_of(std::int64_t part) const {
        return std::min(block_, channels_ - part % blocks_ * block_);
    }

    // Packs dy into panels of tile_rows_ output channels o, ordered as [row][column][image][o].
    void pack_dy(std::int64_t group, const Pixels& p, T* to, T* buffer) const {
        const std::int64_t image = p.rows * out_w_, depth = p.images * image;
        for (std::int64_t i = 0; i < m_; i += tile_rows_, to += tile_rows_ * depth) {
            const std::int64_t rows = std::min(tile_rows_, m_ - i), step = round_up(rows, 2);
            for (std::int64_t n = 0; n < p.images; ++n)
                for (std::int64_t r = 0; r < step; r += kMaxInterleaved) {
                    const int count = static_cast<int>(std::min(kMaxInterleaved, step - r));
                    const T* lines[kMaxInterleaved];
                    for (int k = 0; k < count; ++k) {
                        T* const line = buffer + k * image;
                        const std::int64_t channel = group * m_ + i + r + k;
                        if (r + k == rows) std::fill(line, line + image, T(0));
                        lines[k] = r + k < rows ? load_pixels(p.image + n, channel, p, line) : line;
                    }
                    kernels_.interleave(lines, count, image, to + n * step + r, p.images * step);
                }
        }
    }
    const T* load_pixels(std::int64_t image, std::int64_t channel, const Pixels& p, T* to) const {
        const std::int64_t start =
            image * dy_.stride[0] + channel * dy_.stride[1] + p.row * dy_.stride[2];
        if (p.rows == 1 || dy_.stride[2] == out_w_ * dy_.stride[3])
            return load_lanes<T>(at(dy_.data, dy_.dtype, start), dy_.dtype, dy_.stride[3],
                                 p.rows * out_w_, to);
        for (std::int64_t r = 0; r < p.rows; ++r) {
            T* const row = to + r * out_w_;
            const T* line = load_lanes<T>(at(dy_.data, dy_.dtype, start + r * dy_.stride[2]),
                                          dy_.dtype, dy_.stride[3], out_w_, row);
            if (line != row) std::copy(line, line + out_w_, row);
        }
        return to;
    }

    // Copies the part of x that the pixels p read. The order in scratch memory is
    // [row][column][image][channel].
    void stage_x(std::int64_t part, const Pixels& p, T* to, T* buffer) const {
        const std::int64_t pixel_step = p.images * block_;
        const std::int64_t first = p.row * geometry_.h.stride - geometry_.h.padding;
        const std::int64_t channel = part / blocks_ * channels_ + part % blocks_ * block_;
        const std::int64_t begin = std::min(staged_width_, geometry_.w.padding);
        const std::int64_t n = std::min(staged_width_ - begin, x_.shape[3]);
        for (std::int64_t r = first; r < first + staged_rows(p.rows); ++r) {
            T* const end = to + staged_width_ * pixel_step;
            if (r < 0 || r >= x_.shape[2] || n == 0) {
                to = std::fill_n(to, end - to, T(0));
                continue;
            }
            to = std::fill_n(to, begin * pixel_step, T(0));
            for (std::int64_t k = 0; k < p.images; ++k)
                stage_row((p.image + k) * x_.stride[0] + channel * x_.stride[1] + r * x_.stride[2],
                          n, channels_of(part), to + k * block_, pixel_step, buffer);
            to += n * pixel_step;
            to = std::fill_n(to, end - to, T(0));
        }
    }
    // Copies n columns of one row of an image to scratch memory.
    void stage_row(std::int64_t start, std::int64_t n, std::int64_t channels, T* to,
                   std::int64_t pixel_step, T* buffer) const {
        if (x_.stride[1] == 1) {  // channels are contiguous
            for (std::int64_t q = 0; q < n; ++q, to += pixel_step)
                load_to(start + q * x_.stride[3], 1, channels, to);
            return;
        }
        for (std::int64_t c = 0; c < channels; c += kMaxInterleaved) {
            const int count = static_cast<int>(std::min(kMaxInterleaved, channels - c));
            const T* lines[kMaxInterleaved];
            for (int k = 0; k < count; ++k)
                lines[k] = load_lanes<T>(at(x_.data, x_.dtype, start + (c + k) * x_.stride[1]),
                                         x_.dtype, x_.stride[3], n, buffer + k * n);
            kernels_.interleave(lines, count, n, to + c, pixel_step);
        }
    }
    void load_to(std::int64_t start, std::int64_t stride, std::int64_t n, T* to) const {
        const T* line = load_lanes<T>(at(x_.data, x_.dtype, start), x_.dtype, stride, n, to);
        if (line != to) std::copy(line, line + n, to);
    }

    // A range of output rows or columns, counted from the first row or column of a block.
    struct Range {
        std::int64_t begin, end;
    };

    // Returns the range, among the n output positions starting at `first`, for which tap i reads
    // the source and not the padding.
    static Range seen(const ConvAxis& axis, std::int64_t source, std::int64_t i, std::int64_t first,
                      std::int64_t n) {
        const std::int64_t low = first * axis.stride - axis.padding + i * axis.dilation;
        const std::int64_t begin = low >= 0 ? 0 : std::min(n, divide_up(-low, axis.stride));
        const std::int64_t end = low >= source ? 0 : divide_up(source - low, axis.stride);
        return {begin, std::clamp(end, begin, n)};
    }

    void multiply(std::int64_t part, const Pixels& p, const T* dy, const T* staged, T* panel,
                  T* sums) const {
        const std::int64_t columns = channels_of(part) * taps_;
        PanelRun runs[kMaxTileColumns];
        for (std::int64_t j = 0; j < columns; j += width_) {
            const std::int64_t n = std::min(width_, columns - j);
            const std::int64_t count = runs_of(channels_of(part), p.images, j, n, runs);
            Range rows = {0, p.rows}, line = {0, out_w_};
            if (one_tap_ && channels_of(part) % width_ == 0) {
                const std::int64_t tap = j / channels_of(part);
                rows = seen(geometry_.h, x_.shape[2], tap / dw_.shape[3], p.row, p.rows);
                line = seen(geometry_.w, x_.shape[3], tap % dw_.shape[3], 0, out_w_);
                if (rows.begin == rows.end || line.begin == line.end) continue;
                // If few pixels remain, separate products cost more than the skipped pixels save.
                if ((line.end - line.begin) * p.images < kMinDepth) line = {0, out_w_};
            }
            multiply_panel(p, dy, staged, rows, line, runs, count, round_up(n, kernels_.lanes),
                           panel, sums + j);
        }
    }
    // Adds the products of the panel's pixels in the ranges `rows` and `line` to the sums.
    void multiply_panel(const Pixels& p, const T* dy, const T* staged, Range rows, Range line,
                        const PanelRun* runs, std::int64_t count, std::int64_t width, T* panel,
                        T* sums) const {
        const std::int64_t column = geometry_.w.stride * p.images * block_;
        const std::int64_t row = geometry_.h.stride * staged_width_ * p.images * block_;
        const std::int64_t stretch = (line.end - line.begin) * p.images;
        const std::int64_t together = geometry_.w.stride == 1 ? stretch : p.images;
        T* to = panel;
        for (std::int64_t r = rows.begin; r < rows.end; ++r) {
            const T* from = staged + r * row + line.begin * column;
            for (std::int64_t k = 0; k < stretch; k += together, to += together * width)
                conv_kernels<T>().pack_lines(runs, count, from + k / p.images * column, block_,
                                             together, width, to);
        }
        const bool whole = stretch == out_w_ * p.images;
        const std::int64_t calls = whole ? 1 : rows.end - rows.begin;
        const std::int64_t depth = whole ? stretch * (rows.end - rows.begin) : stretch;
        for (std::int64_t i = 0; i < m_; i += tile_rows_) {
            const std::int64_t pairs = divide_up(std::min(tile_rows_, m_ - i), 2);
            const T* a = dy + i * p.rows * out_w_ * p.images;
            for (std::int64_t k = 0; k < calls; ++k) {
                const std::int64_t first = ((rows.begin + k) * out_w_ + line.begin) * p.images;
                kernels_.tiles[pairs - 1][width / kernels_.lanes - 1](
                    depth, a + first * 2 * pairs, 2 * pairs, panel + k * depth * width, width,
                    sums + i * sums_step(), sums_step(), true);
            }
        }
    }
    // Sets `runs` to the runs of adjacent channels that form columns [j, j + n), ordered by tap.
    std::int64_t runs_of(std::int64_t channels, std::int64_t images, std::int64_t j, std::int64_t n,
                         PanelRun* runs) const {
        const std::int64_t column = geometry_.w.dilation * images * block_;
        const std::int64_t row = geometry_.h.dilation * staged_width_ * images * block_;
        std::int64_t count = 0;
        for (std::int64_t to = 0; to < n;) {
            const std::int64_t tap = (j + to) / channels, c = (j + to) % channels;
            const std::int64_t left = std::min(channels - c, n - to);
            const std::int64_t from = tap / dw_.shape[3] * row + tap % dw_.shape[3] * column + c;
            if (count > 0 && from == runs[count - 1].from + runs[count - 1].count) {
                runs[count - 1].count += left;
            } else {
                runs[count++] = {from, to, left};
            }
            to += left;
        }
        return count;
    }

    // Adds the sums of all chunks and writes the totals to dw.
    void combine(T* shared) {
        const std::int64_t parts = geometry_.groups * blocks_;
        const std::int64_t rows =
            std::min(m_, std::max<std::int64_t>(1, 32768 / (block_ * taps_ * chunks_)));
        const std::int64_t cuts = divide_up(m_, rows);
        const std::int64_t tasks = parts * cuts;
        const std::int64_t slots = slots_for(tasks, 1);
        T* const buffers = scratch_.take<T>(slots * buffer_size());
        parallel_slots(tasks, 1, slots, [&](std::int64_t task, std::int64_t slot) {
            const std::int64_t part = task / cuts, row = task % cuts * rows;
            const std::int64_t end = std::min(m_, row + rows);
            T* const sums = shared + part * chunks_ * sums_size();
            for (std::int64_t chunk = 1; chunk < chunks_; ++chunk) {
                conv_kernels<T>().add(sums + chunk * sums_size() + row * sums_step(),
                                      (end - row) * sums_step(), sums + row * sums_step());
            }
            finish(part, row, end, sums, buffers + slot * buffer_size());
        });
    }

    // Writes rows [begin, end) of a part to dw.
    void finish(std::int64_t part, std::int64_t begin, std::int64_t end, const T* sums,
                T* buffer) const {
        const std::int64_t channels = channels_of(part), n = channels * taps_;
        const std::int64_t kernel_w = dw_.shape[3];
        const bool linear = dw_.stride[2] == kernel_w * dw_.stride[3] &&
                            dw_.stride[1] == dw_.shape[2] * dw_.stride[2];
        for (std::int64_t i = begin; i < end; ++i) {
            const T* row = sums + i * sums_step();
            const std::int64_t start =
                (part / blocks_ * m_ + i) * dw_.stride[0] + part % blocks_ * block_ * dw_.stride[1];
            const bool direct = linear && is_lanes<T>(dw_.dtype, dw_.stride[3], n);
            T* const line = direct ? dw_.template as<T>() + start : buffer;
            if (taps_ == 1) std::copy_n(row, channels, line);
            for (std::int64_t t = 0; t < taps_ && taps_ > 1; t += kMaxInterleaved) {
                const int count = static_cast<int>(std::min(kMaxInterleaved, taps_ - t));
                const T* rows[kMaxInterleaved];
                for (int k = 0; k < count; ++k) rows[k] = row + (t + k) * channels;
                kernels_.interleave(rows, count, channels, line + t, taps_);
            }
            if (linear) {
                store_lanes(line, at(dw_.data, dw_.dtype, start), dw_.dtype, dw_.stride[3], n);
                continue;
            }
            for (std::int64_t k = 0; k < n; k += kernel_w) {
                const std::int64_t to =
                    start + k / taps_ * dw_.stride[1] + k % taps_ / kernel_w * dw_.stride[2];
                store_lanes(line + k, at(dw_.data, dw_.dtype, to), dw_.dtype, dw_.stride[3],
                            kernel_w);
            }
        }
    }

    Scratch scratch_;
    const ConstView& dy_;
    const ConstView& x_;
    const View& dw_;
    const ConvGeometry& geometry_;
    const GemmKernels<T>& kernels_;
    std::int64_t batch_, out_h_, out_w_;
    std::int64_t m_, channels_, taps_;     // output and input channels per group, and taps
    std::int64_t width_, tile_rows_;       // columns and rows of a full tile
    std::int64_t chunks_ = 1, chunk_ = 0;  // number of chunks, and images per chunk
    std::int64_t block_ = 0, blocks_ = 1;  // channels per block, and number of blocks
    std::int64_t images_ = 1, rows_ = 1;   // images and rows per block of depth
    std::int64_t staged_width_;            // columns of a row of staged x
    bool one_tap_ = false;                 // whether each panel of a full block has one tap
};

}  // namespace

void conv2d_weight_gradient(Cpu& on, ConstView dy, ConstView x, const ConvGeometry& geometry,
                            View dw) {
    if (dw.numel() == 0) return;
    if (suits_pixel_rows(geometry, x, dw, dy)) return pixel_rows_weight(on, dy, x, geometry, dw);
    if (lane_dtype(dw.dtype) == DType::f32 && suits_winograd(geometry, dy, dw))
        return winograd_weight_gradient(on, dy, x, geometry, dw);
    visit_f32_f64(lane_dtype(dw.dtype), [&]<class T>() {
        if (suits_direct_weight<T>(dy, geometry, dw))
            return direct_weight_gradient<T>(on, dy, x, geometry, dw);
        // Small images that are read pixel by pixel are staged faster as one row.
        Scratch scratch(on);
        if (reads_pixels_once(geometry, dw) && dy.shape[2] * dy.shape[3] <= kPixels)
            dy = with_one_row(on, scratch, dy), x = with_one_row(on, scratch, x);
        WeightGradient<T>(on, dy, x, geometry, dw).run();
    });
}

}  // namespace axle::kernels
