#include "accel/process/checkpoint_request.h"

#include <atomic>

namespace axle::accel {
namespace {

constinit std::atomic<CheckpointRequest> pending = CheckpointRequest::none;
static_assert(std::atomic<CheckpointRequest>::is_always_lock_free);  // for signal handlers

}  // namespace

void request_checkpoint(CheckpointRequest request) noexcept {
    CheckpointRequest before = pending.load();
    while (before < request && !pending.compare_exchange_weak(before, request)) {
    }
}

CheckpointRequest take_checkpoint_request() noexcept {
    return pending.exchange(CheckpointRequest::none);
}

}  // namespace axle::accel
