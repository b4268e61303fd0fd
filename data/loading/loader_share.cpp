// Functions of DataLoader that select and count the batches of a process, and functions that set,
// save and load the position.
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

std::int64_t DataLoader::len() const {
    check_not_moved("len");
    if (own_ && !dispatch_) return own_->size();
    const bool uneven = parts() > 1 && !parts_need_even_steps(parts());
    const auto known = uneven ? steps_of(*iterable_, parts_read(parts(), false)) : steps();
    if (!known) throw UsageError("DataLoader: len: the size of the iterable dataset is unknown");
    return *known;
}

std::int64_t DataLoader::reachable_position() const {
    const std::int64_t max_position =
        std::numeric_limits<std::int64_t>::max() / std::max<std::int64_t>(total_batch_size(), 1);
    return std::min(position_, steps().value_or(max_position));
}

void DataLoader::set_batch_sampler(std::shared_ptr<const BatchSampler> batch_sampler) {
    check_idle("set_batch_sampler");
    if (!batch_sampler)
        throw UsageError("DataLoader: set_batch_sampler: the batch sampler is null");
    if (iterable_)
        throw UsageError("DataLoader: set_batch_sampler: an iterable dataset has no batch sampler");
    if (shard_) check_shard("DataLoader", *shard_, batch_sampler->batch_size());
    whole_ = std::move(batch_sampler);
    update_own_batches();
}

void DataLoader::update_own_batches() {
    own_ = whole_ && shard_ && !dispatch_ ? std::make_shared<BatchSamplerShard>(whole_, *shard_)
                                          : whole_;
}

void DataLoader::shard(std::optional<ShardOptions> options) {
    check_idle("shard");
    if (options)
        check_shard("DataLoader", *options, whole_ ? whole_->batch_size() : iterable_batch_size_);
    shard_ = options;
    dispatch_ = nullptr;
    if (resumed_parts_ && !fits_parts(*resumed_parts_)) resumed_parts_.reset();
    update_own_batches();
}

void DataLoader::dispatch(std::shared_ptr<Dispatch> dispatch, ShardOptions options) {
    if (!dispatch) throw UsageError("DataLoader: dispatch: the dispatch is null");
    shard(options);
    dispatch_ = std::move(dispatch);
    resumed_parts_.reset();
    update_own_batches();
}

std::int64_t DataLoader::own_parts() const {
    if (!iterable_ || !shard_ || dispatch_ || shard_->split_batches) return 1;
    return iterable_->num_shards() < processes() ? 1 : processes();
}

bool DataLoader::fits_parts(std::int64_t parts) const {
    if (parts == 1) return true;
    return iterable_ && !dispatch_ && parts <= iterable_->num_shards() &&
           parts % processes() == 0 && total_batch_size() % parts == 0;
}

// Returns whether all processes must have the same number of steps. A pass that is resumed with
// another number of processes needs it also if even_batches is false.
bool DataLoader::parts_need_even_steps(std::int64_t parts) const {
    return parts != processes() || !shard_ || shard_->even_batches;
}

Parts DataLoader::parts_read(std::int64_t parts, bool by_all) const {
    const std::int64_t each = parts / processes();
    return {.count = parts,
            .first = by_all || !shard_ ? 0 : shard_->process_index * each,
            .number = by_all ? parts : each,
            .rows = total_batch_size() / parts,
            .drop_last = iterable_drop_last_,
            .even = parts_need_even_steps(parts)};
}

// --- state

void DataLoader::set_position(std::int64_t position, std::optional<std::int64_t> parts) {
    position_ = position;
    resumed_parts_ = parts;
}

void DataLoader::set_epoch(std::int64_t epoch) {
    check_idle("set_epoch");
    if (epoch != epoch_) set_position(0);
    epoch_ = epoch;
}

