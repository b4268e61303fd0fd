#include "accel/local_sgd.h"

#include "dist/parallel/data_parallel.h"
#include "dist/sharding/full_state.h"

namespace axle::accel {

LocalSGD::LocalSGD(Accelerator& accelerator, nn::Module& model, std::int64_t local_sgd_steps,
                   bool enabled)
    : local_([&] {
          const auto& group = accelerator.state().process_group();
          dist::DistributedModel* const distributed = accelerator.data_parallel(model);
          if (enabled && dist::has_slices(model))
              throw UsageError(
                  "LocalSGD: needs whole parameters, but processes divide the model (tensor "
                  "parallel); leave LocalSGD out, or set enabled to false");
          auto* const replicas = dynamic_cast<dist::DataParallel*>(distributed);
          if (distributed != nullptr && replicas == nullptr && enabled)
              throw UsageError(
                  "LocalSGD: needs data parallel training, but the model is sharded over processes "
                  "or has a pipeline; leave LocalSGD out, or set enabled to false");
          enabled = enabled && accelerator.use_distributed();
          return replicas == nullptr
                     ? dist::LocalSgd(group, model, local_sgd_steps, enabled)
                     : dist::LocalSgd(*replicas, group, model, local_sgd_steps, enabled);
      }()) {}

}  // namespace axle::accel
