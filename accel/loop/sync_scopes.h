// Scopes, returned by methods of Accelerator, that control when processes average gradients or
// divide sequences.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "core/memory/owning_ptr.h"

namespace axle::dist {
class ContextParallelScope;
class DistributedModel;
class Join;
class Pipeline;
}  // namespace axle::dist

namespace axle::accel {

// A scope in which the gradients of some models are not averaged.
class [[nodiscard]] NoSyncScope {
  public:
    // Owns a dist::NoSyncGuard for each model; nullptr without models.
    using Guards = std::shared_ptr<const void>;

    explicit NoSyncScope(Guards guards = {});
    ~NoSyncScope();
    NoSyncScope(const NoSyncScope&) = delete;
    NoSyncScope& operator=(const NoSyncScope&) = delete;

  private:
    Guards guards_;
};

// The scope of one micro-batch, returned by Accelerator::accumulate().
class [[nodiscard]] AccumulateScope {
  public:
    AccumulateScope(NoSyncScope::Guards guards, std::function<void()> at_end);
    // Ends the scope: calls at_end and throws its exceptions, unless an exception is unwinding the
    // stack.
    ~AccumulateScope() noexcept(false);
    AccumulateScope(const AccumulateScope&) = delete;
    AccumulateScope& operator=(const AccumulateScope&) = delete;

  private:
    NoSyncScope no_sync_;
    std::function<void()> at_end_;
    int exceptions_;  // std::uncaught_exceptions() at construction
};

// A scope in which a model's gradients are averaged, even within an enclosing NoSyncScope.
class [[nodiscard]] SyncScope {
  public:
    explicit SyncScope(dist::DistributedModel* replicas);
    ~SyncScope();
    SyncScope(const SyncScope&) = delete;
    SyncScope& operator=(const SyncScope&) = delete;

  private:
    dist::DistributedModel* replicas_;  // nullptr if gradients are not averaged
    bool before_;
};

// A scope in which processes may have different numbers of batches.
class [[nodiscard]] JoinScope {
  public:
    JoinScope();
    // `at_end` is called at the end with the result of dist::Join::finish(), or with nullopt if
    // finish() has thrown or there is no join.
    JoinScope(OwningPtr<dist::Join> join, std::function<void(std::optional<int> last)> at_end);
    // Waits until no process has batches left, unless an exception leaves the scope or there is no
    // join. Throws the errors of dist::Join::finish().
    ~JoinScope() noexcept(false);
    JoinScope(const JoinScope&) = delete;
    JoinScope& operator=(const JoinScope&) = delete;

  private:
    std::function<void(std::optional<int> last)> at_end_;
    OwningPtr<dist::Join> join_;  // nullptr if no gradients are averaged
};

// A scope in which sequences are divided among processes (dist/sequence/context_parallel.h). It has
// no effect without context parallelism.
class [[nodiscard]] ContextParallelScope {
  public:
    ContextParallelScope();
    explicit ContextParallelScope(OwningPtr<dist::ContextParallelScope> scope);
    ~ContextParallelScope();
    ContextParallelScope(const ContextParallelScope&) = delete;
    ContextParallelScope& operator=(const ContextParallelScope&) = delete;

  private:
    OwningPtr<dist::ContextParallelScope> scope_;
};

}  // namespace axle::accel
