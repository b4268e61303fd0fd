// ShuffledIterable: an iterable dataset in an approximately random order, with the names of Hugging
// Face's datasets.
//
//     const auto samples = data::stream_webdataset("train-{000000..000099}.tar");
//     data::DataLoader loader(data::shuffle(samples, {.buffer_size = 1000}), {.batch_size = 32});
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "core/random.h"
#include "data/dataset_ref.h"
#include "data/loading/iterable.h"

namespace axle::data {

struct ShuffleOptions {
    std::int64_t buffer_size = 1000;  // number of samples in memory, at least 1
    std::uint64_t seed = 0;
    std::shared_ptr<Generator> generator = {};  // if set, its seed is used instead of `seed`
};

// The samples of an iterable dataset in a random order, which depends on seed + epoch. The next
// sample is drawn from a buffer of samples, and replaced by the next sample of the dataset. So a
// sample moves towards the beginning by fewer than buffer_size places. If the dataset has shards, a
// stream also reads them in a random order.
//
// A new stream that skips samples reads at most buffer_size of them, if the stream of the dataset
// can skip samples without reading them.
class ShuffledIterable : public IterableDataset {
  public:
    // Throws ValueError if buffer_size is not positive, and UsageError if the dataset is null or
    // has another generator. (A loader synchronizes the seed of one generator.)
    explicit ShuffledIterable(IterableDatasetRef dataset, ShuffleOptions options = {});
    std::unique_ptr<Stream> stream(std::int64_t epoch) const override;
    std::optional<std::int64_t> size() const override { return dataset_.pointer()->size(); }
    std::shared_ptr<Generator> generator() const override { return options_.generator; }
    std::int64_t num_shards() const override { return dataset_.pointer()->num_shards(); }
    // Returns the shard of the dataset, with the same options.
    std::shared_ptr<const IterableDataset> shard(std::int64_t num_shards,
                                                 std::int64_t index) const override;

  private:
    IterableDatasetRef dataset_;
    ShuffleOptions options_;
};

// Returns a ShuffledIterable. Throws the errors of its constructor.
inline ShuffledIterable shuffle(const IterableDatasetRef& dataset, ShuffleOptions options = {}) {
    return ShuffledIterable(dataset, std::move(options));
}

}  // namespace axle::data
