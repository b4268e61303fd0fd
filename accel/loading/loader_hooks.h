// Private to accel: the hooks of a prepared loader.
#pragma once

#include <memory>
#include <optional>
#include <utility>

#include "accel/loading/data_loader.h"
#include "accel/loading/sequence_feed.h"
#include "core/tree/tree.h"
#include "data/loading/loader.h"

namespace axle::accel {

// Synchronizes processes at the beginning of a pass, moves batches to the device, and reports
// errors to the other processes.
class PreparedLoaderHooks : public data::LoaderHooks {
  public:
    PreparedLoaderHooks(std::shared_ptr<dist::ProcessGroup> group, PrepareDataLoaderOptions options)
        : group_(std::move(group)), options_(std::move(options)) {}

    void begin(data::DataLoader& loader) override {
        has_feed_ = false;
        group_->set_leave_reason({});  // clears the reason set by an earlier pass that failed
        group_->set_missing_reason({});
        synchronize_rng_states(*group_, options_.rng_types, loader.generator().get());
        // Epochs differ if some processes left the last loop early. Therefore all processes
        // continue with the epoch of rank 0.
        if (group_->size() > 1)
            loader.begin_epoch(group_->broadcast_object(loader.epoch()).integer());
    }
    std::unique_ptr<data::Feed> feed(data::DataLoader& loader,
                                     std::unique_ptr<data::Feed> own) override;
    void batch(data::DataLoader& loader, Tree& batch) override {
        if (!options_.put_on_device || options_.device.is_cpu()) return;
        batch = map_tensors(batch, [&](const Tensor& t) {
            // A batch from another process is not pinned yet.
            const Tensor from = loader.pin_memory() && t.device().is_cpu() ? t.pin_memory() : t;
            return Tree(from.to(options_.device, options_.config.non_blocking));
        });
    }
    // Makes the processes of a group share the sequences of their batches. See SequenceSharing.
    void set_sequence_sharing(SequenceSharing sharing) { sharing_ = std::move(sharing); }
    bool shares_sequences() const { return sharing_.has_value(); }
    // Sets the reason that other processes report if they wait for a collective that this process
    // does not call.
    void failed(data::DataLoader& loader, const char* why) override {
        group_->set_leave_reason(why);
        const bool is_sent_by_feed = has_feed_ && (loader.is_dispatched() ||
                                                   loader.needs_even_steps() || shares_sequences());
        if (!is_sent_by_feed) group_->set_missing_reason(why);
    }
    void end(data::DataLoader&) noexcept override {}

    const PrepareDataLoaderOptions& options() const { return options_; }

  protected:
    std::shared_ptr<dist::ProcessGroup> group_;
    PrepareDataLoaderOptions options_;
    std::optional<SequenceSharing> sharing_;
    // Whether the feed of the pass exists. If the processes exchange data in the feed (dispatched
    // batches, even steps or shared sequences), the feed itself sends errors to the other
    // processes.
    bool has_feed_ = false;
};

// Shards the loader or sets a dispatcher, as the options require, and seeds the loader's generator
// if use_seedable_sampler is true. Does not set hooks. Throws ValueError for dispatch_batches
// without put_on_device, and for a mesh of other processes. Also throws the errors of
// DataLoader::shard(), with the process added to their text.
void shard_or_dispatch(data::DataLoader& loader, const std::shared_ptr<dist::ProcessGroup>& group,
                       const PrepareDataLoaderOptions& options);

}  // namespace axle::accel
