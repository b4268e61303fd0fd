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
#include <functional>
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

// Functions that a loader calls during a pass, on the thread of the loop. Accelerator::prepare sets
// them.
struct LoaderHooks {
    virtual ~LoaderHooks() = default;
    // Called at the start of a pass, before samples are read. Can change the seed of the sampler.
    virtual void begin(DataLoader& loader) = 0;
    // Returns the feed from which the loop gets its batches. `own` yields the batches that this
    // process reads.
    virtual std::unique_ptr<Feed> feed(DataLoader&, std::unique_ptr<Feed> own) { return own; }
    // Called with every batch before the loop gets it. Can modify the batch, for example to move
    // its tensors to a device. end_of_dataloader() is already valid for this batch.
    virtual void batch(DataLoader& loader, Tree& batch) = 0;
    // Called if producing a batch has thrown an exception, before end().
    virtual void failed(DataLoader&, const char* /*why*/) {}
    // Called at the end of every pass, also if the loop was left early or an exception was thrown.
    virtual void end(DataLoader& loader) noexcept = 0;
    // Called when the loader is destroyed or its hooks are replaced or removed.
    virtual void detached(const DataLoader&) noexcept {}
    // Called after the loader `from` was moved to `to`, which has the hooks from now on.
    virtual void moved(const DataLoader& /*from*/, DataLoader& /*to*/) noexcept {}
};

// The options of a DataLoader, in PyTorch's order.
struct LoaderOptions {
    std::int64_t batch_size = 1;
    // If true, samples are in random order (RandomSampler with `seed`).
    bool shuffle = false;
    std::shared_ptr<const Sampler> sampler = {};  // the order of samples, instead of shuffle
    // The samples of each batch, instead of batch_size, shuffle, sampler and drop_last.
    std::shared_ptr<const BatchSampler> batch_sampler = {};
    // The number of threads that produce batches in advance. If it is 0, the thread of the loop
    // produces them. The batches do not depend on this number.
    int num_workers = 0;
    Collate collate_fn = {};  // used instead of Dataset::get_batch
    // If true, copies batches to page-locked memory, which a GPU can copy asynchronously. Ignored
    // if there is no GPU.
    bool pin_memory = false;
    bool drop_last = false;
    // Called once on each worker thread, with the worker's number, before it produces batches. An
    // exception is rethrown in the loop. Not called if num_workers is 0.
    std::function<void(int worker)> worker_init_fn = {};
    int prefetch_factor = 2;  // number of batches that each worker produces in advance
    // The seed of shuffle. If unset, the constructor uses the seed of the default generator
    // (manual_seed).
    std::optional<std::uint64_t> seed = {};
    // Whether passes can have no batches. By default, the constructor throws ValueError for a
    // dataset of size 0, or with drop_last for fewer samples than batch_size, because a loop over
    // the loader would silently do nothing. The number of processes is not considered.
    bool allow_empty = false;
};

// Iterates over the batches of a dataset. A pass reads the samples of the current epoch, in the
// order of the sampler or of the iterable dataset. A complete pass increments the epoch. If a loop
// ends early (break, return, exception), the next pass starts the same epoch from its first batch.
//
// With iterable datasets, the samples are read in order by one thread at a time, one batch in
// advance; only collating uses all num_workers threads. Put expensive work into collate_fn.
//
// With several processes, each process reads its own batches (shard()), or one process reads all
// batches and distributes them (dispatch()). A step consists of the batches that all processes get
// at the same time. If an iterable dataset has enough shards and split_batches is false, each
// process reads its own shards.
//
// Exceptions of the dataset are rethrown in the loop with their type; the numbers of batch and
// sample are added to their text. The loader can be used again after an exception. Workers do not
// access the dataset between passes. Not thread-safe. Only one pass can run at a time.
class DataLoader {
  public:
    class Iterator;

