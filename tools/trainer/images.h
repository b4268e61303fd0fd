// The images of train_vision.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/tensor.h"
#include "core/tree/tree.h"
#include "data/dataset.h"

namespace axle::trainer {

struct ImageOptions {
    // A folder with the files of MNIST or CIFAR, or with JPEG and PNG images: in train/CLASS/ and
    // val/CLASS/ (or validation/CLASS/ or test/CLASS/), or in CLASS/.
    std::string folder;
    std::int64_t size = 64;   // the side to which JPEG and PNG images are resized
    double validation = 0.1;  // the fraction of the images to test with, if there is no train/
    bool gray = false;        // whether JPEG and PNG images have one channel
    std::uint64_t seed = 0;   // for random transforms, and for the division by `validation`

    // How training images are augmented, in addition to crops and flips.
    std::string augment = "none";  // or "trivial" (TrivialAugmentWide) or "rand" (RandAugment)
    double color_jitter = 0;       // of brightness, contrast and saturation
    double random_erasing = 0;     // the probability that a rectangle is erased
    double mixup = 0, cutmix = 0;  // the alpha of MixUp and CutMix; 0: off
    // Returns the settings above as text, such as "trivial, mixup 0.2"; "" if all are off.
    std::string augmentation() const;
};

// The values of ImageOptions::augment.
inline const std::vector<std::string> kAugmentations = {"none", "trivial", "rand"};

struct Images {
    // Samples {"image": f32 [C, H, W], "label": i64 []}, and with mixup or cutmix training samples
    // {"image": f32 [C, H, W], "label": f32 [classes]}. Pixels are normalized to mean 0 and
    // standard deviation 1 over the training set (at most 1000 of its images in an image folder).
    std::shared_ptr<const data::Dataset> train, test;
    Shape shape;                       // [C, H, W]
    std::vector<std::string> classes;  // their names
};

// Returns the images, whose training part is augmented at random. Throws UsageError if the folder
// or an option does not fit, and FileError if a file is missing or invalid.
Images load_images(const ImageOptions& options);

// Returns the label of a sample.
std::int64_t label_of(const Tree& sample);

}  // namespace axle::trainer
