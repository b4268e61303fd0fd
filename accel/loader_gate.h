// Private to accel: what happens around a pass over a prepared loader.
#pragma once

#include <memory>
#include <utility>

#include "accel/data_loader.h"
#include "core/tree.h"
#include "data/loader.h"

namespace axle::inline v0::accel {

class PreparedLoaderGate : public data::LoaderGate {
  public:
    PreparedLoaderGate(std::shared_ptr<dist::ProcessGroup> group, PrepareDataLoaderOptions options)
        : group_(std::move(group)), options_(std::move(options)) {}

    void begin(data::DataLoader& loader) override {
        group_->set_parting_words({});  // of a pass that failed before
        synchronize_rng_states(*group_, options_.rng_types, loader.generator().get());
        // A loop that some left early, and others at its end, has taken them to different epochs.
        if (group_->size() > 1)
            loader.begin_epoch(group_->broadcast_object(loader.epoch()).integer());
    }
    void batch(data::DataLoader&, Tree& batch) override {
        if (!options_.put_on_device || options_.device.is_cpu()) return;
        batch = map_tensors(batch, [&](const Tensor& t) {
            return Tree(t.to(options_.device, options_.config.non_blocking || t.is_pinned()));
        });
    }
    // Should this process end, as it likely does, the others learn why.
    void failed(data::DataLoader&, const char* why) override { group_->set_parting_words(why); }
    void end(data::DataLoader&) noexcept override {}

    const PrepareDataLoaderOptions& options() const { return options_; }

  protected:
    std::shared_ptr<dist::ProcessGroup> group_;
    PrepareDataLoaderOptions options_;
};

// Shards the loader or has it dispatched.
void share_out(data::DataLoader& loader, const std::shared_ptr<dist::ProcessGroup>& group,
               const PrepareDataLoaderOptions& options);

}  // namespace axle::inline v0::accel
