#include "nn/precision/float8.h"

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "core/autograd/autograd.h"
#include "core/ops.h"
#include "core/random.h"
#include "gtest/gtest.h"
#include "kernels/error.h"
#include "tests/close.h"
#include "tests/vectors.h"

namespace axle {
namespace {

using nn::Float8Linear;
using nn::Float8Options;
using nn::Float8Scaling;
using nn::Linear;

constexpr std::int64_t kRows = 20, kIn = 32, kOut = 16;
constexpr std::size_t kEvery = 7;

// Returns an operand of tests/golden/record_float8.py, which uses the same formula.
Tensor formula(const Shape& shape, double size, double phase) {
    std::vector<double> values;
    for (std::int64_t i = 0; i < numel(shape); ++i)
        values.push_back(size * std::pow(std::sin(0.37 * static_cast<double>(i) + phase), 3));
    return tensor(values, shape);
}

struct Operands {
    Tensor x, w, dy;
    explicit Operands(int step) {
        const double size = step < 4 ? 1.0 + step * 0.8 : 0.5;
        x = formula({kRows, kIn}, 3.0 * size, 0.1 + step);
        x.set_requires_grad();
        w = formula({kOut, kIn}, 0.5, 0.7);
        dy = formula({kRows, kOut}, 1e-3 * size, 0.3 + step);
    }
};

Linear layer_of(const Float8Options& options) {
    Linear layer(kIn, kOut, {.bias = false});
    const NoGrad no_grad;
    layer.weight.copy_(Operands(0).w);
    EXPECT_TRUE(nn::use_float8(layer, options));
    return layer;
}

void expect_recorded(const Tensor& actual, const nlohmann::json& expected,
                     const std::string& what) {
    const std::vector<double> values = actual.to_vector();
    double largest = 0;
    for (const nlohmann::json& e : expected)
        largest = std::max(largest, std::fabs(e.get<double>()));
    ASSERT_EQ(expected.size(), (values.size() + kEvery - 1) / kEvery) << what;
    for (std::size_t i = 0; i < expected.size(); ++i)
        ASSERT_NEAR(values[i * kEvery], expected[i].get<double>(), 2e-6 * largest)
            << what << " element " << i * kEvery;
}

void step_and_compare(Linear& layer, int step, const nlohmann::json& row, const std::string& what) {
    const Operands o(step);
    layer.zero_grad();
    const Tensor y = layer(o.x);
    expect_recorded(y, row["y"], what + " y");
    sum(y * o.dy).backward();
    expect_recorded(o.x.grad(), row["dx"], what + " dx");
    expect_recorded(layer.weight.grad(), row["dw"], what + " dw");
}

// Covers 8.fp8.
TEST(Float8Linear, MatchesPyTorchCastsWithCurrentScales) {
    const auto golden = tests::golden_json("float8.json")["current"];
    Linear hybrid = layer_of({});
    step_and_compare(hybrid, 0, golden["hybrid"], "hybrid");
    Linear e4m3 = layer_of({.gradient = DType::f8_e4m3});
    step_and_compare(e4m3, 0, golden["e4m3"], "e4m3");
    Linear rounded = layer_of({.power_of_two = true});
    step_and_compare(rounded, 0, golden["power_of_two"], "power_of_two");
}

class Float8DelayedScales : public testing::TestWithParam<std::pair<const char*, Float8Options>> {};
INSTANTIATE_TEST_SUITE_P(
    Float8Linear, Float8DelayedScales,
    testing::Values(std::pair("most_recent", Float8Options{.scaling = Float8Scaling::delayed,
                                                           .history_length = 4}),
                    std::pair("max", Float8Options{.scaling = Float8Scaling::delayed,
                                                   .most_recent = false,
                                                   .margin = 1,
                                                   .history_length = 3}),
                    std::pair("interval", Float8Options{.scaling = Float8Scaling::delayed,
                                                        .most_recent = false,
                                                        .interval = 3,
                                                        .history_length = 5}),
                    std::pair("shortest", Float8Options{.scaling = Float8Scaling::delayed,
                                                        .history_length = 1})),
    [](const auto& which) { return std::string(which.param.first); });

// Covers 8.fp8.
TEST_P(Float8DelayedScales, FollowTheLargestValuesOfPreviousSteps) {
    const auto golden = tests::golden_json("float8.json")["delayed"][GetParam().first];
    const auto rows = golden["rows"];
    Linear layer = layer_of(GetParam().second);
    for (std::size_t step = 0; step < rows.size(); ++step) {
        step_and_compare(layer, static_cast<int>(step), rows[step],
                         str(GetParam().first, " step ", step));
        const Tensor scale = layer.named_buffers()[1].second;
        for (std::size_t i = 0; i < 3; ++i)
            EXPECT_FLOAT_EQ(static_cast<float>(scale.to_vector()[2 * i]),
                            rows[step]["scales"][i].get<float>());
    }
    const std::vector<double> history = layer.named_buffers()[0].second.to_vector();
    const auto expected = golden["history"];
    for (std::size_t row = 0; row < expected.size(); ++row)
        for (std::size_t i = 0; i < 3; ++i)
            EXPECT_FLOAT_EQ(static_cast<float>(history[3 * row + i]),
                            expected[row][i].get<float>());
}

TEST(Float8Linear, IsInactiveInEvaluationByDefault) {
    const Operands o(1);
    Linear plain(kIn, kOut), layer(kIn, kOut);
    layer.load_state_dict(plain.state_dict());
    ASSERT_TRUE(nn::use_float8(layer, {}));
    layer.eval();
    tests::expect_same_bits(layer(o.x).detach(), plain(o.x).detach());
    layer.train();
    EXPECT_NE(layer(o.x).to_vector(), plain(o.x).to_vector());
    Linear asked(kIn, kOut);
    asked.load_state_dict(plain.state_dict());
    ASSERT_TRUE(nn::use_float8(asked, {.in_evaluation = true}));
    asked.eval();
    tests::expect_same_bits(asked(o.x).detach(), layer(o.x).detach());
}

TEST(Float8Linear, DoesNotUpdateTheHistoryInEvaluation) {
    Linear layer = layer_of({.scaling = Float8Scaling::delayed, .in_evaluation = true});
    layer(Operands(0).x);
    const std::vector<double> before = layer.named_buffers()[0].second.to_vector();
    layer.eval();
    layer(Operands(3).x);
    EXPECT_EQ(layer.named_buffers()[0].second.to_vector(), before);
}

TEST(Float8Linear, KeepsDelayedScalesInF32) {
    Linear layer = layer_of({.scaling = Float8Scaling::delayed, .in_evaluation = true});
    layer(Operands(0).x);
    layer.to(bf16);
    layer.eval();
    EXPECT_EQ(layer(Operands(3).x.to(bf16)).size(-1), kOut);
    for (const auto& [name, buffer] : layer.named_buffers()) EXPECT_EQ(buffer.dtype(), f32) << name;
}

TEST(Float8Linear, DoesNotConvertOperandsOfHighPrecisionProducts) {
    const Operands o(0);
    Linear plain(kIn, kOut, {.bias = false});
    {
        const NoGrad no_grad;
        plain.weight.copy_(o.w);
    }
    sum(plain(o.x) * o.dy).backward();
    const Tensor dx = o.x.grad().clone();
    for (int product = 0; product < 3; ++product) {
        Float8Options options;
        options.high_precision[static_cast<std::size_t>(product)] = true;
        Linear layer = layer_of(options);
        o.x.zero_grad();
        const Tensor y = layer(o.x);
        sum(y * o.dy).backward();
        EXPECT_EQ(tests::difference(y.detach(), plain(o.x).detach(), 1e-6).empty(), product == 0);
        EXPECT_EQ(tests::difference(o.x.grad(), dx, 1e-6).empty(), product == 1);
        EXPECT_EQ(tests::difference(layer.weight.grad(), plain.weight.grad(), 1e-6).empty(),
                  product == 2);
    }
}

TEST(Float8Linear, ComputesWeightGradientInFullPrecisionIfRowsAreNotPadded) {
    const Operands o(0);
    Linear exact = layer_of({.high_precision = {false, false, true}});
    Linear layer = layer_of({.pad_rows = false});
    sum(exact(o.x) * o.dy).backward();
    sum(layer(o.x) * o.dy).backward();
    tests::expect_same_bits(layer.weight.grad(), exact.weight.grad());
}

TEST(Float8Linear, AppliesBiasAndActivation) {
    manual_seed(8);
    Linear layer(kIn, kOut);
    ASSERT_TRUE(nn::use_float8(layer, {}));
    const Tensor x = randn({2, 3, kIn});
    const Tensor y = layer(x, Activation::relu);
    EXPECT_EQ(y.shape(), (Shape{2, 3, kOut}));
    Linear bare(kIn, kOut, {.bias = false});
    bare.load_state_dict({{"weight", layer.weight}});
    ASSERT_TRUE(nn::use_float8(bare, {}));
    tests::expect_same_bits(y.detach(), relu(bare(x) + layer.bias).detach());
    sum(y).backward();
    EXPECT_EQ(layer.bias.grad().shape(), (Shape{kOut}));
}

TEST(Float8Linear, RequiresSizesThatAreMultiplesOfSixteen) {
    for (const auto& [in, out] : {std::pair(32, 8), std::pair(24, 16), std::pair(1, 1)}) {
        Linear layer(in, out);
        EXPECT_FALSE(nn::use_float8(layer, {}));
        EXPECT_EQ(layer.policy, nullptr);
    }
    Linear layer(16, 48);
    EXPECT_TRUE(nn::use_float8(layer, {}));
    EXPECT_FALSE(nn::use_float8(layer, {}));  // the layer already has a policy
}

// Covers 8.fp8.
TEST(Float8Linear, SavesLoadsAndClonesItsHistory) {
    const Float8Options options = {.scaling = Float8Scaling::delayed, .history_length = 4};
    Linear one = layer_of(options), two = layer_of(options);
    for (int step = 0; step < 3; ++step) {
        const Operands o(step);
        sum(one(o.x) * o.dy).backward();
    }
    two.load_state_dict(one.state_dict());
    Linear three = one.clone();
    const Operands o(3);
    const Tensor expected = one(o.x).detach();
    tests::expect_same_bits(two(o.x).detach(), expected);
    tests::expect_same_bits(three(o.x).detach(), expected);
    EXPECT_EQ(one.named_buffers()[0].first, "policy.amax_history");
    EXPECT_EQ(one.named_buffers()[1].first, "policy.scale");
}

TEST(Float8Linear, LoadsAStateThatHasNoCallCount) {
    const Float8Options options = {
        .scaling = Float8Scaling::delayed, .interval = 3, .history_length = 4};
    Linear one = layer_of(options), two = layer_of(options);
    for (int step = 0; step < 3; ++step) one(Operands(step).x);
    nn::StateDict state = one.state_dict();
    ASSERT_EQ(std::erase_if(state, [](const auto& entry) { return entry.first == "policy.calls"; }),
              1u);
    EXPECT_TRUE(two.load_state_dict(state).missing.empty());
    const Operands o(3);
    tests::expect_same_bits(two(o.x).detach(), one(o.x).detach());  // call 3 begins an interval
}

TEST(Float8Linear, UpdatesHistoryOncePerCheckpointedCall) {
    const Float8Options options = {.scaling = Float8Scaling::delayed, .history_length = 4};
    Linear plain = layer_of(options), checkpointed = layer_of(options);
    for (int step = 0; step < 3; ++step) {
        const Operands o(step);
        sum(plain(o.x) * o.dy).backward();
        sum(checkpoint([&](const std::vector<Tensor>& in) { return checkpointed(in[0]); }, {o.x}) *
            o.dy)
            .backward();
    }
    EXPECT_EQ(plain.named_buffers()[1].second.to_vector(),
              checkpointed.named_buffers()[1].second.to_vector());
}

TEST(Float8Linear, HasNoSecondDerivative) {
    Linear layer = layer_of({});
    const Operands o(0);
    const Tensor y = sum(layer(o.x) * o.dy);
    tests::expect_error<UsageError>({"float8_linear: can't be differentiated twice"}, [&] {
        autograd::grad({y}, {o.x}, {}, {.create_graph = true});
    });
}

}  // namespace
}  // namespace axle
