// ImageFolder: a dataset of images in one folder for each class.
//
//     const data::ImageFolder folder("train");   // train/cat/1.jpg, train/dog/a/2.png, ...
//     const auto train = data::TransformedDataset(
//         folder, data::Compose({data::RandomResizedCrop(224), data::ToFloat()}), {.seed = 1});
//     data::DataLoader loader(train, {.batch_size = 32, .shuffle = true, .num_workers = 4});
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/tree/tree.h"
#include "data/dataset.h"
#include "data/images/decode.h"

namespace axle::data {

// The images below root/<class>/, with the rules of torchvision.datasets.ImageFolder. A class is a
// folder in `root`, and its label is its index in the sorted names. The images of a class are the
// files in its folder and subfolders whose names end with .jpg, .jpeg or .png, in lower or upper
// case; other files are ignored. Samples are sorted by class, then by folder, then by name.
//
// A sample is {"image": u8 [3, H, W] (one channel with ImageMode::gray), "label": i64 []}. Images
// are read and decoded by get(), so by the workers of a loader, and are not kept. If the transform
// of a TransformedDataset begins with RandomResizedCrop, only the window of a JPEG is decoded.
// Images have different sizes, so a batch needs a transform that gives them one size: Resize of two
// sides, Resize and CenterCrop, or RandomResizedCrop (data/images/resize.h) in a
// TransformedDataset.
//
// Symbolic links to files are followed if the file is in `root`; other links to images or folders
// are errors. Copies of the object share the list of images.
class ImageFolder : public Dataset {
  public:
    struct Image {
        std::string path;  // begins with `root`
        std::int64_t label;
    };

    // Lists the images, but does not open them. Throws FileError if the folder cannot be read, has
    // no class or a class without images, or has a link that is not followed.
    explicit ImageFolder(const std::string& root, const DecodeOptions& options = {});

    std::int64_t size() const override { return std::ssize(contents_->images); }
    // Throws IndexError unless 0 <= index < size(), and the errors of read_image().
    Tree get(std::int64_t index) const override;
    // Decodes only the window of a JPEG. Its pixels are those of get(), except that damage may be
    // repaired in another way at the edge of the window. Returns nullopt for other keys and for
    // derived classes. Throws the errors of get().
    std::optional<Tree> get_window(std::int64_t index, const std::string& key,
                                   const ChooseWindow& choose) const override;
    // Throws ShapeError, with the paths of two images, if the images have different sizes.
    Tree get_batch(std::span<const std::int64_t> indices) const override;
    bool has_uniform_shapes() const override { return false; }
    std::shared_ptr<const Dataset> share() const override;

    // Return the names of the classes, by label, and the images, by index.
    const std::vector<std::string>& classes() const { return contents_->classes; }
    const std::vector<Image>& images() const { return contents_->images; }

  private:
    const Image& image(std::int64_t index) const;  // throws IndexError

    struct Contents {
        std::vector<std::string> classes;
        std::vector<Image> images;
    };

    std::shared_ptr<const Contents> contents_;
    DecodeOptions options_;
};

}  // namespace axle::data
