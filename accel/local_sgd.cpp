#include "accel/local_sgd.h"

namespace axle::accel {

LocalSGD::LocalSGD(Accelerator& accelerator, nn::Module& model, std::int64_t local_sgd_steps,
                   bool enabled)
    : local_([&] {
          const auto& group = accelerator.state().process_group();
          dist::DataParallel* const replicas = accelerator.data_parallel(model);
          enabled = enabled && accelerator.use_distributed();
          return replicas == nullptr
                     ? dist::LocalSgd(group, model, local_sgd_steps, enabled)
                     : dist::LocalSgd(*replicas, group, model, local_sgd_steps, enabled);
      }()) {}

}  // namespace axle::accel
