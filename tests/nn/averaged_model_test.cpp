#include "nn/averaged_model.h"

#include <vector>

#include "core/ops.h"
#include "core/random.h"
#include "gtest/gtest.h"
#include "nn/layers/linear.h"
#include "nn/layers/norm.h"
#include "tests/close.h"

namespace axle::tests {
namespace {

struct Net : nn::Model<Net> {
    nn::Linear linear{2, 3};
    nn::BatchNorm1d norm{3};
    Tensor forward(const Tensor& x) { return norm(linear(x)); }
    void visit(nn::Visitor& v) override { v("linear", linear), v("norm", norm); }
};

void fill(Net& net, double weight, double mean) {
    net.linear.weight.detach().fill_(weight);
    net.norm.running_mean.fill_(mean);
}

double weight_of(const Net& net) { return net.linear.weight.max().item(); }
double mean_of(const Net& net) { return net.norm.running_mean.max().item(); }

TEST(AveragedModel, HasTheMeanOfTheParametersAndTheLatestBuffers) {
    Net net;
    nn::AveragedModel average(net);
    for (const double value : {1.0, 2.0, 6.0}) {
        fill(net, value, 10 * value);
        average.update_parameters(net);
    }
    EXPECT_EQ(average.updates(), 3);
    EXPECT_NEAR(weight_of(average.module), 3, 1e-6);
    EXPECT_EQ(mean_of(average.module), 60) << "buffers are copied from the model";
    EXPECT_EQ(weight_of(net), 6);
}

TEST(AveragedModel, IsAnExponentialMovingAverageWithDecay) {
    Net net;
    nn::AveragedModel average(net, {.decay = 0.75, .use_buffers = true});
    for (const double value : {1.0, 2.0, 6.0}) {
        fill(net, value, 10 * value);
        average.update_parameters(net);
    }
    const double expected = 0.75 * (0.75 * 1 + 0.25 * 2) + 0.25 * 6;
    EXPECT_NEAR(weight_of(average.module), expected, 1e-6);
    EXPECT_NEAR(mean_of(average.module), 10 * expected, 1e-5);
}

TEST(AveragedModel, IsACopyThatIsNotTrained) {
    manual_seed(0);
    Net net;
    nn::AveragedModel average(net);
    const Tensor x = randn({4, 2});
    expect_close(average(x), net(x));
    EXPECT_FALSE(average(x).requires_grad());
    EXPECT_TRUE(net(x).requires_grad());
}

TEST(AveragedModel, ContinuesFromAStateDict) {
    Net net;
    nn::AveragedModel average(net), loaded(net);
    fill(net, 1, 0);
    average.update_parameters(net);
    loaded.load_state_dict(average.state_dict());
    fill(net, 2, 0);
    loaded.update_parameters(net);
    EXPECT_EQ(loaded.updates(), 2);
    EXPECT_NEAR(weight_of(loaded.module), 1.5, 1e-6);
}

TEST(AveragedModel, RejectsInvalidDecaysAndModelsOfOtherShapes) {
    Net net;
    expect_error<ValueError>({"AveragedModel: decay", "1.5"},
                             [&] { nn::AveragedModel average(net, {.decay = 1.5}); });
    nn::AveragedModel average(net);
    Net other;
    other.linear = nn::Linear(2, 5);
    expect_error<ShapeError>({"AveragedModel: the model must have the same tensors"},
                             [&] { average.update_parameters(other); });
}

TEST(AveragedModel, RejectsAModelWithAnotherBufferShapeAndStaysUnchanged) {
    Net net;
    fill(net, 1, 0);
    nn::AveragedModel average(net);
    fill(net, 2, 0);
    net.norm.running_mean = zeros({4});
    expect_error<ShapeError>(
        {"AveragedModel: the model must have the same tensors", "norm.running_mean [4]"},
        [&] { average.update_parameters(net); });
    EXPECT_EQ(weight_of(average.module), 1);
    EXPECT_EQ(average.updates(), 0);
}

TEST(UpdateBn, ComputesTheMeanStatisticsOfAllBatchesAndRestoresModeAndMomentum) {
    manual_seed(0);
    Net net;
    net.eval();
    const std::vector<Tensor> batches = {randn({8, 2}), randn({8, 2}), randn({8, 2})};
    fill(net, 0.5, 7);
    Tensor mean = zeros({3}), variance = zeros({3});
    for (const Tensor& batch : batches) {
        const Tensor y = net.linear(batch).detach();
        mean = mean + y.mean({0}) / 3.0;
        variance = variance + var(y, {0}) / 3.0;
    }
    nn::update_bn(net, batches, [&](const Tensor& batch) { net(batch); });
    expect_close(net.norm.running_mean, mean);
    expect_close(net.norm.running_var, variance);
    EXPECT_FALSE(net.is_training());
    EXPECT_EQ(net.norm.momentum, 0.1);
}

struct SharedNorm : nn::Model<SharedNorm> {
    nn::BatchNorm1d norm{3};
    Tensor forward(const Tensor& x) { return norm(norm(x)); }
    void visit(nn::Visitor& v) override { v("first", norm), v("second", norm); }
};

TEST(UpdateBn, RestoresTheMomentumOfANormWithTwoNames) {
    SharedNorm net;
    nn::update_bn(net, std::vector<Tensor>{randn({8, 3})}, [&](const Tensor& x) { net(x); });
    EXPECT_EQ(net.norm.momentum, 0.1);
}

}  // namespace
}  // namespace axle::tests
