// DataLoader: batches of a dataset, pass after pass.
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

namespace axle::inline v0::data {

class Prefetcher;
class BatchSource;
struct Parts;
struct BatchMaker;

// What an Accelerator does around a pass. Called on the loop's thread.
struct LoaderHooks {
    virtual ~LoaderHooks() = default;
    // Before anything of the pass is asked for: the sampler's seed may still change.
    virtual void begin(DataLoader& loader) = 0;
    // What the loop gets of the batches that this process reads.
    virtual std::unique_ptr<Feed> feed(DataLoader&, std::unique_ptr<Feed> own) { return own; }
    // With every batch before the loop sees it; end_of_dataloader() is already right. May change
    // the batch, mostly by moving its tensors to a device.
    virtual void batch(DataLoader& loader, Tree& batch) = 0;
    // A batch could not be had. end() follows.
    virtual void failed(DataLoader&, const char* /*why*/) {}
    // The pass is complete, was left, or threw.
    virtual void end(DataLoader& loader) noexcept = 0;
};

// In PyTorch's order.
struct LoaderOptions {
    std::int64_t batch_size = 1;
    // A RandomSampler with `seed`.
    bool shuffle = false;
    std::shared_ptr<const Sampler> sampler = {};  // instead of shuffle
    std::shared_ptr<const BatchSampler> batch_sampler =
        {};  // instead of all of the above, drop_last
    // Threads that make batches ahead; 0 makes them in the loop's own thread. Batches are the same.
    int num_workers = 0;
    Collate collate_fn = {};  // instead of Dataset::get_batch
    // Batches lie in page-locked memory, which a GPU copies while the program goes on. Nothing
    // where there is no GPU.
    bool pin_memory = false;
    bool drop_last = false;
    int prefetch_factor = 2;  // batches ahead, for each worker
    // Of shuffle; without it, that of the default generator when the loader is made (manual_seed).
    std::optional<std::uint64_t> seed = {};
};

// A pass is one trip through the sampler's order of the current epoch, over the dataset as it is in
// that epoch (Dataset::in_epoch), or through an iterable dataset's stream of that epoch. A complete
// pass advances the epoch. A pass that is left early (break, return, exception) leaves no trace:
// the next one is the same epoch from its first batch.
//
// Of an iterable dataset, one thread at a time reads samples in order, a batch ahead, and
// num_workers of them collate: what takes time is better done in collate_fn.
//
// On several processes, each reads its own share of the batches (shard()), or one reads all and
// hands out (dispatch()); a step is what all of them get at once. Of an iterable dataset with
// shards, a process's share is what its shards have, if there are enough of them and batches are
// not split.
//
// An exception of the dataset arrives in the loop with its type, the numbers of batch and sample
// before its text, and the loader can be used again. Between passes no worker touches the dataset.
// One thread at a time; one pass at a time.
class DataLoader {
  public:
    class Iterator;

    // The dataset must outlive the loader; a temporary moves in. Options that contradict each other
    // are ValueErrors.
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
    // Neither copied nor moved: loops and an Accelerator hold on to its address.
    DataLoader(const DataLoader&) = delete;
    DataLoader& operator=(const DataLoader&) = delete;

    // Starts a pass; UsageError while another one runs.
    Iterator begin();
    std::default_sentinel_t end() const { return {}; }
    // Batches of a full pass, of this process; UsageError for an iterable dataset of unknown size.
    std::int64_t len() const;
    // 0 if it varies. Of this process's batches, and of all processes' together.
    std::int64_t batch_size() const;
    std::int64_t total_batch_size() const;
    bool drop_last() const;
    bool pin_memory() const;  // false where there is no GPU
    // Samples of the dataset; UsageError if that is not known.
    std::int64_t total_dataset_length() const;

    // --- in the loop body
    // Whether this is the last batch of the pass. false outside.
    bool end_of_dataloader() const { return running_ && current_.last; }
    // How many samples the last step has for all processes together where it isn't full; 0 where it
    // is, -1 where that isn't known (yet), with drop_last, and outside. With dispatch(), and where
    // processes read shards of their own, it is known in the last step alone, and full steps count
    // too: as accelerate's.
    std::int64_t remainder() const;
    // Samples in this process's batch, and how many of them, the first ones, the pass has not had
    // before: the others only fill it up. What results are gathered and measured by.
    std::int64_t batch_samples() const { return current_.samples; }
    std::int64_t valid_samples() const { return current_.samples - current_.repeated; }

    // --- where it stands
    // That of the running pass, or of the next one.
    std::int64_t epoch() const { return epoch_; }
    // Batches handed out by the running pass, or those that the next one leaves out.
    std::int64_t position() const { return position_; }
    // Another epoch than the current one also forgets a position to resume from. Not during a pass
    // (UsageError), as all that follows but state_dict.
    void set_epoch(std::int64_t epoch);
    // The next pass, and only that, starts at batch n; the batches before it are not made. A pass
    // without any batch left is complete at once.
    void skip_first_batches(std::int64_t n);
    // Exact at any time: taken in the loop body of batch k it resumes at batch k + 1, taken in that
    // of the last step at the next epoch. Good for any number of processes with the same total
    // batch size; where they read shards of their own, for one that divides the number that began
    // the pass. The order's seed is part of it.
    Tree state_dict() const;
    // ValueError if the saved position makes no sense for this loader: another total batch size,
    // another number of samples.
    void load_state_dict(const Tree& state);

