// DataLoader: the batches of a dataset, in one or more passes. Also declares its hooks and options.
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
#include <vector>

#include "core/memory/owning_ptr.h"
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
struct SavedPosition;

// Functions that a loader calls on the thread of the loop: during a pass, and when it is moved or
// destroyed. Accelerator::prepare sets them.
struct LoaderHooks {
    virtual ~LoaderHooks() = default;
    // Called at the start of a pass, before samples are read. May change the seed of the generator.
    virtual void begin(DataLoader& loader) = 0;
    // Returns the feed from which the loop gets its batches. `own` yields the batches that this
    // process reads.
    virtual std::unique_ptr<Feed> feed(DataLoader& loader, std::unique_ptr<Feed> own);
    // Called with every batch before the loop gets the batch. May modify the batch, for example to
    // move its tensors to a device. end_of_dataloader() is already valid for this batch.
    virtual void batch(DataLoader& loader, Tree& batch) = 0;
    // Called before end() if starting a pass, producing a batch, or batch() has thrown an
    // exception, but not after an exception of begin() or feed(). `why` is the message of the
    // exception.
    virtual void failed(DataLoader&, const char* /*why*/) {}
    // Called at the end of every pass, even if the loop was left early or an exception was thrown.
    virtual void end(DataLoader& loader) noexcept = 0;
    // Called when the loader is destroyed or its hooks are replaced or removed.
    virtual void detached(const DataLoader&) noexcept {}
    // Called after the loader `from` was moved to `to`. The hooks are then attached to `to`.
    virtual void moved(const DataLoader& /*from*/, DataLoader& /*to*/) noexcept {}
};

// The options of a DataLoader, in PyTorch's order.
struct LoaderOptions {
    std::int64_t batch_size = 1;
    // If true, samples are in random order (RandomSampler with `seed`).
    bool shuffle = false;
    std::shared_ptr<const Sampler> sampler = {};  // the order of samples, in place of shuffle
    // The samples of each batch, in place of batch_size, shuffle, sampler and drop_last.
    std::shared_ptr<const BatchSampler> batch_sampler = {};
    // The number of threads that produce batches in advance. If it is 0, the thread of the loop
    // produces the batches. The batches do not depend on this number.
    int num_workers = 0;
    Collate collate_fn = {};  // used instead of Dataset::get_batch() or collate()
    // If true, copies batches to page-locked memory, which a GPU can copy asynchronously. Ignored
    // if there is no GPU.
    bool pin_memory = false;
    bool drop_last = false;
    // The maximum time in seconds that the loop waits for a batch of the workers; 0 means no limit.
    // Must be 0 if num_workers is 0. After this time the loop throws Error. A program can catch it
    // and start the pass again. A thread cannot be killed, so the next pass and the destructor of
    // the loader wait until the workers have returned from the dataset.
    double timeout = 0;
    // Called once on each worker thread, with the number of the worker in [0, num_workers), before
    // the worker produces batches. An exception is rethrown in the loop. Not called if num_workers
    // is 0.
    std::function<void(int worker)> worker_init_fn = {};
    // The number of batches that each worker produces in advance; 2 if unset. Must be unset if
    // num_workers is 0.
    std::optional<int> prefetch_factor = {};
    // Whether the worker threads continue after a pass. If false, each pass starts new threads,
    // which call worker_init_fn again. If unset, threads continue, because idle threads are cheap.
    // (PyTorch's workers are processes, and its default is false.) Must not be true if num_workers
    // is 0.
    std::optional<bool> persistent_workers = {};
    // The seed of shuffle. If unset, the constructor uses the seed of the default generator
    // (manual_seed).
    std::optional<std::uint64_t> seed = {};
    // If false, the constructor throws ValueError for a dataset of size 0, for a batch_sampler
    // without batches, and with drop_last for fewer samples than batch_size, because a loop over
    // the loader would silently do nothing. The check does not consider the number of processes.
    bool allow_empty = false;
    // If true, load_state_dict() accepts a state although the dataset is smaller now, or has grown
    // and the pass cannot be continued. The pass then starts again from its first batch. If false,
    // load_state_dict() throws.
    bool restart_if_resized = false;
};

