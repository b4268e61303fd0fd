#include "data/images/mix.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/ops.h"
#include "core/shaping.h"
#include "data/images/random_numbers.h"
#include "kernels/error.h"

namespace axle::data {
namespace {

void check_images_and_labels(const char* op, const Tensor& images, const Tensor& labels) {
    if (!images.defined() || !labels.defined())
        throw UsageError(str(op, ": the images or the labels are undefined"));
    if (images.dim() != 4)
        throw ShapeError(
            str(op, ": images must be [n, c, height, width]: they are ", images.shape()));
    if (labels.dim() != 2 || labels.size(0) != images.size(0))
        throw ShapeError(str(op, ": labels must be [n, classes]: they are ", labels.shape(),
                             ", images are ", images.shape()));
    if (!is_floating(labels.dtype()))
        throw DTypeError(
            str(op, ": probabilities of classes must be floating: they are ", labels.dtype()));
}

Tensor mixed(const Tensor& x, double lambda) { return roll(x, 1, 0) * (1 - lambda) + x * lambda; }

void check_mix_options(const char* op, std::int64_t num_classes, double alpha) {
    if (num_classes < 1)
        throw ValueError(str(op, ": num_classes must be at least 1: ", num_classes));
    if (!(alpha > 0 && alpha <= 1e6))
        throw ValueError(str(op, ": alpha must be in (0, 1e6]: ", alpha));
}

// Returns labels as probabilities [n, num_classes].
Tensor soft_labels(const char* op, const Tensor& images, const Tensor& labels,
                   std::int64_t num_classes) {
    if (!labels.defined()) throw UsageError(str(op, ": the labels are undefined"));
    if (labels.dim() == 2 && labels.size(1) == num_classes && is_floating(labels.dtype()))
        return labels;
    if (labels.dim() != 1 || !images.defined() || images.dim() == 0 ||
        labels.size(0) != images.size(0))
        throw ShapeError(str(op, ": labels must be classes [n] or probabilities [n, ", num_classes,
                             "]: they are ", labels.shape(), " in ", labels.dtype(),
                             ", images are ",
                             images.defined() ? str(images.shape()) : "undefined"));
    if (is_floating(labels.dtype()) || labels.dtype() == boolean)
        throw DTypeError(str(op, ": classes must be integers: they are ", labels.dtype()));
    const Tensor classes = labels.to(i64);
    if (classes.numel() > 0)
        for (const double c : {classes.min().item(), classes.max().item()})
            if (c < 0 || c >= static_cast<double>(num_classes))
                throw ValueError(
                    str(op, ": classes must be in [0, ", num_classes, "): one is ", c));
    return one_hot(classes, num_classes).to(f32);
}

}  // namespace

MixedBatch mixup(const Tensor& images, const Tensor& labels, double lambda) {
    check_images_and_labels("mixup", images, labels);
    if (!is_floating(images.dtype()))
        throw DTypeError(str("mixup: images must be floating: they are ", images.dtype(),
                             "; apply ToFloat first"));
    return {mixed(images, lambda), mixed(labels, lambda)};
}

CutBox cut_box(Size2 image, double lambda, std::int64_t y, std::int64_t x) {
    const double r = 0.5 * std::sqrt(1 - lambda);
    const auto half_w = static_cast<std::int64_t>(r * static_cast<double>(image.w));
    const auto half_h = static_cast<std::int64_t>(r * static_cast<double>(image.h));
    return {std::max<std::int64_t>(y - half_h, 0), std::max<std::int64_t>(x - half_w, 0),
            std::min(y + half_h, image.h), std::min(x + half_w, image.w)};
}

MixedBatch cutmix(const Tensor& images, const Tensor& labels, const CutBox& box) {
    check_images_and_labels("cutmix", images, labels);
    const Size2 size = {images.size(-2), images.size(-1)};
    const auto& [top, left, bottom, right] = box;
    if (top < 0 || left < 0 || top > bottom || left > right || bottom > size.h || right > size.w)
        throw IndexError(str("cutmix: the box must be in images of size ", size,
                             ": it has the rows [", top, ", ", bottom, ") and the columns [", left,
                             ", ", right, ")"));
    Tensor result = images.clone();
    if (top < bottom && left < right)
        result.slice(2, top, bottom)
            .slice(3, left, right)
            .copy_(roll(images.slice(2, top, bottom).slice(3, left, right), 1, 0));
    const double area = static_cast<double>((bottom - top) * (right - left));
    const double all = static_cast<double>(std::max<std::int64_t>(size.h * size.w, 1));
    return {result, mixed(labels, 1 - area / all)};
}

MixUp::MixUp(std::int64_t num_classes, double alpha) : num_classes_(num_classes), alpha_(alpha) {
    check_mix_options("MixUp", num_classes, alpha);
}

MixedBatch MixUp::operator()(const Tensor& images, const Tensor& labels,
                             SampleRandom& random) const {
    return mixup(images, soft_labels("MixUp", images, labels, num_classes_),
                 beta_sample(random, alpha_));
}

CutMix::CutMix(std::int64_t num_classes, double alpha) : num_classes_(num_classes), alpha_(alpha) {
    check_mix_options("CutMix", num_classes, alpha);
}

MixedBatch CutMix::operator()(const Tensor& images, const Tensor& labels,
                              SampleRandom& random) const {
    const Tensor soft = soft_labels("CutMix", images, labels, num_classes_);
    check_images_and_labels("CutMix", images, soft);
    const Size2 size = {images.size(-2), images.size(-1)};
    const double lambda = beta_sample(random, alpha_);
    const std::int64_t y = random.below(size.h), x = random.below(size.w);
    return cutmix(images, soft, cut_box(size, lambda, y, x));
}

MixedDataset::MixedDataset(const DatasetRef& dataset, std::vector<BatchTransform> transforms,
                           MixedOptions options)
    : dataset_(dataset.pointer()),
      transforms_(std::move(transforms)),
      options_(std::move(options)) {
    if (dataset_ == nullptr) throw UsageError("MixedDataset: the dataset must not be null");
    if (transforms_.empty()) throw UsageError("MixedDataset: needs at least one transform");
    for (std::size_t i = 0; i < transforms_.size(); ++i)
        if (!transforms_[i]) throw UsageError(str("MixedDataset: transform ", i, " is empty"));
}

Tree MixedDataset::get(std::int64_t index) const {
    Tree sample = get_batch({&index, 1});
    for (const std::string& name : {options_.image, options_.label})
        sample[name] = Tensor(sample[name].tensor().select(0, 0));
    return sample;
}

Tree MixedDataset::get_batch(std::span<const std::int64_t> indices) const {
    Tree batch = dataset_->get_batch(indices);
    if (indices.empty()) return batch;
    // The key differs from the key of a TransformedDataset with the same seed.
    const std::uint64_t key =
        SampleRandom::epoch_key(SampleRandom::epoch_key(options_.seed, epoch_), 1);
    SampleRandom random(key, indices[0]);
    const std::int64_t choice = random.below(std::ssize(transforms_));
    Tree &images = batch[options_.image], &labels = batch[options_.label];
    auto [mixed_images, mixed_labels] =
        transforms_[static_cast<std::size_t>(choice)](images.tensor(), labels.tensor(), random);
    images = std::move(mixed_images);
    labels = std::move(mixed_labels);
    return batch;
}

std::shared_ptr<const Dataset> MixedDataset::in_epoch(std::int64_t epoch) const {
    auto copy = std::make_shared<MixedDataset>(*this);
    copy->epoch_ = epoch;
    if (auto dataset = dataset_->in_epoch(epoch)) copy->dataset_ = std::move(dataset);
    return copy;
}

}  // namespace axle::data
