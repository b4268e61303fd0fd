// Private to accel: what a captured step asked of the Accelerator's objects, for its replays.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "optim/grad_scaler.h"
#include "optim/schedules/scheduler.h"

namespace axle::inline v0::accel {

class DeviceRates;

struct StepRecord {
    int accumulations = 0;  // scopes opened
    // Optimizers that take their rates from the device, with the steps that their schedule counts.
    std::vector<std::pair<DeviceRates*, std::int64_t>> rates = {};
    // The other schedules: those before the step of their optimizer, which takes their rate, and
    // those behind it. They step on the host.
    std::vector<optim::Scheduler*> early_schedulers = {}, schedulers = {};
    std::vector<const optim::Optimizer*> optimizers = {};  // that have stepped
    optim::GradScaler::ProgressMap scaler = {};            // where the step leaves it

    void optimizer_steps(const optim::Optimizer& optimizer);
    void scheduler_steps(optim::Scheduler& scheduler);
};

}  // namespace axle::inline v0::accel