// Iterates over the batches of a dataset. A pass reads the samples of the current epoch, in the
// order of the sampler or of the iterable dataset. A complete pass increments the epoch, unless the
// loader has no batches. If a loop ends early (break, return, exception), the next pass starts the
// same epoch from its first batch.
//
// With iterable datasets, the samples are read in order by one thread at a time, at least one batch
// in advance; only collating uses all num_workers threads. Put expensive work into collate_fn.
//
// With several processes, each process reads its own batches (shard()), or one process reads all
// batches and distributes them (dispatch()). A step consists of the batches that all processes get
// at the same time. If an iterable dataset has enough shards and split_batches is false, each
// process reads its own shards.
//
// If the loader is destroyed in the loop body, the current batch stays valid, and the next
// increment throws UsageError. An exception of the dataset is rethrown in the loop (rethrow_from())
// with the number of the batch and, if samples are read one by one, the number of the sample. The
// loader can be used again after an exception. Workers do not access the dataset between passes,
// except after a timeout. Not thread-safe. Only one pass can run at a time.
class DataLoader {
  public:
    class Iterator;

    // A dataset passed by reference must outlive the loader, unless it has Dataset::share(), as
    // Table; a temporary is moved into the loader. Throws UsageError for a null dataset, and
    // ValueError if options contradict each other or are out of range, or, unless allow_empty is
    // true, in the cases of that option. (An iterable dataset of unknown size is not checked.)
    explicit DataLoader(const Dataset& dataset, const LoaderOptions& options = {});
    explicit DataLoader(std::shared_ptr<const Dataset> dataset, const LoaderOptions& options = {});
    explicit DataLoader(const IterableDataset& dataset, const LoaderOptions& options = {});
    explicit DataLoader(std::shared_ptr<const IterableDataset> dataset,
                        const LoaderOptions& options = {});
    template <class D>
        requires(std::derived_from<D, Dataset> && !std::is_const_v<D>)
    // NOLINTNEXTLINE(bugprone-forwarding-reference-overload): D is never a reference
    explicit DataLoader(D&& dataset, const LoaderOptions& options = {})
        : DataLoader(std::shared_ptr<const Dataset>(std::make_shared<D>(std::forward<D>(dataset))),
                     options) {}
    template <class D>
        requires(std::derived_from<D, IterableDataset> && !std::is_const_v<D>)
    // NOLINTNEXTLINE(bugprone-forwarding-reference-overload): D is never a reference
    explicit DataLoader(D&& dataset, const LoaderOptions& options = {})
        : DataLoader(
              std::shared_ptr<const IterableDataset>(std::make_shared<D>(std::forward<D>(dataset))),
              options) {}
    ~DataLoader();
    // A loader can be moved between passes, for example to return it from a function. A prepared
    // loader stays prepared. Views of data::skip_first_batches() still refer to `other`. After the
    // move, `other` must only be destroyed or assigned to. Throws UsageError during a pass of
    // either loader.
    DataLoader(DataLoader&& other);             // NOLINT: throws
    DataLoader& operator=(DataLoader&& other);  // NOLINT: throws
    DataLoader(const DataLoader&) = delete;
    DataLoader& operator=(const DataLoader&) = delete;

    // Starts a pass and produces its first batch. Throws UsageError if a pass is running or the
    // loader was moved from.
    Iterator begin();
    std::default_sentinel_t end() const { return {}; }
    // Returns the number of batches that this process gets in a full pass. Throws UsageError if the
    // size of the iterable dataset is unknown or the loader was moved from.
    std::int64_t len() const;
    // Return the batch size of this process, and the sum of the batch sizes of all processes. Both
    // are 0 if the batch size varies.
    std::int64_t batch_size() const;
    std::int64_t total_batch_size() const;
    bool drop_last() const;
    bool pin_memory() const;  // false without a GPU
    // Returns the number of samples of the dataset. Throws UsageError if it is unknown or the
    // loader was moved from.
    std::int64_t total_dataset_length() const;

