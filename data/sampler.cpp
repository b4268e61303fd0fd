#include "data/sampler.h"

#include <algorithm>

#include "data/mt19937.h"
#include "kernels/error.h"

namespace axle::data {
namespace {

Order order_of(std::shared_ptr<const std::vector<std::int64_t>> indices) {
    return [indices = std::move(indices)](std::int64_t position) {
        return (*indices)[static_cast<std::size_t>(position)];
    };
}

}  // namespace

void check_growths(const std::vector<Growth>& growths, std::int64_t size) {
    Growth before;
    for (const Growth& growth : growths) {
        if (growth.size <= before.size || growth.at <= before.at || growth.at >= growth.size)
            throw ValueError(str(
                "Sampler: the growths of the dataset must have increasing sizes and positions, and "
                "each position must be positive and below the size of its growth: size ",
                growth.size, ", position ", growth.at,
                before.size == 0 ? ""
                                 : str(", after size ", before.size, ", position ", before.at)));
        before = growth;
    }
    if (before.size >= size && !growths.empty())
        throw ValueError(str(
            "Sampler: the last growth must have a smaller size than the dataset: the growth has "
            "size ",
            before.size, ", the dataset has ", size, " samples"));
}

std::shared_ptr<const Sampler> Sampler::grown(const GrownPass&) const { return nullptr; }

std::shared_ptr<const BatchSampler> BatchSampler::grown(const GrownPass&) const { return nullptr; }

std::vector<std::int64_t> Sampler::indices(std::int64_t epoch) const {
    const Order at = order(epoch);
    std::vector<std::int64_t> all(static_cast<std::size_t>(size()));
    std::int64_t position = 0;
    for (std::int64_t& index : all) index = at(position++);
    return all;
}

SequentialSampler::SequentialSampler(std::int64_t n) : n_(n) {
    if (n < 0)
        throw ValueError(str("SequentialSampler: the number of samples must not be negative: ", n));
}

Order SequentialSampler::order(std::int64_t) const {
    return [](std::int64_t position) { return position; };
}

// Returns a copy, because new samples do not change the order of the earlier samples.
std::shared_ptr<const Sampler> SequentialSampler::grown(const GrownPass& pass) const {
    check_growths(pass.growths, n_);
    return std::make_shared<SequentialSampler>(*this);
}

RandomSampler::RandomSampler(std::int64_t n, RandomSamplerOptions options)
    : n_(n), options_(options) {
    if (n < 0)
        throw ValueError(str("RandomSampler: the number of samples must not be negative: ", n));
    if (options.num_samples < 0 || (n == 0 && options.num_samples > 0))
        throw ValueError(
            str("RandomSampler: num_samples must not be negative, and must be 0 if the dataset is "
                "empty: num_samples is ",
                options.num_samples, ", the dataset has ", n, " samples"));
    if (options.num_samples == 0) options_.num_samples = n;
    if (!options.generator) options_.generator = std::make_shared<Generator>(options.seed);
}

std::shared_ptr<const Sampler> RandomSampler::grown(const GrownPass& pass) const {
    check_growths(pass.growths, n_);
    if (options_.replacement || options_.num_samples != n_) return nullptr;
    const auto copy = std::make_shared<RandomSampler>(*this);
    copy->grown_ = pass;
    return copy;
}

std::vector<std::int64_t> RandomSampler::permutation(std::int64_t epoch, std::int64_t n) const {
    return randperm(n, options_.generator->initial_seed() + static_cast<std::uint64_t>(epoch));
}

// Returns the order of a grown pass. Up to each growth, the pass read samples in the order for the
// size of the dataset at that time, without samples that were read before.
std::vector<std::int64_t> RandomSampler::grown_indices() const {
    const std::int64_t largest = grown_.growths.back().size;
    std::vector<bool> is_read(static_cast<std::size_t>(largest));
    std::vector<std::int64_t> read;
    for (const auto& [size, at] : grown_.growths)
        for (const std::int64_t index : permutation(grown_.epoch, size)) {
            if (std::ssize(read) == at) break;
            const auto bit = static_cast<std::size_t>(index);
            if (is_read[bit]) continue;
            is_read[bit] = true;
            read.push_back(index);
        }
    std::vector<std::int64_t> all = permutation(grown_.epoch, n_);
    std::erase_if(all, [&](std::int64_t index) {
        return index < largest && is_read[static_cast<std::size_t>(index)];
    });
    all.insert(all.begin(), read.begin(), read.end());
    return all;
}

Order RandomSampler::order(std::int64_t epoch) const {
    if (!grown_.growths.empty() && epoch == grown_.epoch)
        return order_of(std::make_shared<const std::vector<std::int64_t>>(grown_indices()));
    Mt19937 random(options_.generator->initial_seed() + static_cast<std::uint64_t>(epoch));
    const std::int64_t count = options_.num_samples;
    std::vector<std::int64_t> drawn;
    if (options_.replacement && count > 0) drawn = randint(n_, count, random);
    while (static_cast<std::int64_t>(drawn.size()) < count) {
        std::vector<std::int64_t> permutation = randperm(n_, random);
        permutation.resize(
            std::min(permutation.size(), static_cast<std::size_t>(count) - drawn.size()));
        if (drawn.empty()) {
            drawn = std::move(permutation);
        } else {
            drawn.insert(drawn.end(), permutation.begin(), permutation.end());
        }
    }
    return order_of(std::make_shared<const std::vector<std::int64_t>>(std::move(drawn)));
}

SubsetSampler::SubsetSampler(std::vector<std::int64_t> indices)
    : indices_(std::make_shared<const std::vector<std::int64_t>>(std::move(indices))) {}

Order SubsetSampler::order(std::int64_t) const { return order_of(indices_); }

DistributedSampler::DistributedSampler(std::int64_t n, DistributedSamplerOptions options)
    : options_(options) {
    if (n < 0)
        throw ValueError(
            str("DistributedSampler: the number of samples must not be negative: ", n));
    if (options.num_replicas < 1 || options.rank < 0 || options.rank >= options.num_replicas)
        throw ValueError(str("DistributedSampler: rank must be in [0, num_replicas): rank ",
                             options.rank, ", num_replicas ", options.num_replicas));
    if (options.shuffle) {
        all_ = std::make_shared<RandomSampler>(n, RandomSamplerOptions{.seed = options.seed});
    } else {
        all_ = std::make_shared<SequentialSampler>(n);
    }
}

std::int64_t DistributedSampler::size() const {
    const std::int64_t n = all_->size(), replicas = options_.num_replicas;
    return options_.drop_last ? n / replicas : (n + replicas - 1) / replicas;
}

Order DistributedSampler::order(std::int64_t epoch) const {
    return [at = all_->order(epoch), n = all_->size(), options = options_](std::int64_t position) {
        return at((position * options.num_replicas + options.rank) % n);
    };
}

FixedBatchSampler::FixedBatchSampler(std::shared_ptr<const Sampler> sampler,
                                     std::int64_t batch_size, bool drop_last)
    : sampler_(std::move(sampler)), batch_size_(batch_size), drop_last_(drop_last) {
    if (!sampler_) throw UsageError("FixedBatchSampler: the sampler must not be null");
    if (batch_size < 1)
        throw ValueError(str("FixedBatchSampler: batch_size must be positive: ", batch_size));
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
        return BatchIndices{std::move(indices)};
    };
}

