// Scopes that say when processes average their gradients: what an Accelerator's methods return.
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "dist/parallel/data_parallel.h"

namespace axle::accel {

// While it lives, some models' gradients stay with this process.
class [[nodiscard]] NoSyncScope {
  public:
    using Guards = std::vector<std::unique_ptr<dist::NoSyncGuard>>;

    explicit NoSyncScope(Guards guards = {}) : guards_(std::move(guards)) {}
    ~NoSyncScope() = default;
    NoSyncScope(const NoSyncScope&) = delete;
    NoSyncScope& operator=(const NoSyncScope&) = delete;

  private:
    Guards guards_;
};

// Of accumulate(): the scope of one micro-batch.
class [[nodiscard]] AccumulateScope {
  public:
    AccumulateScope(NoSyncScope::Guards guards, std::function<void()> at_end)
        : no_sync_(std::move(guards)), at_end_(std::move(at_end)) {}
    // What at_end throws, unless an exception is under way.
    ~AccumulateScope() noexcept(false) {
        if (at_end_ && std::uncaught_exceptions() == exceptions_) at_end_();
    }
    AccumulateScope(const AccumulateScope&) = delete;
    AccumulateScope& operator=(const AccumulateScope&) = delete;

  private:
    NoSyncScope no_sync_;
    std::function<void()> at_end_;
    int exceptions_ = std::uncaught_exceptions();
};

// While it lives, a model's gradients are averaged although a scope around it says otherwise.
class [[nodiscard]] SyncScope {
  public:
    explicit SyncScope(dist::DataParallel* replicas)
        : replicas_(replicas), before_(replicas == nullptr || replicas->syncs()) {
        if (replicas_ != nullptr) replicas_->set_sync(true);
    }
    ~SyncScope() {
        if (replicas_ != nullptr) replicas_->set_sync(before_);
    }
    SyncScope(const SyncScope&) = delete;
    SyncScope& operator=(const SyncScope&) = delete;

  private:
    dist::DataParallel* replicas_;  // null for one process
    bool before_;
};

// While it lives, processes may have different numbers of batches.
class [[nodiscard]] JoinScope {
  public:
    JoinScope() = default;
    JoinScope(std::unique_ptr<dist::Join> join, std::function<void()> at_end)
        : at_end_(std::move(at_end)), join_(std::move(join)) {}
    // As dist::Join's, whose end this is.
    ~JoinScope() noexcept(false) {
        try {
            if (join_) join_->finish();
        } catch (...) {
            if (at_end_) at_end_();
            throw;
        }
        if (at_end_) at_end_();
    }
    JoinScope(const JoinScope&) = delete;
    JoinScope& operator=(const JoinScope&) = delete;

  private:
    std::function<void()> at_end_;
    std::unique_ptr<dist::Join> join_;  // null where nothing is averaged
};

// Context parallel training has no effect yet; neither does this.
struct [[nodiscard]] ContextParallelScope {
    ContextParallelScope() = default;
    ~ContextParallelScope() {}  // NOLINT: a scope is not an unused variable
    ContextParallelScope(const ContextParallelScope&) = delete;
    ContextParallelScope& operator=(const ContextParallelScope&) = delete;
};

}  // namespace axle::accel
