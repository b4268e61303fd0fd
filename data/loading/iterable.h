// Iterable datasets: datasets whose samples are read in sequence and cannot be accessed by index.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "core/tree/tree.h"
#include "data/loading/shard.h"
#include "data/sampler.h"

namespace axle::data {

// An iterator over the samples of one pass. Not thread-safe.
class Stream {
  public:
    virtual ~Stream() = default;
    // Returns the next sample, or nullopt if there are no more samples.
    virtual std::optional<Tree> next() = 0;
    // Skips n samples, or all remaining ones if there are fewer, and returns the number of skipped
    // samples. Override this function if samples can be skipped without reading them.
    virtual std::int64_t skip(std::int64_t n);
    // Returns whether the sample that next() returned last was already visited in this pass and
    // only fills a batch.
    virtual bool repeated() const { return false; }
};

// Base class of datasets that are read in sequence.
class IterableDataset {
  public:
    virtual ~IterableDataset() = default;
    // Returns a stream of the samples of an epoch. The samples must depend only on the epoch, so
    // that runs can be resumed exactly. The stream may refer to this dataset, which outlives it.
    virtual std::unique_ptr<Stream> stream(std::int64_t epoch) const = 0;
    // Returns the number of samples in a pass, or nullopt if it is unknown.
    virtual std::optional<std::int64_t> size() const { return std::nullopt; }
    // Returns the generator of the order, or nullptr if the order is not random.
    virtual std::shared_ptr<Generator> generator() const { return nullptr; }
    // Returns the number of shards: parts that can be read independently, such as files. If there
    // are at least as many shards as processes, each process reads only its own shards.
    virtual std::int64_t num_shards() const { return 1; }
    // Returns the part of the dataset for reader `index` of `num_shards` readers, which together
    // read each sample once. `num_shards` must not exceed num_shards(). Must not read samples. The
    // default implementation throws UsageError; a dataset that overrides num_shards() must override
    // shard() too.
    virtual std::shared_ptr<const IterableDataset> shard(std::int64_t num_shards,
                                                         std::int64_t index) const;
};

// A dataset defined by a function `start`. start(epoch) returns a function that returns the next
// sample, or nullopt at the end. `size` is the number of samples, if it is known:
//     data::from_generator([](std::int64_t epoch) {
//         return [lines = open(epoch)]() mutable { return lines.next(); };
//     });
class GeneratorDataset : public IterableDataset {
  public:
    using Next = std::function<std::optional<Tree>()>;
    // Throws UsageError if the function is empty, and ValueError if the size is negative.
    explicit GeneratorDataset(std::function<Next(std::int64_t epoch)> start,
                              std::optional<std::int64_t> size = {});
    std::unique_ptr<Stream> stream(std::int64_t epoch) const override;
    std::optional<std::int64_t> size() const override { return size_; }

  private:
    std::function<Next(std::int64_t)> start_;
    std::optional<std::int64_t> size_;
};

// Returns a GeneratorDataset. Throws the errors of its constructor.
inline GeneratorDataset from_generator(
    std::function<GeneratorDataset::Next(std::int64_t epoch)> start,
    std::optional<std::int64_t> size = {}) {
    return GeneratorDataset(std::move(start), size);
}

// The samples of several datasets one after another. Each dataset is a shard. Reader i of n gets
// the datasets i, i + n, i + 2 n and so on:
//     data::from_shards({lines_of("a.txt"), lines_of("b.txt")})
class ShardedDataset : public IterableDataset {
  public:
    // Throws UsageError if a dataset is null.
    explicit ShardedDataset(std::vector<std::shared_ptr<const IterableDataset>> shards);
    std::unique_ptr<Stream> stream(std::int64_t epoch) const override;
    // Returns the sum of the sizes, or nullopt if the size of a dataset is unknown.
    std::optional<std::int64_t> size() const override;
    std::int64_t num_shards() const override { return static_cast<std::int64_t>(shards_.size()); }
    // Throws IndexError unless 0 <= index < num_shards.
    std::shared_ptr<const IterableDataset> shard(std::int64_t num_shards,
                                                 std::int64_t index) const override;

  private:
    std::vector<std::shared_ptr<const IterableDataset>> shards_;
};

// Returns a ShardedDataset. Throws UsageError if a dataset is null.
inline ShardedDataset from_shards(std::vector<std::shared_ptr<const IterableDataset>> shards) {
    return ShardedDataset(std::move(shards));
}

// The samples of one process (accelerate.data_loader.IterableDatasetShard). The samples are divided
// into groups. A group has batch_size samples with split_batches, otherwise batch_size *
// num_processes samples. Each process gets an equal part of every group. An incomplete last group
// is dropped if drop_last is true, otherwise filled with samples of the first group. Every process
// reads or skips all samples, and stores the first group and its part of the current group.
class IterableDatasetShard : public IterableDataset {
  public:
    // Throws UsageError if `whole` is null, and ValueError if batch_size is not positive or options
    // are invalid (check_shard()). Ignores even_batches, because all processes always get the same
    // number of samples.
    IterableDatasetShard(std::shared_ptr<const IterableDataset> whole, std::int64_t batch_size,
                         bool drop_last, ShardOptions options);
    // Like the constructor above, but does not own `whole`, which must outlive this object.
    IterableDatasetShard(const IterableDataset& whole, std::int64_t batch_size, bool drop_last,
                         ShardOptions options);

    std::unique_ptr<Stream> stream(std::int64_t epoch) const override;
    std::optional<std::int64_t> size() const override;
    std::shared_ptr<Generator> generator() const override { return whole_->generator(); }

  private:
    std::int64_t part() const;  // number of samples of one process in a group

    std::shared_ptr<const IterableDataset> whole_;
    std::int64_t batch_size_;
    bool drop_last_;
    ShardOptions options_;
};

}  // namespace axle::data
