// DataLoader: the batches of a dataset, in one or more passes.
//
//     data::DataLoader loader(train_set, {.batch_size = 32, .shuffle = true, .num_workers = 2});
//     for (int epoch = 0; epoch < 3; ++epoch)
//         for (auto& batch : loader) {
//             Tensor loss = model.loss(batch["input_ids"], batch["labels"]);
//             ...
//         }
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>

#include "core/tree/tree.h"
#include "data/dataset.h"
#include "data/loading/collate.h"
#include "data/loading/feed.h"
#include "data/loading/iterable.h"
#include "data/loading/shard.h"
#include "data/sampler.h"

namespace axle::data {

class Prefetcher;
class BatchSource;
struct Parts;
struct BatchMaker;

// Called by a loader during a pass, on the loop's thread. Set by Accelerator::prepare.
struct LoaderHooks {
    virtual ~LoaderHooks() = default;
    // Called before the pass reads anything; may still change the sampler's seed.
    virtual void begin(DataLoader& loader) = 0;
    // Wraps the batches that this process reads; the loop gets the batches of the result.
    virtual std::unique_ptr<Feed> feed(DataLoader&, std::unique_ptr<Feed> own) { return own; }
    // Called with every batch before the loop gets it, when end_of_dataloader() is already set. Can
    // modify the batch, usually to move its tensors to a device.
    virtual void batch(DataLoader& loader, Tree& batch) = 0;
    // Called if a batch could not be produced; end() follows.
    virtual void failed(DataLoader&, const char* /*why*/) {}
    // Called when the pass is complete, was left or threw.
    virtual void end(DataLoader& loader) noexcept = 0;
};

// Fields are in PyTorch's order.
struct LoaderOptions {
    std::int64_t batch_size = 1;
    // Uses a RandomSampler with `seed`.
    bool shuffle = false;
    std::shared_ptr<const Sampler> sampler = {};  // replaces shuffle
    // Replaces batch_size, shuffle, sampler and drop_last.
    std::shared_ptr<const BatchSampler> batch_sampler = {};
    // The number of threads that produce batches ahead. 0 produces them on the loop's thread. The
    // batches do not depend on this number.
    int num_workers = 0;
    Collate collate_fn = {};  // replaces Dataset::get_batch
    // Puts batches into page-locked memory, which a GPU can copy asynchronously. Ignored without a
    // GPU.
    bool pin_memory = false;
    bool drop_last = false;
    int prefetch_factor = 2;  // batches ahead per worker
    // Seed of shuffle. Defaults to the seed of the default generator at construction (manual_seed).
    std::optional<std::uint64_t> seed = {};
};

// Iterates over the batches of a dataset. A pass visits the samples in the sampler's order for the
// current epoch (Dataset::in_epoch), or reads an iterable dataset's stream of that epoch. A
// complete pass advances the epoch. A pass that is left early (break, return, exception) has no
// effect: the next pass starts the same epoch from its first batch.
//
// Iterable datasets: one thread at a time reads samples in order, one batch ahead, and num_workers
// threads collate. Do expensive work in collate_fn.
//
// Several processes: each process reads its own share of the batches (shard()), or one process
// reads all and distributes them (dispatch()). A step is the batches of all processes together. If
// an iterable dataset has enough shards and batches are not split, each process reads its own
// shards.
//
// Exceptions from the dataset reach the loop with their type; batch and sample numbers are added to
// their text. The loader can be used again afterwards. Workers do not access the dataset between
// passes. Not thread-safe; one pass at a time.
class DataLoader {
  public:
    class Iterator;

    // `dataset` must outlive the loader; a temporary is moved in. Throws ValueError for
    // contradictory options.
    explicit DataLoader(const Dataset& dataset, LoaderOptions options = {});
    explicit DataLoader(std::shared_ptr<const Dataset> dataset, LoaderOptions options = {});
    explicit DataLoader(const IterableDataset& dataset, LoaderOptions options = {});
    explicit DataLoader(std::shared_ptr<const IterableDataset> dataset, LoaderOptions options = {});
    template <class D>
        requires(std::derived_from<D, Dataset> && !std::is_const_v<D>)
    explicit DataLoader(D&& dataset, LoaderOptions options = {})  // NOLINT: D is never a reference
        : DataLoader(std::shared_ptr<const Dataset>(std::make_shared<D>(std::forward<D>(dataset))),
                     std::move(options)) {}
    template <class D>
        requires(std::derived_from<D, IterableDataset> && !std::is_const_v<D>)
    explicit DataLoader(D&& dataset, LoaderOptions options = {})  // NOLINT: D is never a reference
        : DataLoader(
              std::shared_ptr<const IterableDataset>(std::make_shared<D>(std::forward<D>(dataset))),
              std::move(options)) {}
    ~DataLoader();
    // Neither copyable nor movable: loops and Accelerators hold its address.
    DataLoader(const DataLoader&) = delete;
    DataLoader& operator=(const DataLoader&) = delete;

