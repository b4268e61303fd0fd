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

// Equivalent to accelerate.local_sgd.LocalSGD: within this scope, gradients are not averaged;
// parameters are averaged instead. Does nothing for one process, or if not enabled.
class [[nodiscard]] LocalSGD {
  public:
    // Throws ValueError if local_sgd_steps is less than 1, UsageError if the model is not prepared.
    LocalSGD(Accelerator& accelerator, nn::Module& model, std::int64_t local_sgd_steps,
             bool enabled = true);

    // Call after each optimizer step. Every local_sgd_steps-th call averages the parameters.
    void step() { local_.step(); }
    // Averages once more and ends the scope. The destructor calls it, unless an exception is
    // unwinding the stack.
    void finish() { local_.finish(); }

  private:
    dist::LocalSgd local_;
};

}  // namespace axle::accel
