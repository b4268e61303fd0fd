// Zero3Init: a scope in which models are constructed in shards, equivalent to deepspeed.zero.Init.
//
//     Accelerator accelerator({.deepspeed_plugin = {{.zero_stage = 3}}});
//     nn::Gpt gpt = [&] {
//         const accel::Zero3Init scope(accelerator);
//         return nn::Gpt(config);
//     }();
//     accelerator.prepare(gpt, optimizer);
#pragma once

#include <optional>

#include "accel/accelerator.h"
#include "nn/init.h"

namespace axle::accel {

// A scope in which models of this thread are constructed without memory
// (nn::init::DeferredWeights). prepare() then computes the initial values of one unit at a time,
// and each process keeps its part. The values are the same as on one process. Has an effect only on
// several processes, and only if zero3_init_flag of the active DeepSpeed plugin is true, as it is
// by default in stage 3.
class [[nodiscard]] Zero3Init {
  public:
    // If `enabled` is false, the scope has no effect, as in
    // zero3_init_context_manager(enable=False) of Accelerate's plugin.
    explicit Zero3Init(const Accelerator& accelerator, bool enabled = true);

    bool is_enabled() const { return deferred_.has_value(); }

  private:
    std::optional<nn::init::DeferredWeights> deferred_;
};

}  // namespace axle::accel
