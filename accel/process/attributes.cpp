// What an Accelerator tells of itself and of what it has prepared.
#include <algorithm>

#include "accel/accelerator.h"
#include "accel/config/environment.h"
#include "accel/process/accelerator_state.h"

namespace axle::inline v0::accel {

void Accelerator::check_placements(std::size_t placements, std::size_t objects) {
    if (placements != objects)
        throw ValueError(str("prepare: device_placement needs one value for each object: ",
                             placements, " values, ", objects, " objects"));
}

bool Accelerator::verify_device_map(const nn::Module& model) const {
    const auto parameters = model.parameters();
    return std::any_of(parameters.begin(), parameters.end(), [&](const Tensor& parameter) {
        return parameter.device() != parameters.front().device();
    });
}

void Accelerator::refuse_device_map(const nn::Module& model) const {
    if (!verify_device_map(model)) return;
    if (flag_variable("ACCELERATE_BYPASS_DEVICE_MAP").value_or(false)) return;
    throw ValueError(
        "prepare: a model that is spread over several devices can't be trained on several "
        "processes; move it to one device first");
}

void Accelerator::drop_fp32_wrapper(nn::Module& model) {
    if (model.hooks() == nullptr) return;
    auto gate = std::make_shared<nn::ForwardHooks>(*model.hooks());
    gate->autocast.reset();
    model.set_hooks(std::move(gate));
}

void Accelerator::set_sync_gradients(bool sync) { state_->sync_gradients = sync; }
std::int64_t Accelerator::step() const { return state_->step; }

GradientState Accelerator::gradient_state() const {
    GradientState result{.sync_gradients = state_->sync_gradients,
                         .num_steps = state_->num_steps,
                         .sync_with_dataloader = state_->sync_with_dataloader,
                         .active_dataloader = active_dataloader()};
    if (!result.in_dataloader()) return result;
    result.end_of_dataloader = result.active_dataloader->end_of_dataloader();
    result.remainder = result.active_dataloader->remainder();
    return result;
}

int Accelerator::mesh_size(const char* dimension) const {
    const dist::DeviceMesh* const mesh = torch_device_mesh();
    if (mesh == nullptr) return 1;
    for (const auto& [name, size] : mesh->dimensions())
        if (name == dimension) return size;
    return 1;
}

int Accelerator::mesh_rank(const char* getter, const char* dimension) const {
    if (!options_.parallelism_config && torch_device_mesh() == nullptr)
        throw UsageError(
            str(getter, ": needs an Accelerator with a parallelism_config or a device_mesh"));
    return mesh_size(dimension) > 1 ? torch_device_mesh()->coordinate(dimension) : 0;
}

ContextParallelScope Accelerator::maybe_context_parallel(const std::vector<Tensor>&,
                                                         const std::vector<int>&,
                                                         const std::vector<Tensor>&) {
    if (mesh_size("cp") > 1)
        throw NotImplementedError(
            "maybe_context_parallel: context parallel training is not implemented yet");
    return {};
}

data::DataLoader& Accelerator::deepspeed_ulysses_dl_adapter(data::DataLoader& loader, nn::Module&) {
    if (mesh_size("sp") > 1)
        throw NotImplementedError(
            "deepspeed_ulysses_dl_adapter: sequence parallel training is not implemented yet");
    return loader;
}

}  // namespace axle::inline v0::accel
