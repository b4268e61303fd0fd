#include "data/sampler.h"

#include <algorithm>

#include "data/mt19937.h"
#include "kernels/error.h"

namespace axle::inline v0::data {
namespace {

Order order_of(std::shared_ptr<const std::vector<std::int64_t>> indices) {
    return [indices = std::move(indices)](std::int64_t position) {
        return (*indices)[static_cast<std::size_t>(position)];
    };
}

}  // namespace

std::vector<std::int64_t> Sampler::indices(std::int64_t epoch) const {
    const Order at = order(epoch);
    std::vector<std::int64_t> all(static_cast<std::size_t>(size()));
    std::int64_t position = 0;
    for (std::int64_t& index : all) index = at(position++);
    return all;
}

SequentialSampler::SequentialSampler(std::int64_t n) : n_(n) {
    if (n < 0) throw ValueError(str("SequentialSampler: negative number of samples: ", n));
}

Order SequentialSampler::order(std::int64_t) const {
    return [](std::int64_t position) { return position; };
}

RandomSampler::RandomSampler(std::int64_t n, RandomSamplerOptions options)
    : n_(n), options_(options) {
    if (n < 0) throw ValueError(str("RandomSampler: negative number of samples: ", n));
    if (options.num_samples < 0 || (n == 0 && options.num_samples > 0))
        throw ValueError(
            str("RandomSampler: num_samples must be positive and there must be something "
                "to draw from: ",
                options.num_samples, " of ", n));
    if (options.num_samples == 0) options_.num_samples = n;
}

Order RandomSampler::order(std::int64_t epoch) const {
    Mt19937 random(options_.seed + static_cast<std::uint64_t>(epoch));
    const std::int64_t wanted = options_.num_samples;
    std::vector<std::int64_t> drawn;
    if (options_.replacement && wanted > 0) drawn = randint(n_, wanted, random);
    while (static_cast<std::int64_t>(drawn.size()) < wanted) {
        std::vector<std::int64_t> more = randperm(n_, random);
        more.resize(std::min(more.size(), static_cast<std::size_t>(wanted) - drawn.size()));
        if (drawn.empty()) {
            drawn = std::move(more);
        } else {
            drawn.insert(drawn.end(), more.begin(), more.end());
        }
    }
    return order_of(std::make_shared<const std::vector<std::int64_t>>(std::move(drawn)));
}

SubsetSampler::SubsetSampler(std::vector<std::int64_t> indices)
    : indices_(std::make_shared<const std::vector<std::int64_t>>(std::move(indices))) {}

Order SubsetSampler::order(std::int64_t) const { return order_of(indices_); }

FixedBatchSampler::FixedBatchSampler(std::shared_ptr<const Sampler> sampler,
                                     std::int64_t batch_size, bool drop_last)
    : sampler_(std::move(sampler)), batch_size_(batch_size), drop_last_(drop_last) {
    if (!sampler_) throw UsageError("BatchSampler: there is no sampler");
    if (batch_size < 1)
        throw ValueError(str("BatchSampler: batch_size must be positive: ", batch_size));
}

std::int64_t FixedBatchSampler::size() const {
    const std::int64_t samples = sampler_->size();
    return samples / batch_size_ + (!drop_last_ && samples % batch_size_ != 0 ? 1 : 0);
}

BatchOrder FixedBatchSampler::order(std::int64_t epoch) const {
    return [at = sampler_->order(epoch), samples = sampler_->size(),
            length = batch_size_](std::int64_t batch) {
        const std::int64_t first = batch * length;
        std::vector<std::int64_t> indices(
            static_cast<std::size_t>(std::min(length, samples - first)));
        std::int64_t position = first;
        for (std::int64_t& index : indices) index = at(position++);
        return indices;
    };
}

}  // namespace axle::inline v0::data
