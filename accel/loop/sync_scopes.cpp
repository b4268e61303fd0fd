#include "accel/loop/sync_scopes.h"

#include <exception>
#include <utility>

#include "dist/parallel/data_parallel.h"
#include "dist/sequence/context_parallel.h"

namespace axle::accel {

NoSyncScope::NoSyncScope(Guards guards) : guards_(std::move(guards)) {}
NoSyncScope::~NoSyncScope() = default;

AccumulateScope::AccumulateScope(NoSyncScope::Guards guards, std::function<void()> at_end)
    : no_sync_(std::move(guards)),
      at_end_(std::move(at_end)),
      exceptions_(std::uncaught_exceptions()) {}

AccumulateScope::~AccumulateScope() noexcept(false) {
    if (at_end_ && std::uncaught_exceptions() == exceptions_) at_end_();
}

SyncScope::SyncScope(dist::DistributedModel* replicas)
    : replicas_(replicas), before_(replicas == nullptr || replicas->syncs()) {
    if (replicas_ != nullptr) replicas_->set_sync(true);
}

SyncScope::~SyncScope() {
    if (replicas_ != nullptr) replicas_->set_sync(before_);
}

JoinScope::JoinScope() = default;

JoinScope::JoinScope(OwningPtr<dist::Join> join,
                     std::function<void(std::optional<int> last)> at_end)
    : at_end_(std::move(at_end)), join_(std::move(join)) {}

JoinScope::~JoinScope() noexcept(false) {
    std::optional<int> last;
    try {
        if (join_) last = join_->finish();
    } catch (...) {
        if (at_end_) at_end_({});
        throw;
    }
    if (at_end_) at_end_(last);
}

ContextParallelScope::ContextParallelScope() = default;
ContextParallelScope::ContextParallelScope(OwningPtr<dist::ContextParallelScope> scope)
    : scope_(std::move(scope)) {}
ContextParallelScope::~ContextParallelScope() = default;

}  // namespace axle::accel
