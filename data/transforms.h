// Transforms of images, a whole batch at once, and the dataset that applies them.
//
//     const auto train = data::TransformedDataset(
//         data::cifar10(folder), data::Compose({data::RandomCrop(32, {.padding = 4}),
//                                               data::RandomHorizontalFlip(), data::ToFloat(),
//                                               data::Normalize(mean, std)}),
//         {.seed = 1});
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/size2.h"
#include "core/tensor.h"
#include "data/dataset.h"
#include "kernels/philox.h"

namespace axle::inline v0::data {

class FusedByteTransform;
struct Corner;

// What one sample's random transforms draw from, one number after another. The numbers are a pure
// function of seed, epoch and the sample's index: they depend neither on the batch that it comes
// in, nor on threads or processes, nor on where a run was resumed.
class SampleRandom {
  public:
    // The key of an epoch; all its samples share it.
    static std::uint64_t epoch_key(std::uint64_t seed, std::int64_t epoch);
    // index is in [0, 2^40). Behind 2^26 numbers come those of the sample at the next index.
    SampleRandom(std::uint64_t epoch_key, std::int64_t index)
        : stream_{.seed = epoch_key, .offset = static_cast<std::uint64_t>(index) << 24} {}

    std::uint32_t next() { return stream_.word(drawn_++); }
    // In [0, 1).
    float uniform() { return kernels::Philox::to_unit(next()); }
    // In [0, n), n in [1, 2^32).
    std::int64_t below(std::int64_t n) {
        return static_cast<std::int64_t>(std::uint64_t{next()} * static_cast<std::uint64_t>(n) >>
                                         32);
    }

  private:
    kernels::Philox stream_;
    std::uint64_t drawn_ = 0;
};

// Images [n, ..., height, width] on the CPU, and a SampleRandom for each of the n. The result has n
// images; the given ones are not written to. Several threads call it at once. A lambda may be one.
using Transform = std::function<Tensor(const Tensor& images, std::span<SampleRandom> random)>;

// One after another. A RandomCrop, a RandomHorizontalFlip, a ToFloat and a Normalize that come in
// this order, the ToFloat with or without the others, are one pass over images of bytes.
class Compose {
  public:
    explicit Compose(std::vector<Transform> transforms);
    Tensor operator()(const Tensor& images, std::span<SampleRandom> random) const;
    // The same of images[indices]. The pass over bytes reads them where they are.
    Tensor apply_rows(const Tensor& images, std::span<const std::int64_t> indices,
                   std::span<SampleRandom> random) const;

  private:
    std::vector<Transform> transforms_;
};

// u8 to f32, 255 to 1; other floating dtypes to f32 as they are (torchvision's ToTensor).
struct ToFloat {
    Tensor operator()(const Tensor& images, std::span<SampleRandom> random = {}) const;
};

// (x - mean) / std with a mean and a std for each channel, or one for all. Images [n, c, h, w] of
// f32 or f64.
class Normalize {
  public:
    // ValueError for lists of different lengths, or a std that is not positive.
    Normalize(std::vector<double> mean, std::vector<double> std);
    Tensor operator()(const Tensor& images, std::span<SampleRandom> random = {}) const;

  private:
    friend class FusedByteTransform;
    std::vector<double> mean_, std_;
};

// The middle; images that are smaller get a border of zeros. Rounds as torchvision does.
class CenterCrop {
  public:
    explicit CenterCrop(Size2 size);
    Tensor operator()(const Tensor& images, std::span<SampleRandom> random = {}) const;

  private:
    Size2 size_;
};

struct RandomCropOptions {
    Size2 padding = 0;  // on each side, of the value `fill`
    double fill = 0;
};

// A window anywhere in the padded image, each place as likely. ShapeError if it doesn't fit.
class RandomCrop {
  public:
    explicit RandomCrop(Size2 size, RandomCropOptions options = {});
    Tensor operator()(const Tensor& images, std::span<SampleRandom> random) const;

  private:
    friend class FusedByteTransform;
    // Of images of that size.
    bool fits(Size2 images) const;
    Corner corner(Size2 images, SampleRandom& random) const;

    Size2 size_;
    RandomCropOptions options_;
};

// Left and right exchanged, with probability p.
class RandomHorizontalFlip {
  public:
    explicit RandomHorizontalFlip(double p = 0.5);
    Tensor operator()(const Tensor& images, std::span<SampleRandom> random) const;

  private:
    friend class FusedByteTransform;
    bool flips(SampleRandom& random) const { return random.uniform() < p_; }

    double p_;
};

struct TransformedOptions {
    std::string key = "image";  // the entry of a sample that is transformed
    std::uint64_t seed = 0;     // of what is random
};

// A dataset with one entry of its samples transformed, batch by batch. What is random differs from
// epoch to epoch, which the loader tells; without a loader it is epoch 0. A sample that an epoch
// visits twice looks the same both times.
//
// Images of a batch have the same size before the transform. Where only the transform makes them
// so, give the loader `.collate_fn = collate`, which transforms them one by one.
class TransformedDataset final : public Dataset {
  public:
    // The dataset must outlive this one; a temporary moves in.
    TransformedDataset(const Dataset& dataset, Transform transform,
                       TransformedOptions options = {});
    TransformedDataset(std::shared_ptr<const Dataset> dataset, Transform transform,
                       TransformedOptions options = {});
    template <class D>
        requires(std::derived_from<D, Dataset> && !std::is_const_v<D>)
    TransformedDataset(D&& dataset, Transform transform,  // NOLINT: D is never a reference
                       TransformedOptions options = {})
        : TransformedDataset(
              std::shared_ptr<const Dataset>(std::make_shared<D>(std::forward<D>(dataset))),
              std::move(transform), std::move(options)) {}

    std::int64_t size() const override { return dataset_->size(); }
    Tree get(std::int64_t index) const override;
    Tree get_batch(std::span<const std::int64_t> indices) const override;
    std::shared_ptr<const Dataset> in_epoch(std::int64_t epoch) const override;

  private:
    template <class Make>
    Tensor transformed(const Tensor& images, std::span<const std::int64_t> indices,
                       Make make) const;

    std::shared_ptr<const Dataset> dataset_;
    Transform transform_;
    TransformedOptions options_;
    std::int64_t epoch_ = 0;
};

}  // namespace axle::inline v0::data
