// Kernels that convert stored samples to model inputs: pixels to planes, image bytes to floats,
// images to other sizes, token ids to 64 bits. They run on the calling thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace axle::kernels {

// Converts an image byte to the float (byte / 255 - mean) / std. The result has the same bits as
// these three operations.
class ByteScale {
  public:
    ByteScale(float mean, float std);
    float operator[](std::uint8_t byte) const { return values_[byte]; }

    // The parameters of a formula for packs that multiplies by 1 / std (`inverse`) instead of
    // dividing. `exact` is true if multiplying gives the same bits as dividing for all 256 bytes on
    // this CPU; otherwise scale_bytes() reads the table of ByteScale.
    struct Factors {
        float mean, std, inverse;
        bool exact;
    };
    const Factors& factors() const { return factors_; }

  private:
    std::array<float, 256> values_;
    Factors factors_;
};

// A window of rows x columns pixels in an image of planes x height x width bytes. The upper left
// corner of the window is at (top, left). Pixels outside the image have the value `fill`. If
// mirrored is true, the window is flipped horizontally.
struct ByteWindow {
    const std::uint8_t* x;
    std::int64_t planes, height, width;
    std::int64_t top = 0, left = 0, rows, columns;
    std::uint8_t fill = 0;
    bool mirrored = false;
};
// Converts a window to contiguous y [planes, rows, columns]; plane p uses scales[p % channels].
void scale_bytes(const ByteWindow& window, const ByteScale* scales, std::int64_t channels,
                 float* y);

// Separates interleaved pixels: computes y[c * plane + i] = x[3 * i + c] for i in [0, n) and c in
// [0, 3). The planes begin `plane` >= n bytes apart.
void separate_pixels(const std::uint8_t* x, std::int64_t n, std::uint8_t* y, std::int64_t plane);

// Computes y[i] = x[i] for i in [0, n), from 16-bit or 32-bit to 64-bit integers.
void widen(const std::uint16_t* x, std::int64_t* y, std::int64_t n);
void widen(const std::uint32_t* x, std::int64_t* y, std::int64_t n);

// A filter that computes the pixels of a line (a row or a column) from those of another line. An
// output pixel is the sum of adjacent input pixels times their weights, which have
// kFractionBits bits after the binary point. Sums are exact, rounded to integers, and limited to
// [0, 255].
class ByteFilter {
  public:
    static constexpr int kFractionBits = 22, kLowBits = 11;

    // The input pixels of an output pixel, and the index of their first pair of weights.
    struct Output {
        std::int64_t begin, end;
        std::size_t pair;
    };
    // The weights of two adjacent input pixels in two parts of 16 bits: a weight is
    // high * 2^kLowBits + low. The first pixel has the lower 16 bits of `low` and `high`. If the
    // number of input pixels is odd, the last weight is zero.
    struct Pair {
        std::int32_t low, high;
    };

    // Appends an output pixel, computed from the input pixels that begin at `begin`. There must be
    // at least one weight; the weights must be in [-2^26, 2^26), and the sum of their absolute
    // values must be less than 2^23. Input pixels must not begin or end before those of the output
    // pixel before.
    void add(std::int64_t begin, std::span<const std::int32_t> weights);

    std::int64_t size() const { return static_cast<std::int64_t>(outputs_.size()); }
    // Returns the range of input pixels that are used. The filter must not be empty.
    std::int64_t begin() const { return outputs_.front().begin; }
    std::int64_t end() const { return outputs_.back().end; }
    const Output* outputs() const { return outputs_.data(); }
    const Pair* pairs(const Output& output) const { return pairs_.data() + output.pair; }

  private:
    std::vector<Output> outputs_;
    std::vector<Pair> pairs_;
};

// Filters the columns of an image of `width` bytes per row, whose rows begin `stride` bytes apart.
// x points to row filter.begin(). Writes filter.size() rows, which begin `y_stride` bytes apart.
void filter_columns(const ByteFilter& filter, const std::uint8_t* x, std::int64_t stride,
                    std::int64_t width, std::uint8_t* y, std::int64_t y_stride);

// Filters `rows` rows, which begin `stride` bytes apart. Writes rows of filter.size() bytes without
// gaps. Enlarges `buffer` if necessary, and overwrites it.
void filter_rows(const ByteFilter& filter, const std::uint8_t* x, std::int64_t stride,
                 std::int64_t rows, std::uint8_t* y, std::vector<std::uint8_t>& buffer);

}  // namespace axle::kernels
