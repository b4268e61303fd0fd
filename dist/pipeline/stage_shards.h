// Private to dist: the trained parameters of a rank's stages. The data parallel ranks divide the
// optimizer states of these parameters (ZeRO-1).
#pragma once

#include <memory>
#include <vector>

#include "dist/pipeline/stage_plan.h"
#include "dist/sharding/flat_parameter.h"

namespace axle::dist {

// Returns whether the parameter is a slice of experts. Other replicas do not have such a slice, and
// its gradients are already averaged.
bool has_own_replicas(const Tensor& parameter);

// The sharded parameters of a rank's stages. They stay gathered until an optimizer changes this
// rank's parts. Gradients are whole until reduce(). After the destructor, the parameters have no
// elements.
class StageShards : public GatherObserver {
  public:
    // Shards the parameters of this rank that require a gradient, except slices of experts. All
    // ranks of the group must have the same values.
    StageShards(const std::vector<Held>& parameters, int rank, std::shared_ptr<ProcessGroup> group,
                Device device);

    // Gathers parameters that have changed.
    void gather();
    // Adds the means of the gradients over the group to the gradients of this rank's parts.
    void reduce();

    // --- GatherObserver
    void gathered_on_use(FlatParameter&) override {}
    void unshard() override;

  private:
    ShardingContext context_;
    std::vector<std::unique_ptr<FlatParameter>> buffers_;  // one for each dtype
};

}  // namespace axle::dist
