#include "data/loading/iterable.h"

#include <algorithm>

#include "data/loading/round_stream.h"
#include "kernels/error.h"

namespace axle::data {
namespace {

class GeneratorStream : public Stream {
  public:
    explicit GeneratorStream(GeneratorDataset::Next next) : next_(std::move(next)) {}
    std::optional<Tree> next() override {
        std::optional<Tree> sample = next_ ? next_() : std::nullopt;
        if (!sample) next_ = nullptr;
        return sample;
    }

  private:
    GeneratorDataset::Next next_;
};

// Reads the streams of several datasets one after another.
class ChainStream : public Stream {
  public:
    ChainStream(const std::vector<std::shared_ptr<const IterableDataset>>& datasets,
                std::int64_t epoch)
        : datasets_(datasets), epoch_(epoch) {}

    std::optional<Tree> next() override {
        for (; open_next(); stream_ = nullptr)
            if (std::optional<Tree> sample = stream_->next()) return sample;
        return std::nullopt;
    }

    std::int64_t skip(std::int64_t n) override {
        std::int64_t skipped = 0;
        for (; skipped < n && open_next(); stream_ = nullptr) {
            skipped += stream_->skip(n - skipped);
            if (skipped == n) break;
        }
        return skipped;
    }

  private:
    // Opens the next stream if none is open. Returns false after the last stream.
    bool open_next() {
        if (!stream_ && opened_ < datasets_.size()) stream_ = datasets_[opened_++]->stream(epoch_);
        return stream_ != nullptr;
    }

    const std::vector<std::shared_ptr<const IterableDataset>>& datasets_;
    std::int64_t epoch_;
    std::size_t opened_ = 0;
    std::unique_ptr<Stream> stream_;
};

// A stream of the samples of one process. A round consists of `part` samples for each process, in
// the order of the processes.
class ShardStream : public RoundStream {
  public:
    ShardStream(std::unique_ptr<Stream> all, std::int64_t part, bool drop_last,
                const ShardOptions& options)
        : RoundStream(part),
          all_(std::move(all)),
          part_(part),
          begin_(part * options.process_index),
          whole_(part * options.num_processes),
          drop_last_(drop_last) {}

  private:
    bool must_read() const override { return first_.empty(); }

    std::int64_t skip_rounds(std::int64_t rounds) override {
        const std::int64_t passed = all_->skip(rounds * whole_);
        const bool filled = passed % whole_ != 0 && !drop_last_;
        return (passed / whole_ + (filled ? 1 : 0)) * part_;
    }

    std::int64_t read_round(std::vector<Tree>& round) override {
        const std::int64_t end = begin_ + part_;
        // The number of samples of this round, for all processes, that were read or skipped.
        std::int64_t seen = 0;
        if (first_.empty()) {
            seen = read_samples(*all_, whole_, first_);
            round.assign(first_.begin() + std::min(begin_, seen),
                         first_.begin() + std::min(end, seen));
        } else {
            seen = all_->skip(begin_);
            if (seen == begin_) seen += read_samples(*all_, part_, round);
            if (seen == end) seen += all_->skip(whole_ - end);
        }
        const std::int64_t real = std::ssize(round);
        if (seen == 0 || (seen < whole_ && drop_last_)) {
            round.clear();
        } else {
            for (std::int64_t at = begin_ + real; at < end; ++at)
                round.push_back(first_[static_cast<std::size_t>((at - seen) % std::ssize(first_))]);
        }
        return real;
    }

