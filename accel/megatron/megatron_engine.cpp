#include "accel/megatron/megatron_engine.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <vector>

#include "accel/accelerator.h"
#include "accel/accelerator_parts.h"
#include "accel/prepare/pipeline_model.h"
#include "accel/tracking/tensorboard.h"
#include "core/autograd/autograd.h"
#include "core/ops.h"
#include "core/tree/tree_utils.h"
#include "dist/group/operations.h"
#include "dist/pipeline/pipeline.h"
#include "nn/evaluation_scope.h"
#include "nn/models/pieces.h"

namespace axle::accel {
namespace {

const MegatronLMPlugin& plugin_of(const Accelerator& accelerator, const char* op) {
    const auto& plugin = accelerator.options().megatron_lm_plugin;
    if (!plugin)
        throw UsageError(
            str(op, ": the Accelerator has no megatron_lm_plugin; set it in AcceleratorOptions"));
    return *plugin;
}

using Group = std::shared_ptr<dist::ProcessGroup>;

// Returns the data parallel group: the processes with the same stage and slices, which train with
// different batches. Returns nullptr without a mesh. Throws UsageError without a
// megatron_lm_plugin.
Group replicas_of(const Accelerator& accelerator, const char* op) {
    static_cast<void>(plugin_of(accelerator, op));
    const dist::DeviceMesh* const mesh = accelerator.torch_device_mesh();
    return mesh == nullptr ? nullptr : mesh->get_group("dp");
}

const Tensor* find(const Tree& batch, const char* key) {
    const Tree* const value = batch.is_map() ? batch.find(key) : nullptr;
    return value == nullptr || !value->is_tensor() ? nullptr : &value->tensor();
}

}  // namespace

// The outputs of micro-batches by the address of the micro-batch. The micro-batches of a step are
// consecutive in memory, so their addresses have the order of their rows.
struct MegatronEngine::Recorded {
    std::map<const Tree*, Tensor> outputs = {};

