// LocalSGD: each process trains a prepared model on its own, and parameters are averaged every few
// steps (dist/parallel/local_sgd.h).
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

// A scope of local SGD, equivalent to accelerate.local_sgd.LocalSGD: parameters are averaged
// instead of gradients. Does nothing for one process, or if `enabled` is false.
//
// Checkpoints contain the number of steps and the model and optimizer state of each process. After
// load_state() has loaded a checkpoint that was saved in a scope, the current scope continues with
// the saved number of steps. If there is no current scope, the next scope does.
class [[nodiscard]] LocalSGD {
  public:
    // Throws ValueError if local_sgd_steps is less than 1, and UsageError if the model is not
    // prepared. Also throws UsageError if `enabled` is true and processes divide the model
    // (sharding, pipeline or tensor parallel).
    LocalSGD(Accelerator& accelerator, nn::Module& model, std::int64_t local_sgd_steps,
             bool enabled = true);

    // Counts a step. Call it after each optimizer step; every local_sgd_steps-th call averages the
    // parameters.
    void step() { local_.step(); }
    // Averages the parameters and ends the scope. The destructor calls this function unless an
    // exception is unwinding the stack.
    void finish() { local_.finish(); }

  private:
    dist::LocalSgd local_;
};

}  // namespace axle::accel