std::shared_ptr<const BatchSampler> FixedBatchSampler::grown(const GrownPass& pass) const {
    auto sampler = sampler_->grown(pass);
    if (!sampler) return nullptr;
    return std::make_shared<FixedBatchSampler>(std::move(sampler), batch_size_, drop_last_);
}

SkipBatchSampler::SkipBatchSampler(std::shared_ptr<const BatchSampler> whole,
                                   std::int64_t skip_batches)
    : whole_(std::move(whole)), skip_batches_(skip_batches) {
    if (!whole_) throw UsageError("SkipBatchSampler: the batch sampler must not be null");
    if (skip_batches < 0)
        throw ValueError(
            str("SkipBatchSampler: the number of batches must not be negative: ", skip_batches));
}

std::int64_t SkipBatchSampler::size() const {
    return std::max<std::int64_t>(whole_->size() - skip_batches_, 0);
}

std::optional<std::int64_t> SkipBatchSampler::num_samples() const {
    const auto samples = whole_->num_samples();
    if (!samples || batch_size() == 0) return std::nullopt;
    return std::max<std::int64_t>(*samples - std::min(skip_batches_, whole_->size()) * batch_size(),
                                  0);
}

BatchOrder SkipBatchSampler::order(std::int64_t epoch) const {
    return [at = whole_->order(epoch), skip = skip_batches_](std::int64_t batch) {
        return at(batch + skip);
    };
}

std::int64_t SkipBatchSampler::len() const {
    if (skip_batches_ > whole_->size())
        throw ValueError(str("SkipBatchSampler: cannot skip ", skip_batches_, " of ",
                             whole_->size(), " batches"));
    return size();
}

}  // namespace axle::data
