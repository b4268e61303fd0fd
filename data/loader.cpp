#include "data/loader.h"

#include <algorithm>

#include "core/cuda.h"
#include "core/profiler.h"
#include "data/prefetch.h"
#include "kernels/error.h"

namespace axle::inline v0::data {
namespace {

void check_options(const LoaderOptions& options) {
    if (options.num_workers < 0)
        throw ValueError(
            str("DataLoader: num_workers must not be negative: ", options.num_workers));
    if (options.prefetch_factor < 1)
        throw ValueError(
            str("DataLoader: prefetch_factor must be positive: ", options.prefetch_factor));
    if (options.sampler && options.shuffle)
        throw ValueError("DataLoader: give a sampler or shuffle, not both");
    const bool grouped =
        options.batch_size != 1 || options.shuffle || options.sampler || options.drop_last;
    if (options.batch_sampler && grouped)
        throw ValueError(
            "DataLoader: a batch_sampler takes the place of batch_size, shuffle, sampler "
            "and drop_last");
}

std::shared_ptr<const BatchSampler> make_batch_sampler(const Dataset& dataset,
                                                       const LoaderOptions& options) {
    if (options.batch_sampler) return options.batch_sampler;
    std::shared_ptr<const Sampler> sampler = options.sampler;
    if (!sampler && options.shuffle) {
        sampler = std::make_shared<RandomSampler>(dataset.size(),
                                                  RandomSamplerOptions{.seed = options.seed});
    } else if (!sampler) {
        sampler = std::make_shared<SequentialSampler>(dataset.size());
    }
    return std::make_shared<FixedBatchSampler>(sampler, options.batch_size, options.drop_last);
}

}  // namespace

DataLoader::DataLoader(const Dataset& dataset, LoaderOptions options)
    : DataLoader(std::shared_ptr<const Dataset>(std::shared_ptr<void>(), &dataset),
                 std::move(options)) {}

DataLoader::DataLoader(std::shared_ptr<const Dataset> dataset, LoaderOptions options)
    : dataset_(std::move(dataset)), seed_(options.seed) {
    if (!dataset_) throw UsageError("DataLoader: there is no dataset");
    check_options(options);
    batch_sampler_ = make_batch_sampler(*dataset_, options);
    collate_fn_ = std::move(options.collate_fn);
    pin_memory_ = options.pin_memory && cuda::is_available();
    if (options.num_workers == 0) return;
    const auto capacity = static_cast<std::size_t>(options.num_workers) *
                          static_cast<std::size_t>(options.prefetch_factor);
    prefetcher_ = std::make_unique<Prefetcher>(options.num_workers, capacity);
}

DataLoader::~DataLoader() = default;

DataLoader::Iterator DataLoader::begin() {
    check_idle("begin");
    end_ = len();
    order_ = batch_sampler_->order(epoch_);
    seen_ = dataset_->in_epoch(epoch_);
    position_ = std::min(position_, end_);
    running_ = true;
    Iterator first(this);  // from here on, an exception leaves the pass
    if (gate_ != nullptr) gate_->begin(*this);
    if (prefetcher_ && position_ < end_)
        prefetcher_->start([this](std::int64_t number) { return make_batch(order_, number); },
                           position_, end_);
    ++first;
    return first;
}

Tree DataLoader::make_batch(const BatchOrder& order, std::int64_t number) const {
    const profiler::Scope scope("DataLoader.batch", profiler::Category::data);
    const Dataset& dataset = seen_ ? *seen_ : *dataset_;
    try {
        const std::vector<std::int64_t> indices = order(number);
        Tree batch =
            collate_fn_ ? collate_fn_(get_samples(dataset, indices)) : dataset.get_batch(indices);
        if (!pin_memory_) return batch;
        return map_tensors(batch, [](const Tensor& t) { return Tree(t.pin_memory()); });
    } catch (...) {
        rethrow_from(str("DataLoader: batch ", number));
    }
}

bool DataLoader::advance() {
    if (position_ == end_) {
        finish(true);
        return false;
    }
    const profiler::Scope scope("DataLoader.next", profiler::Category::data);
    current_ = Tree();  // so that its memory serves the next one
    current_ = prefetcher_ ? prefetcher_->next() : make_batch(order_, position_);
    ++position_;
    if (gate_ != nullptr) gate_->batch(*this, current_);
    return true;
}

void DataLoader::finish(bool complete) noexcept {
    if (prefetcher_) prefetcher_->stop();
    running_ = false;
    order_ = nullptr;
    seen_ = nullptr;
    current_ = Tree();
    position_ = 0;
    if (complete && end_ > 0) ++epoch_;
    if (gate_ != nullptr) gate_->end(*this);
}

void DataLoader::check_idle(const char* what) const {
    if (running_)
        throw UsageError(str("DataLoader: ", what,
                             " is not allowed during a pass: the loop over this "
                             "loader, or an iterator of it, still runs"));
}

void DataLoader::set_epoch(std::int64_t epoch) {
    check_idle("set_epoch");
    if (epoch != epoch_) position_ = 0;
    epoch_ = epoch;
}

void DataLoader::skip_first_batches(std::int64_t n) {
    check_idle("skip_first_batches");
    if (n < 0) throw ValueError(str("skip_first_batches: negative number of batches: ", n));
    position_ = n;
}

Tree DataLoader::state_dict() const {
    return Tree{{"epoch", epoch_},
                {"position", position_},
                {"batch_size", batch_size()},
                {"seed", static_cast<std::int64_t>(seed_)}};
}

void DataLoader::load_state_dict(const Tree& state) {
    check_idle("load_state_dict");
    const std::int64_t epoch = state["epoch"].integer();
    const std::int64_t position = state["position"].integer();
    const std::int64_t size = state["batch_size"].integer();
    const auto seed = static_cast<std::uint64_t>(state["seed"].integer());
    if (size != batch_size())
        throw ValueError(str("DataLoader: load_state_dict: batch sizes differ: saved ", size,
                             ", this loader has ", batch_size()));
    if (seed != seed_)
        throw ValueError(str("DataLoader: load_state_dict: seeds differ: saved ", seed,
                             ", this loader has ", seed_));
    if (position < 0 || position > len())
        throw ValueError(
            str("DataLoader: load_state_dict: no batch ", position, " in a pass of ", len()));
    const bool done = position == len() && position > 0;
    epoch_ = done ? epoch + 1 : epoch;
    position_ = done ? 0 : position;
}

void DataLoader::set_batch_sampler(std::shared_ptr<const BatchSampler> batch_sampler) {
    check_idle("set_batch_sampler");
    if (!batch_sampler) throw UsageError("DataLoader: set_batch_sampler: there is none");
    batch_sampler_ = std::move(batch_sampler);
}

}  // namespace axle::inline v0::data
