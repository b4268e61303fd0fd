#include "accel/prepare/prepare_items.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <type_traits>
#include <unordered_set>
#include <variant>

#include "accel/megatron/megatron_schedule.h"
#include "accel/prepare/deepspeed_objects.h"
#include "accel/prepare/preparation.h"
#include "core/system/log.h"
#include "nn/layers/linear.h"

namespace axle::accel {
namespace {

// Returns the object of an item if it is a T, else nullptr.
template <class T>
T* as(const PrepareItem& item) {
    T* const* const object = std::get_if<T*>(&item.object);
    return object == nullptr ? nullptr : *object;
}

DeepSpeedObjects describe(const std::vector<PrepareItem>& items, int num_processes,
                          bool split_batches) {
    DeepSpeedObjects objects{.data_parallel_size = num_processes};
    for (const PrepareItem& item : items) {
        if (const auto* model = as<nn::Module>(item)) {
            objects.has_model = true;
            if (!objects.hidden_size) objects.hidden_size = hidden_size_of(*model);
        } else if (as<optim::Optimizer>(item) != nullptr) {
            objects.has_optimizer = true;
        } else if (as<optim::Scheduler>(item) != nullptr) {
            objects.has_scheduler = true;
        } else if (const auto* dummy_optim = as<DummyOptim>(item)) {
            objects.dummy_optim = dummy_optim;
        } else if (const auto* dummy_scheduler = as<DummyScheduler>(item)) {
            objects.dummy_scheduler = dummy_scheduler;
        } else if (const auto* loader = as<data::DataLoader>(item)) {
            std::int64_t size = loader->batch_size();
            if (split_batches && !loader->shard_options()) size /= num_processes;
            objects.batch_sizes.push_back(size > 0 ? std::optional(size) : std::nullopt);
        }
    }
    return objects;
}

void create(DummyOptim& dummy, DeepSpeedPlugin* plugin) {
    if (dummy.created) return;
    if (plugin != nullptr && plugin->hf_ds_config->find("optimizer") != nullptr)
        dummy.created = make_optimizer(*plugin->hf_ds_config, dummy);
    else if (dummy.optimizer_callable)
        dummy.created = dummy.optimizer_callable();
    if (!dummy.created)
        throw UsageError(
            "prepare: a DummyOptim needs a DeepSpeed configuration with the section optimizer, or "
            "an optimizer_callable that returns an optimizer; add one, or use another optimizer");
}

// Returns the number of samples of an update over all replicas and micro-batches, computed from the
// smallest (is_train_batch_min) or largest batch size of the loaders of the call. Returns nullopt
// if no loader has a batch size.
std::optional<std::int64_t> samples_per_update(const MegatronLMPlugin& plugin,
                                               const std::vector<PrepareItem>& items,
                                               const PlaceholderSizes& sizes) {
    std::optional<std::int64_t> rows;
    for (const auto& size : describe(items, sizes.replicas, sizes.split_batches).batch_sizes) {
        if (!size) continue;
        const bool is_better = !rows || (plugin.is_train_batch_min ? *size < *rows : *size > *rows);
        if (is_better) rows = size;
    }
    if (rows) *rows *= std::int64_t{sizes.replicas} * sizes.accumulation_steps;
    return rows;
}

void create(DummyScheduler& dummy, DeepSpeedPlugin* deepspeed, const MegatronLMPlugin* megatron,
            optim::Optimizer& optimizer, const std::vector<PrepareItem>& items,
            const PlaceholderSizes& sizes) {
    if (deepspeed != nullptr && deepspeed->hf_ds_config->find("scheduler") != nullptr)
        dummy.created =
            make_scheduler(*deepspeed->hf_ds_config, optimizer, dummy, sizes.num_processes);
    else if (dummy.lr_scheduler_callable)
        dummy.created = dummy.lr_scheduler_callable(optimizer);
    else if (megatron != nullptr)
        dummy.created = make_megatron_schedule(
            *megatron, optimizer,
            {.replicas = sizes.replicas,
             .samples_per_update = samples_per_update(*megatron, items, sizes),
             .total_num_steps = dummy.total_num_steps,
             .warmup_num_steps = dummy.warmup_num_steps});
    if (!dummy.created)
        throw UsageError(
            "prepare: a DummyScheduler needs a DeepSpeed configuration with the section "
            "scheduler, or an lr_scheduler_callable that returns a schedule; add one, or use "
            "another schedule");
}

// Returns the optimizer of an item, or nullptr. The optimizer of a placeholder must exist.
optim::Optimizer* optimizer_of(const PrepareItem& item) {
    if (auto* const dummy = as<DummyOptim>(item)) return dummy->created.get();
    return as<optim::Optimizer>(item);
}

// Returns the parameters of a model's adapters that require a gradient.
std::vector<Tensor> adapter_parameters(nn::Module& model) {
    std::vector<Tensor> result;
    for (const auto& [name, module] : model.named_modules()) {
        auto* const layer = dynamic_cast<nn::Linear*>(module);
        if (layer == nullptr || layer->policy == nullptr || !layer->policy->is_adapter()) continue;
        for (const Tensor& parameter : layer->policy->parameters())
            if (parameter.requires_grad()) result.push_back(parameter);
    }
    return result;
}

}  // namespace

void check_optimizers(const std::vector<PrepareItem>& items) {
    std::unordered_set<const Impl*> trained, frozen;  // parameters of the optimizers
    std::vector<std::size_t> idle;  // the numbers of parameters of optimizers that train nothing
    for (const PrepareItem& item : items) {
        optim::Optimizer* const optimizer = optimizer_of(item);
        if (optimizer == nullptr) continue;
        const std::vector<Tensor> parameters = optimizer->parameters();
        if (!parameters.empty() && std::ranges::none_of(parameters, &Tensor::requires_grad))
            idle.push_back(parameters.size());
        for (const Tensor& parameter : parameters)
            (parameter.requires_grad() ? trained : frozen).insert(parameter.impl().get());
    }
    for (const PrepareItem& item : items) {
        nn::Module* const model = as<nn::Module>(item);
        if (model == nullptr) continue;
        const auto are_in = [](const std::unordered_set<const Impl*>& set,
                               const std::vector<Tensor>& parameters) {
            return std::ranges::any_of(parameters, [&](const Tensor& parameter) {
                return set.contains(parameter.impl().get());
            });
        };
        const std::vector<Tensor> adapter = adapter_parameters(*model);
        if (!adapter.empty() && !are_in(trained, adapter) && are_in(frozen, model->parameters()))
            throw UsageError(str("prepare: no optimizer has the ", adapter.size(),
                                 " parameters of the model's adapter, so that they would not be "
                                 "trained: create the optimizer after nn::add_lora() with "
                                 "nn::trainable_parameters(model)"));
    }
    for (const std::size_t count : idle)
        log(LogLevel::warning, "prepare: none of the ", count,
            " parameters of an optimizer requires a gradient, so that its steps change nothing: if "
            "they are frozen only for a part of the training, freeze them after prepare(), which "
            "selects the gradients that several processes average");
}

void create_placeholders(DeepSpeedPlugin* deepspeed, const MegatronLMPlugin* megatron,
                         const std::vector<PrepareItem>& items, const PlaceholderSizes& sizes) {
    if (deepspeed != nullptr)
        fill_deepspeed_config(*deepspeed,
                              describe(items, sizes.num_processes, sizes.split_batches));
    std::vector<optim::Optimizer*> optimizers;
    for (const PrepareItem& item : items) {
        if (auto* const optimizer = as<optim::Optimizer>(item)) optimizers.push_back(optimizer);
        if (auto* const dummy = as<DummyOptim>(item)) {
            create(*dummy, deepspeed);
            optimizers.push_back(dummy->created.get());
        }
    }
    for (const PrepareItem& item : items)
        if (auto* const dummy = as<DummyScheduler>(item)) {
            if (dummy->created) continue;
            if (optimizers.size() != 1)
                throw ValueError(
                    str("prepare: a DummyScheduler needs exactly one optimizer in the "
                        "same call: ",
                        optimizers.size(), " are given"));
            create(*dummy, deepspeed, megatron, *optimizers.front(), items, sizes);
        }
}

void Preparation::prepare(const PrepareItem& item, bool evaluation_mode) {
    std::visit(
        [&](auto* object) {
            using T = std::remove_pointer_t<decltype(object)>;
            if constexpr (std::is_same_v<T, nn::Module>)
                prepare(*object, item.device_placement, evaluation_mode);
            else if constexpr (std::is_same_v<T, data::DataLoader>)
                prepare(*object, item.device_placement);
            else if constexpr (std::is_same_v<T, DummyOptim> || std::is_same_v<T, DummyScheduler>)
                prepare(*object->created);
            else
                prepare(*object);
        },
        item.object);
}

}  // namespace axle::accel