void DataLoader::skip_first_batches(std::int64_t n) {
    check_idle("skip_first_batches");
    if (n < 0) throw ValueError(str("skip_first_batches: negative number of batches: ", n));
    set_position(n);
}

Tree DataLoader::state_dict() const {
    check_not_moved("state_dict");
    // If steps are uneven, the last batch of this process need not be the last batch of the pass.
    const bool uneven = parts() > 1 && !parts_need_even_steps(parts());
    const bool finished =
        end_of_dataloader() && position_ >= steps().value_or(uneven ? position_ + 1 : position_);
    Tree state{{"epoch", epoch_},
               {"position", reachable_position()},
               {"finished", finished},
               {"total_batch_size", total_batch_size()},
               {"num_processes", processes()}};
    if (parts() > 1) state.set("parts", parts());
    if (const auto samples = num_samples()) state.set("num_samples", *samples);
    if (const auto random = generator())
        state.set("seed", static_cast<std::int64_t>(random->initial_seed()));
    return state;
}

void DataLoader::load_state_dict(const Tree& state) {
    check_idle("load_state_dict");
    const auto throw_error = [](const auto&... what) {
        throw ValueError(str("DataLoader: load_state_dict: ", what...));
    };
    const std::int64_t epoch = state["epoch"].integer();
    std::int64_t position = state["position"].integer();
    bool finished = state["finished"].boolean();
    const std::int64_t total = state["total_batch_size"].integer();
    const std::int64_t saved_by = state["num_processes"].integer();
    if (total != total_batch_size())
        throw_error("the total batch sizes differ: saved ", total, " with ", saved_by,
                    " processes, this loader has ", total_batch_size(), " with ", processes());
    const auto samples = num_samples();
    const Tree* saved_samples = state.find("num_samples");
    // Between two passes, the dataset may grow. Within a pass, the order depends on its size.
    const bool may_grow = finished || position == 0;
    if (samples && saved_samples != nullptr && saved_samples->integer() != *samples &&
        !(may_grow && saved_samples->integer() < *samples))
        throw_error("the numbers of samples differ: saved ", saved_samples->integer(),
                    may_grow ? " at the end" : " in the middle", " of a pass, this loader has ",
                    *samples, "; a dataset may only grow, and only between two passes");
    if (position < 0 || saved_by < 1)
        throw_error(
            "the position must not be negative and num_processes must be positive: position ",
            position, ", num_processes ", saved_by);
    if (total == 0 &&
        saved_by != processes()) {  // the position is a number of batches with varying sizes
        if (finished) position = 0;
        if (position > whole_->size() / saved_by)
            throw_error("position ", position, " with ", saved_by, " processes exceeds a pass of ",
                        whole_->size(), " batches");
        const std::int64_t batches = position * saved_by;
        if (batches % processes() != 0)
            throw_error(
                "the position must be a multiple of the number of processes if batch sizes vary: ",
                batches, " batches, ", processes(), " processes");
        position = batches / processes();
    }
    const Tree* saved_parts = state.find("parts");
    const std::int64_t parts = saved_parts == nullptr ? 1 : saved_parts->integer();
    const bool fits = parts > 0 && fits_parts(parts);
    if (!fits && !finished && position != 0)
        throw_error("cannot resume within a pass over ", parts, " shards that ", saved_by,
                    " processes began: this loader has ", processes(), " processes");
    const auto max_steps = fits ? steps(parts) : std::nullopt;
    if (max_steps && position > *max_steps)
        throw_error("position ", position, " exceeds a pass of ", *max_steps, " batches");
    finished = finished || (max_steps && position == *max_steps && position > 0);
    const Tree* seed = state.find("seed");
    if (const auto random = generator(); random && seed != nullptr)
        random->manual_seed(static_cast<std::uint64_t>(seed->integer()));
    epoch_ = finished ? epoch + 1 : epoch;
    if (finished || position == 0)
        set_position(0);
    else
        set_position(position, parts);
}

}  // namespace axle::data
