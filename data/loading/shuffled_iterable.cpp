#include "data/loading/shuffled_iterable.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>
#include <vector>

#include "data/mt19937.h"
#include "kernels/error.h"

namespace axle::data {
namespace {

// The largest buffer for which a stream remembers positions instead of reading samples to skip.
constexpr std::int64_t kLargestPositions = std::int64_t{1} << 24;

class ShuffledStream : public Stream {
  public:
    // start() returns a stream of the samples in their order.
    ShuffledStream(std::function<std::unique_ptr<Stream>()> start, std::int64_t buffer_size,
                   Mt19937 random)
        : start_(std::move(start)),
          buffer_size_(buffer_size),
          first_random_(random),
          random_(random),
          source_(start_()) {}

    std::optional<Tree> next() override {
        is_new_ = false;
        if (!source_) return drained();
        while (std::ssize(buffer_) < buffer_size_) {
            std::optional<Tree> sample = source_->next();
            if (!sample) return drained();
            buffer_.push_back(*std::move(sample));
        }
        std::optional<Tree> sample = source_->next();
        if (!sample) return drained();
        std::swap(buffer_[slot()], *sample);
        return sample;
    }

    std::int64_t skip(std::int64_t n) override {
        if (!is_new_ || n <= 0 || buffer_size_ > kLargestPositions) return Stream::skip(n);
        // The position in the source of the sample in each slot of the buffer, after n samples.
        std::vector<std::int64_t> positions(static_cast<std::size_t>(buffer_size_));
        std::iota(positions.begin(), positions.end(), std::int64_t{0});
        for (std::int64_t i = 0; i < n; ++i) positions[slot()] = buffer_size_ + i;
        if (read(positions)) {
            is_new_ = false;
            return n;
        }
        // The source has fewer samples, so the slots are others.
        source_ = start_();
        random_ = first_random_;
        buffer_.clear();
        is_new_ = false;
        return Stream::skip(n);
    }

  private:
    // Returns a random index of the full buffer.
    std::size_t slot() {
        return static_cast<std::size_t>(random_.next64() %
                                        static_cast<std::uint64_t>(buffer_size_));
    }

    // Fills the buffer with the samples at these positions of a new source. Returns whether the
    // source has all of them.
    bool read(const std::vector<std::int64_t>& positions) {
        std::vector<std::size_t> slots(positions.size());
        std::iota(slots.begin(), slots.end(), std::size_t{0});
        std::ranges::sort(slots, {}, [&](std::size_t i) { return positions[i]; });
        buffer_.resize(positions.size());
        std::int64_t at = 0;
        for (const std::size_t i : slots) {
            const std::int64_t gap = positions[i] - at;
            if (gap > 0 && source_->skip(gap) != gap) return false;
            std::optional<Tree> sample = source_->next();
            if (!sample) return false;
            buffer_[i] = *std::move(sample);
            at = positions[i] + 1;
        }
        return true;
    }

    // Returns the next sample of the buffer after the end of the source.
    std::optional<Tree> drained() {
        if (source_) {
            source_ = nullptr;
            for (const std::int64_t i : randperm(std::ssize(buffer_), random_)) order_.push_back(i);
        }
        if (order_.empty()) return std::nullopt;
        Tree sample = std::move(buffer_[static_cast<std::size_t>(order_.back())]);
        order_.pop_back();
        return sample;
    }

    std::function<std::unique_ptr<Stream>()> start_;
    std::int64_t buffer_size_;
    Mt19937 first_random_, random_;
    std::unique_ptr<Stream> source_;  // null after its end
    std::vector<Tree> buffer_;
    std::vector<std::int64_t> order_;  // of the samples in the buffer, after the end of the source
    bool is_new_ = true;               // whether no sample was read or skipped
};

// Returns the shards of a dataset, in a random order.
std::shared_ptr<const IterableDataset> in_random_order(const IterableDataset& dataset,
                                                       Mt19937& random) {
    const std::int64_t n = dataset.num_shards();
    std::vector<std::shared_ptr<const IterableDataset>> shards;
    for (const std::int64_t i : randperm(n, random)) shards.push_back(dataset.shard(n, i));
    return std::make_shared<ShardedDataset>(std::move(shards));
}

}  // namespace

ShuffledIterable::ShuffledIterable(IterableDatasetRef dataset, ShuffleOptions options)
    : dataset_(std::move(dataset)), options_(std::move(options)) {
    if (!dataset_.pointer()) throw UsageError("shuffle: the dataset must not be null");
    if (options_.buffer_size < 1)
        throw ValueError(
            str("shuffle: buffer_size must be at least 1: it is ", options_.buffer_size));
    if (!options_.generator) options_.generator = std::make_shared<Generator>(options_.seed);
    const auto other = dataset_.pointer()->generator();
    if (other && other != options_.generator)
        throw UsageError(str("shuffle: the dataset has a generator of its own, with the seed ",
                             other->initial_seed(), ": pass it as ShuffleOptions::generator"));
}

std::unique_ptr<Stream> ShuffledIterable::stream(std::int64_t epoch) const {
    Mt19937 random(options_.generator->initial_seed() + static_cast<std::uint64_t>(epoch));
    std::shared_ptr<const IterableDataset> source = dataset_.pointer();
    if (source->num_shards() > 1) source = in_random_order(*source, random);
    return std::make_unique<ShuffledStream>([source, epoch] { return source->stream(epoch); },
                                            options_.buffer_size, random);
}

std::shared_ptr<const IterableDataset> ShuffledIterable::shard(std::int64_t num_shards,
                                                               std::int64_t index) const {
    return std::make_shared<ShuffledIterable>(dataset_.pointer()->shard(num_shards, index),
                                              options_);
}

}  // namespace axle::data