    // `dataset` must outlive the loader; a temporary is moved into the loader. Throws ValueError if
    // options contradict each other or are out of range, or if the loader has no batches, unless
    // `allow_empty` is true. An iterable dataset of unknown size is not checked.
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
    // A loader can be moved between passes, so that functions can return it. A prepared loader
    // stays prepared. Views of skip_first_batches() refer to the old object. `other` can only be
    // destroyed or assigned to afterwards. Throws UsageError during a pass of either loader.
    DataLoader(DataLoader&& other);             // NOLINT: throws
    DataLoader& operator=(DataLoader&& other);  // NOLINT: throws
    DataLoader(const DataLoader&) = delete;
    DataLoader& operator=(const DataLoader&) = delete;

    // Starts a pass. Throws UsageError if a pass is running.
    Iterator begin();
    std::default_sentinel_t end() const { return {}; }
    // Returns the number of batches that this process gets in a full pass. Throws UsageError if the
    // size of the iterable dataset is unknown.
    std::int64_t len() const;
    // Return the batch size of this process, and the sum of the batch sizes of all processes. Both
    // are 0 if the batch size varies.
    std::int64_t batch_size() const;
    std::int64_t total_batch_size() const;
    bool drop_last() const;
    bool pin_memory() const;  // false without a GPU
    // Returns the number of samples of the dataset. Throws UsageError if it is unknown.
    std::int64_t total_dataset_length() const;

    // --- in the loop body
    // Returns whether the current batch is the last one of the pass. Returns false outside a pass.
    bool end_of_dataloader() const { return running_ && current_.last; }
    // Returns the number of samples of all processes in the last step of the pass, or 0 if that
    // step is full. Returns -1 outside a pass, with drop_last, and while the number is unknown.
    // With dispatch(), or if processes read their own shards, the number is known only in the last
    // step; it is then also returned if the step is full, as in Accelerate.
    std::int64_t remainder() const;
    // Return the number of samples in the current batch of this process, and the number of valid
    // samples. The valid samples come first; the remaining ones are repetitions that fill the
    // batch. Use valid_samples() for metrics.
    std::int64_t batch_samples() const { return current_.samples; }
    std::int64_t valid_samples() const { return current_.samples - current_.repeated; }

    // --- position and state
    // Returns the epoch of the running pass, or of the next pass if none is running.
    std::int64_t epoch() const { return epoch_; }
    // Returns the number of batches that the running pass has yielded. If no pass is running,
    // returns the number of batches that the next pass skips.
    std::int64_t position() const { return position_; }
    // Sets the epoch of the next pass. If the epoch changes, sets the position to 0. This and all
    // functions below except state_dict() throw UsageError during a pass.
    void set_epoch(std::int64_t epoch);
    // Makes the next pass start at batch n, without producing the batches before it. Later passes
    // are not affected. If there is no batch n, the next pass has no batches.
    void skip_first_batches(std::int64_t n);
    // Returns the position and the seed of the order. A state that was saved in the loop body of
    // batch k resumes at batch k + 1, or at the next epoch if batch k is the last one. It can be
    // loaded with another number of processes if the total batch size is the same. If processes
    // read their own shards, the new number must divide the number of processes that began the
    // pass.
    Tree state_dict() const;
    // Loads a state from state_dict(). Throws ValueError if the total batch size or the number of
    // samples differs, or the position does not fit.
    void load_state_dict(const Tree& state);

