#include "accel/prepare/model_division.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "accel/config/resolve_plugins.h"
#include "core/autograd/tensor_slice.h"
#include "core/files/file.h"
#include "core/random.h"
#include "dist/expert_parallel/expert_parallel.h"
#include "dist/sharding/full_state.h"
#include "dist/tensor_parallel/tensor_parallel.h"

namespace axle::accel {
namespace {

// Throws ValueError unless the model, which is already divided, has one slice for each rank.
void check_slices(const nn::Module& model, int ranks) {
    std::int64_t slices = 1;  // some weights can have fewer slices than ranks
    for (const Tensor& parameter : model.parameters())
        if (const auto slice = autograd::slice_of(parameter))
            slices = std::max(slices, slice->layout().parts);
    if (slices != ranks)
        throw ValueError(str("prepare: the model is already divided into ", slices,
                             " slices, but tp_size is ", ranks,
                             "; divide it into tp_size slices, or let prepare() divide it"));
}

// Sets the generators of all ranks of the group to the state of its rank 0, because dropout must
// drop the same elements on all these ranks.
void share_generator(dist::ProcessGroup& group) {
    const GeneratorState own = generator_state();
    const Tree state =
        group.broadcast_object(Tree{{"seed", static_cast<std::int64_t>(own.seed)},
                                    {"offset", static_cast<std::int64_t>(own.offset)}});
    set_generator_state({static_cast<std::uint64_t>(state["seed"].integer()),
                         static_cast<std::uint64_t>(state["offset"].integer())});
}

// Sets preparation.division to a function that divides the experts of a model, if the options
// require it. Each ep_size consecutive replicas divide the experts of a mixture.
void set_expert_division(PreparationOptions& preparation, const AcceleratorOptions& options) {
    int size = 1;
    if (const auto& config = options.parallelism_config) size = config->ep_size;
    if (const auto& plugin = options.megatron_lm_plugin) size = *plugin->expert_model_parallel_size;
    if (size == 1) return;
    const auto& mesh = preparation.loading.device_mesh;
    std::vector<dist::DeviceMesh::Dimension> dimensions;
    for (const auto& dimension : mesh->dimensions()) {
        if (dimension.name != "dp_replicate") {
            dimensions.push_back(dimension);
            continue;
        }
        if (dimension.size > size) dimensions.push_back({"expert_replicas", dimension.size / size});
        dimensions.push_back({"ep", size});
    }
    const dist::DeviceMesh experts(mesh->group(), std::move(dimensions));
    preparation.division = [group = experts.get_group("ep"),
                            replicas = experts.has("expert_replicas")
                                           ? experts.get_group("expert_replicas")
                                           : nullptr](nn::Module& model) {
        dist::expert_parallelize(model, group, replicas);
    };
}

}  // namespace

std::shared_ptr<dist::ProcessGroup> data_group_of(const dist::DeviceMesh* mesh) {
    if (mesh == nullptr || !(mesh->has("tp") || mesh->has("pp"))) return nullptr;
    std::vector<std::string> names;
    for (const auto& [name, size] : mesh->dimensions())
        if (name != "tp" && name != "pp") names.push_back(name);
    return mesh->flatten(names);
}

void set_division(PreparationOptions& preparation, const AcceleratorOptions& options) {
    const auto mesh = preparation.loading.device_mesh;
    preparation.data_group = data_group_of(mesh.get());
    set_expert_division(preparation, options);
    if (mesh == nullptr || !mesh->has("tp") || mesh->size("tp") == 1) return;
    if (options.deepspeed_plugin)
        throw_not_implemented("device_mesh", "tensor parallel training with DeepSpeed",
                              "use fsdp_plugin");
    dist::TensorParallelOptions division;
    if (const auto& config = options.parallelism_config; config && config->tp_handler) {
        division.plan = config->tp_handler->plan;
        division.sequence_parallel = config->tp_handler->sequence_parallel;
    }
    if (const auto& plugin = options.megatron_lm_plugin)
        division.sequence_parallel = division.sequence_parallel || *plugin->sequence_parallelism;
    preparation.division = [group = mesh->get_group("tp"), division](nn::Module& model) {
        if (dist::has_slices(model))
            check_slices(model, group->size());
        else
            dist::tensor_parallelize(model, group, division);
        share_generator(*group);
    };
}

// Divides a model among processes if the options require it.
void Preparation::divide(nn::Module& model) const {
    if (!options_.division) return;
    check_without_state(model);
    options_.division(model);
}

// Throws UsageError if a prepared optimizer has a state for a parameter of the model, because this
// state would have to be sharded or divided too.
void Preparation::check_without_state(const nn::Module& model) const {
    for (const optim::Optimizer* optimizer : optimizers_)
        for (const auto& [name, parameter] : model.named_parameters())
            if (optimizer->state(parameter) != nullptr)
                throw UsageError(
                    str("prepare: the model must be prepared before the first step of its "
                        "optimizer, because its parameters are sharded or divided: ",
                        printable(name), " has an optimizer state"));
}

}  // namespace axle::accel
