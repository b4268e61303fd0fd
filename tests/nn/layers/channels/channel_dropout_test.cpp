#include "nn/layers/channels/channel_dropout.h"

#include "core/random.h"
#include "gtest/gtest.h"
#include "tests/close.h"

namespace axle {
namespace {

using tests::expect_close;
using tests::expect_error;
using tests::expect_same_bits;

// Expects that the elements of each channel of y are equal, that the largest element is
// 1 / (1 - p), and that the fraction of zero channels is p (within 0.06). y is the result of
// dropout of ones. The channels are the first `kept` dimensions.
void expect_whole_channels(const Tensor& y, int kept, double p) {
    const Tensor rows = y.flatten(kept, -1).flatten(0, kept - 1);  // [channels, elements]
    expect_close(rows, rows.narrow(1, 0, 1).expand(rows.shape()), 0);
    const Tensor dropped = eq(rows.select(1, 0), 0);
    EXPECT_NEAR(mean(dropped.to(f32)).item(), p, 0.06);
    const double values = max(rows).item();
    EXPECT_NEAR(values, 1 / (1 - p), 1e-6);
}

TEST(ChannelDropout, DropsWholeChannelsInTrainingOnly) {
    manual_seed(5);
    nn::Dropout1d one(0.25);
    nn::Dropout2d two(0.25);
    nn::Dropout3d three(0.25);
    expect_whole_channels(one(ones({20, 40, 3})), 2, 0.25);
    expect_whole_channels(one(ones({800, 3})), 1, 0.25);
    expect_whole_channels(two(ones({20, 40, 3, 2})), 2, 0.25);
    expect_whole_channels(two(ones({20, 40, 3})), 2, 0.25);
    expect_whole_channels(three(ones({20, 40, 2, 2, 2})), 2, 0.25);
    expect_whole_channels(three(ones({800, 2, 2, 2})), 1, 0.25);
    two.eval();
    const Tensor x = randn({2, 3, 4, 4});
    expect_same_bits(two(x), x);
    expect_same_bits(nn::Dropout1d(1)(ones({2, 3, 4})), zeros({2, 3, 4}));
}

TEST(ChannelDropout, RejectsInvalidProbabilitiesAndShapes) {
    expect_error<ValueError>({"Dropout2d: p must be in [0, 1]", "2"}, [] { nn::Dropout2d(2); });
    expect_error<ShapeError>({"Dropout1d: x must have 2 or 3 dimensions", "[4]"},
                             [] { nn::Dropout1d()(ones({4})); });
    expect_error<ShapeError>({"FeatureAlphaDropout: x must have at least two dimensions"},
                             [] { nn::FeatureAlphaDropout()(ones({4})); });
}

TEST(AlphaDropout, PreservesMeanAndVarianceInTrainingAndInputInEvaluationAndDropsAllIfPIsOne) {
    manual_seed(6);
    nn::AlphaDropout layer(0.3);
    const Tensor x = randn({400, 500});
    const Tensor y = layer(x);
    EXPECT_NEAR(mean(y).item(), 0, 0.01);
    EXPECT_NEAR(var(y).item(), 1, 0.02);
    layer.eval();
    expect_same_bits(layer(x), x);
    expect_same_bits(nn::AlphaDropout(1)(ones({3})), zeros({3}));
}

TEST(FeatureAlphaDropout, GivesAllElementsOfAChannelTheSameValue) {
    manual_seed(7);
    nn::FeatureAlphaDropout features(0.3);
    const Tensor z = features(ones({50, 40, 6}));
    expect_close(z, z.narrow(2, 0, 1).expand(z.shape()), 0);
}

}  // namespace
}  // namespace axle
