#include "data/weighted_sampler.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "kernels/error.h"
#include "tests/close.h"
#include "tests/data/samples.h"
#include "tests/vectors.h"

namespace axle::data {
namespace {

using tests::expect_error, tests::Ids;
using Weights = std::vector<double>;

TEST(WeightedRandomSampler, MatchesPyTorch) {
    const auto file = tests::golden_json("data.json");
    for (const auto& c : file["weighted"]) {
        const WeightedRandomSampler sampler(
            c["weights"].get<Weights>(), c["num_samples"].get<std::int64_t>(),
            {.replacement = c["replacement"].get<bool>(), .seed = c["seed"].get<std::uint64_t>()});
        EXPECT_EQ(sampler.size(), c["num_samples"]) << c;
        std::int64_t epoch = 0;
        for (const auto& expected : c["epochs"])
            EXPECT_EQ(sampler.indices(epoch++), expected.get<Ids>()) << c;
        EXPECT_EQ(epoch, 3);
    }
}

TEST(WeightedRandomSampler, DrawsSamplesInProportionToTheirWeights) {
    const std::int64_t n = 60000;
    const Weights weights = {1, 0, 2, 3};
    std::vector<double> drawn(4), first(4);
    for (const std::int64_t i : WeightedRandomSampler(weights, n).indices())
        drawn[static_cast<std::size_t>(i)] += 1;
    const WeightedRandomSampler without(weights, 2, {.replacement = false});
    for (std::int64_t epoch = 0; epoch < n; ++epoch)
        first[static_cast<std::size_t>(without.order(epoch)(0))] += 1;
    for (std::size_t i = 0; i < 4; ++i) {
        const double expected = static_cast<double>(n) * weights[i] / 6;
        const double six_deviations = 6 * std::sqrt(expected * (1 - weights[i] / 6));
        EXPECT_NEAR(drawn[i], expected, six_deviations) << i;
        EXPECT_NEAR(first[i], expected, six_deviations) << i;
    }
}

TEST(WeightedRandomSampler, UsesSeedOfItsGenerator) {
    const auto generator = std::make_shared<Generator>(1);
    const Weights weights = {1, 2, 3, 4};
    const WeightedRandomSampler sampler(weights, 20, {.seed = 9, .generator = generator});
    EXPECT_EQ(sampler.generator(), generator);
    EXPECT_EQ(sampler.indices(), WeightedRandomSampler(weights, 20, {.seed = 1}).indices());
    generator->manual_seed(9);
    EXPECT_EQ(sampler.indices(), WeightedRandomSampler(weights, 20, {.seed = 9}).indices());
}

TEST(WeightedRandomSampler, RejectsInvalidWeightsAndSizes) {
    const auto expect_value_error = [](std::initializer_list<const char*> parts,
                                       const Weights& weights, std::int64_t num_samples,
                                       bool replacement = true) {
        expect_error<ValueError>(parts, [&] {
            WeightedRandomSampler(weights, num_samples, {.replacement = replacement});
        });
    };
    const double infinity = std::numeric_limits<double>::infinity();
    const double large = std::numeric_limits<double>::max();
    expect_value_error({"WeightedRandomSampler: ", "weight 1 is -2"}, {1, -2}, 1);
    expect_value_error({"WeightedRandomSampler: ", "weight 0 is nan"}, {std::nan("")}, 1);
    expect_value_error({"WeightedRandomSampler: ", "weight 1 is inf"}, {1, infinity}, 1);
    expect_value_error({"WeightedRandomSampler: ", "2 weights have the sum inf"}, {large, large},
                       1);
    expect_value_error({"WeightedRandomSampler: ", "2 weights have the sum 0"}, {0, 0}, 1);
    expect_value_error({"WeightedRandomSampler: ", "0 weights have the sum 0"}, {}, 1);
    expect_value_error({"WeightedRandomSampler: num_samples must be at least 1: 0"}, {1}, 0);
    expect_value_error({"WeightedRandomSampler: ", "num_samples is 3", "2 positive weights"},
                       {1, 0, 2}, 3, false);
}

}  // namespace
}  // namespace axle::data
