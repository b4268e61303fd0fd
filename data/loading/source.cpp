#include "data/loading/source.h"

#include <utility>

#include "core/profiler/profiler.h"
#include "kernels/error.h"
#include "kernels/failpoint.h"

namespace axle::data {

Tree BatchMaker::batch_of(std::vector<Tree>& samples) const {
    return pinned(collate_fn ? collate_fn(samples) : collate(samples));
}

Tree BatchMaker::pinned(Tree batch) const {
    if (!pin_memory) return batch;
    return map_tensors(batch, [](const Tensor& t) { return Tree(t.pin_memory()); });
}

OrderedSource::OrderedSource(std::shared_ptr<const Dataset> dataset, BatchOrder order,
                             BatchMaker batch_maker, std::int64_t first, std::int64_t end)
    : dataset_(std::move(dataset)),
      order_(std::move(order)),
      batch_maker_(std::move(batch_maker)),
      next_(first),
      end_(end) {}

bool OrderedSource::draw(BatchDraft& draft) {
    if (next_ >= end_) return false;
    draft.number = next_++;
    draft.last = next_ == end_;
    return true;
}

Batch OrderedSource::make(BatchDraft draft) const {
    const profiler::Scope scope("DataLoader.batch", profiler::Category::data);
    try {
        AXLE_FAILPOINT("loader: before a batch");
        const auto [indices, repeated] = order_(draft.number);
        Batch batch{.samples = std::ssize(indices), .repeated = repeated, .last = draft.last};
        if (batch_maker_.collate_fn) {
            std::vector<Tree> samples = get_samples(*dataset_, indices);
            batch.tree = batch_maker_.batch_of(samples);
        } else {
            batch.tree = batch_maker_.pinned(dataset_->get_batch(indices));
        }
        return batch;
    } catch (...) {
        rethrow_from(str("DataLoader: batch ", draft.number));
    }
}

StreamSource::StreamSource(std::shared_ptr<const IterableDataset> dataset, std::int64_t epoch,
                           std::int64_t batch_size, bool drop_last, BatchMaker batch_maker,
                           std::int64_t first)
    : dataset_(std::move(dataset)),
      epoch_(epoch),
      batch_size_(batch_size),
      drop_last_(drop_last),
      batch_maker_(std::move(batch_maker)),
      next_(first) {}

bool StreamSource::draw(BatchDraft& draft) {
    if (!stream_) {
        open();
        look_ahead();
    }
    if (error_) std::rethrow_exception(error_);
    if (ahead_.samples.empty()) return false;
    draft = std::exchange(ahead_, BatchDraft());
    if (std::ssize(draft.samples) == batch_size_) look_ahead();
    draft.last = ahead_.samples.empty() && !error_;
    return true;
}

void StreamSource::open() {
    try {
        stream_ = dataset_->stream(epoch_);
        if (next_ > 0) stream_->skip(next_ * batch_size_);
    } catch (...) {
        rethrow_from(str("DataLoader: stream of epoch ", epoch_));
    }
}

void StreamSource::look_ahead() noexcept {
    try {
        ahead_ = read();
    } catch (...) {
        error_ = std::current_exception();
    }
}

BatchDraft StreamSource::read() {
    BatchDraft draft{.number = next_};
    try {
        while (std::ssize(draft.samples) < batch_size_) {
            std::optional<Tree> sample = stream_->next();
            if (!sample) break;
            draft.samples.push_back(std::move(*sample));
            if (stream_->repeated()) ++draft.repeated;
        }
    } catch (...) {
        rethrow_from(
            str("DataLoader: batch ", next_, ": sample ", draft.samples.size(), " of the batch"));
    }
    if (drop_last_ && std::ssize(draft.samples) < batch_size_) draft.samples.clear();
    if (!draft.samples.empty()) ++next_;
    return draft;
}

Batch StreamSource::make(BatchDraft draft) const {
    const profiler::Scope scope("DataLoader.batch", profiler::Category::data);
    try {
        Batch batch{
            .samples = std::ssize(draft.samples), .repeated = draft.repeated, .last = draft.last};
        batch.tree = batch_maker_.batch_of(draft.samples);
        return batch;
    } catch (...) {
        rethrow_from(str("DataLoader: batch ", draft.number));
    }
}

}  // namespace axle::data
