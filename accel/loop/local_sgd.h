// LocalSGD: every process trains a prepared model on its own, and parameters are averaged now and
// then (dist/parallel/local_sgd.h).
//
//     accel::LocalSGD local(accelerator, model, 8);
//     for (auto& batch : loader) {
//         ...
//         optimizer.step();
//         local.step();
//     }
//     local.finish();
#pragma once

#include <cstdint>

#include "accel/accelerator.h"
#include "dist/parallel/local_sgd.h"

namespace axle::accel {

// As accelerate.local_sgd.LocalSGD: while it lives, gradients are this process's alone. Nothing for
// one process, or where it is not enabled.
class [[nodiscard]] LocalSGD {
  public:
    // ValueError for less than one step; UsageError for a model that is not prepared.
    LocalSGD(Accelerator& accelerator, nn::Module& model, std::int64_t local_sgd_steps,
             bool enabled = true);

    // After each optimizer step: every local_sgd_steps-th averages.
    void step() { local_.step(); }
    // Averages once more; then it does nothing. The destructor does so too, unless an exception is
    // under way.
    void finish() { local_.finish(); }

  private:
    dist::LocalSgd local_;
};

}  // namespace axle::accel
