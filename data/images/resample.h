// Private to data: resizing of u8 pixels with the arithmetic of Pillow.
#pragma once

#include <cstdint>
#include <vector>

#include "core/functional.h"
#include "core/size2.h"

namespace axle::data {

// Resizes planes of one size to another. The result equals Image.resize of Pillow, which filters
// rows and columns one after another and rounds to 8 bits after each. (interpolate() with antialias
// rounds floats once, so that some pixels differ by one.)
class Resampler {
  public:
    // Sides must be positive. The filter must be bilinear or bicubic.
    Resampler(Size2 from, Size2 to, Interpolation filter);
    // Resizes a plane whose rows are `stride` bytes apart. Writes rows of to.w bytes without gaps.
    void operator()(const std::uint8_t* plane, std::int64_t stride, std::uint8_t* result);

  private:
    // The weights of the input pixels for each output pixel of a line. The weights of output pixel
    // i begin at weights[i * most], and belong to the input pixels from begin[i] to end[i].
    struct Weights {
        Weights(std::int64_t from, std::int64_t to, Interpolation filter);

        std::int64_t most;
        std::vector<std::int64_t> begin, end;
        std::vector<std::int32_t> weights;
    };
    // The weights of `across_` in two parts of 16 bits, in blocks of kLanes input pixels: the sum
    // of the products of output pixel x is (sum of high) * 2^kLowBits + (sum of low). Weights of
    // zero fill the last block.
    struct Blocks {
        Blocks(const Weights& weights, std::int64_t from);

        std::int64_t length;  // the input pixels of each output pixel; 0 if blocks are not used
        std::vector<std::int64_t> begin;
        std::vector<std::int16_t> low, high;
    };
    static constexpr int kLanes = 8, kLowBits = 11;

    void resize_row_in_blocks(const std::uint8_t* row, std::uint8_t* to) const;
    void resize_rows(const std::uint8_t* rows, std::int64_t stride, std::int64_t count,
                     std::uint8_t* to) const;
    // The first row of `rows` is row `top` of the plane.
    void resize_columns(const std::uint8_t* rows, std::int64_t stride, std::int64_t top,
                        std::int64_t width, std::uint8_t* to);

    Size2 from_, to_;
    bool columns_first_;
    Weights across_, down_;
    Blocks blocks_;
    std::vector<std::uint8_t> between_;  // the result of the first of two steps
    std::vector<std::int32_t> sums_;
};

}  // namespace axle::data
