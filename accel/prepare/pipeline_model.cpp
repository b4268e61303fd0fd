#include "accel/prepare/pipeline_model.h"

#include <algorithm>
#include <utility>

#include "accel/prepare/resolve_megatron.h"
#include "core/ops.h"

namespace axle::accel {
namespace {

using Group = std::shared_ptr<dist::ProcessGroup>;

// Returns the group of a dimension, or nullptr if the mesh does not have the dimension.
Group find_group(const dist::DeviceMesh* mesh, const char* name) {
    if (mesh == nullptr) return nullptr;
    for (const auto& dimension : mesh->dimensions())
        if (dimension.name == name) return mesh->get_group(name);
    return nullptr;
}

}  // namespace

PipelineModel::PipelineModel(nn::Module& model, std::vector<nn::Piece> pieces, Group group,
                             dist::PipelineOptions options)
    : data_parallel_(options.data_parallel),
      pipeline_(model, std::move(pieces), std::move(group), std::move(options)) {}

dist::Pipeline& PipelineModel::pipeline() {
    if (is_moved_)
        throw UsageError(
            "pipeline: the model was moved after prepare(), but its stages refer to its "
            "address; move it before prepare()");
    return pipeline_;
}

Tensor PipelineModel::sum(const Tensor& number) {
    const Tensor all = number.detach().clone();
    if (data_parallel_ != nullptr) data_parallel_->all_reduce(all);
    return all;
}

Tree PipelineModel::state_dict() const { return {{"pipeline_steps", pipeline_.steps()}}; }

bool PipelineModel::load_state_dict(const Tree& state, bool /*is_own*/) {
    if (const Tree* const steps = state.find("pipeline_steps"))
        pipeline_.set_steps(steps->integer());
    return true;
}

dist::Pipeline* find_pipeline(const Preparation& preparation, const nn::Module& model) {
    const auto& models = preparation.models();
    const auto found = std::ranges::find(models, &model);
    if (found == models.end()) return nullptr;
    const auto index = static_cast<std::size_t>(found - models.begin());
    auto* const divided = dynamic_cast<PipelineModel*>(preparation.replicas()[index].get());
    return divided == nullptr ? nullptr : &divided->pipeline();
}

dist::Pipeline& pipeline_of(const char* op, const Preparation& preparation,
                            const nn::Module& model) {
    dist::Pipeline* const pipeline = find_pipeline(preparation, model);
    if (pipeline == nullptr)
        throw UsageError(str(op,
                             ": the model has no pipeline; prepare it for training with an "
                             "Accelerator that has a megatron_lm_plugin or a pp_size above 1"));
    return *pipeline;
}

dist::Pipeline* find_pipeline(const Preparation& preparation,
                              const std::vector<Tensor>& parameters) {
    if (parameters.empty()) return nullptr;
    for (const nn::Module* model : preparation.models()) {
        dist::Pipeline* const pipeline = find_pipeline(preparation, *model);
        if (pipeline == nullptr) continue;
        for (const Tensor& parameter : model->parameters())
            if (parameter.is_same(parameters.front())) return pipeline;
    }
    return nullptr;
}

void set_pipelines(PreparationOptions& preparation, const AcceleratorOptions& options) {
    if (!options.megatron_lm_plugin) return;
    const MegatronLMPlugin& plugin = *options.megatron_lm_plugin;
    if (*plugin.gradient_clipping > 0)
        preparation.optimizers = [&plugin] {
            return PreparationOptions::OptimizerOptions{.max_grad_norm = plugin.gradient_clipping};
        };
    preparation.pipeline = [&plugin, mesh = preparation.loading.device_mesh](
                               nn::Module& model) -> std::unique_ptr<dist::DistributedModel> {
        std::vector<nn::Piece> pieces = pieces_for(plugin, model);
        dist::PipelineOptions divided =
            pipeline_options_of(plugin, static_cast<int>(pieces.size()));
        Group stages = find_group(mesh.get(), "pp");
        // Gradients are averaged over processes with different batches or different parts of a
        // sequence.
        if (mesh != nullptr) divided.data_parallel = mesh->get_group("dp_cp");
        if (stages == nullptr) stages = dist::ProcessGroup::alone();
        return std::make_unique<PipelineModel>(model, std::move(pieces), std::move(stages),
                                               std::move(divided));
    };
}

}  // namespace axle::accel