    // Starts a pass. Throws UsageError during another pass.
    Iterator begin();
    std::default_sentinel_t end() const { return {}; }
    // Returns the number of this process's batches in a full pass. Throws UsageError for an
    // iterable dataset of unknown size.
    std::int64_t len() const;
    // Return the batch size of this process and of all processes together; 0 if it varies.
    std::int64_t batch_size() const;
    std::int64_t total_batch_size() const;
    bool drop_last() const;
    bool pin_memory() const;  // false without a GPU
    // Returns the number of samples of the dataset. Throws UsageError if it is not known.
    std::int64_t total_dataset_length() const;

    // --- in the loop body
    // Returns whether this is the last batch of the pass; false outside a pass.
    bool end_of_dataloader() const { return running_ && current_.last; }
    // Returns the number of samples in the last step across all processes, or 0 if that step is
    // full. Returns -1 outside a pass, with drop_last, and while the number is unknown. With
    // dispatch() and with own shards, the number is known only in the last step and is also
    // returned for full steps, as in Accelerate.
    std::int64_t remainder() const;
    // Return the number of samples in this process's batch, and how many of them (the first ones)
    // are new in this pass; the rest only fills the batch. Use the latter for gathering and
    // metrics.
    std::int64_t batch_samples() const { return current_.samples; }
    std::int64_t valid_samples() const { return current_.samples - current_.repeated; }

    // --- position and state
    // Returns the epoch of the running or next pass.
    std::int64_t epoch() const { return epoch_; }
    // Returns the number of batches that the running pass has yielded, or that the next pass skips.
    std::int64_t position() const { return position_; }
    // Sets the epoch of the next pass. Changing it resets the position. Like all functions below
    // except state_dict(), throws UsageError during a pass.
    void set_epoch(std::int64_t epoch);
    // Makes the next pass, and only that one, start at batch n without producing the batches before
    // it. If no batch is left, the pass is complete immediately.
    void skip_first_batches(std::int64_t n);
    // Saves the position exactly, at any time: a state taken in the loop body of batch k resumes at
    // batch k + 1; taken in the last step, it resumes at the next epoch. It can be loaded with any
    // number of processes that has the same total batch size; with own shards, that number must
    // divide the number of processes that began the pass. Includes the seed of the order.
    Tree state_dict() const;
    // Throws ValueError if the saved position does not fit this loader: the total batch size or the
    // number of samples differs.
    void load_state_dict(const Tree& state);

    // --- for code that prepares the loader
    // Return the dataset. Exactly one of the two results is not null.
    const Dataset* dataset() const { return dataset_.get(); }
    const IterableDataset* iterable_dataset() const { return iterable_.get(); }
    // Returns the generator of the sampler, the batch sampler or the iterable dataset; nullptr if
    // nothing is random.
    std::shared_ptr<Generator> generator() const;
    // Returns the original batch sampler, of all processes. nullptr for an iterable dataset.
    const std::shared_ptr<const BatchSampler>& batch_sampler() const { return whole_; }
    void set_batch_sampler(std::shared_ptr<const BatchSampler> batch_sampler);
    // From the next pass on, reads one process's share, or everything if nullopt. Throws ValueError
    // as check_shard() does.
    void shard(std::optional<ShardOptions> options);
    // From the next pass on, gets batches from `dispatch`, which distributes what one process
    // reads. Ignores even_batches.
    void dispatch(std::shared_ptr<Dispatch> dispatch, ShardOptions options);
    const std::optional<ShardOptions>& shard_options() const { return shard_; }
    bool is_dispatched() const { return dispatch_ != nullptr; }
    // Returns whether processes read their own shards; they can then have different numbers of
    // batches.
    bool reads_own_shards() const { return parts() > 1 && processes() > 1; }
    // Returns whether the processes must have equal numbers of steps. LoaderHooks::feed()
    // implements that.
    bool needs_even_steps() const { return reads_own_shards() && parts_need_even_steps(parts()); }
    // Starts a pass in which this process reads everything, from first_batch on. Only used by a
    // Dispatch, one pass at a time.
    std::unique_ptr<Feed> read_whole(std::int64_t first_batch);
    // Called by LoaderHooks::begin(): sets the epoch of the pass that begins.
    void begin_epoch(std::int64_t epoch);
    // Sets the hooks; nullptr removes them.
    void set_hooks(std::shared_ptr<LoaderHooks> hooks) { hooks_ = std::move(hooks); }

  private:
    class OwnFeed;

