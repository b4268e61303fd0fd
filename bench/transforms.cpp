// Usage: bench_transforms [--rounds N]
//
// Measures transforms of 32 images of 3 x 256 x 320 bytes in one thread, as in a worker of a
// loader. Prints a line of JSON: for each transform, "ms" of the fastest pass over the images, and
// the "mean" of the last result. bench/peers/transforms.py measures torchvision.transforms.v2 with
// the same images.
#include "data/transforms.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <exception>
#include <iostream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "core/ops.h"
#include "data/images/auto_augment.h"
#include "data/images/color_jitter.h"
#include "data/images/gaussian_blur.h"
#include "data/images/random_erasing.h"
#include "data/images/resize.h"
#include "kernels/thread_pool.h"

namespace axle::bench {
namespace {

constexpr std::int64_t kImages = 32, kHeight = 256, kWidth = 320;

// Smooth images with some texture, the same as in transforms.py.
Tensor images() {
    Tensor all = empty({kImages, 3, kHeight, kWidth}, {.dtype = u8});
    auto* to = all.data<std::uint8_t>();
    for (std::int64_t n = 0; n < kImages; ++n)
        for (std::int64_t c = 0; c < 3; ++c)
            for (std::int64_t y = 0; y < kHeight; ++y)
                for (std::int64_t x = 0; x < kWidth; ++x)
                    *to++ = static_cast<std::uint8_t>((x + y) / 4 + 40 * c + (3 * n + x * y) % 16);
    return all;
}

std::vector<std::pair<std::string, data::Transform>> transforms() {
    const std::vector<double> mean = {0.485, 0.456, 0.406}, std = {0.229, 0.224, 0.225};
    return {
        {"resize", data::Resize(Size2(224, 224))},
        {"resize_bicubic", data::Resize(Size2(224, 224), Interpolation::bicubic)},
        {"random_resized_crop", data::RandomResizedCrop(224)},
        {"horizontal_flip", data::RandomHorizontalFlip(1)},
        {"color_jitter",
         data::ColorJitter({.brightness = 0.4, .contrast = 0.4, .saturation = 0.4, .hue = 0.1})},
        {"rand_augment", data::RandAugment()},
        {"trivial_augment", data::TrivialAugmentWide()},
        {"gaussian_blur", data::GaussianBlur(23, {0.1, 2.0})},
        {"random_erasing", data::RandomErasing({.p = 1})},
        {"to_float_normalize", data::Compose({data::ToFloat(), data::Normalize(mean, std)})}};
}

nlohmann::json measure(int rounds) {
    using Clock = std::chrono::steady_clock;
    kernels::set_num_threads(1);
    const Tensor input = images();
    nlohmann::json cases;
    for (const auto& [name, transform] : transforms()) {
        double best = 0;
        Tensor output;
        for (int round = 0; round < rounds; ++round) {
            std::vector<data::SampleRandom> random;
            for (std::int64_t i = 0; i < kImages; ++i)
                random.emplace_back(data::SampleRandom::epoch_key(1, round), i);
            const auto start = Clock::now();
            // A worker of an image folder transforms images one by one.
            for (std::int64_t i = 0; i < kImages; ++i)
                output = transform(input.narrow(0, i, 1),
                                   std::span(random).subspan(static_cast<std::size_t>(i), 1));
            const double ms =
                std::chrono::duration<double, std::milli>(Clock::now() - start).count();
            best = round == 0 ? ms : std::min(best, ms);
        }
        cases[name] = {{"ms", best}, {"mean", mean(output.to(f32)).item()}};
    }
    return {{"engine", "axle"}, {"images", kImages}, {"cases", cases}};
}

int rounds_of(const std::vector<std::string>& arguments) {
    if (arguments.empty()) return 10;
    if (arguments.size() != 2 || arguments[0] != "--rounds")
        throw std::invalid_argument("usage: bench_transforms [--rounds N]");
    const int rounds = std::stoi(arguments[1]);
    if (rounds < 1)
        throw std::invalid_argument("bench_transforms: --rounds must be positive: " + arguments[1]);
    return rounds;
}

}  // namespace
}  // namespace axle::bench

int main(int argc, char** argv) {
    try {
        std::cout << axle::bench::measure(axle::bench::rounds_of({argv + 1, argv + argc})).dump()
                  << '\n';
    } catch (const std::exception& error) {
        std::cerr << error.what() << '\n';
        return 1;
    }
    return 0;
}