    // --- for code that prepares the loader
    // Return the dataset. One of the two functions returns nullptr.
    const Dataset* dataset() const { return dataset_.get(); }
    const IterableDataset* iterable_dataset() const { return iterable_.get(); }
    // Returns the generator of the sampler, the batch sampler or the iterable dataset, or nullptr
    // if the order is not random.
    std::shared_ptr<Generator> generator() const;
    // Returns the batch sampler for all processes, or nullptr for an iterable dataset.
    const std::shared_ptr<const BatchSampler>& batch_sampler() const { return whole_; }
    void set_batch_sampler(std::shared_ptr<const BatchSampler> batch_sampler);
    // Makes the next and all later passes read only the batches of one process, or all batches if
    // `options` is nullopt. Throws ValueError if options are invalid (check_shard()).
    void shard(std::optional<ShardOptions> options);
    // Makes the next and all later passes get their batches from `dispatch`, which distributes the
    // batches that one process reads. Ignores even_batches.
    void dispatch(std::shared_ptr<Dispatch> dispatch, ShardOptions options);
    const std::optional<ShardOptions>& shard_options() const { return shard_; }
    bool is_dispatched() const { return dispatch_ != nullptr; }
    // Returns whether processes read their own shards. If so, they can have different numbers of
    // batches.
    bool reads_own_shards() const { return parts() > 1 && processes() > 1; }
    // Returns whether all processes must have the same number of steps. If so, LoaderHooks::feed()
    // must add or drop batches.
    bool needs_even_steps() const { return reads_own_shards() && parts_need_even_steps(parts()); }
    // Starts a pass in which this process reads all batches, from first_batch on. Only a Dispatch
    // calls it.
    std::unique_ptr<Feed> read_whole(std::int64_t first_batch);
    // Sets the epoch of the pass that is starting. Only LoaderHooks::begin() may call it.
    void begin_epoch(std::int64_t epoch);
    // Sets the hooks; nullptr removes them.
    void set_hooks(std::shared_ptr<LoaderHooks> hooks) {
        const auto before = std::exchange(hooks_, std::move(hooks));
        if (before && before != hooks_) before->detached(*this);
    }

  private:
    class OwnFeed;

    explicit DataLoader(LoaderOptions&& options);  // the part that all constructors share
    void check_idle(const char* what) const;
    void take(DataLoader& other);
    // Return the number of batches of all processes in a pass, and the highest number of steps of a
    // process. Both are nullopt if unknown.
    std::optional<std::int64_t> whole_len() const;
    std::optional<std::int64_t> steps() const { return steps(parts()); }
    std::optional<std::int64_t> steps(std::int64_t parts) const;
    std::optional<std::int64_t> num_samples() const;  // nullopt if unknown
    std::int64_t processes() const { return shard_ ? shard_->num_processes : 1; }
    // Return the number of parts of a pass: if processes read their own shards, the number of
    // processes that began the pass, otherwise 1.
    std::int64_t own_parts() const;  // the number for a pass that begins now
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
    // Calls f. If f throws, calls failed() of the hooks and rethrows.
    template <class F>
    void notify_on_failure(F&& f);
    // Reads the next batch into current_. If there is none, ends the pass and returns false.
    bool advance();
    void finish(bool complete) noexcept;

    std::shared_ptr<const Dataset> dataset_;
    std::shared_ptr<const IterableDataset> iterable_;
    std::shared_ptr<const BatchSampler> whole_,
        own_;  // the batches of all processes, and the batches of this process
    std::int64_t iterable_batch_size_ = 0;
    bool iterable_drop_last_ = false;
    std::unique_ptr<BatchMaker> batch_maker_;  // null after a move
    std::optional<ShardOptions> shard_;
    std::shared_ptr<Dispatch> dispatch_;
    std::unique_ptr<Prefetcher> prefetcher_;  // null if num_workers is 0
    std::shared_ptr<LoaderHooks> hooks_;

    std::int64_t epoch_ = 0;
    std::int64_t position_ = 0;
    // If the pass was resumed, the number of parts with which it began.
    std::optional<std::int64_t> resumed_parts_;
    // The members below are the state of the running pass.
    bool running_ = false;
    bool has_steps_ = false;  // whether the pass has a step for any process
    std::unique_ptr<Feed> feed_;
    Batch current_;
};

// An iterator over the batches of a pass. The destructor, or an exception in operator++, ends the
// pass. A batch is valid until the next increment; its tensors are valid while they are referenced.
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
        Iterator going(std::move(*this));  // an exception ends the pass
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

// A view of a loader that skips the first batches in every pass, as accelerate.skip_first_batches.
// Loops over the loader itself are not affected. Skipped samples are not read, except from a stream
// that does not implement skip().
//     for (auto& batch : data::skip_first_batches(loader, 100)) ...
class SkipDataLoader {
  public:
    // The loader must outlive the view. Throws ValueError if num_batches is negative.
    SkipDataLoader(DataLoader& loader, std::int64_t num_batches);
    DataLoader::Iterator begin();
    std::default_sentinel_t end() const { return {}; }
    // Returns the number of batches in a pass. Throws ValueError if the loader has fewer batches
    // than are skipped.
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