    // --- for what prepares it
    // Null for an iterable dataset, and the other way round.
    const Dataset* dataset() const { return dataset_.get(); }
    const IterableDataset* iterable_dataset() const { return iterable_.get(); }
    // That of the sampler, else the batch sampler's, else the iterable dataset's; null where
    // nothing is random.
    std::shared_ptr<Generator> generator() const;
    // Null for an iterable dataset. The one that was given, of all processes.
    const std::shared_ptr<const BatchSampler>& batch_sampler() const { return whole_; }
    void set_batch_sampler(std::shared_ptr<const BatchSampler> batch_sampler);
    // From the next pass on it reads one process's share, or, with nothing, all. ValueErrors of
    // check_shard().
    void shard(std::optional<ShardOptions> options);
    // From the next pass on batches come from `dispatch`, which hands out what one process reads;
    // even_batches is of no account.
    void dispatch(std::shared_ptr<Dispatch> dispatch, ShardOptions options);
    const std::optional<ShardOptions>& shard_options() const { return shard_; }
    bool is_dispatched() const { return dispatch_ != nullptr; }
    // Whether processes read shards of their own, of which one may have more than another.
    bool reads_own_shards() const { return parts() > 1 && processes() > 1; }
    // Whether these processes are to have as many steps: a gate's feed() sees to that.
    bool needs_even_steps() const { return reads_own_shards() && parts_need_even_steps(parts()); }
    // For a dispatch: what this process reads in a pass of the epoch, whole, from a batch on. One
    // at a time.
    std::unique_ptr<Feed> read_whole(std::int64_t first_batch);
    // For a gate's begin(): the pass that begins is of another epoch than epoch().
    void begin_epoch(std::int64_t epoch);
    // Null takes it away.
    void set_hooks(std::shared_ptr<LoaderHooks> hooks) { hooks_ = std::move(hooks); }

  private:
    class OwnFeed;

    explicit DataLoader(LoaderOptions&& options);  // what needs no dataset
    void check_idle(const char* what) const;
    // Batches of a pass of the whole dataset, and steps of a pass of the process that has most; if
    // known.
    std::optional<std::int64_t> whole_len() const;
    std::optional<std::int64_t> steps() const { return steps(parts()); }
    std::optional<std::int64_t> steps(std::int64_t parts) const;
    std::optional<std::int64_t> num_samples() const;  // if known
    std::int64_t processes() const { return shard_ ? shard_->num_processes : 1; }
    // Of a pass in which processes read shards of their own: as many as processes began it. Else 1.
    std::int64_t own_parts() const;  // of one that begins now
    std::int64_t parts() const { return resumed_parts_.value_or(own_parts()); }
    bool fits_parts(std::int64_t parts) const;
    bool parts_need_even_steps(std::int64_t parts) const;
    Parts parts_read(std::int64_t parts, bool by_all) const;
    // position(), but no farther than a pass can go.
    std::int64_t reachable_position() const;
    void go_to(std::int64_t position, std::optional<std::int64_t> parts = {});
    void update_own_batches();
    std::shared_ptr<BatchSource> source(const std::shared_ptr<const BatchSampler>& batches,
                                   std::shared_ptr<const IterableDataset> iterable,
                                   std::int64_t batch_size, std::int64_t first) const;
    std::unique_ptr<Feed> read_share();
    // Calls f; the gate hears of what it throws.
    template <class F>
    void notify_on_failure(F&& f);
    // The next batch in current_, or false: the pass is complete and finished.
    bool advance();
    void finish(bool complete) noexcept;

    std::shared_ptr<const Dataset> dataset_;
    std::shared_ptr<const IterableDataset> iterable_;
    std::shared_ptr<const BatchSampler> whole_, own_;  // of all processes, of this one
    std::int64_t iterable_batch_size_;
    bool iterable_drop_last_;
    std::unique_ptr<BatchMaker> batch_maker_;
    std::optional<ShardOptions> shard_;
    std::shared_ptr<Dispatch> dispatch_;
    std::unique_ptr<Prefetcher> prefetcher_;  // null without workers
    std::shared_ptr<LoaderHooks> hooks_;

    std::int64_t epoch_ = 0;
    std::int64_t position_ = 0;
    std::optional<std::int64_t> resumed_parts_;  // of the pass that the position is of
    // Of the running pass.
    bool running_ = false;
    bool has_steps_ = false;  // for some process, if not for this one
    std::unique_ptr<Feed> feed_;
    Batch current_;
};

// Destroying it leaves the pass, and so does an exception of ++, which brings it to its end. A
// batch is valid until ++; its tensors are for keeps.
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

// accelerate.skip_first_batches: a loader without its first batches, in every pass over this view.
// Loops over the loader itself are whole. Nothing that is skipped is read where the dataset has
// indices, or a stream that can skip.
//     for (auto& batch : data::skip_first_batches(loader, 100)) ...
class SkipDataLoader {
  public:
    // ValueError for a negative number. The loader must outlive the view.
    SkipDataLoader(DataLoader& loader, std::int64_t num_batches);
    DataLoader::Iterator begin();
    std::default_sentinel_t end() const { return {}; }
    // Batches of a pass, as Python's len(): ValueError where more is skipped than there is.
    std::int64_t len() const;
    DataLoader& loader() const { return *loader_; }

  private:
    DataLoader* loader_;
    std::int64_t num_batches_;
};

inline SkipDataLoader skip_first_batches(DataLoader& loader, std::int64_t num_batches = 0) {
    return {loader, num_batches};
}

}  // namespace axle::inline v0::data
