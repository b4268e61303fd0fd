// Writes a folder of images, and trains a classifier on it.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>

#include <axle/accel/tracking/png.h>
#include <axle/axle.h>
#include <axle/data/images/auto_augment.h>
#include <axle/data/images/image_folder.h>
#include <axle/data/images/mix.h>
#include <axle/data/images/random_erasing.h>
#include <axle/data/images/resize.h>

using axle::Tensor;
namespace data = axle::data;
namespace nn = axle::nn;

namespace {

void check(bool holds) {
    if (!holds) throw std::logic_error("check failed");
}

// Writes images of discs and squares with different sizes and colors: shapes/train/disc/0.png, ...
void write_images(const std::string& folder, int count) {
    for (const std::string name : {"disc", "square"}) {
        const std::filesystem::path to = std::filesystem::path(folder) / name;
        std::filesystem::create_directories(to);
        for (int i = 0; i < count; ++i) {
            const int width = 32 + i * 7 % 17, height = 32 + i * 5 % 13, radius = 8 + i % 6;
            std::vector<std::uint8_t> pixels;
            for (int y = 0; y < height; ++y)
                for (int x = 0; x < width; ++x) {
                    const int dx = std::abs(x - width / 2), dy = std::abs(y - height / 2);
                    const bool inside = name == "disc" ? dx * dx + dy * dy <= radius * radius
                                                       : std::max(dx, dy) <= radius;
                    for (int c = 0; c < 3; ++c)
                        pixels.push_back(inside ? 255 - (i * 31 + c * 40) % 90
                                                : (i * 17 + c * 30 + x) % 90);
                }
            std::ofstream(to / (std::to_string(i) + ".png"), std::ios::binary)
                << axle::accel::encode_png(pixels, height, width, 3);
        }
    }
}

double train() {
    // [train]
    const data::DecodeOptions gray = {.mode = data::ImageMode::gray};
    const data::ImageFolder train_images("shapes/train", gray), val_images("shapes/val", gray);
    const auto train_set =
        data::TransformedDataset(train_images,
                                 data::Compose({data::RandomResizedCrop(28, {.scale = {0.6, 1}}),
                                                data::RandomHorizontalFlip(), data::ToFloat(),
                                                data::Normalize({0.3}, {0.3})}),
                                 {.seed = 1});
    const auto val_set = data::TransformedDataset(
        val_images, data::Compose({data::Resize(32), data::CenterCrop(28), data::ToFloat(),
                                   data::Normalize({0.3}, {0.3})}));
    data::DataLoader train_loader(train_set, {.batch_size = 16, .shuffle = true, .num_workers = 2});
    data::DataLoader val_loader(val_set, {.batch_size = 16, .num_workers = 2});

    axle::Accelerator accelerator;
    nn::LeNet lenet(std::ssize(train_images.classes()));
    axle::optim::AdamW adamw(lenet.parameters(), {.lr = 2e-3});
    auto [model, optimizer, loader] = accelerator.prepare(lenet, adamw, train_loader);
    for (int epoch = 0; epoch < 12; ++epoch)
        for (auto& batch : loader) {
            accelerator.backward(cross_entropy(model(batch["image"]), batch["label"]));
            optimizer.step();
            optimizer.zero_grad();
        }
    axle::accel::Accuracy accuracy(accelerator);
    const axle::NoGrad no_grad;
    for (auto& batch : accelerator.prepare(val_loader))
        accuracy.update(model(batch["image"]), batch["label"]);
    std::cout << "accuracy " << accuracy.compute() << '\n';
    // [/train]
    return accuracy.compute();
}

void augment() {
    const data::DecodeOptions gray = {.mode = data::ImageMode::gray};
    // [augment]
    const data::ImageFolder images("shapes/train", gray);
    const std::int64_t classes = std::ssize(images.classes());
    const auto augmented = data::TransformedDataset(
        images,
        data::Compose({data::RandomResizedCrop(28), data::RandomHorizontalFlip(),
                       data::TrivialAugmentWide(), data::ToFloat(), data::Normalize({0.3}, {0.3}),
                       data::RandomErasing({.p = 0.25})}),
        {.seed = 1});
    const data::MixedDataset mixed(augmented, {data::MixUp(classes, 0.2), data::CutMix(classes)},
                                   {.seed = 1});
    data::DataLoader loader(mixed, {.batch_size = 16, .shuffle = true, .num_workers = 2});
    for (auto& batch : loader)  // the labels are probabilities: targets of cross_entropy()
        check(batch["label"].tensor().shape() == axle::Shape{16, classes});
    // [/augment]
}

}  // namespace

int main() {
    write_images("shapes/train", 64);
    write_images("shapes/val", 16);
    if (!data::can_decode(data::ImageFormat::png)) {
        std::cout << "this build of Axle has no libpng\n";
        return 0;
    }
    axle::manual_seed(1);
    check(train() > 0.9);
    augment();
}
