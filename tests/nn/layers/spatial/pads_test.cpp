#include "nn/layers/spatial/pads.h"

#include "gmock/gmock.h"
#include "nn/layers/container.h"
#include "tests/close.h"

namespace axle {
namespace {

using testing::ElementsAre;
using tests::expect_error;
using tests::expect_same_bits;

TEST(PadLayers, PadOneDimension) {
    const Tensor x = tensor({1.0, 2, 3}, {1, 3});
    EXPECT_THAT(nn::ReflectionPad1d({2, 1})(x).to_vector(), ElementsAre(3, 2, 1, 2, 3, 2));
    EXPECT_THAT(nn::ReplicationPad1d({2, 1})(x).to_vector(), ElementsAre(1, 1, 1, 2, 3, 3));
    EXPECT_THAT(nn::CircularPad1d({2, 1})(x).to_vector(), ElementsAre(2, 3, 1, 2, 3, 1));
    EXPECT_THAT(nn::ConstantPad1d({2, 1}, 7)(x).to_vector(), ElementsAre(7, 7, 1, 2, 3, 7));
    EXPECT_THAT(nn::ZeroPad1d(1)(x).to_vector(), ElementsAre(0, 1, 2, 3, 0));
}

TEST(PadLayers, UseOneNumberForAllSides) {
    const Tensor image = randn({2, 3, 4, 5}), volume = randn({2, 3, 4, 5, 6});
    expect_same_bits(nn::ReflectionPad2d(2)(image), pad(image, {2, 2, 2, 2}, PadMode::reflect));
    expect_same_bits(nn::ReplicationPad3d(1)(volume),
                     pad(volume, {1, 1, 1, 1, 1, 1}, PadMode::replicate));
    expect_same_bits(nn::ConstantPad2d(1, 0.5)(image),
                     pad(image, {1, 1, 1, 1}, PadMode::constant, 0.5));
}

TEST(PadLayers, ReadPaddingInTheOrderOfPad) {
    const Tensor image = randn({3, 4, 5}), volume = randn({3, 4, 5, 6});
    expect_same_bits(nn::CircularPad2d({1, 2, 3, 0})(image),
                     pad(image, {1, 2, 3, 0}, PadMode::circular));
    expect_same_bits(nn::ReflectionPad3d({1, 2, 3, 0, 0, 2})(volume),
                     pad(volume, {1, 2, 3, 0, 0, 2}, PadMode::reflect));
    expect_same_bits(nn::CircularPad3d({1, 2, 3, 0, 0, 2})(volume),
                     pad(volume, {1, 2, 3, 0, 0, 2}, PadMode::circular));
    expect_same_bits(nn::ReplicationPad2d({0, 1, 2, 3})(image),
                     pad(image, {0, 1, 2, 3}, PadMode::replicate));
    nn::Sequential zeros(nn::ZeroPad2d({1, -1, 0, 2}), nn::ZeroPad3d(1), nn::ConstantPad3d(1, 2));
    expect_same_bits(zeros(image), pad(pad(pad(image, {1, -1, 0, 2}), {1, 1, 1, 1, 1, 1}),
                                       {1, 1, 1, 1, 1, 1}, PadMode::constant, 2));
}

TEST(PadLayers, RejectInvalidPaddingAndDimensions) {
    expect_error<ValueError>({"ReflectionPad2d: ", "one number or 4 numbers", "[1, 2]"}, [] {
        nn::ReflectionPad2d({1, 2});
    });
    expect_error<ValueError>({"ConstantPad1d: ", "[]"}, [] { nn::ConstantPad1d({}, 1); });
    expect_error<ValueError>({"ZeroPad3d: "}, [] { nn::ZeroPad3d({1, 2}); });
    expect_error<ShapeError>({"CircularPad1d: ", "2 or 3 dimensions", "[3, 3, 3, 3]"}, [] {
        nn::CircularPad1d{1}(ones({3, 3, 3, 3}));
    });
    expect_error<ShapeError>({"ReplicationPad3d: ", "[3, 3]"}, [] {
        nn::ReplicationPad3d{1}(ones({3, 3}));
    });
}

}  // namespace
}  // namespace axle
