#include "data/loading/loader.h"

#include <algorithm>

#include "core/cuda.h"
#include "core/profiler/profiler.h"
#include "core/random.h"
#include "data/dataset_ref.h"
#include "data/loading/own_shards.h"
#include "data/loading/prefetch.h"
#include "data/loading/source.h"
#include "kernels/error.h"

namespace axle::data {
namespace {

void check_options(const LoaderOptions& options) {
    if (options.num_workers < 0)
        throw ValueError(
            str("DataLoader: num_workers must not be negative: ", options.num_workers));
    if (options.prefetch_factor && *options.prefetch_factor < 1)
        throw ValueError(
            str("DataLoader: prefetch_factor must be positive: ", *options.prefetch_factor));
    if (options.num_workers == 0 && options.prefetch_factor)
        throw ValueError(
            str("DataLoader: prefetch_factor needs num_workers above 0: prefetch_factor is ",
                *options.prefetch_factor, ", num_workers is 0"));
    if (!(options.timeout >= 0))
        throw ValueError(str("DataLoader: timeout must be at least 0: ", options.timeout));
    if (options.num_workers == 0 && options.timeout > 0)
        throw ValueError(str("DataLoader: timeout needs num_workers above 0: timeout is ",
                             options.timeout, ", num_workers is 0"));
    if (options.num_workers == 0 && options.persistent_workers.value_or(false))
        throw ValueError(
            "DataLoader: persistent_workers needs num_workers above 0: num_workers is 0");
    if (options.sampler && options.shuffle)
        throw ValueError(
            "DataLoader: shuffle cannot be combined with a sampler; shuffle the sampler's indices "
            "instead");
    const bool grouped =
        options.batch_size != 1 || options.shuffle || options.sampler || options.drop_last;
    if (options.batch_sampler && grouped)
        throw ValueError(str("DataLoader: batch_sampler cannot be combined with ",
                             options.batch_size != 1 ? "batch_size"
                             : options.shuffle       ? "shuffle"
                             : options.sampler       ? "sampler"
                                                     : "drop_last"));
}

void check_size(std::optional<std::int64_t> size, const LoaderOptions& options) {
    if (size == 0 && !options.allow_empty)
        throw ValueError(
            "DataLoader: the dataset is empty (its size is 0); check where its samples come from, "
            "or set allow_empty for a loader without batches");
}

// Throws ValueError if drop_last leaves no batches and allow_empty is false. `samples` and
// `batches` are the numbers for all processes.
void check_batches(std::int64_t samples, std::int64_t batches, const LoaderOptions& options) {
    if (batches == 0 && samples > 0 && options.drop_last && !options.allow_empty)
        throw ValueError(
            str("DataLoader: drop_last leaves no batch: there are ", samples,
                " samples, fewer than batch_size = ", options.batch_size,
                "; use a smaller batch_size, or set allow_empty for a loader without batches"));
}

std::shared_ptr<const BatchSampler> make_batch_sampler(const Dataset& dataset,
                                                       const LoaderOptions& options) {
    if (options.batch_sampler) return options.batch_sampler;
    std::shared_ptr<const Sampler> sampler = options.sampler;
    if (!sampler && options.shuffle) {
        const std::uint64_t seed = options.seed.value_or(generator_state().seed);
        sampler =
            std::make_shared<RandomSampler>(dataset.size(), RandomSamplerOptions{.seed = seed});
    } else if (!sampler) {
        sampler = std::make_shared<SequentialSampler>(dataset.size());
    }
    return std::make_shared<FixedBatchSampler>(sampler, options.batch_size, options.drop_last);
}

}  // namespace

class DataLoader::OwnFeed : public Feed {
  public:
    OwnFeed(std::shared_ptr<BatchSource> source, Prefetcher* prefetcher)
        : source_(std::move(source)), prefetcher_(prefetcher) {
        if (prefetcher_ != nullptr) prefetcher_->start(source_);
    }
    ~OwnFeed() override {
        if (prefetcher_ != nullptr) prefetcher_->stop();
    }
    OwnFeed(const OwnFeed&) = delete;
    OwnFeed& operator=(const OwnFeed&) = delete;

