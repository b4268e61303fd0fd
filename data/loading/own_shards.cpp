#include "data/loading/own_shards.h"

#include <algorithm>
#include <utility>

#include "data/dataset.h"
#include "data/loading/round_stream.h"
#include "kernels/error.h"

namespace axle::data {
namespace {

std::shared_ptr<const IterableDataset> part_of(const IterableDataset& whole, std::int64_t count,
                                               std::int64_t index) {
    try {
        auto part = whole.shard(count, index);
        if (!part) throw UsageError("IterableDataset: shard() must not return null");
        return part;
    } catch (...) {
        rethrow_from(str("DataLoader: shard ", index, " of ", count));
    }
}

// A stream of the samples of the parts that this process reads. A round (RoundStream) contains the
// samples of one step.
class StepStream : public RoundStream {
  public:
    StepStream(std::vector<std::unique_ptr<Stream>> streams, const Parts& parts)
        : RoundStream(parts.rows * parts.number),
          streams_(std::move(streams)),
          parts_(parts),
          step_rows_(parts.rows * parts.number) {}

  private:
    bool must_read() const override { return parts_.even && !parts_.drop_last && first_.empty(); }

    std::int64_t skip_rounds(std::int64_t steps) override {
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

    std::int64_t read_round(std::vector<Tree>& step) override {
        bool complete = true;
        for (const auto& stream : streams_)
            complete = read_samples(*stream, parts_.rows, step) == parts_.rows && complete;
        if (parts_.drop_last && !complete) step.clear();
        if (step.empty()) return 0;
        const std::int64_t real = std::ssize(step);
        if (first_.empty()) first_ = step;
        for (std::int64_t i = 0; parts_.even && std::ssize(step) < step_rows_; ++i)
            step.push_back(first_[static_cast<std::size_t>(i % std::ssize(first_))]);
        return real;
    }

    std::vector<std::unique_ptr<Stream>> streams_;
    Parts parts_;
    std::int64_t step_rows_;
    std::vector<Tree> first_;  // the samples of the first step, without repetitions
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
    if (parts.readers == 1) return;
    datasets_.front() = std::make_shared<IterableDatasetShard>(
        std::move(datasets_.front()), parts.rows / parts.readers, parts.drop_last,
        ShardOptions{.num_processes = parts.readers, .process_index = parts.reader});
}

std::unique_ptr<Stream> OwnShards::stream(std::int64_t epoch) const {
    if (parts_.readers > 1) return datasets_.front()->stream(epoch);
    std::vector<std::unique_ptr<Stream>> streams;
    for (const auto& dataset : datasets_) streams.push_back(dataset->stream(epoch));
    return std::make_unique<StepStream>(std::move(streams), parts_);
}

}  // namespace axle::data
