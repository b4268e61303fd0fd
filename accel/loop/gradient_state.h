// GradientState: the state of gradient accumulation, returned by Accelerator::gradient_state().
#pragma once

#include <cstdint>

#include "data/loading/loader.h"

namespace axle::accel {

// A snapshot of the gradient accumulation state.
struct GradientState {
    bool sync_gradients = true;  // whether the latest micro-batch completes an update
    int num_steps = 1;           // micro-batches per update
    bool sync_with_dataloader = true;
    // The loader of the innermost running loop over a prepared loader. Outside of loops, the
    // following three members are nullptr, false and -1.
    data::DataLoader* active_dataloader = nullptr;
    bool end_of_dataloader = false;  // whether the current batch is the last batch of the pass
    // The number of samples in the last step of all processes (data::DataLoader::remainder).
    std::int64_t remainder = -1;

    bool in_dataloader() const { return active_dataloader != nullptr; }
};

}  // namespace axle::accel
