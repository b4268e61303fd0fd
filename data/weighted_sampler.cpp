#include "data/weighted_sampler.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "data/mt19937.h"
#include "kernels/error.h"

namespace axle::data {
namespace {

// Draws `count` indices with replacement. Inverts the cumulative distribution, as torch.multinomial
// does.
std::vector<std::int64_t> draw_with_replacement(const std::vector<double>& weights,
                                                std::int64_t count, Mt19937& random) {
    std::vector<double> cumulative;
    cumulative.reserve(weights.size());
    double sum = 0;
    for (const double weight : weights) cumulative.push_back(sum += weight);
    for (double& part : cumulative) part /= sum;
    cumulative.back() = 1;
    std::vector<std::int64_t> drawn(static_cast<std::size_t>(count));
    for (std::int64_t& index : drawn)
        index = std::lower_bound(cumulative.begin(), cumulative.end(), random.uniform()) -
                cumulative.begin();
    return drawn;
}

// Draws `count` indices without replacement: the indices of the largest quotients of a weight and
// an exponentially distributed number, as torch.multinomial does.
std::vector<std::int64_t> draw_without_replacement(const std::vector<double>& weights,
                                                   std::int64_t count, Mt19937& random) {
    std::vector<double> keys;
    keys.reserve(weights.size());
    std::vector<std::int64_t> drawn;
    for (const double weight : weights) {
        const double exponential = -std::log1p(-random.uniform());
        if (weight > 0) drawn.push_back(std::ssize(keys));
        keys.push_back(weight / exponential);
    }
    const auto key = [&](std::int64_t index) { return keys[static_cast<std::size_t>(index)]; };
    std::partial_sort(drawn.begin(), drawn.begin() + count, drawn.end(),
                      [&](std::int64_t a, std::int64_t b) {
                          return key(a) > key(b) || (key(a) == key(b) && a < b);
                      });
    drawn.resize(static_cast<std::size_t>(count));
    return drawn;
}

}  // namespace

WeightedRandomSampler::WeightedRandomSampler(std::vector<double> weights, std::int64_t num_samples,
                                             WeightedRandomSamplerOptions options)
    : weights_(std::move(weights)), num_samples_(num_samples), options_(std::move(options)) {
    double sum = 0;
    std::int64_t positive = 0;
    for (std::size_t i = 0; i < weights_.size(); ++i) {
        if (!(weights_[i] >= 0) || std::isinf(weights_[i]))
            throw ValueError(
                str("WeightedRandomSampler: weights must be finite and not negative: weight ", i,
                    " is ", weights_[i]));
        sum += weights_[i];
        if (weights_[i] > 0) ++positive;
    }
    if (positive == 0 || std::isinf(sum))
        throw ValueError(
            str("WeightedRandomSampler: the sum of the weights must be positive and finite: ",
                weights_.size(), " weights have the sum ", sum));
    if (num_samples < 1)
        throw ValueError(
            str("WeightedRandomSampler: num_samples must be at least 1: ", num_samples));
    if (!options_.replacement && num_samples > positive)
        throw ValueError(
            str("WeightedRandomSampler: num_samples must not be larger than the number "
                "of positive weights without replacement: num_samples is ",
                num_samples, ", there are ", positive, " positive weights"));
    if (!options_.generator) options_.generator = std::make_shared<Generator>(options_.seed);
}

Order WeightedRandomSampler::order(std::int64_t epoch) const {
    Mt19937 random(options_.generator->initial_seed() + static_cast<std::uint64_t>(epoch));
    // torch.multinomial also draws a single index in this way.
    const bool by_keys = !options_.replacement || num_samples_ == 1;
    return SubsetSampler(by_keys ? draw_without_replacement(weights_, num_samples_, random)
                                 : draw_with_replacement(weights_, num_samples_, random))
        .order(epoch);
}

}  // namespace axle::data
