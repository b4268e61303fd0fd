#include "data/loading/composed_iterables.h"

#include <algorithm>
#include <utility>

#include "kernels/error.h"

namespace axle::data {
namespace {

using Function = std::function<std::optional<Tree>(Tree)>;

class TransformedStream : public Stream {
  public:
    TransformedStream(std::unique_ptr<Stream> all, Function function, bool keeps_all)
        : all_(std::move(all)), function_(std::move(function)), keeps_all_(keeps_all) {}

    std::optional<Tree> next() override {
        while (std::optional<Tree> sample = all_->next())
            if (std::optional<Tree> changed = function_(std::move(*sample))) return changed;
        return std::nullopt;
    }
    std::int64_t skip(std::int64_t n) override {
        return keeps_all_ ? all_->skip(n) : Stream::skip(n);
    }
    bool repeated() const override { return all_->repeated(); }

  private:
    std::unique_ptr<Stream> all_;
    Function function_;
    bool keeps_all_;
};

std::vector<std::shared_ptr<const IterableDataset>> pointers_of(
    const std::vector<IterableDatasetRef>& datasets) {
    if (datasets.empty())
        throw ValueError("ChainDataset: needs at least one dataset: the list is empty");
    std::vector<std::shared_ptr<const IterableDataset>> pointers;
    for (const IterableDatasetRef& dataset : datasets) {
        if (!dataset.pointer())
            throw UsageError(str("ChainDataset: dataset ", pointers.size(), " is null"));
        pointers.push_back(dataset.pointer());
    }
    return pointers;
}

}  // namespace

ChainDataset::ChainDataset(const std::vector<IterableDatasetRef>& datasets)
    : datasets_(datasets), all_(pointers_of(datasets)) {
    for (const IterableDatasetRef& dataset : datasets_) {
        auto generator = dataset.pointer()->generator();
        if (!generator) continue;
        if (generator_ && generator != generator_)
            throw UsageError(
                str("ChainDataset: the datasets have different generators, with the seeds ",
                    generator_->initial_seed(), " and ", generator->initial_seed(),
                    "; pass the same Generator to all of them"));
        generator_ = std::move(generator);
    }
}

std::unique_ptr<Stream> ChainDataset::stream(std::int64_t epoch) const {
    return all_.stream(epoch);
}

std::int64_t ChainDataset::num_shards() const {
    std::int64_t shards = datasets_[0].pointer()->num_shards();
    for (const IterableDatasetRef& dataset : datasets_)
        shards = std::min(shards, dataset.pointer()->num_shards());
    return shards;
}

std::shared_ptr<const IterableDataset> ChainDataset::shard(std::int64_t num_shards,
                                                           std::int64_t index) const {
    std::vector<IterableDatasetRef> own;
    for (const IterableDatasetRef& dataset : datasets_)
        own.emplace_back(dataset.pointer()->shard(num_shards, index));
    return std::make_shared<ChainDataset>(own);
}

TransformedIterable::TransformedIterable(IterableDatasetRef dataset, Function function,
                                         bool keeps_all)
    : dataset_(std::move(dataset)), function_(std::move(function)), keeps_all_(keeps_all) {
    if (!dataset_.pointer()) throw UsageError("TransformedIterable: the dataset must not be null");
    if (!function_) throw UsageError("TransformedIterable: the function must not be empty");
}

std::unique_ptr<Stream> TransformedIterable::stream(std::int64_t epoch) const {
    return std::make_unique<TransformedStream>(dataset_.pointer()->stream(epoch), function_,
                                               keeps_all_);
}

std::optional<std::int64_t> TransformedIterable::size() const {
    return keeps_all_ ? dataset_.pointer()->size() : std::nullopt;
}

std::shared_ptr<Generator> TransformedIterable::generator() const {
    return dataset_.pointer()->generator();
}

std::int64_t TransformedIterable::num_shards() const { return dataset_.pointer()->num_shards(); }

std::shared_ptr<const IterableDataset> TransformedIterable::shard(std::int64_t num_shards,
                                                                  std::int64_t index) const {
    return std::make_shared<TransformedIterable>(dataset_.pointer()->shard(num_shards, index),
                                                 function_, keeps_all_);
}

TransformedIterable map(const IterableDatasetRef& dataset, std::function<Tree(Tree)> function) {
    if (!dataset.pointer()) throw UsageError("map: the dataset must not be null");
    if (!function) throw UsageError("map: the function must not be empty");
    return {dataset,
            [function = std::move(function)](Tree sample) -> std::optional<Tree> {
                return function(std::move(sample));
            },
            true};
}

TransformedIterable filter(const IterableDatasetRef& dataset,
                           std::function<bool(const Tree&)> function) {
    if (!dataset.pointer()) throw UsageError("filter: the dataset must not be null");
    if (!function) throw UsageError("filter: the function must not be empty");
    return {dataset,
            [function = std::move(function)](Tree sample) -> std::optional<Tree> {
                if (!function(sample)) return std::nullopt;
                return sample;
            },
            false};
}

}  // namespace axle::data
