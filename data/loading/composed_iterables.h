// Iterable datasets made of other iterable datasets, with the names of torch.utils.data and of
// Hugging Face's datasets. A dataset that is passed as a variable must outlive the dataset that is
// made of it (IterableDatasetRef).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "core/tree/tree.h"
#include "data/dataset_ref.h"
#include "data/loading/iterable.h"

namespace axle::data {

// The samples of several iterable datasets one after another (torch.utils.data.ChainDataset). Every
// process reads a part of each dataset, so the datasets keep their order. A ShardedDataset instead
// gives each process different datasets.
class ChainDataset : public IterableDataset {
  public:
    // Throws ValueError if there are no datasets, and UsageError if a dataset is null or if two
    // datasets have different generators. (A loader synchronizes the seed of one generator.)
    explicit ChainDataset(const std::vector<IterableDatasetRef>& datasets);
    std::unique_ptr<Stream> stream(std::int64_t epoch) const override;
    // Returns the sum of the sizes, or nullopt if the size of a dataset is unknown.
    std::optional<std::int64_t> size() const override { return all_.size(); }
    std::shared_ptr<Generator> generator() const override { return generator_; }
    // Returns the smallest number of shards of any dataset.
    std::int64_t num_shards() const override;
    // Returns a ChainDataset of shard(num_shards, index) of each dataset.
    std::shared_ptr<const IterableDataset> shard(std::int64_t num_shards,
                                                 std::int64_t index) const override;

  private:
    std::vector<IterableDatasetRef> datasets_;
    ShardedDataset all_;
    std::shared_ptr<Generator> generator_;
};

// The samples of an iterable dataset, changed or removed by a function. A stream calls the function
// once for each sample that it reads. Loaders read samples on one thread at a time, so put
// expensive work into collate_fn.
class TransformedIterable : public IterableDataset {
  public:
    // The function returns the new sample, or nullopt to remove the sample. It must depend only on
    // the sample. Streams of several threads may call it concurrently. `keeps_all` must be true
    // only if the function never removes a sample: size() is then the size of the dataset, and
    // streams skip samples without calling the function. Throws UsageError if the dataset is null
    // or the function is empty.
    TransformedIterable(IterableDatasetRef dataset,
                        std::function<std::optional<Tree>(Tree sample)> function, bool keeps_all);
    std::unique_ptr<Stream> stream(std::int64_t epoch) const override;
    // Returns the number of samples, or nullopt if it is unknown or the function may remove
    // samples.
    std::optional<std::int64_t> size() const override;
    std::shared_ptr<Generator> generator() const override;
    std::int64_t num_shards() const override;
    // Returns the shard of the dataset, with the same function.
    std::shared_ptr<const IterableDataset> shard(std::int64_t num_shards,
                                                 std::int64_t index) const override;

  private:
    IterableDatasetRef dataset_;
    std::function<std::optional<Tree>(Tree)> function_;
    bool keeps_all_;
};

// Returns the samples of an iterable dataset, changed by a function. Throws UsageError if the
// dataset is null or the function is empty.
TransformedIterable map(const IterableDatasetRef& dataset,
                        std::function<Tree(Tree sample)> function);

// Returns the samples of an iterable dataset for which the function returns true. Throws UsageError
// if the dataset is null or the function is empty.
TransformedIterable filter(const IterableDatasetRef& dataset,
                           std::function<bool(const Tree& sample)> function);

}  // namespace axle::data
