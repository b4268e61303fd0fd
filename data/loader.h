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
#include <type_traits>
#include <utility>

#include "core/tree.h"
#include "data/collate.h"
#include "data/dataset.h"
#include "data/sampler.h"

namespace axle::inline v0::data {

class DataLoader;
class Prefetcher;

// What an Accelerator does around a pass. Called on the loop's thread.
struct LoaderGate {
    virtual ~LoaderGate() = default;
    // Before the first batch is made.
    virtual void begin(DataLoader& loader) = 0;
    // With every batch before the loop sees it; end_of_dataloader() is already right. May change
    // the batch, mostly by moving its tensors to a device.
    virtual void batch(DataLoader& loader, Tree& batch) = 0;
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
    std::uint64_t seed = 0;
};

// A pass is one trip through the sampler's order of the current epoch, over the dataset as it is in
// that epoch (Dataset::in_epoch). A complete pass advances the epoch. A pass that is left early
// (break, return, exception) leaves no trace: the next one is the same epoch from its first batch.
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
    template <class D>
        requires(std::derived_from<D, Dataset> && !std::is_const_v<D>)
    explicit DataLoader(D&& dataset, LoaderOptions options = {})  // NOLINT: D is never a reference
        : DataLoader(std::shared_ptr<const Dataset>(std::make_shared<D>(std::forward<D>(dataset))),
                     std::move(options)) {}
    ~DataLoader();
    // Neither copied nor moved: loops and an Accelerator hold on to its address.
    DataLoader(const DataLoader&) = delete;
    DataLoader& operator=(const DataLoader&) = delete;

    // Starts a pass; UsageError while another one runs.
    Iterator begin();
    std::default_sentinel_t end() const { return {}; }
    // Batches of a full pass.
    std::int64_t len() const { return batch_sampler_->size(); }
    // Whether the loop body has the last batch of the pass.
    bool end_of_dataloader() const { return running_ && position_ == end_; }

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
    // of the last one at the next epoch.
    Tree state_dict() const;
    // ValueError if the saved position makes no sense for this loader: other batch size or seed, or
    // fewer batches.
    void load_state_dict(const Tree& state);

    // --- for what prepares it
    const Dataset& dataset() const { return *dataset_; }
    const std::shared_ptr<const BatchSampler>& batch_sampler() const { return batch_sampler_; }
    void set_batch_sampler(std::shared_ptr<const BatchSampler> batch_sampler);
    // 0 if it varies.
    std::int64_t batch_size() const { return batch_sampler_->batch_size(); }
    bool drop_last() const { return batch_sampler_->drop_last(); }
    // Null takes it away.
    void set_gate(std::shared_ptr<LoaderGate> gate) { gate_ = std::move(gate); }

  private:
    void check_idle(const char* what) const;
    Tree make_batch(const BatchOrder& order, std::int64_t number) const;
    // The next batch in current_, or false: the pass is complete and finished.
    bool advance();
    void finish(bool complete) noexcept;

    std::shared_ptr<const Dataset> dataset_;
    std::shared_ptr<const BatchSampler> batch_sampler_;
    Collate collate_fn_;
    bool pin_memory_ = false;
    std::uint64_t seed_;
    std::unique_ptr<Prefetcher> prefetcher_;  // null without workers
    std::shared_ptr<LoaderGate> gate_;

    std::int64_t epoch_ = 0;
    std::int64_t position_ = 0;
    // Of the running pass.
    bool running_ = false;
    std::int64_t end_ = 0;
    BatchOrder order_;
    std::shared_ptr<const Dataset> seen_;  // dataset_ in this epoch; null where all are alike
    Tree current_;
};

// Destroying it leaves the pass. A batch is valid until ++; its tensors are for keeps.
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

    Tree& operator*() const { return loader_->current_; }
    Tree* operator->() const { return &loader_->current_; }
    Iterator& operator++() {
        if (!loader_->advance()) loader_ = nullptr;
        return *this;
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

}  // namespace axle::inline v0::data
