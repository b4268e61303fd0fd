// LocalSgd: each process trains independently, and parameters are averaged at intervals (Lin,
// Stich, Patel, Jaggi, "Don't use large mini-batches, use local SGD", 2018).
//
//     dist::LocalSgd local(replicas, group, model, 8);
//     for (const Tree& batch : loader) {
//         ...
//         optimizer.step();
//         local.step();
//     }
//     local.finish();
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "dist/parallel/data_parallel.h"

namespace axle::dist {

// A scope of local SGD (LocalSGD of Accelerate): gradients are not reduced, and parameters that
// require a gradient are averaged at intervals. Buffers and the optimizer's state are not averaged.
// Between two averages the ranks have different parameters. DataParallel::state_dict() contains
// these parameters and the number of steps.
class [[nodiscard]] LocalSgd {
  public:
    // Begins the scope and turns off the reductions of `replicas`. The second constructor is for a
    // model without DataParallel. If `enabled` is false or the group has one process, the object
    // does nothing. Throws ValueError if local_sgd_steps is less than 1.
    LocalSgd(DataParallel& replicas, std::shared_ptr<ProcessGroup> group, const nn::Module& model,
             std::int64_t local_sgd_steps, bool enabled = true);
    LocalSgd(std::shared_ptr<ProcessGroup> group, const nn::Module& model,
             std::int64_t local_sgd_steps, bool enabled = true);
    // Calls finish(), or, if an exception is unwinding the stack, only turns on the reductions of
    // `replicas` again.
    ~LocalSgd() noexcept(false);
    LocalSgd(const LocalSgd&) = delete;
    LocalSgd& operator=(const LocalSgd&) = delete;

    // Counts a step, and averages the parameters if the number of steps is a multiple of
    // local_sgd_steps. Must be called after each optimizer step.
    void step();
    // Averages the parameters and ends the scope. Later calls do nothing.
    void finish();

  private:
    friend class DataParallel;
    LocalSgd(DataParallel* replicas, std::shared_ptr<ProcessGroup> group, const nn::Module& model,
             std::int64_t local_sgd_steps, bool enabled);
    void average();
    void resume_reduction();

    std::shared_ptr<ProcessGroup> group_;
    std::vector<Tensor> parameters_;
    std::int64_t every_, steps_ = 0;
    bool enabled_;
    int exceptions_;
    DataParallel* replicas_ = nullptr;  // the replicas whose reductions are turned off
};

}  // namespace axle::dist
