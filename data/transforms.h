// Image transforms for batches, the random numbers of a sample (SampleRandom), and
// TransformedDataset, which applies a transform to a dataset.
//
//     const auto train = data::TransformedDataset(
//         data::cifar10(folder), data::Compose({data::RandomCrop(32, {.padding = 4}),
//                                               data::RandomHorizontalFlip(), data::ToFloat(),
//                                               data::Normalize(mean, std)}),
//         {.seed = 1});
//
// The transforms in this file need images on the CPU with at least three dimensions. They throw
// DeviceError or ShapeError for other images, DTypeError for storage dtypes, and UsageError for
// undefined images. Random transforms throw UsageError unless there is one SampleRandom per image;
// other transforms ignore `random`. Compose checks nothing itself.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/size2.h"
#include "core/tensor.h"
#include "data/dataset.h"
#include "data/dataset_ref.h"
#include "kernels/philox.h"

namespace axle::data {

class FusedByteTransform;
class RandomResizedCrop;
struct Corner;

// The random numbers for the transforms of one sample. They depend only on seed, epoch and sample
// index, and not on the batch, the number of threads or processes, or on resuming.
class SampleRandom {
  public:
    // Returns the key from which the numbers of all samples of an epoch are computed.
    static std::uint64_t epoch_key(std::uint64_t seed, std::int64_t epoch);
    // `index` is the index of the sample and must be in [0, 2^40). Each sample has 2^26 numbers of
    // its own; the numbers after these are the numbers of the next sample.
    SampleRandom(std::uint64_t epoch_key, std::int64_t index)
        : stream_{.seed = epoch_key, .offset = static_cast<std::uint64_t>(index) << 24} {}

    // Returns the next number, uniformly distributed over all 32-bit integers.
    std::uint32_t next() { return stream_.word(drawn_++); }
    // Returns a number in [0, 1).
    float uniform() { return kernels::Philox::to_unit(next()); }
    // Returns an integer in [0, n), where n is in [1, 2^32).
    std::int64_t below(std::int64_t n) {
        return static_cast<std::int64_t>(std::uint64_t{next()} * static_cast<std::uint64_t>(n) >>
                                         32);
    }

  private:
    kernels::Philox stream_;
    std::uint64_t drawn_ = 0;
};

// A function that transforms images [n, ..., height, width] on the CPU, with one SampleRandom per
// image. It must return n images and must not modify its input. Several threads call it
// concurrently.
using Transform = std::function<Tensor(const Tensor& images, std::span<SampleRandom> random)>;

// Applies transforms in order. For u8 images, computes the sequence RandomCrop,
// RandomHorizontalFlip, ToFloat and Normalize in one pass; all except ToFloat are optional.
class Compose {
  public:
    // Throws UsageError if a transform is empty.
    explicit Compose(std::vector<Transform> transforms);
    Tensor operator()(const Tensor& images, std::span<SampleRandom> random) const;
    // Returns the transformed images[indices]. If the transforms begin with the sequence above, the
    // rows of contiguous u8 images are not copied first. Indices are not checked.
    Tensor apply_rows(const Tensor& images, std::span<const std::int64_t> indices,
                      std::span<SampleRandom> random) const;

  private:
    friend class TransformedDataset;
    // Applies the transforms from number `first`.
    Tensor apply_from(std::size_t first, const Tensor& images,
                      std::span<SampleRandom> random) const;

    std::vector<Transform> transforms_;
};

// Converts u8 images to f32 and divides them by 255 (ToTensor of torchvision). Converts floating
// images to f32 without scaling. Throws DTypeError for other dtypes.
struct ToFloat {
    Tensor operator()(const Tensor& images, std::span<SampleRandom> random = {}) const;
};

// Computes (x - mean) / std for images [n, ..., c, h, w] or [n, h, w] in f32 or f64. `mean` and
// `std` have one element per channel, or one element for all channels.
class Normalize {
  public:
    // Throws ValueError if the lists are empty or have different lengths, or a std is not positive
    // in f32.
    Normalize(std::vector<double> mean, std::vector<double> std);
    // Throws DTypeError unless the images are f32 or f64, and ShapeError unless `mean` has one
    // element or as many elements as the images have channels.
    Tensor operator()(const Tensor& images, std::span<SampleRandom> random = {}) const;