    // --- in the loop body
    // Returns whether the current batch is the last batch of the pass. Returns false outside a
    // pass.
    bool end_of_dataloader() const;
    // Returns the number of samples of all processes in the last step of the pass, or 0 if that
    // step is full. Returns -1 outside a pass, with drop_last, and while the number is unknown.
    // With dispatch() or micro-batches, or if processes read their own shards, the number is known
    // only in the last step. As in Accelerate, it is then also returned with drop_last, and for a
    // full step instead of 0.
    std::int64_t remainder() const;
    // Return the number of samples in the current batch of this process, and the number of valid
    // samples. The valid samples come first; the remaining ones are repetitions that fill the
    // batch. Both are 0 outside a pass. Use valid_samples() for metrics.
    std::int64_t batch_samples() const;
    std::int64_t valid_samples() const;

    // --- position and state
    // Returns the epoch of the running pass, or of the next pass if none is running.
    std::int64_t epoch() const { return epoch_; }
    // Returns the number of batches that the running pass has yielded or skipped. If no pass is
    // running, returns the number of batches that the next pass skips.
    std::int64_t position() const { return position_; }
    // Sets the epoch of the next pass. If the epoch changes, sets the position to 0. Throws
    // UsageError during a pass.
    void set_epoch(std::int64_t epoch);
    // Makes the next pass start at batch n, without producing the batches before it. Later passes
    // are not affected. If there is no batch n, the next pass has no batches. Throws ValueError if
    // n is negative, and UsageError during a pass.
    void skip_first_batches(std::int64_t n);
    // Returns the position and the seed of the order. A state that was saved in the loop body of
    // batch k resumes at batch k + 1, or at the next epoch after the last batch. A loader with the
    // same total batch size can load the state with any number of processes. A loader with another
    // total batch size can load it if the dataset is not iterable and the number of read samples is
    // a multiple of this size. If processes read their own shards, one of two numbers must divide
    // the other: the processes that began the pass, and the processes that load the state.
    Tree state_dict() const;
    // Loads a state from state_dict(). The dataset may have grown: a pass then continues with the
    // unread samples, in an order of the larger dataset (Sampler::grown()). The process with index
    // 0 then logs a warning. Throws ValueError if the total batch size does not fit, if the dataset
    // is smaller or its sampler does not support growth within a pass (unless restart_if_resized is
    // set), if this loader cannot resume at the position, or if a value in the state is invalid;
    // IndexError if an entry of the state is missing; and UsageError during a pass or if the loader
    // was moved from.
    void load_state_dict(const Tree& state);