    std::optional<Batch> next() override {
        if (prefetcher_ != nullptr) return prefetcher_->next();
        BatchDraft draft;
        if (!source_->draw(draft)) return std::nullopt;
        return source_->make(std::move(draft));
    }

  private:
    std::shared_ptr<BatchSource> source_;
    Prefetcher* prefetcher_;
};

struct DataLoader::Pass {
    DataLoader* loader;      // null after the pass has ended
    bool has_steps = false;  // whether at least one process has batches in the pass
    std::unique_ptr<Feed> feed = {};
    Batch current = {};
};

std::unique_ptr<Feed> LoaderHooks::feed(DataLoader&, std::unique_ptr<Feed> own) { return own; }

DataLoader::DataLoader(LoaderOptions&& options)
    : iterable_batch_size_(options.batch_size),
      iterable_drop_last_(options.drop_last),
      restart_if_resized_(options.restart_if_resized) {
    check_options(options);
    batch_maker_ = make_owning<BatchMaker>(
        BatchMaker{std::move(options.collate_fn), options.pin_memory && cuda::is_available()});
    if (options.num_workers == 0) return;
    const auto capacity = static_cast<std::size_t>(options.num_workers) *
                          static_cast<std::size_t>(options.prefetch_factor.value_or(2));
    prefetcher_ = make_owning<Prefetcher>(
        Prefetcher::Options{.workers = options.num_workers,
                            .capacity = capacity,
                            .init = std::move(options.worker_init_fn),
                            .timeout = options.timeout,
                            .persistent = options.persistent_workers.value_or(true)});
}

DataLoader::DataLoader(const Dataset& dataset, const LoaderOptions& options)
    : DataLoader(DatasetRef(dataset).pointer(), options) {}

DataLoader::DataLoader(std::shared_ptr<const Dataset> dataset, const LoaderOptions& options)
    : DataLoader(LoaderOptions(options)) {
    if (!dataset) throw UsageError("DataLoader: the dataset must not be null");
    check_size(dataset->size(), options);
    dataset_ = std::move(dataset);
    whole_ = own_ = make_batch_sampler(*dataset_, options);
    if (options.batch_sampler && whole_->size() == 0 && !options.allow_empty)
        throw ValueError(
            "DataLoader: batch_sampler must have at least one batch: its size is 0; set "
            "allow_empty for a loader without batches");
    if (options.drop_last)
        check_batches(whole_->num_samples().value_or(0), whole_->size(), options);
}

DataLoader::DataLoader(const IterableDataset& dataset, const LoaderOptions& options)
    : DataLoader(IterableDatasetRef(dataset).pointer(), options) {}

DataLoader::DataLoader(std::shared_ptr<const IterableDataset> dataset, const LoaderOptions& options)
    : DataLoader(LoaderOptions(options)) {
    if (!dataset) throw UsageError("DataLoader: the dataset must not be null");
    if (options.shuffle || options.sampler || options.batch_sampler)
        throw ValueError(
            "DataLoader: shuffle, sampler and batch_sampler cannot be used with an iterable "
            "dataset; define the order of its samples in IterableDataset::stream()");
    if (options.batch_size < 1)
        throw ValueError(str("DataLoader: batch_size must be positive: ", options.batch_size));
    const auto size = dataset->size();
    check_size(size, options);
    if (size) check_batches(*size, *size / options.batch_size, options);
    iterable_ = std::move(dataset);
}

// Moving throws during a pass.
DataLoader::DataLoader(DataLoader&& other) { take(other); }  // NOLINT(*-noexcept-move-constructor)

DataLoader& DataLoader::operator=(DataLoader&& other) {  // NOLINT(*-noexcept-move-constructor)
    if (this == &other) return *this;
    check_idle("assignment");
    other.check_idle("moving");
    set_hooks(nullptr);
    take(other);
    return *this;
}

void DataLoader::take(DataLoader& other) {
    other.check_idle("moving");
    dataset_ = std::move(other.dataset_);
    iterable_ = std::move(other.iterable_);
    whole_ = std::move(other.whole_);
    own_ = std::move(other.own_);
    iterable_batch_size_ = other.iterable_batch_size_;
    iterable_drop_last_ = other.iterable_drop_last_;
    restart_if_resized_ = other.restart_if_resized_;
    micro_batches_ = other.micro_batches_;
    batch_maker_ = std::move(other.batch_maker_);
    shard_ = other.shard_;
    dispatch_ = std::move(other.dispatch_);
    prefetcher_ = std::move(other.prefetcher_);
    hooks_ = std::move(other.hooks_);
    epoch_ = other.epoch_;
    position_ = other.position_;
    resumed_parts_ = other.resumed_parts_;
    growths_ = std::move(other.growths_);
    grown_ = std::move(other.grown_);
    if (hooks_) hooks_->moved(other, *this);
}

DataLoader::~DataLoader() {
    if (pass_) finish(false);
    set_hooks(nullptr);
}

// --- properties

std::int64_t DataLoader::batch_size() const {
    const std::int64_t whole = whole_ ? whole_->batch_size() : iterable_batch_size_;
    return shard_ && shard_->split_batches ? whole / processes() : whole;
}

std::int64_t DataLoader::total_batch_size() const { return batch_size() * processes(); }

bool DataLoader::drop_last() const { return whole_ ? whole_->drop_last() : iterable_drop_last_; }

bool DataLoader::pin_memory() const { return batch_maker_->pin_memory; }

std::int64_t DataLoader::total_dataset_length() const {
    check_not_moved("total_dataset_length");
    if (dataset_) return dataset_->size();
    const auto size = iterable_->size();
    if (!size)
        throw UsageError(
            "DataLoader: total_dataset_length: the size of the iterable dataset is unknown; "
            "override its size()");
    return *size;
}

std::int64_t DataLoader::remainder() const {
    if (!pass_) return -1;
    const Batch& current = pass_->current;
    if (dispatch_ || parts() > 1 || micro_batches_ > 1)
        return current.last ? current.real_samples : -1;
    const auto samples = num_samples();
    if (drop_last() || !samples || total_batch_size() == 0) return -1;
    return *samples % total_batch_size();
}

std::shared_ptr<Generator> DataLoader::generator() const {
    check_not_moved("generator");
    return whole_ ? whole_->generator() : iterable_->generator();
}

// --- passes

DataLoader::Iterator DataLoader::begin() {
    check_idle("begin");
    check_not_moved("begin");
    pass_ = std::make_shared<Pass>(Pass{this});
    Iterator first(pass_);  // if an exception is thrown below, the destructor ends the pass
    if (hooks_ != nullptr) hooks_->begin(*this);
    notify_on_failure([&] { pass_->has_steps = steps().value_or(0) > 0; });
    position_ = reachable_position();
    std::unique_ptr<Feed>& feed = pass_->feed;
    notify_on_failure([&] {
        feed = dispatch_ ? dispatch_->start(*this, position_ / micro_batches_) : read_share();
    });
    if (hooks_ != nullptr) feed = hooks_->feed(*this, std::move(feed));
    ++first;
    return first;
}

std::unique_ptr<Feed> DataLoader::read_share() {
    auto iterable = iterable_;
    if (parts() > 1)
        iterable = std::make_shared<OwnShards>(*iterable_, parts_read(parts(), false));
    else if (iterable && shard_)
        iterable = std::make_shared<IterableDatasetShard>(iterable_, iterable_batch_size_,
                                                          iterable_drop_last_, *shard_);
    return std::make_unique<OwnFeed>(
        source(grown_ ? own_batches(grown_) : own_, std::move(iterable), batch_size(),
               position_ / micro_batches_),
        prefetcher_.get());
}

template <class F>
void DataLoader::notify_on_failure(F&& f) {
    try {
        f();
    } catch (const std::exception& error) {
        if (hooks_ != nullptr) hooks_->failed(*this, error.what());
        throw;
    }
}

std::unique_ptr<Feed> DataLoader::read_whole(std::int64_t first_batch) {
    return std::make_unique<OwnFeed>(
        source(grown_ ? grown_ : whole_, iterable_, iterable_batch_size_, first_batch),
        prefetcher_.get());
}

std::shared_ptr<BatchSource> DataLoader::source(const std::shared_ptr<const BatchSampler>& batches,
                                                std::shared_ptr<const IterableDataset> iterable,
                                                std::int64_t batch_size, std::int64_t first) const {
    if (iterable)
        return std::make_shared<StreamSource>(std::move(iterable), epoch_, batch_size,
                                              iterable_drop_last_, *batch_maker_, first);
    auto dataset = dataset_->in_epoch(epoch_);
    return std::make_shared<OrderedSource>(dataset ? dataset : dataset_, batches->order(epoch_),
                                           *batch_maker_, first, batches->size());
}

bool DataLoader::end_of_dataloader() const { return pass_ && pass_->current.last; }

std::int64_t DataLoader::batch_samples() const { return pass_ ? pass_->current.samples : 0; }

std::int64_t DataLoader::valid_samples() const {
    return pass_ ? pass_->current.samples - pass_->current.repeated : 0;
}

void DataLoader::set_hooks(std::shared_ptr<LoaderHooks> hooks) {
    const auto before = std::exchange(hooks_, std::move(hooks));
    if (before && before != hooks_) before->detached(*this);
}

DataLoader::Iterator::Iterator(std::shared_ptr<Pass> pass) : pass_(std::move(pass)) {}

DataLoader::Iterator::~Iterator() {
    if (pass_ && pass_->loader != nullptr) pass_->loader->finish(false);
}

void DataLoader::Iterator::check_not_at_end(const char* op) const {
    if (!pass_)
        throw UsageError(str("DataLoader::Iterator: ", op,
                             ": the iterator is at the end of the pass or was moved from"));
}

Tree& DataLoader::Iterator::operator*() const {
    check_not_at_end("operator*");
    return pass_->current.tree;
}

DataLoader::Iterator& DataLoader::Iterator::operator++() {
    check_not_at_end("operator++");
    Iterator going(std::move(*this));  // if an exception is thrown, the destructor ends the pass
    if (going.pass_->loader == nullptr)
        throw UsageError(
            "DataLoader: the loader was destroyed during a pass; keep it until its loop has ended");
    if (!going.pass_->loader->advance()) going.pass_ = nullptr;
    return *this = std::move(going);
}

bool DataLoader::advance() {
    Batch& current = pass_->current;
    if (current.last) {
        finish(true);
        return false;
    }
    const profiler::Scope scope("DataLoader.next", profiler::Category::data);
    current = Batch();  // frees the memory, so that the next batch can use it
    std::optional<Batch> next;
    notify_on_failure([&] { next = pass_->feed->next(); });
    if (!next) {
        finish(true);
        return false;
    }
    current = std::move(*next);
    ++position_;
    if (hooks_ != nullptr) notify_on_failure([&] { hooks_->batch(*this, current.tree); });
    return true;
}

void DataLoader::finish(bool complete) noexcept {
    pass_->feed = nullptr;
    const std::shared_ptr<Pass> pass = std::move(pass_);
    pass->loader = nullptr;
    if (complete && (position_ > 0 || pass->has_steps)) ++epoch_;
    set_position(0);
    if (hooks_ != nullptr) hooks_->end(*this);
}

void DataLoader::check_idle(const char* what) const {
    if (pass_)
        throw UsageError(str("DataLoader: ", what,
                             " is not allowed during a pass: a loop over this loader or one of its "
                             "iterators is still active"));
}

void DataLoader::check_not_moved(const char* what) const {
    if (!batch_maker_)
        throw UsageError(
            str("DataLoader: ", what, ": this loader was moved to another object; use that one"));
}

void DataLoader::begin_epoch(std::int64_t epoch) {
    if (!pass_ || pass_->feed)
        throw UsageError("DataLoader: begin_epoch: only LoaderHooks::begin() can change the epoch");
    epoch_ = epoch;
}

}  // namespace axle::data
