// Functions of DataLoader that set, save and load the position.
#include <algorithm>
#include <limits>
#include <string>

#include "core/system/log.h"
#include "data/loading/loader.h"
#include "kernels/error.h"

namespace axle::data {

// The contents of a saved state.
struct SavedPosition {
    std::int64_t epoch = 0, position = 0;
    bool finished = false;
    std::int64_t total_batch_size = 0, num_processes = 1, parts = 1, micro_batches = 1;
    std::optional<std::int64_t> num_samples = {}, seed = {};
    std::vector<Growth> growths = {};

    bool is_within_pass() const { return !finished && position > 0; }
};

namespace {

constexpr std::int64_t kMaxInteger = std::numeric_limits<std::int64_t>::max();
// The maximum number of times that a dataset can grow in one pass. The order of the pass is
// computed from one permutation per growth.
constexpr std::int64_t kMaxGrowths = 1000;

template <class... Parts>
[[noreturn]] void throw_error(const Parts&... what) {
    throw ValueError(str("DataLoader: load_state_dict: ", what...));
}

std::optional<std::int64_t> integer_in(const Tree& state, const char* key) {
    const Tree* const value = state.find(key);
    if (value == nullptr) return std::nullopt;
    return value->integer();
}

// Reads a state. Checks the values that do not depend on the loader.
SavedPosition read(const Tree& state) {
    SavedPosition saved{.epoch = state["epoch"].integer(),
                        .position = state["position"].integer(),
                        .finished = state["finished"].boolean(),
                        .total_batch_size = state["total_batch_size"].integer(),
                        .num_processes = state["num_processes"].integer(),
                        .parts = integer_in(state, "parts").value_or(1),
                        .micro_batches = integer_in(state, "micro_batches").value_or(1),
                        .num_samples = integer_in(state, "num_samples"),
                        .seed = integer_in(state, "seed")};
    if (saved.epoch < 0 || saved.epoch == kMaxInteger)
        throw_error("the epoch must be in [0, ", kMaxInteger, "): ", saved.epoch);
    if (saved.position < 0 || saved.num_processes < 1)
        throw_error(
            "the position must not be negative and num_processes must be positive: position ",
            saved.position, ", num_processes ", saved.num_processes);
    if (saved.micro_batches < 1)
        throw_error("micro_batches must be positive: ", saved.micro_batches);
    if (saved.num_samples.value_or(0) < 0)
        throw_error("the number of samples must not be negative: ", *saved.num_samples);
    const Tree* const grown = state.find("grown");
    if (grown == nullptr) return saved;
    for (const Tree& growth : grown->elements())
        saved.growths.push_back({growth["num_samples"].integer(), growth["read"].integer()});
    return saved;
}

// Converts a position for a loader whose total batch size is `total`, if the samples read so far
// form complete steps of that loader. A position outside a pass becomes 0.
void convert_steps(SavedPosition& saved, std::int64_t total) {
    if (saved.total_batch_size <= 0 || total <= 0) return;
    std::int64_t read = 0;
    if (saved.is_within_pass() &&
        (__builtin_mul_overflow(saved.position, saved.total_batch_size, &read) ||
         read % total != 0))
        return;
    saved.position = read / total;
    saved.total_batch_size = total;
}

// Checks the growths of a state that was saved within a pass. Adds a growth if the dataset has
// grown to `now` samples since then.
void add_growth(SavedPosition& saved, std::int64_t now) {
    const std::int64_t total = saved.total_batch_size, before = saved.num_samples.value_or(now);
    const std::int64_t read = std::min(saved.position, now / total) * total;
    try {
        check_growths(saved.growths, before);
    } catch (const ValueError& error) {
        throw_error("grown: ", error.what());
    }
    for (const Growth& growth : saved.growths)
        if (growth.at > read || growth.at % total != 0)
            throw_error("grown: the position of a growth must be a multiple of the ", total,
                        " samples of a step, and at most the ", read, " samples read: ", growth.at);
    if (now > before && (saved.growths.empty() || saved.growths.back().at < read))
        saved.growths.push_back({before, read});
    if (std::ssize(saved.growths) > kMaxGrowths)
        throw_error("the dataset has grown ", saved.growths.size(), " times in one pass; at most ",
                    kMaxGrowths, " times are supported");
}

}  // namespace

void DataLoader::set_position(std::int64_t position, std::optional<std::int64_t> parts) noexcept {
    position_ = position;
    resumed_parts_ = parts;
    growths_.clear();
    grown_.reset();
}

void DataLoader::set_epoch(std::int64_t epoch) {
    check_idle("set_epoch");
    if (epoch != epoch_) set_position(0);
    epoch_ = epoch;
}

void DataLoader::skip_first_batches(std::int64_t n) {
    check_idle("skip_first_batches");
    if (n < 0)
        throw ValueError(
            str("skip_first_batches: the number of batches must not be negative: ", n));
    set_position(n);
}

Tree DataLoader::state_dict() const {
    check_not_moved("state_dict");
    // If steps are uneven, the last batch of this process may not be the last batch of the pass.
    const bool uneven = parts() > 1 && !parts_need_even_steps(parts());
    const bool finished =
        end_of_dataloader() &&
        // LoaderHooks::feed() marks the last micro-batch of all processes.
        (micro_batches_ > 1 ||
         position_ >= micro_steps(parts()).value_or(uneven ? position_ + 1 : position_));
    Tree state{{"epoch", epoch_},
               {"position", reachable_position()},
               {"finished", finished},
               {"total_batch_size", micro_step_size()},
               {"num_processes", processes()}};
    if (micro_batches_ > 1) state.set("micro_batches", micro_batches_);
    if (parts() > 1) state.set("parts", parts());
    if (const auto samples = num_samples()) state.set("num_samples", *samples);
    if (const auto random = generator())
        state.set("seed", static_cast<std::int64_t>(random->initial_seed()));
    if (growths_.empty() || finished) return state;
    Tree grown = Tree::list();
    for (const Growth& growth : growths_)
        grown.push_back(Tree{{"num_samples", growth.size}, {"read", growth.at}});
    state.set("grown", std::move(grown));
    return state;
}

// If batch sizes vary, the saved position counts batches. Converts it to the position for the
// number of processes of this loader. Throws ValueError if there is no such position.
void DataLoader::convert_varying_batches(SavedPosition& saved) const {
    if (saved.finished) saved.position = 0;
    if (saved.micro_batches != micro_batches_ || micro_batches_ > 1)
        throw_error(
            "the number of processes must be the same if batch sizes vary and batches are "
            "divided into micro-batches: saved ",
            saved.num_processes, ", this loader has ", processes());
    if (saved.position > whole_->size() / saved.num_processes)
        throw_error("position ", saved.position, " with ", saved.num_processes,
                    " processes exceeds a pass of ", whole_->size(), " batches");
    const std::int64_t batches = saved.position * saved.num_processes;
    if (batches % processes() != 0)
        throw_error(
            "the position must be a multiple of the number of processes if batch sizes vary: ",
            batches, " batches, ", processes(), " processes");
    saved.position = batches / processes();
}

// Adapts a state to the number of samples of this loader. Returns the batches of all processes in
// the pass if it continues with a grown dataset, otherwise nullptr. Throws ValueError if the
// position exceeds the pass, or if the loader cannot continue and restart_if_resized is false.
std::shared_ptr<const BatchSampler> DataLoader::continue_resized(SavedPosition& saved) const {
    const std::int64_t now = num_samples().value_or(saved.num_samples.value_or(0));
    const std::int64_t before = saved.num_samples.value_or(now);
    const std::int64_t total = saved.total_batch_size;
    const bool is_counted = whole_ && total > 0;  // whether a step has a fixed number of samples
    if (now != before && is_counted && !saved.finished) {
        const std::int64_t all = before / total + (!drop_last() && before % total != 0 ? 1 : 0);
        if (saved.position > all)
            throw_error("position ", saved.position, " exceeds a pass of ", all, " batches");
        saved.finished = saved.position > 0 && saved.position == all;
    }
    const bool within = saved.is_within_pass();
    if (!within) saved.growths.clear();
    if (now == before && saved.growths.empty()) return nullptr;

    const auto warn = [&](const auto&... what) {
        if (!shard_ || shard_->process_index == 0)
            log(LogLevel::warning, "DataLoader: load_state_dict: ", what...);
    };
    std::shared_ptr<const BatchSampler> grown;
    if (within && now >= before && is_counted) {
        add_growth(saved, now);
        grown = whole_->grown({saved.epoch, saved.growths});
    }
    if (now < before || (within && !grown)) {
        const std::string differ = str("the numbers of samples differ: saved ", before, " ",
                                       within ? "in the middle of a pass" : "between two passes",
                                       ", this loader has ", now);
        const char* const why = now < before ? "a dataset may only grow"
                                : iterable_ ? "an iterable dataset may only grow between two passes"
                                            : "the sampler does not support growth within a pass "
                                              "(BatchSampler::grown)";
        if (!restart_if_resized_)
            throw_error(now == before ? "the dataset has grown during the saved pass" : differ,
                        "; ", why, "; set LoaderOptions::restart_if_resized to accept it",
                        within ? " and to start the pass again" : "");
        warn("the dataset has ", now, " samples; the state has ", before,
             within ? str(": epoch ", saved.epoch, " starts again from its first batch") : "");
        saved.growths.clear();
        saved.position = 0;
        return nullptr;
    }
    if (now == before) return grown;
    if (!within)
        warn("the dataset has grown from ", before, " to ", now,
             " samples: the next pass reads all of them");
    else
        warn("the dataset has grown from ", before, " to ", now, " samples during epoch ",
             saved.epoch, ": ", saved.position * total, " samples were read before, and the other ",
             now - saved.position * total, " follow in the order of the larger dataset");
    return grown;
}

void DataLoader::load_state_dict(const Tree& state) {
    check_idle("load_state_dict");
    check_not_moved("load_state_dict");
    SavedPosition saved = read(state);
    if (saved.micro_batches != micro_batches_ && saved.position % saved.micro_batches != 0)
        throw_error("cannot resume within a batch: the state has position ", saved.position,
                    " with ", saved.micro_batches, " micro-batches per batch, this loader has ",
                    micro_batches_);
    if (saved.total_batch_size != micro_step_size() && whole_)
        convert_steps(saved, micro_step_size());
    const std::int64_t total = saved.total_batch_size;
    if (total != micro_step_size())
        throw_error("the total batch sizes differ: saved ", total, " with ", saved.num_processes,
                    " processes, this loader has ", micro_step_size(), " with ", processes());
    std::shared_ptr<const BatchSampler> grown = continue_resized(saved);
    if (total == 0 && saved.num_processes != processes()) convert_varying_batches(saved);
    const bool fits = saved.parts > 0 && fits_parts(saved.parts);
    if (!fits && saved.is_within_pass())
        throw_error("cannot resume within a pass over ", saved.parts, " shards that ",
                    saved.num_processes, " processes began: this loader has ", processes(),
                    " processes and ", iterable_ ? iterable_->num_shards() : 0,
                    " shards; the number of processes must divide ", saved.parts,
                    " or be a multiple of it, and they must read their own shards");
    const auto max_steps = fits ? micro_steps(saved.parts) : std::nullopt;
    if (max_steps && saved.position > *max_steps)
        throw_error("position ", saved.position, " exceeds a pass of ", *max_steps, " batches");
    saved.finished =
        saved.finished || (max_steps && saved.position == *max_steps && saved.position > 0);
    if (const auto random = generator(); random && saved.seed)
        random->manual_seed(static_cast<std::uint64_t>(*saved.seed));
    epoch_ = saved.finished ? saved.epoch + 1 : saved.epoch;
    if (!saved.is_within_pass()) return set_position(0);
    set_position(saved.position, saved.parts);
    growths_ = std::move(saved.growths);
    grown_ = std::move(grown);
}

}  // namespace axle::data
