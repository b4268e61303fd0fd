// Iterable datasets: samples in sequence, without access by index.
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

// The samples of one pass. Not thread-safe.
class Stream {
  public:
    virtual ~Stream() = default;
    // Returns the next sample, or nullopt at the end and in every later call.
    virtual std::optional<Tree> next() = 0;
    // Skips n samples and returns how many existed. Override it if samples can be skipped without
    // reading them.
    virtual std::int64_t skip(std::int64_t n);
    // Returns whether the latest sample was already visited in this pass and only fills a batch.
    virtual bool repeated() const { return false; }
};

// Base class of datasets that are read in sequence.
class IterableDataset {
  public:
    virtual ~IterableDataset() = default;
    // Returns the samples of an epoch, a pure function of the epoch; this makes resuming exact. The
    // stream may refer to this dataset and does not outlive it.
    virtual std::unique_ptr<Stream> stream(std::int64_t epoch) const = 0;
    // Returns the number of samples in a pass, if known.
    virtual std::optional<std::int64_t> size() const { return std::nullopt; }
    // Returns nullptr if the order is not random.
    virtual std::shared_ptr<Generator> generator() const { return nullptr; }
    // Returns the number of parts that can be read independently, such as files. If there is at
    // least one per process, each process reads its own shards instead of the whole dataset.
    virtual std::int64_t num_shards() const { return 1; }
    // Returns the part of reader `index` of num_shards readers; num_shards must not exceed
    // num_shards(). Together the readers get each sample once. Reads nothing yet.
    virtual std::shared_ptr<const IterableDataset> shard(std::int64_t num_shards,
                                                         std::int64_t index) const;
};

// A dataset defined by a function that starts an epoch and returns a function that returns the next
// sample:
//     data::from_generator([](std::int64_t epoch) {
//         return [lines = open(epoch)]() mutable { return lines.next(); };
//     });
class GeneratorDataset : public IterableDataset {
  public:
    using Next = std::function<std::optional<Tree>()>;
    explicit GeneratorDataset(std::function<Next(std::int64_t epoch)> start,
                              std::optional<std::int64_t> size = {});
    std::unique_ptr<Stream> stream(std::int64_t epoch) const override;
    std::optional<std::int64_t> size() const override { return size_; }

  private:
    std::function<Next(std::int64_t)> start_;
    std::optional<std::int64_t> size_;
};

inline GeneratorDataset from_generator(
    std::function<GeneratorDataset::Next(std::int64_t epoch)> start,
    std::optional<std::int64_t> size = {}) {
    return GeneratorDataset(std::move(start), size);
}

// Concatenates datasets, each of which is a shard: reader i of n gets the datasets i, i + n, ...
//     data::from_shards({lines_of("a.txt"), lines_of("b.txt")})
class ShardedDataset : public IterableDataset {
  public:
    explicit ShardedDataset(std::vector<std::shared_ptr<const IterableDataset>> shards);
    std::unique_ptr<Stream> stream(std::int64_t epoch) const override;
    // Returns nullopt unless the sizes of all shards are known.
    std::optional<std::int64_t> size() const override;
    std::int64_t num_shards() const override { return static_cast<std::int64_t>(shards_.size()); }
    std::shared_ptr<const IterableDataset> shard(std::int64_t num_shards,
                                                 std::int64_t index) const override;

  private:
    std::vector<std::shared_ptr<const IterableDataset>> shards_;
};

inline ShardedDataset from_shards(std::vector<std::shared_ptr<const IterableDataset>> shards) {
    return ShardedDataset(std::move(shards));
}

// accelerate.data_loader.IterableDatasetShard: the samples of one process. Samples are taken in
// groups of batch_size (with split_batches) or batch_size * num_processes, and each process gets
// its part of every group. An incomplete last group is filled with samples of the first group, or
// dropped with drop_last. Every process reads all samples; it stores its part and the first group.
class IterableDatasetShard : public IterableDataset {
  public:
    // Throws ValueError as check_shard() does. Ignores even_batches, because shards always have
    // equal sizes.
    IterableDatasetShard(std::shared_ptr<const IterableDataset> whole, std::int64_t batch_size,
                         bool drop_last, ShardOptions options);
    // `whole` must outlive the shard.
    IterableDatasetShard(const IterableDataset& whole, std::int64_t batch_size, bool drop_last,
                         ShardOptions options);

    std::unique_ptr<Stream> stream(std::int64_t epoch) const override;
    std::optional<std::int64_t> size() const override;
    std::shared_ptr<Generator> generator() const override { return whole_->generator(); }

  private:
    std::int64_t part() const;  // samples of one process

    std::shared_ptr<const IterableDataset> whole_;
    std::int64_t batch_size_;
    bool drop_last_;
    ShardOptions options_;
};

}  // namespace axle::data
