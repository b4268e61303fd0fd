// WeightedRandomSampler: draws samples with given probabilities.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "data/sampler.h"

namespace axle::data {

struct WeightedRandomSamplerOptions {
    // If true, a sample can be drawn more than once in a pass.
    bool replacement = true;
    std::uint64_t seed = 0;
    std::shared_ptr<Generator> generator = {};  // if set, its seed is used instead of `seed`
};

// Draws num_samples samples in each pass. The probability of sample i is proportional to
// weights[i]. The order equals the order of torch.utils.data.WeightedRandomSampler with a generator
// seeded with seed + epoch. Does not support datasets that grow within a pass.
//
//     // Draws both classes equally often.
//     for (const int label : labels) weights.push_back(1.0 / count_of[label]);
//     auto sampler = std::make_shared<data::WeightedRandomSampler>(weights, std::ssize(weights));
class WeightedRandomSampler : public Sampler {
  public:
    // Throws ValueError if a weight is negative, NaN or infinite, if no weight is positive, if the
    // sum of the weights is infinite, if num_samples is less than 1, or, without replacement, if
    // num_samples is larger than the number of positive weights.
    WeightedRandomSampler(std::vector<double> weights, std::int64_t num_samples,
                          WeightedRandomSamplerOptions options = {});
    std::int64_t size() const override { return num_samples_; }
    Order order(std::int64_t epoch) const override;
    std::shared_ptr<Generator> generator() const override { return options_.generator; }

  private:
    std::vector<double> weights_;
    std::int64_t num_samples_;
    WeightedRandomSamplerOptions options_;
};

}  // namespace axle::data
