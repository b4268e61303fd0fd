// Private to data: resizing of u8 pixels with the arithmetic of Pillow.
#pragma once

#include <cstdint>
#include <vector>

#include "core/functional.h"
#include "core/size2.h"
#include "kernels/ops/decode.h"

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
    Size2 from_, to_;
    bool columns_first_;
    kernels::ByteFilter across_, down_;
    std::vector<std::uint8_t> between_;  // the result of the first of two steps
    std::vector<std::uint8_t> buffer_;
};

}  // namespace axle::data