  private:
    friend class FusedByteTransform;
    std::vector<double> mean_, std_;
};

// Crops the center of images to `size`, and pads smaller images with zeros. Odd margins are rounded
// as in torchvision.
class CenterCrop {
  public:
    // Throws ValueError unless both sizes are positive.
    explicit CenterCrop(Size2 size);
    Tensor operator()(const Tensor& images, std::span<SampleRandom> random = {}) const;

  private:
    Size2 size_;
};

struct RandomCropOptions {
    Size2 padding = 0;  // on each side, filled with `fill`
    double fill = 0;
};

// Crops a window of `size` at a uniformly random position of the padded image.
class RandomCrop {
  public:
    // Throws ValueError unless both sizes are positive and the padding is not negative.
    explicit RandomCrop(Size2 size, RandomCropOptions options = {});
    // Throws ShapeError if the padded images are smaller than the window.
    Tensor operator()(const Tensor& images, std::span<SampleRandom> random) const;

  private:
    friend class FusedByteTransform;
    // Returns whether the window fits into images that have this size before padding.
    bool fits(Size2 images) const;
    Corner corner(Size2 images, SampleRandom& random) const;

    Size2 size_;
    RandomCropOptions options_;
};

// Mirrors an image horizontally with probability p.
class RandomHorizontalFlip {
  public:
    // Throws ValueError unless p is in [0, 1].
    explicit RandomHorizontalFlip(double p = 0.5);
    Tensor operator()(const Tensor& images, std::span<SampleRandom> random) const;

  private:
    friend class FusedByteTransform;
    bool flips(SampleRandom& random) const { return random.uniform() < p_; }

    double p_;
};

struct TransformedOptions {
    std::string key = "image";  // the entry of a sample that is transformed
    std::uint64_t seed = 0;     // for random transforms
};

// A dataset that applies a transform to one entry of the samples of another dataset, batch by
// batch. Random transforms use the epoch that the loader passes to in_epoch(), or 0 without a
// loader. A sample that is visited twice in an epoch is transformed in the same way.
//
// The images of a batch must have the same size before the transform, unless
// Dataset::has_uniform_shapes() is false, as for ImageFolder: samples are then transformed one by
// one, and only the transformed images must have the same size. Set `.collate_fn = collate` in the
// loader to do the same with other datasets. get() and get_batch() throw IndexError if a sample has
// no entry `key`, ValueError if the entry is not a tensor, and ShapeError if the transform changes
// the number of images.
class TransformedDataset final : public Dataset {
  public:
    // Throws UsageError if the dataset is null or the transform is empty. The ownership of the
    // dataset is that of DatasetRef.
    TransformedDataset(const DatasetRef& dataset, Transform transform,
                       TransformedOptions options = {});

    std::int64_t size() const override { return dataset_->size(); }
    Tree get(std::int64_t index) const override;
    Tree get_batch(std::span<const std::int64_t> indices) const override;
    bool has_uniform_shapes() const override { return dataset_->has_uniform_shapes(); }
    std::shared_ptr<const Dataset> in_epoch(std::int64_t epoch) const override;

  private:
    // Returns the RandomResizedCrop with which the transform begins, or nullptr.
    const RandomResizedCrop* first_crop() const;
    std::vector<SampleRandom> random_of(std::span<const std::int64_t> indices) const;

    std::shared_ptr<const Dataset> dataset_;
    Transform transform_;
    TransformedOptions options_;
    std::int64_t epoch_ = 0;
};

}  // namespace axle::data
