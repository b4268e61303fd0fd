// Private to data: the usual transforms of images of bytes in one pass over memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "data/transforms.h"
#include "kernels/ops/decode.h"

namespace axle::inline v0::data {

// The place of a window's first pixel; a window may reach beyond the image.
struct Corner {
    std::int64_t top, left;
};

// [RandomCrop] [RandomHorizontalFlip] ToFloat [Normalize], which it draws and rounds like. Images
// of anything but bytes, and what these would refuse, go through them one by one.
class FusedByteTransform {
  public:
    // The longest such row of transforms at the start of these; nothing if there is none.
    static std::optional<FusedByteTransform> of(std::span<const Transform> transforms);
    std::size_t length() const { return steps_.size(); }

    Tensor operator()(const Tensor& images, std::span<SampleRandom> random) const;
    // The same of images[indices], which are read where they are.
    Tensor apply_rows(const Tensor& images, std::span<const std::int64_t> indices,
                   std::span<SampleRandom> random) const;

  private:
    // Of images with as many in a batch.
    bool takes(const Tensor& images, std::int64_t batch, std::span<SampleRandom> random) const;
    // row(i) is the image that becomes the i-th one.
    template <class Row>
    Tensor pass(const Tensor& images, std::int64_t batch, std::span<SampleRandom> random,
                Row row) const;

    std::vector<Transform> steps_;
    std::optional<RandomCrop> crop_;
    std::optional<RandomHorizontalFlip> flip_;
    std::uint8_t fill_ = 0;
    std::vector<kernels::ByteScale> scales_;  // of each channel, or one for all
};

}  // namespace axle::inline v0::data
