#include "accel/loading/dispatcher.h"

#include <algorithm>
#include <exception>
#include <optional>
#include <string>
#include <utility>

#include "core/tree/tree_utils.h"
#include "dist/group/shared_error.h"
#include "kernels/error.h"

namespace axle::accel {
namespace {

constexpr const char* kDiffer =
    "dispatch_batches: the batches of a step can't be put together; use split_batches or "
    "dispatch_batches = false: ";

Tree joined(std::vector<Tree> batches) {
    if (batches.size() == 1) return std::move(batches.front());
    try {
        return concatenate(batches);
    } catch (const OutOfMemory&) {
        throw;
    } catch (const Error& error) {
        throw ShapeError(str(kDiffer, error.what()));
    }
}

// Returns the batch in a message, or nullopt for the message that ends the pass.
std::optional<data::Batch> unpacked(const Tree& message) {
    if (message.is_null()) return std::nullopt;
    return data::Batch{.tree = message["batch"],
                       .samples = message["samples"].integer(),
                       .repeated = message["repeated"].integer(),
                       .last = message["last"].boolean(),
                       .real_samples = message["real_samples"].integer()};
}

}  // namespace

// The feed of the main process. Only next() calls functions that can fail, because next() sends
// errors to the other processes.
class DataLoaderDispatcher::MainFeed : public data::Feed {
  public:
    MainFeed(const DataLoaderDispatcher& dispatcher, data::DataLoader& loader, std::int64_t steps)
        : dispatcher_(dispatcher),
          loader_(loader),
          steps_(steps),
          readers_(dispatcher.places_.front().count),
          batches_per_step_(dispatcher.split_batches_ ? 1 : readers_),
          pads_(!loader.drop_last() || loader.batch_size() == 0) {}

    std::optional<data::Batch> next() override {
        std::vector<Tree> parts(dispatcher_.places_.size());
        std::exception_ptr error;
        try {
            if (const std::optional<Step> step = next_step()) cut(*step, parts);
        } catch (...) {
            error = std::current_exception();
            parts.assign(parts.size(), Tree{{"error", dist::describe_error(error)}});
        }
        const bool alone = dispatcher_.group_->size() == 1;
        const Tree own = alone ? parts.front() : dispatcher_.group_->scatter_object(parts);
        if (error) std::rethrow_exception(error);
        return unpacked(own);
    }

  private:
    struct Step {
        Tree tree;
        bool complete = false;  // whether the step has all its batches
        bool last = false;
    };

    // Returns the next step, or nullopt at the end of the pass.
    std::optional<Step> next_step() {
        if (!raw_) open();
        if (ahead_error_) std::rethrow_exception(ahead_error_);
        std::optional<Step> step = ahead_ ? std::exchange(ahead_, std::nullopt) : read();
        if (!step || !loader_.drop_last()) return step;
        if (!step->complete) return std::nullopt;
        if (!step->last) read_ahead();
        step->last = !ahead_error_ && (!ahead_ || !ahead_->complete);
        return step;
    }

    // Reads the next step. An error is stored until the current step has been sent.
    void read_ahead() noexcept {
        try {
            ahead_ = read();
        } catch (...) {
            ahead_error_ = std::current_exception();
        }
    }

    // Opens the feed at the current position. An incomplete step is padded with rows of the first
    // step of the pass. If the pass begins at a later step, because it is resumed, these rows are
    // read first.
    void open() {
        if (steps_ > 0 && pads_) {
            raw_ = loader_.read_whole(0);
            for (std::int64_t step = 0; step < steps_ && head_.is_null(); ++step)
                if (const auto skipped = read()) keep_head(skipped->tree);
            raw_ = nullptr;  // a loader has one feed at a time
        }
        raw_ = loader_.read_whole(steps_ * batches_per_step_);
    }

    void keep_head(const Tree& tree) {
        const std::int64_t rows = find_batch_size(tree);
        if (rows > 0) head_ = slice_tensors(tree, 0, std::min(rows, readers_));
    }

    std::optional<Step> read() {
        std::vector<Tree> batches;
        Step step;
        while (std::ssize(batches) < batches_per_step_ && !step.last) {
            std::optional<data::Batch> batch = raw_->next();
            step.last = !batch || batch->last;
            if (batch) batches.push_back(std::move(batch->tree));
        }
        if (batches.empty()) return std::nullopt;
        step.complete = std::ssize(batches) == batches_per_step_;
        step.tree = joined(std::move(batches));
        return step;
    }

    // Divides a step into one slice per process. Processes that read the same data get the same
    // slice. Slices have equal sizes if pads_ is true; otherwise the last slices can be smaller or
    // empty.
    void cut(const Step& step, std::vector<Tree>& parts) {
        Tree tree = step.tree;
        const std::int64_t real = find_batch_size(tree);
        const std::int64_t share = (real + readers_ - 1) / readers_;
        std::int64_t rows = real;
        if (pads_) {
            if (head_.is_null()) keep_head(tree);
            for (; rows < share * readers_; rows += find_batch_size(head_))
                tree = concatenate({tree, head_});
            rows = share * readers_;
        }
        for (std::size_t rank = 0; rank < parts.size(); ++rank) {
            const int index = dispatcher_.places_[rank].index;
            const RowRange slice{std::min(index * share, rows),
                                 std::min((index + 1) * share, rows)};
            parts[rank] = {
                {"batch", dispatcher_.slice_fn_ ? dispatcher_.slice_fn_(tree, slice, index,
                                                                        static_cast<int>(readers_))
                                                : slice_tensors(tree, slice.begin, slice.end)},
                {"samples", slice.end - slice.begin},
                {"repeated", slice.end - std::clamp(real, slice.begin, slice.end)},
                {"last", step.last},
                {"real_samples", real}};
        }
    }

    const DataLoaderDispatcher& dispatcher_;
    data::DataLoader& loader_;
    std::int64_t steps_, readers_, batches_per_step_;
    bool pads_;  // whether steps that can't be split evenly are padded
    std::unique_ptr<data::Feed> raw_;
    std::optional<Step> ahead_;
    std::exception_ptr ahead_error_;
    Tree head_;  // rows of the first step of the pass for padding; null until they are read
};

// The feed of all processes except the main process: receives the batches from the main process.
class DataLoaderDispatcher::ReceivingFeed : public data::Feed {
  public:
    explicit ReceivingFeed(std::shared_ptr<dist::ProcessGroup> group) : group_(std::move(group)) {}

    std::optional<data::Batch> next() override {
        const Tree own = group_->scatter_object({});
        if (const Tree* error = own.is_null() ? nullptr : own.find("error"))
            dist::throw_described(*error, "dispatch_batches",
                                  str("process 0, which reads for process ", group_->rank()));
        return unpacked(own);
    }

  private:
    std::shared_ptr<dist::ProcessGroup> group_;
};

DataLoaderDispatcher::DataLoaderDispatcher(std::shared_ptr<dist::ProcessGroup> group,
                                           std::vector<DataRank> places, bool split_batches,
                                           SliceFn slice_fn)
    : group_(std::move(group)),
      places_(std::move(places)),
      split_batches_(split_batches),
      slice_fn_(std::move(slice_fn)) {}

std::unique_ptr<data::Feed> DataLoaderDispatcher::start(data::DataLoader& loader,
                                                        std::int64_t steps) {
    if (group_->rank() != 0) return std::make_unique<ReceivingFeed>(group_);
    return std::make_unique<MainFeed>(*this, loader, steps);
}

}  // namespace axle::accel
