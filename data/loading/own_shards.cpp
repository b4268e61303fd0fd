#include "data/loading/own_shards.h"

#include <algorithm>
#include <utility>

#include "data/dataset.h"
#include "kernels/error.h"

namespace axle::data {
namespace {

std::shared_ptr<const IterableDataset> part_of(const IterableDataset& whole, std::int64_t count,
                                               std::int64_t index) {
    try {
        auto part = whole.shard(count, index);
        if (!part) throw UsageError("IterableDataset::shard() returned null");
        return part;
    } catch (...) {
        rethrow_from(str("DataLoader: shard ", index, " of ", count));
    }
}

// Reads the parts step by step.
class StepStream : public Stream {
  public:
    StepStream(std::vector<std::unique_ptr<Stream>> streams, const Parts& parts)
        : streams_(std::move(streams)), parts_(parts), step_rows_(parts.rows * parts.number) {}

    std::optional<Tree> next() override {
        if (yielded_ == std::ssize(own_) && !read_step()) return std::nullopt;
        return std::move(own_[static_cast<std::size_t>(yielded_++)]);
    }

    // Reads the first step instead of skipping it if its samples may be repeated later.
    std::int64_t skip(std::int64_t n) override {
        std::int64_t skipped = skip_buffered(n);
        const bool needs_first = parts_.even && !parts_.drop_last && first_.empty();
        if (skipped < n && needs_first && read_step()) skipped += skip_buffered(n - skipped);
        if (const std::int64_t steps = (n - skipped) / step_rows_; steps > 0)
            skipped += skip_steps(steps);
        if (skipped < n && read_step()) skipped += skip_buffered(n - skipped);
        return skipped;
    }

    bool repeated() const override { return yielded_ > real_; }

  private:
    // Skips at most n samples of the current step.
    std::int64_t skip_buffered(std::int64_t n) {
        const std::int64_t passed = std::min(n, std::ssize(own_) - yielded_);
        yielded_ += passed;
        return passed;
    }

    // Returns the number of samples in the skipped steps.
    std::int64_t skip_steps(std::int64_t steps) {
        std::int64_t min_skipped = steps * parts_.rows, max_skipped = 0;
        for (const auto& stream : streams_) {
            const std::int64_t passed = stream->skip(steps * parts_.rows);
            min_skipped = std::min(min_skipped, passed);
            max_skipped = std::max(max_skipped, passed);
        }
        if (parts_.drop_last) return min_skipped / parts_.rows * step_rows_;
        if (!parts_.even) return max_skipped;
        return (max_skipped + parts_.rows - 1) / parts_.rows * step_rows_;
    }

    // Reads this process's samples of the next step into own_. Returns false at the end.
    bool read_step() {
        own_.clear();
        yielded_ = real_ = 0;
        bool complete = true;
        for (const auto& stream : streams_) complete = read(*stream) && complete;
        if (parts_.drop_last && !complete) own_.clear();
        real_ = std::ssize(own_);
        if (own_.empty()) return false;
        if (first_.empty()) first_ = own_;
        for (std::int64_t i = 0; parts_.even && std::ssize(own_) < step_rows_; ++i)
            own_.push_back(first_[static_cast<std::size_t>(i % std::ssize(first_))]);
        return true;
    }

    // Reads the rows of one part. Returns whether it had enough for the step.
    bool read(Stream& stream) {
        for (std::int64_t i = 0; i < parts_.rows; ++i) {
            std::optional<Tree> sample = stream.next();
            if (!sample) return false;
            own_.push_back(std::move(*sample));
        }
        return true;
    }

    std::vector<std::unique_ptr<Stream>> streams_;
    Parts parts_;
    std::int64_t step_rows_;
    std::vector<Tree> first_;  // samples of the first step, not repeated
    std::vector<Tree> own_;    // samples of the current step
    std::int64_t real_ = 0;    // number of samples in own_ that are not repeated
    std::int64_t yielded_ = 0;
};

}  // namespace

std::optional<std::int64_t> steps_of(const IterableDataset& whole, const Parts& parts) {
    std::optional<std::int64_t> steps;
    for (std::int64_t i = parts.first; i < parts.first + parts.number; ++i) {
        const auto size = part_of(whole, parts.count, i)->size();
        if (!size) return std::nullopt;
        const std::int64_t own =
            *size / parts.rows + (!parts.drop_last && *size % parts.rows != 0 ? 1 : 0);
        const bool use_min = parts.drop_last && parts.even;
        steps = !steps ? own : use_min ? std::min(*steps, own) : std::max(*steps, own);
    }
    return steps;
}

OwnShards::OwnShards(const IterableDataset& whole, const Parts& parts) : parts_(parts) {
    for (std::int64_t i = 0; i < parts.number; ++i)
        datasets_.push_back(part_of(whole, parts.count, parts.first + i));
}

std::unique_ptr<Stream> OwnShards::stream(std::int64_t epoch) const {
    std::vector<std::unique_ptr<Stream>> streams;
    for (const auto& dataset : datasets_) streams.push_back(dataset->stream(epoch));
    return std::make_unique<StepStream>(std::move(streams), parts_);
}

}  // namespace axle::data
