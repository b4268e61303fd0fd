// Requests for a checkpoint from outside of the training loop, for example from a signal handler or
// another thread. The library installs no signal handlers.
#pragma once

#include <cstdint>

namespace axle::accel {

enum class CheckpointRequest : std::uint8_t { none, save, save_and_stop };

// Requests a checkpoint from the training loop of this process. The loop calls
// Accelerator::checkpoint_request() and acts on the result. If there are several requests, the
// strongest one applies. Async-signal-safe and thread-safe.
void request_checkpoint(CheckpointRequest request = CheckpointRequest::save) noexcept;

// Returns the strongest request of this process since the last call, and clears the requests.
// Thread-safe.
CheckpointRequest take_checkpoint_request() noexcept;

}  // namespace axle::accel
