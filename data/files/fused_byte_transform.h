// Private to data: the common transforms of u8 images, fused into one pass over memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "data/transforms.h"
#include "kernels/ops/decode.h"

namespace axle::data {

// The position of the first pixel of a crop window, which can be outside the image.
struct Corner {
    std::int64_t top, left;
};

// RandomCrop, RandomHorizontalFlip, ToFloat and Normalize as one pass. All except ToFloat are
// optional. Uses the same random numbers and rounding as the separate transforms. Runs the separate
// transforms for images that are empty or not u8, and for arguments that one of the transforms
// rejects.
class FusedByteTransform {
  public:
    // Returns one transform for the longest sequence at the start of `transforms` that can be
    // fused. Returns nullopt if there is no such sequence.
    static std::optional<FusedByteTransform> of(std::span<const Transform> transforms);
    // Returns the number of fused transforms.
    std::size_t length() const { return steps_.size(); }

    Tensor operator()(const Tensor& images, std::span<SampleRandom> random) const;
    // Returns the transformed images[indices]. Does not copy the rows first if `images` is
    // contiguous and the transforms can be fused. Indices are not checked.
    Tensor apply_rows(const Tensor& images, std::span<const std::int64_t> indices,
                      std::span<SampleRandom> random) const;

  private:
    // Returns whether `batch` of these images can be transformed in one pass.
    bool can_fuse(const Tensor& images, std::int64_t batch, std::span<SampleRandom> random) const;
    // Transforms a batch. row(i) must return the index of the image that becomes image i of the
    // batch.
    template <class Row>
    Tensor apply_fused(const Tensor& images, std::int64_t batch, std::span<SampleRandom> random,
                       Row row) const;

    std::vector<Transform> steps_;
    std::optional<RandomCrop> crop_;
    std::optional<RandomHorizontalFlip> flip_;
    std::uint8_t fill_ = 0;
    std::vector<kernels::ByteScale> scales_;  // one per channel, or one for all channels
};

}  // namespace axle::data
