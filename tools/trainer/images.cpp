#include "tools/trainer/images.h"

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <optional>
#include <utility>

#include "core/files/file.h"
#include "core/ops.h"
#include "core/text/text.h"
#include "data/composed_datasets.h"
#include "data/files/cifar.h"
#include "data/files/mnist.h"
#include "data/images/auto_augment.h"
#include "data/images/color_jitter.h"
#include "data/images/image_folder.h"
#include "data/images/mix.h"
#include "data/images/random_erasing.h"
#include "data/images/resize.h"
#include "data/transforms.h"
#include "kernels/error.h"

namespace axle::trainer {
namespace {

namespace fs = std::filesystem;

data::TensorDataset read_images(const std::string& folder, bool train) {
    const auto holds = [&](const char* file) { return fs::exists(fs::path(folder) / file); };
    if (holds("data_batch_1.bin")) return data::cifar10(folder, train);
    if (holds("train.bin")) return data::cifar100(folder, train);
    return data::mnist(folder, train);
}

// Returns the mean and the standard deviation of each channel, for pixels from 0 to 1.
std::pair<std::vector<double>, std::vector<double>> statistics(const data::Dataset& images) {
    const std::int64_t chunk =
        std::clamp<std::int64_t>(4000000 / images.get(0)["image"].tensor().numel(), 1, 1000);
    Tensor sum, squares;
    double pixels = 0;
    std::vector<std::int64_t> indices;
    for (std::int64_t begin = 0; begin < images.size(); begin += chunk) {
        indices.resize(static_cast<std::size_t>(std::min(chunk, images.size() - begin)));
        std::iota(indices.begin(), indices.end(), begin);
        const Tensor x = data::ToFloat()(images.get_batch(indices)["image"]).to(f64);
        const std::int64_t count = x.numel() / x.size(1);
        pixels += static_cast<double>(count);
        const Tensor s = x.sum({0, 2, 3}), q = (x * x).sum({0, 2, 3});
        sum = sum.defined() ? sum + s : s;
        squares = squares.defined() ? squares + q : q;
    }
    const Tensor mean = sum / pixels;
    const Tensor deviation = sqrt(clamp(squares / pixels - mean * mean, 1e-12, std::nullopt));
    return {mean.to_vector(), deviation.to_vector()};
}

std::int64_t largest_label(const data::Dataset& images) {
    std::int64_t largest = 0;
    for (std::int64_t i = 0; i < images.size(); ++i)
        largest = std::max(largest, label_of(images.get(i)));
    return largest;
}

// Returns the folder with the images to test with, next to train/.
std::string test_folder(const fs::path& data) {
    for (const char* name : {"val", "validation", "test"})
        if (fs::is_directory(data / name)) return (data / name).string();
    throw UsageError(str("--data ", data.string(),
                         ": the folder has train/, but neither val/, validation/ nor test/"));
}

// Returns the transforms of training images: `crop`, a random flip for images with colors, the
// operations of `options`, and `prepare`, which returns floats.
data::Compose training_transform(const ImageOptions& options, data::Transform crop, bool colors,
                                 const data::Compose& prepare) {
    std::vector<data::Transform> all = {std::move(crop)};
    if (colors) all.emplace_back(data::RandomHorizontalFlip());
    if (options.augment == "trivial") all.emplace_back(data::TrivialAugmentWide());
    if (options.augment == "rand") all.emplace_back(data::RandAugment());
    if (options.color_jitter > 0)
        all.emplace_back(data::ColorJitter({.brightness = options.color_jitter,
                                            .contrast = options.color_jitter,
                                            .saturation = options.color_jitter}));
    all.emplace_back(prepare);
    if (options.random_erasing > 0)
        all.emplace_back(data::RandomErasing({.p = options.random_erasing}));
    return data::Compose(std::move(all));
}

// Returns the images of an image folder, whose workers decode them. Test images are resized and
// cropped at the center. Training images are random crops, of at least 30 % of the image, which are
// randomly mirrored if they have colors. The statistics are those of at most 1000 images.
Images load_folder(const ImageOptions& options) {
    const bool gray = options.gray;
    const data::DecodeOptions decode = {.mode =
                                            gray ? data::ImageMode::gray : data::ImageMode::rgb};
    const bool divided = fs::is_directory(fs::path(options.folder) / "train");
    const auto folder = std::make_shared<data::ImageFolder>(
        divided ? (fs::path(options.folder) / "train").string() : options.folder, decode);
    for (const std::string& name : folder->classes())  // config.json has the names
        if (replace_invalid_utf8(name) != name)
            throw UsageError(str("--data ", options.folder, ": the name of the class ",
                                 in_quotes(name), " is not printable UTF-8: rename the folder"));
    std::shared_ptr<const data::Dataset> train = folder, test;
    if (divided) {
        const auto other = std::make_shared<data::ImageFolder>(test_folder(options.folder), decode);
        if (other->classes() != folder->classes())
            throw UsageError(str("--data ", options.folder, ": the classes in ",
                                 test_folder(options.folder), " must be those in train/"));
        // Test images are in random order, so that a report shows images of several classes.
        test = std::make_shared<data::Subset>(data::random_split(other, {1.0}, options.seed)[0]);
    } else {
        const auto parts =
            data::random_split(folder, {1 - options.validation, options.validation}, options.seed);
        train = std::make_shared<data::Subset>(parts[0]);
        test = std::make_shared<data::Subset>(parts[1]);
    }
    if (train->size() == 0 || test->size() == 0)
        throw UsageError(str("--validation ", options.validation, ": there are ", train->size(),
                             " images to train and ", test->size(), " to test"));

    const std::int64_t size = options.size, few = std::min<std::int64_t>(train->size(), 1000);
    const data::Compose center({data::Resize(size + size / 7), data::CenterCrop(size)});
    std::vector<std::int64_t> indices;
    for (std::int64_t i = 0; i < few; ++i) indices.push_back(i * train->size() / few);
    const data::Subset some(std::make_shared<data::TransformedDataset>(train, center), indices);
    const auto [mean, deviation] = statistics(some);
    const data::Compose prepare({data::ToFloat(), data::Normalize(mean, deviation)});
    const data::RandomResizedCrop crop(size, {.scale = {0.3, 1}});
    return {
        .train = std::make_shared<data::TransformedDataset>(
            train, training_transform(options, crop, !gray, prepare),
            data::TransformedOptions{.seed = options.seed}),
        .test = std::make_shared<data::TransformedDataset>(test, data::Compose({center, prepare})),
        .shape = {gray ? 1 : 3, size, size},
        .classes = folder->classes()};
}

// Returns whether --data has folders, and no files of MNIST or CIFAR.
bool is_image_folder(const std::string& folder) {
    bool folders = false;
    if (!fs::is_directory(folder)) return false;
    for (const auto& entry : fs::directory_iterator(folder)) {
        const std::string name = entry.path().filename().string();
        if (name.ends_with(".bin") || name.find("-ubyte") != std::string::npos) return false;
        folders |= entry.is_directory();
    }
    return folders;
}

// Returns the images of MNIST or CIFAR. Training images are randomly shifted by up to a twelfth of
// their size; color images are also randomly mirrored.
Images load_files(const ImageOptions& options) {
    const auto train = std::make_shared<data::TensorDataset>(read_images(options.folder, true));
    const auto test = std::make_shared<data::TensorDataset>(read_images(options.folder, false));
    const Shape shape = train->get(0)["image"].tensor().shape();
    const auto [mean, deviation] = statistics(*train);
    const data::Compose prepare({data::ToFloat(), data::Normalize(mean, deviation)});
    const data::RandomCrop crop({shape[1], shape[2]}, {.padding = shape[1] / 12});
    std::vector<std::string> classes;
    for (std::int64_t i = 0; i <= std::max(largest_label(*train), largest_label(*test)); ++i)
        classes.push_back(str(i));
    return {.train = std::make_shared<data::TransformedDataset>(
                train, training_transform(options, crop, shape[0] == 3, prepare),
                data::TransformedOptions{.seed = options.seed}),
            .test = std::make_shared<data::TransformedDataset>(test, prepare),
            .shape = shape,
            .classes = std::move(classes)};
}

}  // namespace

std::int64_t label_of(const Tree& sample) {
    return static_cast<std::int64_t>(sample["label"].tensor().item());
}

std::string ImageOptions::augmentation() const {
    std::string text = augment == "none" ? "" : augment;
    for (const auto& [name, value] :
         {std::pair("color-jitter", color_jitter), std::pair("random-erasing", random_erasing),
          std::pair("mixup", mixup), std::pair("cutmix", cutmix)})
        if (value > 0) text += str(text.empty() ? "" : ", ", name, " ", value);
    return text;
}

Images load_images(const ImageOptions& options) {
    Images images = is_image_folder(options.folder) ? load_folder(options) : load_files(options);
    const std::int64_t classes = std::ssize(images.classes);
    std::vector<data::BatchTransform> mixes;
    if (options.mixup > 0) mixes.emplace_back(data::MixUp(classes, options.mixup));
    if (options.cutmix > 0) mixes.emplace_back(data::CutMix(classes, options.cutmix));
    if (!mixes.empty())
        images.train = std::make_shared<data::MixedDataset>(
            images.train, std::move(mixes), data::MixedOptions{.seed = options.seed});
    return images;
}

}  // namespace axle::trainer
