#include "data/images/byte_image.h"

#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/ops.h"
#include "kernels/error.h"
#include "tests/close.h"
#include "tests/data/images/augmentation.h"

namespace axle::data {
namespace {

using tests::augmentation_tensor;
using tests::changed;
using tests::expect_same_bits;

using Operation = std::function<void(const ByteImage&, double)>;

const std::map<std::string, Operation>& operations() {
    static const std::map<std::string, Operation> all = {
        {"brightness", adjust_brightness},
        {"contrast", adjust_contrast},
        {"saturation", adjust_saturation},
        {"hue", adjust_hue},
        {"sharpness", adjust_sharpness},
        {"posterize", [](auto& image, double bits) { posterize(image, static_cast<int>(bits)); }},
        {"solarize", solarize},
        {"autocontrast", [](auto& image, double) { autocontrast(image); }},
        {"equalize", [](auto& image, double) { equalize(image); }},
        {"grayscale", [](auto& image, double) { grayscale(image); }},
        {"shear_x", shear_x},
        {"shear_y", shear_y},
        {"translate_x",
         [](auto& image, double n) { translate(image, static_cast<std::int64_t>(n), 0); }},
        {"translate_y",
         [](auto& image, double n) { translate(image, 0, static_cast<std::int64_t>(n)); }},
        {"rotate", rotate},
        {"blur_3", [](auto& image, double sigma) { gaussian_blur(image, 3, sigma); }},
        {"blur_9_5", [](auto& image, double sigma) {
             gaussian_blur(image, {9, 5}, sigma);
         }}};
    return all;
}

TEST(ImageOperations, GiveTheBytesOfTorchvision) {
    std::set<std::string> tested;
    for (const auto& one : tests::augmentation("cases")) {
        SCOPED_TRACE(one.dump());
        const std::string op = one["op"];
        const Tensor result = changed(augmentation_tensor(one["image"]), [&](const ByteImage& x) {
            operations().at(op)(x, one["parameter"]);
        });
        expect_same_bits(result, augmentation_tensor(one["result"]));
        tested.insert(op);
    }
    EXPECT_EQ(tested.size(), operations().size());
}

TEST(ImageOperations, KeepTheImageWithoutStrength) {
    const std::vector<std::pair<std::string, double>> neutral = {
        {"brightness", 1}, {"contrast", 1},    {"saturation", 1},  {"sharpness", 1},
        {"posterize", 8},  {"solarize", 256},  {"shear_x", 0},     {"shear_y", 0},
        {"rotate", 0},     {"translate_x", 0}, {"translate_y", 0}, {"rotate", 360}};
    for (const char* name : {"rgb", "gray", "flat", "square", "colors"})
        for (const auto& [op, parameter] : neutral) {
            SCOPED_TRACE(str(op, " of ", name));
            const Tensor image = augmentation_tensor(name);
            expect_same_bits(
                changed(image, [&](const ByteImage& x) { operations().at(op)(x, parameter); }),
                image);
        }
}

TEST(ImageOperations, MoveWholePixels) {
    const Tensor image = augmentation_tensor("large");
    const Tensor right = changed(image, [](auto& x) { translate(x, 7, 0); });
    expect_same_bits(right.slice(2, 7), image.slice(2, 0, 33).contiguous());
    EXPECT_EQ(right.slice(2, 0, 7).sum().item(), 0);
    const Tensor up = changed(image, [](auto& x) { translate(x, 0, -5); });
    expect_same_bits(up.slice(1, 0, 43), image.slice(1, 5));
    EXPECT_EQ(up.slice(1, 43).sum().item(), 0);
    EXPECT_EQ(changed(image, [](auto& x) { translate(x, 1000000000, 0); }).sum().item(), 0);
}

TEST(ImageOperations, RotateCounterclockwise) {
    const Tensor image = augmentation_tensor("square");
    const Tensor quarter = changed(image, [](auto& x) { rotate(x, 90); });
    expect_same_bits(quarter, flip(image.transpose(1, 2), {1}));
    expect_same_bits(changed(quarter, [](auto& x) { rotate(x, -90); }), image);
    expect_same_bits(changed(quarter, [](auto& x) { rotate(x, 450); }),
                     changed(image, [](auto& x) { rotate(x, 180); }));
}

}  // namespace
}  // namespace axle::data
