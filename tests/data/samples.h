// Datasets and samplers for tests of loaders. The samples are consecutive numbers.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "core/tree/tree.h"
#include "data/loading/loader.h"

namespace axle::tests {

using Ids = std::vector<std::int64_t>;
using Batches = std::vector<Ids>;

inline Tree sample(std::int64_t index) { return Tree{{"id", index}}; }

inline Ids ids_of(const Tree& batch) {
    Ids ids;
    for (const double id : batch["id"].tensor().to_vector())
        ids.push_back(static_cast<std::int64_t>(id));
    return ids;
}

// Iterates once over a loader, or a view of a loader, and returns the ids of each batch.
template <class Loader>
Batches pass(Loader&& loader) {
    Batches batches;
    for (auto& batch : loader) batches.push_back(ids_of(batch));
    return batches;
}

inline Batches pass_of(const data::BatchSampler& sampler, std::int64_t epoch = 0) {
    const auto order = sampler.order(epoch);
    Batches batches;
    for (std::int64_t i = 0; i < sampler.size(); ++i) batches.push_back(order(i).samples);
    return batches;
}

struct NumbersOptions {
    bool sized = true;   // whether the size is known
    bool skips = false;  // whether streams can skip samples without reading them
};

// An iterable dataset. The stream of an epoch has n samples with the ids 100 * epoch,
// 100 * epoch + 1, ...
class Numbers : public data::IterableDataset {
  public:
    explicit Numbers(std::int64_t n, NumbersOptions options = {}) : n_(n), options_(options) {}

    std::unique_ptr<data::Stream> stream(std::int64_t epoch) const override {
        return std::make_unique<NumbersStream>(*this, epoch);
    }
    std::optional<std::int64_t> size() const override {
        return options_.sized ? std::optional(n_) : std::nullopt;
    }
    // Returns the number of samples read by all streams.
    std::int64_t read() const { return read_; }

  private:
    class NumbersStream : public data::Stream {
      public:
        NumbersStream(const Numbers& numbers, std::int64_t epoch)
            : numbers_(numbers), epoch_(epoch) {}
        std::optional<Tree> next() override {
            if (at_ == numbers_.n_) return std::nullopt;
            ++numbers_.read_;
            return sample(100 * epoch_ + at_++);
        }
        std::int64_t skip(std::int64_t n) override {
            if (!numbers_.options_.skips) return Stream::skip(n);
            const std::int64_t skipped = std::min(n, numbers_.n_ - at_);
            at_ += skipped;
            return skipped;
        }

      private:
        const Numbers& numbers_;
        std::int64_t epoch_, at_ = 0;
    };

    std::int64_t n_;
    NumbersOptions options_;
    mutable std::atomic<std::int64_t> read_ = 0;
};

// A sampler of the given batches. They may have different sizes.
class GivenBatches : public data::BatchSampler {
  public:
    explicit GivenBatches(Batches batches, bool drop_last = false)
        : batches_(std::move(batches)), drop_last_(drop_last) {}
    std::int64_t size() const override { return std::ssize(batches_); }
    data::BatchOrder order(std::int64_t) const override {
        return [this](std::int64_t i) { return batches_[static_cast<std::size_t>(i)]; };
    }
    bool drop_last() const override { return drop_last_; }

  private:
    Batches batches_;
    bool drop_last_;
};

}  // namespace axle::tests
