// Samples as they are stored to what a model takes: bytes of images to floats, token ids to 64
// bits. On the caller's thread.
#pragma once

#include <array>
#include <cstdint>

namespace axle::inline v0::kernels {

// A byte of an image as the float (byte / 255 - mean) / std, to the bit of these three operations.
class ByteScale {
  public:
    ByteScale(float mean, float std);
    float operator[](std::uint8_t byte) const { return values_[byte]; }

    // Factors that give the same values in fewer operations. Whether they do is tried out, for all
    // bytes and with this CPU's instructions; if not, the table is used.
    struct Factors {
        float mean, std, inverse;
        bool exact;
    };
    const Factors& factors() const { return factors_; }

  private:
    std::array<float, 256> values_;
    Factors factors_;
};

// rows x columns of an image of planes x height x width bytes, from (top, left) on. It may reach
// beyond the image, where everything is `fill`. Mirrored: left and right exchanged, of the window.
struct ByteWindow {
    const std::uint8_t* x;
    std::int64_t planes, height, width;
    std::int64_t top = 0, left = 0, rows, columns;
    std::uint8_t fill = 0;
    bool mirrored = false;
};
// y [planes, rows, columns] of a window; plane p is scaled by scales[p % channels].
void scale_bytes(const ByteWindow& window, const ByteScale* scales, std::int64_t channels,
                 float* y);

// y = x, n of them.
void widen(const std::uint16_t* x, std::int64_t* y, std::int64_t n);
void widen(const std::uint32_t* x, std::int64_t* y, std::int64_t n);

}  // namespace axle::inline v0::kernels