    // --- for code that prepares the loader
    // Return the dataset. dataset() returns nullptr for an iterable dataset, and iterable_dataset()
    // returns nullptr for other datasets.
    const Dataset* dataset() const { return dataset_.get(); }
    const IterableDataset* iterable_dataset() const { return iterable_.get(); }
    // Returns the generator of the sampler, the batch sampler or the iterable dataset, or nullptr
    // if the order is not random.
    std::shared_ptr<Generator> generator() const;
    // Returns the batch sampler for all processes, or nullptr for an iterable dataset.
    const std::shared_ptr<const BatchSampler>& batch_sampler() const { return whole_; }
    // Replaces the batch sampler for all processes. Throws UsageError if it is null, if the dataset
    // is iterable, or during a pass; and ValueError if its batch size does not fit the options of
    // shard() (check_shard()).
    void set_batch_sampler(std::shared_ptr<const BatchSampler> batch_sampler);
    // Makes the next and all later passes read only the batches of one process. If `options` is
    // nullopt, the passes read all batches and have no micro-batches. Throws ValueError if options
    // are invalid (check_shard()), and UsageError during a pass.
    void shard(std::optional<ShardOptions> options);
    // Makes the next and all later passes get their batches from `dispatch`, which distributes the
    // batches that one process reads. Ignores even_batches. Throws the errors of shard(), and
    // UsageError if `dispatch` is null.
    void dispatch(std::shared_ptr<Dispatch> dispatch, ShardOptions options);
    const std::optional<ShardOptions>& shard_options() const { return shard_; }
    bool is_dispatched() const { return dispatch_ != nullptr; }
    // Returns whether processes read their own shards. If they do, their numbers of batches may
    // differ.
    bool reads_own_shards() const { return parts() > 1 && processes() > 1; }
    // Returns whether all processes must have the same number of steps although they read their own
    // shards. If true, LoaderHooks::feed() must add or drop batches.
    bool needs_even_steps() const { return reads_own_shards() && parts_need_even_steps(parts()); }
    // Returns a feed of all batches of the pass, starting at first_batch. Only a Dispatch may call
    // this function, on the process that reads the batches for all processes.
    std::unique_ptr<Feed> read_whole(std::int64_t first_batch);
    // Sets the number of micro-batches that LoaderHooks::feed() makes of each batch. Positions and
    // len() count micro-batches, and the feed must skip the first position() % n micro-batches.
    // Throws ValueError unless n is at least 1 and divides the number of processes, and UsageError
    // during a pass.
    void set_micro_batches(std::int64_t n);
    std::int64_t micro_batches() const { return micro_batches_; }
    // Sets the epoch of the pass that is starting. Only LoaderHooks::begin() may call this
    // function; throws UsageError otherwise.
    void begin_epoch(std::int64_t epoch);
    // Sets the hooks, or removes them if `hooks` is null. Calls detached() of the previous hooks.
    void set_hooks(std::shared_ptr<LoaderHooks> hooks);
    const std::shared_ptr<LoaderHooks>& hooks() const { return hooks_; }

  private:
    class OwnFeed;
    // The state of the running pass. The iterator owns it too, so that the batch stays valid if the
    // loader is destroyed in the loop body.
    struct Pass;

    explicit DataLoader(LoaderOptions&& options);  // for the public constructors
    void check_idle(const char* what) const;
    void check_not_moved(const char* what) const;
    void take(DataLoader& other);
    // Return the number of batches of all processes in a pass (whole_len()), and the highest number
    // of steps of a process (steps()). Return nullopt if the number is unknown.
    std::optional<std::int64_t> whole_len() const;
    std::optional<std::int64_t> steps() const { return steps(parts()); }
    // Returns the highest number of micro-batches of a process, or nullopt if it is unknown.
    std::optional<std::int64_t> micro_steps(std::int64_t parts) const;
    std::optional<std::int64_t> steps(std::int64_t parts) const;
    std::optional<std::int64_t> num_samples() const;  // nullopt if unknown
    std::int64_t processes() const { return shard_ ? shard_->num_processes : 1; }
    // Return the number of parts of a pass (data/loading/own_shards.h): if processes read their own
    // shards, the number of processes that began the pass, otherwise 1. own_parts() assumes that
    // the pass begins now; parts() considers a resumed pass.
    std::int64_t own_parts() const;
    std::int64_t parts() const { return resumed_parts_ ? *resumed_parts_ : own_parts(); }
    // Returns the sum of the samples of all processes in a micro-batch; 0 if it varies.
    std::int64_t micro_step_size() const { return total_batch_size() / micro_batches_; }
    bool fits_parts(std::int64_t parts) const;
    bool parts_need_even_steps(std::int64_t parts) const;
    Parts parts_read(std::int64_t parts, bool by_all) const;
    // Returns position(), limited to the length of a pass.
    std::int64_t reachable_position() const;
    void set_position(std::int64_t position, std::optional<std::int64_t> parts = {}) noexcept;
    void convert_varying_batches(SavedPosition& saved) const;
    std::shared_ptr<const BatchSampler> continue_resized(SavedPosition& saved) const;
    // Returns the batches of this process.
    std::shared_ptr<const BatchSampler> own_batches(
        const std::shared_ptr<const BatchSampler>& whole) const;
    std::shared_ptr<BatchSource> source(const std::shared_ptr<const BatchSampler>& batches,
                                        std::shared_ptr<const IterableDataset> iterable,
                                        std::int64_t batch_size, std::int64_t first) const;
    std::unique_ptr<Feed> read_share();
    // Calls f. If f throws, calls failed() of the hooks and rethrows.
    template <class F>
    void notify_on_failure(F&& f);
    // Reads the next batch into pass_->current and returns true. After the last batch, ends the
    // pass and returns false.
    bool advance();
    void finish(bool complete) noexcept;

