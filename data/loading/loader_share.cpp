// Functions of DataLoader and SkipDataLoader that select and count the batches of a process.
#include <limits>

#include "data/loading/loader.h"
#include "data/loading/own_shards.h"
#include "kernels/error.h"

namespace axle::data {
namespace {

std::int64_t divided(std::int64_t n, std::int64_t by, bool round_down) {
    return n / by + (!round_down && n % by != 0 ? 1 : 0);
}

}  // namespace

std::optional<std::int64_t> DataLoader::num_samples() const {
    return whole_ ? whole_->num_samples() : iterable_->size();
}

std::optional<std::int64_t> DataLoader::whole_len() const {
    if (whole_) return whole_->size();
    const auto samples = iterable_->size();
    if (!samples) return std::nullopt;
    return divided(*samples, iterable_batch_size_, iterable_drop_last_);
}

std::optional<std::int64_t> DataLoader::steps(std::int64_t parts) const {
    if (parts > 1) return steps_of(*iterable_, parts_read(parts, true));
    const auto whole = whole_len();
    if (!shard_ || !whole) return whole;
    if (dispatch_) return shard_->split_batches ? whole : divided(*whole, processes(), drop_last());
    ShardOptions first = *shard_;
    first.process_index = 0;
    if (whole_) return BatchSamplerShard(whole_, first).size();
    return divided(iterable_->size().value_or(0), total_batch_size(), iterable_drop_last_);
}

std::optional<std::int64_t> DataLoader::micro_steps(std::int64_t parts) const {
    const auto whole = steps(parts);
    return whole ? std::optional(*whole * micro_batches_) : std::nullopt;
}

void DataLoader::set_micro_batches(std::int64_t n) {
    check_idle("set_micro_batches");
    if (n < 1 || processes() % n != 0)
        throw ValueError(
            str("DataLoader: set_micro_batches: the number of micro-batches must be positive and "
                "divide the number of processes: ",
                n, " micro-batches, ", processes(), " processes"));
    micro_batches_ = n;
}

std::int64_t DataLoader::len() const {
    check_not_moved("len");
    if (own_ && !dispatch_) return own_->size() * micro_batches_;
    const bool uneven = parts() > 1 && !parts_need_even_steps(parts());
    const auto known = uneven ? steps_of(*iterable_, parts_read(parts(), false)) : steps();
    if (!known)
        throw UsageError(
            "DataLoader: len: the size of the iterable dataset is unknown; override its size()");
    return *known * micro_batches_;
}

std::int64_t DataLoader::reachable_position() const {
    const std::int64_t max_position =
        std::numeric_limits<std::int64_t>::max() / std::max<std::int64_t>(total_batch_size(), 1);
    return std::min(position_, micro_steps(parts()).value_or(max_position));
}

void DataLoader::set_batch_sampler(std::shared_ptr<const BatchSampler> batch_sampler) {
    check_idle("set_batch_sampler");
    if (!batch_sampler)
        throw UsageError("DataLoader: set_batch_sampler: the batch sampler must not be null");
    if (iterable_)
        throw UsageError("DataLoader: set_batch_sampler: an iterable dataset has no batch sampler");
    if (shard_) check_shard("DataLoader", *shard_, batch_sampler->batch_size());
    whole_ = std::move(batch_sampler);
    growths_.clear();
    grown_.reset();
    own_ = own_batches(whole_);
}

std::shared_ptr<const BatchSampler> DataLoader::own_batches(
    const std::shared_ptr<const BatchSampler>& whole) const {
    if (!whole || !shard_ || dispatch_) return whole;
    return std::make_shared<BatchSamplerShard>(whole, *shard_);
}

void DataLoader::shard(std::optional<ShardOptions> options) {
    check_idle("shard");
    if (options)
        check_shard("DataLoader", *options, whole_ ? whole_->batch_size() : iterable_batch_size_);
    shard_ = options;
    if (!options) micro_batches_ = 1;
    dispatch_ = nullptr;
    if (resumed_parts_ && !fits_parts(*resumed_parts_)) resumed_parts_.reset();
    own_ = own_batches(whole_);
}

void DataLoader::dispatch(std::shared_ptr<Dispatch> dispatch, ShardOptions options) {
    if (!dispatch) throw UsageError("DataLoader: dispatch: the dispatch must not be null");
    shard(options);
    dispatch_ = std::move(dispatch);
    resumed_parts_.reset();
    own_ = own_batches(whole_);
}

std::int64_t DataLoader::own_parts() const {
    if (!iterable_ || !shard_ || dispatch_ || shard_->split_batches) return 1;
    return iterable_->num_shards() < processes() ? 1 : processes();
}

bool DataLoader::fits_parts(std::int64_t parts) const {
    if (parts == 1) return true;
    return iterable_ && !dispatch_ && parts <= iterable_->num_shards() &&
           (parts % processes() == 0 || processes() % parts == 0) &&
           total_batch_size() % parts == 0;
}

// Returns whether all processes must have the same number of steps. A pass that is resumed with
// another number of processes needs the same number of steps even if even_batches is false.
bool DataLoader::parts_need_even_steps(std::int64_t parts) const {
    return parts != processes() || !shard_ || shard_->even_batches;
}

Parts DataLoader::parts_read(std::int64_t parts, bool by_all) const {
    const std::int64_t each = std::max<std::int64_t>(parts / processes(), 1);
    const std::int64_t readers = std::max<std::int64_t>(processes() / parts, 1);
    const std::int64_t index = by_all || !shard_ ? 0 : shard_->process_index;
    return {.count = parts,
            .first = index / readers * each,
            .number = by_all ? parts : each,
            .rows = total_batch_size() / parts,
            .readers = readers,
            .reader = index % readers,
            .drop_last = iterable_drop_last_,
            .even = parts_need_even_steps(parts)};
}

SkipDataLoader::SkipDataLoader(DataLoader& loader, std::int64_t num_batches)
    : loader_(&loader), num_batches_(num_batches) {
    if (num_batches < 0)
        throw ValueError(
            str("skip_first_batches: the number of batches must not be negative: ", num_batches));
}

DataLoader::Iterator SkipDataLoader::begin() {
    if (num_batches_ > 0) loader_->skip_first_batches(num_batches_);
    return loader_->begin();
}

std::int64_t SkipDataLoader::len() const {
    const std::int64_t all = loader_->len();
    if (num_batches_ > all)
        throw ValueError(
            str("skip_first_batches: cannot skip ", num_batches_, " of ", all, " batches"));
    return all - num_batches_;
}

}  // namespace axle::data
