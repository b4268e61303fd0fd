// Scopes that control when processes average gradients. Methods of Accelerator return them.
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "dist/parallel/data_parallel.h"

namespace axle::accel {

// A scope in which the gradients of some models are not averaged.
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

// The scope of one micro-batch, returned by Accelerator::accumulate().
class [[nodiscard]] AccumulateScope {
  public:
    AccumulateScope(NoSyncScope::Guards guards, std::function<void()> at_end)
        : no_sync_(std::move(guards)), at_end_(std::move(at_end)) {}
    // Calls at_end, whose exceptions are thrown. Does nothing if an exception is unwinding the
    // stack.
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

// A scope in which a model's gradients are averaged, even within an enclosing NoSyncScope.
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
    dist::DataParallel* replicas_;  // nullptr if gradients are not averaged
    bool before_;
};

// A scope in which processes may have different numbers of batches.
class [[nodiscard]] JoinScope {
  public:
    JoinScope() = default;
    JoinScope(std::unique_ptr<dist::Join> join, std::function<void()> at_end)
        : at_end_(std::move(at_end)), join_(std::move(join)) {}
    // Waits until no process has batches left. Throws the same errors as dist::Join::finish().
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
    std::unique_ptr<dist::Join> join_;  // nullptr if nothing is averaged
};

// A scope without an effect: context parallel training is not implemented yet.
struct [[nodiscard]] ContextParallelScope {
    ContextParallelScope() = default;
    ~ContextParallelScope() {}  // NOLINT: avoids warnings about unused variables
    ContextParallelScope(const ContextParallelScope&) = delete;
    ContextParallelScope& operator=(const ContextParallelScope&) = delete;
};

}  // namespace axle::accel
