// Kernels that convert stored samples to model inputs: pixels to planes, image bytes to floats,
// token ids to 64 bits. They run on the calling thread.
#pragma once

#include <array>
#include <cstdint>

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

}  // namespace axle::kernels
