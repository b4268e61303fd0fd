// LocalSgd: every process trains on its own, and parameters are averaged now and then (Lin, Stich,
// Patel, Jaggi, "Don't use large mini-batches, use local SGD", 2018).
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

namespace axle::inline v0::dist {

// As accelerate's LocalSGD. While it lives, gradients are this process's alone; the optimizer's
// state stays so.
class [[nodiscard]] LocalSgd {
  public:
    // `replicas` is told not to reduce; a model that has none is averaged all the same. ValueError
    // for less than one step.
    LocalSgd(DataParallel& replicas, std::shared_ptr<ProcessGroup> group, const nn::Module& model,
             std::int64_t local_sgd_steps, bool enabled = true);
    LocalSgd(std::shared_ptr<ProcessGroup> group, const nn::Module& model,
             std::int64_t local_sgd_steps, bool enabled = true);
    // finish(), unless an exception is under way.
    ~LocalSgd() noexcept(false);
    LocalSgd(const LocalSgd&) = delete;
    LocalSgd& operator=(const LocalSgd&) = delete;

    // After each optimizer step: every local_sgd_steps-th averages.
    void step();
    // Averages once more; then it does nothing.
    void finish();

  private:
    LocalSgd(DataParallel* replicas, std::shared_ptr<ProcessGroup> group, const nn::Module& model,
             std::int64_t local_sgd_steps, bool enabled);
    void average();
    void let_reduce();

    std::shared_ptr<ProcessGroup> group_;
    std::vector<Tensor> parameters_;
    std::int64_t every_, steps_ = 0;
    bool enabled_;
    int exceptions_;
    DataParallel* replicas_ = nullptr;  // told that it is local
};

}  // namespace axle::inline v0::dist
