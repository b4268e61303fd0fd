// Transforms of whole batches: MixUp and CutMix mix each image and its label with the image before
// it, and MixedDataset applies them to the batches of a loader.
//
//     const data::MixedDataset train(train_set, {data::MixUp(classes, 0.2),
//     data::CutMix(classes)}); data::DataLoader loader(train, {.batch_size = 64, .shuffle = true,
//     .num_workers = 4}); for (auto& batch : loader)  // "label" has the shape [n, classes]
//         accelerator.backward(cross_entropy(model(batch["image"]), batch["label"]));
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/size2.h"
#include "core/tensor.h"
#include "data/dataset.h"
#include "data/dataset_ref.h"
#include "data/transforms.h"

namespace axle::data {

// The images of a batch, and the probabilities of their classes, [n, classes] in f32. These are
// targets of cross_entropy().
struct MixedBatch {
    Tensor images, labels;
};

// The functions below do what MixUp and CutMix do after they have drawn a number. They work on
// every device, and on labels of any floating dtype. Throw ShapeError unless images are
// [n, c, height, width] and labels [n, classes], and DTypeError unless images (for mixup) and
// labels are floating.
//
// Returns lambda * x + (1 - lambda) * y, where y is the batch rolled by one: the first image is
// mixed with the last one.
MixedBatch mixup(const Tensor& images, const Tensor& labels, double lambda);
// A rectangle of an image, from `top` and `left` to before `bottom` and `right`.
struct CutBox {
    std::int64_t top, left, bottom, right;
};
// Returns the box around a pixel whose sides are sqrt(1 - lambda) times the sides of the image,
// rounded down to even numbers, without the part outside the image.
CutBox cut_box(Size2 image, double lambda, std::int64_t y, std::int64_t x);
// Returns the images with the pixels of the rolled batch in the box. Labels are mixed by areas.
// Throws IndexError unless the box is in the image.
MixedBatch cutmix(const Tensor& images, const Tensor& labels, const CutBox& box);

// Mixes a batch with one lambda, a random number of the distribution Beta(alpha, alpha)
// (arXiv:1710.09412), as MixUp of torchvision.transforms.v2 does.
class MixUp {
  public:
    // Throws ValueError unless num_classes is at least 1 and alpha is in (0, 1e6].
    explicit MixUp(std::int64_t num_classes, double alpha = 1);
    // Images are floating [n, c, height, width]. Labels are classes [n], or floating probabilities
    // [n, num_classes]. Throws ShapeError or DTypeError for others, and ValueError for a class that
    // is not in [0, num_classes).
    MixedBatch operator()(const Tensor& images, const Tensor& labels, SampleRandom& random) const;

  private:
    std::int64_t num_classes_;
    double alpha_;
};

// Replaces a random box of each image by the same box of the image before it, with one box for the
// batch (arXiv:1905.04899), as CutMix of torchvision.transforms.v2 does. 1 - the box's share of the
// area has the distribution Beta(alpha, alpha), except that the box is cut at the borders.
class CutMix {
  public:
    // Throw the errors of MixUp, but the images can have any compute dtype.
    explicit CutMix(std::int64_t num_classes, double alpha = 1);
    MixedBatch operator()(const Tensor& images, const Tensor& labels, SampleRandom& random) const;

  private:
    std::int64_t num_classes_;
    double alpha_;
};

// A function such as MixUp. Several threads call it concurrently.
using BatchTransform =
    std::function<MixedBatch(const Tensor& images, const Tensor& labels, SampleRandom& random)>;

struct MixedOptions {
    std::string image = "image", label = "label";  // the entries of a sample
    std::uint64_t seed = 0;
};

// A dataset whose batches are mixed: each batch by one of several transforms, which is drawn with
// equal probabilities. The random numbers of a batch depend only on the seed, the epoch and the
// index of its first sample, and not on the number of workers or on resuming. get() mixes a sample
// with itself, so that it has the shapes of a row of a batch.
//
// Pass this dataset to the loader. A collate_fn, or a dataset that reads single samples of this
// dataset, gets samples that are not mixed. get() and get_batch() throw IndexError if a sample has
// no entry `image` or `label`, and ValueError if an entry is not a tensor.
class MixedDataset final : public Dataset {
  public:
    // Throws UsageError if the dataset is null, or if there is no transform or an empty one.
    MixedDataset(const DatasetRef& dataset, std::vector<BatchTransform> transforms,
                 MixedOptions options = {});

    std::int64_t size() const override { return dataset_->size(); }
    Tree get(std::int64_t index) const override;
    Tree get_batch(std::span<const std::int64_t> indices) const override;
    bool has_uniform_shapes() const override { return dataset_->has_uniform_shapes(); }
    std::shared_ptr<const Dataset> in_epoch(std::int64_t epoch) const override;

  private:
    std::shared_ptr<const Dataset> dataset_;
    std::vector<BatchTransform> transforms_;
    MixedOptions options_;
    std::int64_t epoch_ = 0;
};

}  // namespace axle::data
