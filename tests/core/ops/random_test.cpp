// Tests random ops with fixed seeds, mostly by statistics of their results. If the generator is
// correct, a comparison with a tolerance of kErrors standard errors fails for less than one seed in
// a million.
#include "core/random.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/autograd/autograd.h"
#include "core/ops.h"
#include "tests/close.h"

namespace axle::tests {

namespace {

constexpr std::int64_t kSamples = 100'000;
// The tolerance of a mean in standard errors.
constexpr double kErrors = 5;

double mean_of(const std::vector<double>& values) {
    double sum = 0;
    for (const double v : values) sum += v;
    return sum / static_cast<double>(values.size());
}

double moment(const std::vector<double>& values, int power) {
    double sum = 0;
    for (const double v : values) sum += std::pow(v, power);
    return sum / static_cast<double>(values.size());
}

double standard_error(double variance) { return std::sqrt(variance / kSamples); }

TEST(Rand, IsUniformOnUnitInterval) {
    manual_seed(1);
    const auto values = rand({kSamples}).to_vector();
    EXPECT_NEAR(mean_of(values), 0.5, kErrors * standard_error(1 / 12.0));
    std::vector<double> counts(10);
    for (const double v : values) ++counts[static_cast<std::size_t>(v * 10)];
    for (const double count : counts)
        EXPECT_NEAR(count / kSamples, 0.1, kErrors * standard_error(0.09));
}

TEST(Randn, HasNormalMoments) {
    manual_seed(2);
    const auto values = randn({kSamples}).to_vector();
    EXPECT_NEAR(mean_of(values), 0, kErrors * standard_error(1));
    EXPECT_NEAR(moment(values, 2), 1, kErrors * standard_error(2));
    EXPECT_NEAR(moment(values, 3), 0, kErrors * standard_error(15));
    EXPECT_NEAR(moment(values, 4), 3, kErrors * standard_error(96));
    const auto inside =
        std::count_if(values.begin(), values.end(), [](double v) { return std::abs(v) < 1; });
    EXPECT_NEAR(static_cast<double>(inside) / kSamples, 0.6827, kErrors * standard_error(0.217));
}

TEST(Randint, IsUniformBetweenBounds) {
    manual_seed(3);
    std::vector<double> counts(7);
    for (const double v : randint(-3, 4, {kSamples}).to_vector())
        ++counts.at(static_cast<std::size_t>(v + 3));
    for (const double count : counts)
        EXPECT_NEAR(count / kSamples, 1 / 7.0, kErrors * standard_error(6 / 49.0));
}

TEST(Bernoulli, DrawsOnesWithGivenProbabilities) {
    manual_seed(10);
    const double fixed = mean_of(bernoulli(0.3, {kSamples}).to_vector());
    EXPECT_NEAR(fixed, 0.3, kErrors * standard_error(0.21));
    const Tensor p = expand(tensor({0.0, 0.25, 1.0}), {kSamples, 3});
    const auto share = mean(bernoulli(p), 0).to_vector();
    EXPECT_EQ(share[0], 0);
    EXPECT_NEAR(share[1], 0.25, kErrors * standard_error(0.1875));
    EXPECT_EQ(share[2], 1);
}

TEST(GumbelSoftmax, DrawsCategoriesWithTheProbabilitiesOfTheLogits) {
    manual_seed(12);
    const Tensor logits = expand(log(tensor({0.5, 0.2, 0.3})), {kSamples, 3});
    const auto share = mean(gumbel_softmax(logits, 0.7, true), 0).to_vector();
    EXPECT_NEAR(share[0], 0.5, kErrors * standard_error(0.25));
    EXPECT_NEAR(share[1], 0.2, kErrors * standard_error(0.16));
    EXPECT_NEAR(share[2], 0.3, kErrors * standard_error(0.21));
}

TEST(GumbelSoftmax, PassesTheGradientOfTheSoftSampleThroughAHardSample) {
    const Tensor logits = tensor({0.5, -1.0, 0.25}, {.requires_grad = true});
    const Tensor weight = tensor({1.0, 2.0, -3.0});
    const auto gradient = [&](bool hard) {
        manual_seed(13);
        return autograd::grad({sum(gumbel_softmax(logits, 0.8, hard) * weight)}, {logits})[0];
    };
    tests::expect_close(gradient(true), gradient(false), 1e-6);
    EXPECT_GT(sum(abs(gradient(true))).item(), 0.01);
}

TEST(Normal, HasGivenMeansAndStandardDeviations) {
    manual_seed(11);
    const auto expect_moments = [](const Tensor& y, double mean, double std) {
        const auto values = y.to_vector();
        EXPECT_NEAR(mean_of(values), mean, kErrors * standard_error(std * std));
        EXPECT_NEAR(moment(values, 2), std * std + mean * mean,
                    kErrors * standard_error(2 * std * std * (std * std + 2 * mean * mean)));
    };
    expect_moments(normal(3, 0.5, {kSamples}), 3, 0.5);
    const Tensor mean = full({kSamples}, -1.0), std = full({kSamples}, 2.0);
    expect_moments(normal(mean, std), -1, 2);
    expect_moments(normal(mean, 0.25), -1, 0.25);
    expect_moments(normal(0.5, std), 0.5, 2);
    EXPECT_EQ(normal(ones({2, 1}), ones({3}, {f64})).shape(), (Shape{2, 3}));
    EXPECT_EQ(normal(ones({2, 1}), ones({3}, {f64})).dtype(), f64);
}

TEST(Randperm, DrawsFirstNumberAndPositionOfZeroUniformly) {
    manual_seed(12);
    constexpr int kPermutations = 5000;
    std::vector<double> first(5), place_of_zero(5);
    for (int i = 0; i < kPermutations; ++i) {
        const auto order = randperm(5).to_vector();
        ++first[static_cast<std::size_t>(order[0])];
        const auto zero = std::find(order.begin(), order.end(), 0.0);
        ++place_of_zero[static_cast<std::size_t>(zero - order.begin())];
    }
    const double error = kErrors * std::sqrt(0.16 / kPermutations);
    for (std::size_t i = 0; i < 5; ++i) {
        EXPECT_NEAR(first[i] / kPermutations, 0.2, error);
        EXPECT_NEAR(place_of_zero[i] / kPermutations, 0.2, error);
    }
}

TEST(RandomOps, DrawTheSameNumbersForAShapeAndForATensorOfThisShape) {
    const Tensor x = zeros({2, 3}, {f64});
    manual_seed(13);
    const Tensor uniform = rand_like(x), normal = randn_like(x), integers = randint_like(x, 2, 9);
    manual_seed(13);
    expect_same_bits(rand({2, 3}, {f64}), uniform);
    expect_same_bits(randn({2, 3}, {f64}), normal);
    expect_same_bits(randint(2, 9, {2, 3}, {f64}), integers);
}

TEST(RandomOps, RepeatUniformNumbersWithSameSeed) {
    manual_seed(4);
    const Tensor first = rand({1000}), second = rand({1000});
    manual_seed(4);
    expect_same_bits(rand({1000}), first);
    expect_same_bits(rand({1000}), second);
    EXPECT_NE(first.to_vector(), second.to_vector());
    manual_seed(5);
    EXPECT_NE(rand({1000}).to_vector(), first.to_vector());
}

TEST(RandomOps, ContinueFromSavedState) {
    manual_seed(6);
    randn({77});
    const GeneratorState state = generator_state();
    const Tensor expected = randn({100});
    manual_seed(0);
    set_generator_state(state);
    expect_same_bits(randn({100}), expected);
}

TEST(Dropout, DropsRequestedFractionAndRescales) {
    manual_seed(7);
    const auto values = dropout(ones({kSamples}), 0.3).to_vector();
    const auto dropped = std::count(values.begin(), values.end(), 0.0);
    EXPECT_NEAR(static_cast<double>(dropped) / kSamples, 0.3, kErrors * standard_error(0.21));
    for (const double v : values) {
        if (v == 0) continue;
        ASSERT_NEAR(v, 1 / 0.7, 1e-6);
    }
}

TEST(Dropout, DrawsNewMaskInEachCall) {
    const Tensor x = ones({1000});
    EXPECT_NE(dropout(x, 0.5).to_vector(), dropout(x, 0.5).to_vector());
}

TEST(Multinomial, DrawsInProportionToWeights) {
    manual_seed(8);
    const Tensor weights = tensor(std::vector<double>{1, 0, 3, 4}, {4});
    std::vector<double> counts(4);
    for (const double v : multinomial(weights, kSamples, true).to_vector())
        ++counts.at(static_cast<std::size_t>(v));
    EXPECT_EQ(counts[1], 0);
    for (const std::size_t i : {0, 2, 3}) {
        const double share = weights.to_vector()[i] / 8;
        EXPECT_NEAR(counts[i] / kSamples, share, kErrors * standard_error(share * (1 - share)));
    }
}

// The first draw follows the weights; the second draw follows the remaining weights.
TEST(Multinomial, DrawsInProportionToRemainingWeightsWithoutReplacement) {
    manual_seed(9);
    const Tensor weights = expand(tensor(std::vector<double>{1, 3, 4}, {3}), {kSamples, 3});
    const auto drawn = multinomial(weights, 2).to_vector();
    double first_is_2 = 0, second_is_0_after_2 = 0;
    for (std::size_t i = 0; i < drawn.size(); i += 2) {
        if (drawn[i] != 2) continue;
        ++first_is_2;
        second_is_0_after_2 += drawn[i + 1] == 0;
    }
    EXPECT_NEAR(first_is_2 / kSamples, 0.5, kErrors * standard_error(0.25));
    EXPECT_NEAR(second_is_0_after_2 / first_is_2, 0.25, kErrors * standard_error(2 * 0.1875));
}

}  // namespace

}  // namespace axle::tests
