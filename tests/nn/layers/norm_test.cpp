#include "nn/layers/norm.h"

#include "core/random.h"
#include "gmock/gmock.h"
#include "nn/layers/linear.h"
#include "optim/sgd.h"
#include "tests/close.h"
#include "tests/nn/golden.h"

namespace axle {
namespace {

using tests::expect_close;
using tests::expect_error;
using tests::expect_same_bits;
using tests::golden;
using tests::golden_state;

std::vector<std::string> names(const nn::StateDict& state) {
    std::vector<std::string> result;
    for (const auto& [name, tensor] : state) result.push_back(name);
    return result;
}

void expect_state(const nn::Module& module, const std::string& recorded, double tolerance) {
    EXPECT_EQ(module.state_dict().size(), golden_state(recorded).size());
    for (const auto& [name, tensor] : module.state_dict()) {
        SCOPED_TRACE(name);
        expect_close(tensor.detach(), golden(recorded + "." + name), tolerance);
    }
}

TEST(LayerNormAndRMSNorm, MatchPyTorchByDefaultAndOmitDisabledParameters) {
    const Tensor x = golden("layers.x");
    nn::LayerNorm layer_norm(6);
    nn::RMSNorm rms_norm(6);
    layer_norm.to(f64), rms_norm.to(f64);
    expect_close(layer_norm(x), golden("layers.layer_norm"), 1e-12);
    expect_close(rms_norm(x), golden("layers.rms_norm"), 1e-12);
    // PyTorch's default epsilon is 2^-23, also for half precision, and 2^-52 for f64.
    for (const DType dtype : {f32, f16, bf16})
        EXPECT_NEAR(nn::RMSNorm(4)(full({1, 4}, 1e-3, {dtype}))[0][0].item(), 0.94524, 2e-3);
    EXPECT_FALSE(nn::LayerNorm(6, {.bias = false}).bias.defined());
    EXPECT_TRUE(nn::LayerNorm(6, {.affine = false}).parameters().empty());
}

TEST(LayerNormLayer, RejectsAnotherWidthWithoutAffine) {
    nn::LayerNorm layer(4, {.affine = false});
    EXPECT_EQ(layer(ones({2, 4})).shape(), Shape({2, 4}));
    expect_error<ShapeError>({"LayerNorm: the last dimensions of x must be [4]", "[2, 3]"}, [&] {
        layer(ones({2, 3}));
    });
    expect_error<ShapeError>({"LayerNorm: the last dimensions of x must be [4]", "[]"},
                             [&] { layer(ones(Shape())); });
}

TEST(GroupNormLayer, AcceptsOtherMultiplesOfGroupsWithoutAffine) {
    nn::GroupNorm layer(2, 4, {.affine = false});
    EXPECT_EQ(layer(ones({1, 6, 2})).shape(), Shape({1, 6, 2}));
    expect_error<ShapeError>({"group_norm: "}, [&] { layer(ones({1, 5, 2})); });
}

TEST(GroupNormLayer, MatchesPyTorch) {
    nn::GroupNorm layer(2, 4);
    EXPECT_THAT(names(layer.state_dict()), testing::ElementsAre("weight", "bias"));
    layer.to(f64);
    expect_close(layer(golden("channel_norms.x")[0]), golden("channel_norms.group"), 1e-12);
    EXPECT_TRUE(nn::GroupNorm(2, 4, {.affine = false}).parameters().empty());
}

TEST(BatchNormLayer, MatchesStateDictOfPyTorch) {
    const nn::BatchNorm2d layer(3);
    EXPECT_THAT(names(layer.state_dict()),
                testing::ElementsAre("weight", "bias", "running_mean", "running_var",
                                     "num_batches_tracked"));
    EXPECT_THAT(names(layer.named_parameters()), testing::ElementsAre("weight", "bias"));
    EXPECT_EQ(layer.num_batches_tracked.dtype(), i64);
    EXPECT_EQ(layer.num_batches_tracked.shape(), Shape());
    EXPECT_THAT(names(nn::BatchNorm1d(3, {.affine = false}).state_dict()),
                testing::ElementsAre("running_mean", "running_var", "num_batches_tracked"));
    EXPECT_THAT(names(nn::BatchNorm1d(3, {.track_running_stats = false}).state_dict()),
                testing::ElementsAre("weight", "bias"));
}

TEST(BatchNormLayer, UpdatesRunningStatisticsLikePyTorch) {
    const Tensor x = golden("channel_norms.x");
    for (const bool average : {false, true}) {
        const std::string name = average ? "channel_norms.average" : "channel_norms.moving";
        SCOPED_TRACE(name);
        nn::BatchNorm2d layer(4, {.eps = 1e-3, .momentum = 0.3});
        if (average) layer.momentum.reset();
        layer.to(f64);
        Tensor y;
        for (std::int64_t i = 0; i < x.size(0); ++i) y = layer(x[i]);
        expect_close(y, golden(name + ".training"), 1e-12);
        expect_state(layer, name + ".state", 1e-12);
        layer.eval();
        expect_close(layer(x[0]), golden(name + ".evaluation"), 1e-12);
        expect_state(layer, name + ".state", 1e-12);
    }
}

struct Net : nn::Model<Net> {
    Tensor forward(const Tensor& x) { return out(relu(norm(in(x)))); }
    void visit(nn::Visitor& v) override { v("0", in), v("1", norm), v("3", out); }
    nn::Linear in{4, 6};
    nn::BatchNorm1d norm{6};
    nn::Linear out{6, 3};
};

TEST(BatchNormLayer, TrainsAndEvaluatesLikePyTorch) {
    Net model;
    model.to(f64);
    model.load_state_dict(golden_state("batch_norm.before"));
    optim::SGD sgd(model.parameters(), {.lr = 0.05, .momentum = 0.9});
    const Tensor x = golden("batch_norm.x"), y = golden("batch_norm.y");
    const std::vector<double> losses = golden("batch_norm.losses").to_vector();
    for (std::size_t step = 0; step < losses.size(); ++step) {
        const auto batch = static_cast<std::int64_t>(step % 5);
        model.train(batch != 4);
        const Tensor loss = mse_loss(model(x[batch]), y[batch]);
        ASSERT_NEAR(loss.item(), losses[step], 1e-9) << "step " << step;
        loss.backward();
        sgd.step();
        sgd.zero_grad();
    }
    expect_state(model, "batch_norm.after", 1e-9);
    EXPECT_EQ(model.norm.num_batches_tracked.item_int(), 40);
}

TEST(BatchNormLayer, UsesBatchStatisticsInEvaluationWithoutTracking) {
    nn::BatchNorm1d layer(3, {.track_running_stats = false});
    const Tensor x = randn({5, 3});
    const Tensor trained = layer(x);
    layer.eval();
    expect_same_bits(layer(x).detach(), trained.detach());
}

TEST(BatchNormLayer, AcceptsOtherNumbersOfChannelsWithoutParametersAndBuffers) {
    nn::BatchNorm1d layer(3, {.affine = false, .track_running_stats = false});
    EXPECT_EQ(layer(randn({5, 4})).shape(), Shape({5, 4}));
}

TEST(BatchNormLayer, UsesRunningStatisticsInEvaluation) {
    nn::BatchNorm1d layer(3);
    layer.eval();
    const Tensor x = randn({5, 3, 2});
    expect_close(layer(x), x * (1 / std::sqrt(1 + 1e-5)));
    EXPECT_EQ(layer.num_batches_tracked.item_int(), 0);
}

TEST(BatchNormLayer, ClonesItsStatistics) {
    nn::BatchNorm1d layer(3), copy = layer.clone();
    layer(randn({5, 3}));
    expect_same_bits(copy.running_mean, zeros({3}));
    EXPECT_EQ(copy.num_batches_tracked.item_int(), 0);
    EXPECT_EQ(layer.num_batches_tracked.item_int(), 1);
}

TEST(BatchNormLayer, KeepsAnIntegerCountInHalfPrecision) {
    nn::BatchNorm1d layer(3);
    layer.to(bf16);
    EXPECT_EQ(layer(randn({64, 3}).to(bf16)).dtype(), bf16);
    EXPECT_EQ(layer.running_var.dtype(), bf16);
    EXPECT_EQ(layer.num_batches_tracked.dtype(), i64);
    EXPECT_NE(layer.running_mean.to_vector(), std::vector<double>(3, 0));
}

TEST(BatchNormLayer, RejectsInvalidNumbersOfDimensionsAndZeroChannels) {
    expect_error<ShapeError>({"BatchNorm2d: x must have 4 dimensions", "[5, 3]"}, [] {
        nn::BatchNorm2d(3)(ones({5, 3}));
    });
    expect_error<ShapeError>({"BatchNorm1d: x must have 2 or 3 dimensions", "[5, 3, 1, 1]"}, [] {
        nn::BatchNorm1d(3)(ones({5, 3, 1, 1}));
    });
    expect_error<ValueError>({"BatchNorm1d: ", "0"}, [] { nn::BatchNorm1d(0); });
}

TEST(GroupNormLayer, RejectsChannelsThatAreNotAMultipleOfGroups) {
    expect_error<ValueError>({"GroupNorm: channels must be a multiple of groups", "4", "6"},
                             [] { nn::GroupNorm(4, 6); });
}

TEST(BatchNormLayer, DoesNotCountRejectedBatches) {
    nn::BatchNorm1d layer(3);
    expect_error<ShapeError>({"batch_norm: expected more than 1 value"}, [&] {
        layer(ones({1, 3}));
    });
    EXPECT_EQ(layer.num_batches_tracked.item_int(), 0);
}

}  // namespace
}  // namespace axle
