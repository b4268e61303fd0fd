// The state of gradient accumulation, as Accelerator::gradient_state() returns it.
#pragma once

#include <cstdint>

#include "data/loading/loader.h"

namespace axle::accel {

// A snapshot of the gradient accumulation state.
struct GradientState {
    bool sync_gradients = true;  // whether the latest micro-batch completes an update
    int num_steps = 1;           // micro-batches per update
    bool sync_with_dataloader = true;
    // The innermost running loop over a prepared loader: nullptr, false and -1 outside of loops.
    data::DataLoader* active_dataloader = nullptr;
    bool end_of_dataloader = false;  // whether its current batch is the last one
    std::int64_t remainder = -1;     // samples that the last batch adds to complete ones

    bool in_dataloader() const { return active_dataloader != nullptr; }
};

}  // namespace axle::accel