    Tensor joined() const {
        std::vector<Tensor> all;
        all.reserve(outputs.size());
        for (const auto& [batch, output] : outputs) all.push_back(output);
        return all.empty() ? Tensor() : cat(all, 0);
    }
};

MegatronEngine::MegatronEngine(Accelerator& accelerator, nn::Module& model)
    : accelerator_(accelerator), model_(model) {
    static_cast<void>(pipeline_of("MegatronEngine", accelerator.parts_->preparation, model));
    if (!plugin().custom_train_step_class) return;
    train_step_ = plugin().custom_train_step_class(plugin().custom_train_step_kwargs);
    if (train_step_ == nullptr)
        throw UsageError("MegatronEngine: custom_train_step_class must not return null");
}

MegatronEngine::~MegatronEngine() = default;

const MegatronLMPlugin& MegatronEngine::plugin() const {
    return plugin_of(accelerator_, "MegatronEngine");
}

std::int64_t MegatronEngine::iteration() const { return accelerator_.pipeline(model_).steps(); }

bool MegatronEngine::is_evaluation_due() const {
    return iteration() > 0 && iteration() % plugin().eval_interval == 0;
}

// Returns the batch from the program's functions. If eod_mask_loss is set, labels at the positions
// of eod_token are -100, which has no loss. Throws ValueError if sequences exceed seq_length.
Tree MegatronEngine::batch_for_step(const char* op, const Tree& batch) const {
    Tree result = train_step_                          ? train_step_->get_batch(batch)
                  : plugin().custom_get_batch_function ? plugin().custom_get_batch_function(batch)
                                                       : batch;
    const Tensor* const ids = find(result, "input_ids");
    if (ids == nullptr) return result;
    if (const auto& longest = plugin().seq_length; longest && ids->size(-1) > *longest)
        throw ValueError(str(op, ": sequences must be at most seq_length ", *longest,
                             ": input_ids are ", ids->shape()));
    const Tensor* const labels = find(result, "labels");
    if (!plugin().eod_mask_loss.value_or(false) || labels == nullptr) return result;
    const NoGrad no_grad;
    const Tensor is_end = eq(*ids, static_cast<double>(*plugin().eod_token));
    Tree masked = result;
    masked.set("labels", where(is_end, full_like(*labels, -100), *labels));
    return masked;
}

// Returns the loss function of the program, or nn::label_loss(). With return_logits, the function
// also stores the outputs in `recorded`, which must outlive it. Without return_logits, returns
// label_loss() itself, because the pipeline computes it without storing all logits.
dist::PipelineLoss MegatronEngine::loss_function(Recorded& recorded) const {
    dist::PipelineLoss loss = nn::label_loss;
    if (train_step_)
        loss = [this](const Tensor& output, const Tree& batch) {
            return train_step_->loss(output, batch);
        };
    else if (plugin().custom_loss_function)
        loss = plugin().custom_loss_function;
    if (!plugin().return_logits) return loss;
    return [loss, &recorded](const Tensor& output, const Tree& batch) {
        recorded.outputs[&batch] = output.detach();
        return loss(output, batch);
    };
}

// Returns the writer of the main process, or nullptr on other processes and without
// tensorboard_dir. With the writer, TensorBoard ignores values that an earlier run logged for the
// current step or later steps.
SummaryWriter* MegatronEngine::log() {
    if (plugin().tensorboard_dir.empty() || !accelerator_.is_main_process()) return nullptr;
    if (log_ == nullptr)
        log_ = make_owning<SummaryWriter>(plugin().tensorboard_dir,
                                          SummaryWriterOptions{.purge_step = iteration()});
    return log_.get();
}

TrainStepOutput MegatronEngine::train_step(const Tree& batch) {
    const Tree own = batch_for_step("train_step", batch);
    const AcceleratorParts& parts = *accelerator_.parts_;
    dist::Pipeline& pipeline = accelerator_.pipeline(model_);
    Recorded recorded;
    TrainStepOutput result;
    result.loss = accelerator_.pipeline_step(model_, own, loss_function(recorded));
    result.logits = recorded.joined();
    std::vector<optim::Optimizer*> optimizers;
    for (optim::Optimizer* optimizer : parts.preparation.optimizers())
        if (find_pipeline(parts.preparation, optimizer->parameters()) == &pipeline)
            optimizers.push_back(optimizer);
    const bool logs_all = !plugin().tensorboard_dir.empty() && plugin().set_all_logging_options &&
                          accelerator_.sync_gradients();
    std::optional<double> norm;
    // Clips to the largest number, which changes no finite gradient, to compute the norm. All
    // stages must call clip_grad_norm_().
    if (logs_all)
        norm =
            accelerator_.clip_grad_norm_(pipeline.parameters(), std::numeric_limits<double>::max())
                .item();
    if (SummaryWriter* const writer = log()) {
        writer->add_scalar("lm loss", result.loss.item(), iteration());
        if (!optimizers.empty()) {
            const optim::GroupRef group = optimizers.front()->param_groups().front();
            writer->add_scalar("learning-rate", group.lr, iteration());
            if (logs_all) writer->add_scalar("weight-decay", group.weight_decay, iteration());
        }
        if (logs_all) {
            writer->add_scalar("grad-norm", *norm, iteration());
            writer->add_scalar(
                "batch-size",
                static_cast<double>(find_batch_size(own) * parts.preparation.data_parallel_size()),
                iteration());
            writer->add_scalar("world-size", accelerator_.num_processes(), iteration());
        }
        writer->flush();
    }
    for (optim::Optimizer* optimizer : optimizers) optimizer->step();
    for (optim::Scheduler* scheduler : parts.preparation.schedulers())
        if (std::ranges::any_of(optimizers, [&](const auto* o) { return scheduler->is_for(*o); }))
            scheduler->step();
    for (optim::Optimizer* optimizer : optimizers) optimizer->zero_grad();
    parts.loop->has_updated = true;
    return result;
}

TrainStepOutput MegatronEngine::eval_step(const Tree& batch) {
    Recorded recorded;
    TrainStepOutput result;
    result.loss = accelerator_.pipeline(model_).evaluate(batch_for_step("eval_step", batch),
                                                         loss_function(recorded));
    result.logits = recorded.joined();
    return result;
}

TrainStepOutput MegatronEngine::operator()(const Tree& batch) {
    return model_.is_training() ? train_step(batch) : eval_step(batch);
}

double MegatronEngine::evaluate(data::DataLoader& loader) {
    const nn::EvaluationScope scope("evaluate", model_);
    double sum = 0;
    int batches = 0;
    for (const Tree& batch : loader) {
        sum += eval_step(batch).loss.item();
        if (++batches == plugin().eval_iters) break;
    }
    if (batches == 0)
        throw ValueError("evaluate: the loader must have at least one batch, but it has none");
    const double loss = sum / batches;
    if (SummaryWriter* const writer = log()) {
        writer->add_scalar("lm loss validation", loss, iteration());
        if (plugin().set_all_logging_options)
            writer->add_scalar("lm loss validation ppl", std::exp(std::min(20.0, loss)),
                               iteration());
        writer->flush();
    }
    return loss;
}

Tensor avg_losses_across_data_parallel_group(const Accelerator& accelerator,
                                             const std::vector<Tensor>& losses) {
    const Group group = replicas_of(accelerator, "avg_losses_across_data_parallel_group");
    const NoGrad no_grad;
    std::vector<Tensor> numbers;
    numbers.reserve(losses.size());
    for (const Tensor& loss : losses) numbers.push_back(loss.reshape({1}));
    const Tensor means = cat(numbers, 0);
    if (group != nullptr) group->all_reduce(means, dist::ReduceOp::mean);
    return means;
}

Tree gather_across_data_parallel_groups(const Accelerator& accelerator, const Tree& tree) {
    const Group group = replicas_of(accelerator, "gather_across_data_parallel_groups");
    return dist::gather(group != nullptr ? *group : *dist::ProcessGroup::alone(), tree);
}

std::unique_ptr<nn::Module> provide_model(Accelerator& accelerator) {
    const MegatronLMPlugin& plugin = plugin_of(accelerator, "provide_model");
    const auto& provider = plugin.custom_model_provider_function;
    if (!provider)
        throw UsageError(
            "provide_model: custom_model_provider_function of the MegatronLMPlugin is not set; set "
            "it to a function that creates the model");
    const auto& prepare = plugin.custom_prepare_model_function;
    std::unique_ptr<nn::Module> model = prepare ? prepare(provider) : provider();
    if (model == nullptr)
        throw UsageError(
            str("provide_model: ",
                prepare ? "custom_prepare_model_function" : "custom_model_provider_function",
                " must not return null"));
    accelerator.prepare(*model);
    return model;
}

}  // namespace axle::accel
