// Iterable datasets: samples that come one after another, where none can be asked for by its index.
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

namespace axle::inline v0::data {

// The samples of one pass. One thread at a time.
class Stream {
  public:
    virtual ~Stream() = default;
    // The next sample; nothing at the end, however often it is asked for.
    virtual std::optional<Tree> next() = 0;
    // Leaves out n samples, and says how many of them there were. Override it where they needn't be
    // read.
    virtual std::int64_t skip(std::int64_t n);
    // Whether the pass has had the latest sample already, which fills a batch up.
    virtual bool repeated() const { return false; }
};

class IterableDataset {
  public:
    virtual ~IterableDataset() = default;
    // The samples of an epoch, a pure function of the epoch: that is what makes resuming exact. The
    // stream may refer to this dataset and does not outlive it.
    virtual std::unique_ptr<Stream> stream(std::int64_t epoch) const = 0;
    // Samples in a pass, where that is known.
    virtual std::optional<std::int64_t> size() const { return std::nullopt; }
    // Null where nothing is random.
    virtual std::shared_ptr<Generator> generator() const { return nullptr; }
    // Parts that can be read on their own, such as files. Where there is one for each process at
    // least, processes read shards of their own, and nobody reads everything.
    virtual std::int64_t num_shards() const { return 1; }
    // What falls to one of num_shards readers, of whom there are no more than shards: together they
    // have each sample once. Nothing is read yet.
    virtual std::shared_ptr<const IterableDataset> shard(std::int64_t num_shards,
                                                         std::int64_t index) const;
};

// An iterable dataset made of a function that starts an epoch and returns the function that gives
// its samples:
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

// Datasets one after another, of which each is a shard: reader i of n has those at i, i + n, ...
//     data::from_shards({lines_of("a.txt"), lines_of("b.txt")})
class ShardedDataset : public IterableDataset {
  public:
    explicit ShardedDataset(std::vector<std::shared_ptr<const IterableDataset>> shards);
    std::unique_ptr<Stream> stream(std::int64_t epoch) const override;
    // Known where those of all shards are.
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

// accelerate.data_loader.IterableDatasetShard: one process's samples. Of every batch_size samples
// (with split_batches), or batch_size * num_processes of them, each process takes its part. What
// the last part lacks is filled up with samples from the first, unless drop_last leaves it out.
// Every process reads all samples, of which it keeps its own and the first part.
class IterableDatasetShard : public IterableDataset {
  public:
    // ValueErrors of check_shard(). even_batches doesn't count: shards are even.
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

}  // namespace axle::inline v0::data
