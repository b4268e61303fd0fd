// The options of GradScaler (optim/grad_scaler.h).
#pragma once

namespace axle::optim {

class GradScaler;

struct GradScalerOptions {
    double init_scale = 65536;    // the first scale
    double growth_factor = 2;     // multiplies the scale after growth_interval good updates
    double backoff_factor = 0.5;  // multiplies the scale after a skipped step
    int growth_interval = 2000;   // good updates in a row, in which no step was skipped
    bool enabled = true;          // if false, losses are not scaled and step() is optimizer.step()
};

}  // namespace axle::optim