    std::shared_ptr<const Dataset> dataset_;
    std::shared_ptr<const IterableDataset> iterable_;
    std::shared_ptr<const BatchSampler> whole_;  // the batches of all processes
    std::shared_ptr<const BatchSampler> own_;    // the batches of this process
    std::int64_t iterable_batch_size_ = 0;
    bool iterable_drop_last_ = false;
    bool restart_if_resized_ = false;
    std::int64_t micro_batches_ = 1;
    OwningPtr<BatchMaker> batch_maker_;  // null after a move
    std::optional<ShardOptions> shard_;
    std::shared_ptr<Dispatch> dispatch_;
    OwningPtr<Prefetcher> prefetcher_;  // null if num_workers is 0
    std::shared_ptr<LoaderHooks> hooks_;

    std::int64_t epoch_ = 0;
    std::int64_t position_ = 0;
    // The number of parts of a resumed pass; nullopt if the next or running pass starts anew.
    std::optional<std::int64_t> resumed_parts_;
    // The growths of the dataset during the next or running pass, and the batches of all processes
    // in this pass. Empty and null if the dataset has not grown.
    std::vector<Growth> growths_;
    std::shared_ptr<const BatchSampler> grown_;
    std::shared_ptr<Pass> pass_;  // null if no pass is running
};

// An iterator over the batches of a pass. The destructor, or an exception in operator++, ends the
// pass. A reference to a batch is valid until the next increment; copies of its tensors stay valid.
class DataLoader::Iterator {
  public:
    using value_type = Tree;
    using difference_type = std::ptrdiff_t;

    Iterator(Iterator&& other) noexcept = default;
    Iterator& operator=(Iterator&& other) noexcept {
        pass_.swap(other.pass_);
        return *this;
    }
    ~Iterator();

    // The operators throw UsageError at the end of the pass and if the iterator was moved from.
    Tree& operator*() const;
    Tree* operator->() const { return &**this; }
    // Throws UsageError also if the loader was destroyed.
    Iterator& operator++();
    void operator++(int) { ++*this; }
    friend bool operator==(const Iterator& it, std::default_sentinel_t) { return !it.pass_; }

  private:
    friend class DataLoader;
    explicit Iterator(std::shared_ptr<Pass> pass);
    void check_not_at_end(const char* op) const;

    std::shared_ptr<Pass> pass_;  // null at the end
};

// A view of a loader that skips the first batches in every pass (accelerate.skip_first_batches).
// Loops over the loader itself are not affected. Skipped samples are not read, except from a Stream
// that does not override skip(), and except samples that may be repeated to fill the last step.
//     for (auto& batch : data::skip_first_batches(loader, 100)) ...
class SkipDataLoader {
  public:
    // The loader must outlive the view. Throws ValueError if num_batches is negative.
    SkipDataLoader(DataLoader& loader, std::int64_t num_batches);
    DataLoader::Iterator begin();
    std::default_sentinel_t end() const { return {}; }
    // Returns the number of batches in a pass. Throws ValueError if the loader has fewer than
    // num_batches batches, and the UsageError of DataLoader::len().
    std::int64_t len() const;
    DataLoader& loader() const { return *loader_; }

  private:
    DataLoader* loader_;
    std::int64_t num_batches_;
};

// Returns a SkipDataLoader. Throws ValueError if num_batches is negative.
inline SkipDataLoader skip_first_batches(DataLoader& loader, std::int64_t num_batches = 0) {
    return {loader, num_batches};
}

}  // namespace axle::data
