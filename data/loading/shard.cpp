#include "data/loading/shard.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "kernels/error.h"

namespace axle::data {
namespace {

using Indices = std::vector<std::int64_t>;

std::int64_t length(const Indices& indices) { return static_cast<std::int64_t>(indices.size()); }

// Appends `count` elements of `all`, starting at position `first`. After the last element,
// continues with the first element.
void append_cycled(Indices& to, const Indices& all, std::int64_t first, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i)
        to.push_back(all[static_cast<std::size_t>((first + i) % length(all))]);
}

}  // namespace

void check_shard(const char* who, const ShardOptions& options, std::int64_t batch_size) {
    const auto [processes, index, split, even] = options;
    if (processes < 1 || index < 0 || index >= processes)
        throw ValueError(str(who, ": process_index must be in [0, num_processes): process_index ",
                             index, ", num_processes ", processes));
    if (!split) return;
    if (batch_size < 1)
        throw ValueError(
            str(who,
                ": split_batches needs a fixed batch size, but the batch sampler has none; "
                "set split_batches to false"));
    if (batch_size % processes != 0)
        throw ValueError(
            str(who,
                ": split_batches needs a batch size that is divisible by the number of "
                "processes: batch size ",
                batch_size, ", ", processes, " processes"));
}

BatchSamplerShard::BatchSamplerShard(std::shared_ptr<const BatchSampler> whole,
                                     ShardOptions options)
    : whole_(std::move(whole)), options_(options) {
    if (!whole_) throw UsageError("BatchSamplerShard: the batch sampler must not be null");
    check_shard("BatchSamplerShard", options_, whole_->batch_size());
}

std::int64_t BatchSamplerShard::batch_size() const {
    return options_.split_batches ? whole_->batch_size() / options_.num_processes
                                  : whole_->batch_size();
}

std::int64_t BatchSamplerShard::size() const {
    const auto [processes, index, split, even] = options_;
    const std::int64_t batches = whole_->size();
    if (split) {
        if (even || index == 0 || batches == 0 || whole_->drop_last()) return batches;
        // The last batch may contain no samples for this process.
        return batches -
               (length(whole_->order(0)(batches - 1).samples) <= index * batch_size() ? 1 : 0);
    }
    if (whole_->drop_last()) return batches / processes;
    const std::int64_t rounds = (batches + processes - 1) / processes;
    return even ? rounds : (batches - index + processes - 1) / processes;
}

BatchOrder BatchSamplerShard::order(std::int64_t epoch) const {
    return options_.split_batches ? split_order(epoch) : round_robin_order(epoch);
}

BatchOrder BatchSamplerShard::split_order(std::int64_t epoch) const {
    return [at = whole_->order(epoch), all = whole_->batch_size(), own = batch_size(),
            options = options_](std::int64_t number) {
        auto [batch, repeated] = at(number);
        if (options.even_batches && length(batch) < all) {
            repeated += all - length(batch);
            append_cycled(batch, at(0).samples, 0, all - length(batch));
        }
        const std::int64_t begin = std::min(options.process_index * own, length(batch));
        const std::int64_t end = std::min(begin + own, length(batch));
        return BatchIndices{
            Indices(batch.begin() + begin, batch.begin() + end),
            std::clamp<std::int64_t>(end - (length(batch) - repeated), 0, end - begin)};
    };
}

BatchOrder BatchSamplerShard::round_robin_order(std::int64_t epoch) const {
    return [at = whole_->order(epoch), batches = whole_->size(), full = whole_->batch_size(),
            drop_last = whole_->drop_last(), options = options_](std::int64_t number) {
        const std::int64_t batch_index = number * options.num_processes + options.process_index;
        if (drop_last || !options.even_batches) return at(batch_index);
        if (full == 0) {  // the batch size varies, so complete batches are repeated
            if (batch_index < batches) return at(batch_index);
            BatchIndices repeated_batch = at((batch_index - batches) % batches);
            repeated_batch.repeated = length(repeated_batch.samples);
            return repeated_batch;
        }
        BatchIndices batch = batch_index < batches ? at(batch_index) : BatchIndices();
        if (length(batch.samples) == full) return batch;
        // Fills the short batch, and then the missing batches of the following processes, with
        // samples from the beginning of the pass.
        const std::int64_t last = length(at(batches - 1).samples);
        const std::int64_t missing_before =
            batch_index < batches ? 0 : (batch_index - batches) * full + (full - last);
        Indices first;
        for (std::int64_t b = 0; b < std::min(options.num_processes, batches); ++b) {
            const Indices more = at(b).samples;
            first.insert(first.end(), more.begin(), more.end());
        }
        batch.repeated += full - length(batch.samples);
        append_cycled(batch.samples, first, missing_before, full - length(batch.samples));
        return batch;
    };
}

}  // namespace axle::data