    explicit DataLoader(LoaderOptions&& options);  // shared by all constructors
    void check_idle(const char* what) const;
    // Return the number of batches in a pass of the whole dataset, and the number of steps of the
    // process with the most steps, or nullopt if unknown.
    std::optional<std::int64_t> whole_len() const;
    std::optional<std::int64_t> steps() const { return steps(parts()); }
    std::optional<std::int64_t> steps(std::int64_t parts) const;
    std::optional<std::int64_t> num_samples() const;  // nullopt if unknown
    std::int64_t processes() const { return shard_ ? shard_->num_processes : 1; }
    // Return the number of parts of a pass. With own shards, it is the number of processes that
    // began the pass, otherwise 1.
    std::int64_t own_parts() const;  // for a pass that begins now
    std::int64_t parts() const { return resumed_parts_.value_or(own_parts()); }
    bool fits_parts(std::int64_t parts) const;
    bool parts_need_even_steps(std::int64_t parts) const;
    Parts parts_read(std::int64_t parts, bool by_all) const;
    // Returns position(), limited to the length of a pass.
    std::int64_t reachable_position() const;
    void set_position(std::int64_t position, std::optional<std::int64_t> parts = {});
    void update_own_batches();
    std::shared_ptr<BatchSource> source(const std::shared_ptr<const BatchSampler>& batches,
                                        std::shared_ptr<const IterableDataset> iterable,
                                        std::int64_t batch_size, std::int64_t first) const;
    std::unique_ptr<Feed> read_share();
    // Calls f. If it throws, the hooks' failed() is called.
    template <class F>
    void notify_on_failure(F&& f);
    // Reads the next batch into current_. Returns false if the pass is complete and finished.
    bool advance();
    void finish(bool complete) noexcept;

    std::shared_ptr<const Dataset> dataset_;
    std::shared_ptr<const IterableDataset> iterable_;
    std::shared_ptr<const BatchSampler> whole_, own_;  // batches of all processes, and of this one
    std::int64_t iterable_batch_size_;
    bool iterable_drop_last_;
    std::unique_ptr<BatchMaker> batch_maker_;
    std::optional<ShardOptions> shard_;
    std::shared_ptr<Dispatch> dispatch_;
    std::unique_ptr<Prefetcher> prefetcher_;  // null without workers
    std::shared_ptr<LoaderHooks> hooks_;

    std::int64_t epoch_ = 0;
    std::int64_t position_ = 0;
    // The number of parts of the pass that position_ belongs to, if the pass was resumed.
    std::optional<std::int64_t> resumed_parts_;
    // State of the running pass.
    bool running_ = false;
    bool has_steps_ = false;  // whether any process has a step
    std::unique_ptr<Feed> feed_;
    Batch current_;
};

// Iterates over a pass. Destroying it leaves the pass; an exception in ++ also ends it. A batch is
// valid until the next ++, its tensors for as long as they are referenced.
class DataLoader::Iterator {
  public:
    using value_type = Tree;
    using difference_type = std::ptrdiff_t;

    Iterator(Iterator&& other) noexcept : loader_(std::exchange(other.loader_, nullptr)) {}
    Iterator& operator=(Iterator&& other) noexcept {
        std::swap(loader_, other.loader_);
        return *this;
    }
    ~Iterator() {
        if (loader_ != nullptr) loader_->finish(false);
    }

    Tree& operator*() const { return loader_->current_.tree; }
    Tree* operator->() const { return &loader_->current_.tree; }
    Iterator& operator++() {
        Iterator going(std::move(*this));  // an exception leaves the pass
        if (!going.loader_->advance()) going.loader_ = nullptr;
        return *this = std::move(going);
    }
    void operator++(int) { ++*this; }
    friend bool operator==(const Iterator& it, std::default_sentinel_t) {
        return it.loader_ == nullptr;
    }

  private:
    friend class DataLoader;
    explicit Iterator(DataLoader* loader) : loader_(loader) {}

    DataLoader* loader_;  // null at the end
};

// accelerate.skip_first_batches: a view of a loader without its first batches, in every pass over
// the view. Loops over the loader itself are not affected. Skipped samples are not read if the
// dataset has indices or its stream can skip.
//     for (auto& batch : data::skip_first_batches(loader, 100)) ...
class SkipDataLoader {
  public:
    // The loader must outlive the view. Throws ValueError if num_batches is negative.
    SkipDataLoader(DataLoader& loader, std::int64_t num_batches);
    DataLoader::Iterator begin();
    std::default_sentinel_t end() const { return {}; }
    // Returns the number of batches in a pass. Throws ValueError if more batches are skipped than
    // exist.
    std::int64_t len() const;
    DataLoader& loader() const { return *loader_; }

  private:
    DataLoader* loader_;
    std::int64_t num_batches_;
};

inline SkipDataLoader skip_first_batches(DataLoader& loader, std::int64_t num_batches = 0) {
    return {loader, num_batches};
}

}  // namespace axle::data