    std::unique_ptr<Stream> all_;
    std::int64_t part_;   // number of samples of a process in a round
    std::int64_t begin_;  // position of the samples of this process in the round
    std::int64_t whole_;  // number of samples of all processes in a round
    bool drop_last_;
    std::vector<Tree> first_;  // the samples of all processes in the first round
};

}  // namespace

std::int64_t Stream::skip(std::int64_t n) {
    std::int64_t skipped = 0;
    while (skipped < n && next()) ++skipped;
    return skipped;
}

std::shared_ptr<const IterableDataset> IterableDataset::shard(std::int64_t num_shards,
                                                              std::int64_t index) const {
    throw UsageError(str("IterableDataset: cannot read shard ", index, " of ", num_shards,
                         ": a dataset that overrides num_shards() must also override shard()"));
}

ShardedDataset::ShardedDataset(std::vector<std::shared_ptr<const IterableDataset>> shards)
    : shards_(std::move(shards)) {
    for (std::size_t i = 0; i < shards_.size(); ++i)
        if (!shards_[i]) throw UsageError(str("ShardedDataset: shard ", i, " must not be null"));
}

std::unique_ptr<Stream> ShardedDataset::stream(std::int64_t epoch) const {
    return std::make_unique<ChainStream>(shards_, epoch);
}

std::optional<std::int64_t> ShardedDataset::size() const {
    std::int64_t samples = 0;
    for (const auto& shard : shards_) {
        const auto size = shard->size();
        if (!size) return std::nullopt;
        samples += *size;
    }
    return samples;
}

std::shared_ptr<const IterableDataset> ShardedDataset::shard(std::int64_t num_shards,
                                                             std::int64_t index) const {
    if (index < 0 || index >= num_shards)
        throw IndexError(str("ShardedDataset: shard index ", index, " is out of range for ",
                             num_shards, " shards"));
    std::vector<std::shared_ptr<const IterableDataset>> own;
    for (std::int64_t i = index; i < std::ssize(shards_); i += num_shards)
        own.push_back(shards_[static_cast<std::size_t>(i)]);
    return std::make_shared<ShardedDataset>(std::move(own));
}

GeneratorDataset::GeneratorDataset(std::function<Next(std::int64_t epoch)> start,
                                   std::optional<std::int64_t> size)
    : start_(std::move(start)), size_(size) {
    if (!start_) throw UsageError("GeneratorDataset: the function must not be empty");
    if (size && *size < 0)
        throw ValueError(
            str("GeneratorDataset: the number of samples must not be negative: ", *size));
}

std::unique_ptr<Stream> GeneratorDataset::stream(std::int64_t epoch) const {
    return std::make_unique<GeneratorStream>(start_(epoch));
}

IterableDatasetShard::IterableDatasetShard(std::shared_ptr<const IterableDataset> whole,
                                           std::int64_t batch_size, bool drop_last,
                                           ShardOptions options)
    : whole_(std::move(whole)), batch_size_(batch_size), drop_last_(drop_last), options_(options) {
    if (!whole_) throw UsageError("IterableDatasetShard: the dataset must not be null");
    if (batch_size < 1)
        throw ValueError(str("IterableDatasetShard: batch_size must be positive: ", batch_size));
    check_shard("IterableDatasetShard", options_, batch_size);
}

IterableDatasetShard::IterableDatasetShard(const IterableDataset& whole, std::int64_t batch_size,
                                           bool drop_last, ShardOptions options)
    : IterableDatasetShard(std::shared_ptr<const IterableDataset>(std::shared_ptr<void>(), &whole),
                           batch_size, drop_last, options) {}

std::int64_t IterableDatasetShard::part() const {
    return options_.split_batches ? batch_size_ / options_.num_processes : batch_size_;
}

std::unique_ptr<Stream> IterableDatasetShard::stream(std::int64_t epoch) const {
    return std::make_unique<ShardStream>(whole_->stream(epoch), part(), drop_last_, options_);
}

std::optional<std::int64_t> IterableDatasetShard::size() const {
    const auto samples = whole_->size();
    if (!samples) return std::nullopt;
    const std::int64_t round = part() * options_.num_processes;
    return (*samples / round + (!drop_last_ && *samples % round != 0 ? 1 : 0)) * part();
}

}  // namespace axle::data
