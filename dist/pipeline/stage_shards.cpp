#include "dist/pipeline/stage_shards.h"

#include <map>
#include <utility>

#include "nn/module.h"

namespace axle::dist {

StageShards::StageShards(const std::vector<Held>& parameters, int rank,
                         std::shared_ptr<ProcessGroup> group, Device device) {
    context_.group = std::move(group);
    context_.device = context_.part_device = device;
    context_.observer = this;
    std::map<DType, nn::StateDict> by_dtype;
    for (const Held& held : parameters)
        if (held.is_on(rank) && held.tensor.requires_grad() && !has_own_replicas(held.tensor))
            by_dtype[held.tensor.dtype()].emplace_back(held.name, held.tensor);
    for (const auto& [dtype, named] : by_dtype)
        buffers_.push_back(std::make_unique<FlatParameter>(named, context_, false));
}

void StageShards::gather() {
    for (const auto& buffer : buffers_) buffer->start_gather();
    for (const auto& buffer : buffers_) buffer->gather();
}

void StageShards::reduce() {
    for (const auto& buffer : buffers_) buffer->start_reduce();
    for (const auto& buffer : buffers_) buffer->finish_reduce();
}

void StageShards::unshard() {
    for (const auto& buffer : buffers_) buffer->unshard();
    buffers_.clear();
}

}  // namespace axle::dist
