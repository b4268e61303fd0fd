#include "accel/prepare/deepspeed_objects.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "accel/config/environment.h"
#include "accel/config/plugins.h"
#include "accel/prepare/deepspeed_section.h"
#include "core/files/file.h"
#include "nn/models/bert.h"
#include "nn/models/gpt.h"
#include "nn/models/llama.h"
#include "optim/adam.h"
#include "optim/sgd.h"

namespace axle::accel {
namespace {

template <class Optimizer, class Options>
std::unique_ptr<optim::Optimizer> make(const DummyOptim& dummy, const Options& options) {
    std::vector<typename Optimizer::Group> groups;
    for (const DummyOptim::Group& group : dummy.groups) {
        Options own = options;
        own.lr = group.lr.value_or(options.lr);
        own.weight_decay = group.weight_decay.value_or(options.weight_decay);
        groups.emplace_back(group.params, own);
    }
    return std::make_unique<Optimizer>(std::move(groups));
}

// Creates Adam or AdamW. The options torch_adam, foreach, fused, set_grad_none and
// fp32_optimizer_states of DeepSpeed are accepted and have no effect.
template <class Optimizer, class Options>
std::unique_ptr<optim::Optimizer> make_adam(const DeepSpeedSection& section,
                                            const DummyOptim& dummy) {
    section.allow_only({"lr", "betas", "eps", "weight_decay", "amsgrad", "bias_correction",
                        "adam_w_mode", "torch_adam", "foreach", "fused", "set_grad_none",
                        "fp32_optimizer_states"});
    if (!section.flag("bias_correction", true))
        section.fail("bias_correction", "true, because Axle has no Adam without it", false);
    Options options;
    const std::vector<double> betas =
        section.has("betas") ? section.numbers("betas", 2, 0) : std::vector{0.9, 0.999};
    options.lr = section.number("lr", options.lr);
    options.betas = {betas[0], betas[1]};
    options.eps = section.number("eps", options.eps);
    options.weight_decay = section.number("weight_decay", 0);
    options.amsgrad = section.flag("amsgrad", false);
    return make<Optimizer>(dummy, options);
}

std::unique_ptr<optim::Optimizer> make_sgd(const DeepSpeedSection& section,
                                           const DummyOptim& dummy) {
    section.allow_only({"lr", "momentum", "dampening", "weight_decay", "nesterov"});
    optim::SGDOptions options;
    options.lr = section.number("lr", options.lr);
    options.momentum = section.number("momentum", 0);
    options.dampening = section.number("dampening", 0);
    options.weight_decay = section.number("weight_decay", 0);
    options.nesterov = section.flag("nesterov", false);
    return make<optim::SGD>(dummy, options);
}

void check_objects(const DeepSpeedConfig& config, const DeepSpeedObjects& objects) {
    const auto refuse = [&](const char* text) {
        throw ValueError(str("prepare: ", config.source(), ": ", text));
    };
    const bool has_optimizer = config.find("optimizer") != nullptr,
               has_scheduler = config.find("scheduler") != nullptr;
    if (has_optimizer && objects.has_optimizer)
        refuse(
            "an optimizer is given in the configuration and in the program; remove the section "
            "optimizer, or use a DummyOptim in the program");
    const DummyOptim* const dummy_optim = objects.dummy_optim;
    if (!has_optimizer && dummy_optim != nullptr && !dummy_optim->optimizer_callable)
        refuse(
            "a DummyOptim needs the section optimizer; add it, set optimizer_callable, or use "
            "another optimizer");
    if (has_scheduler && objects.has_scheduler)
        refuse(
            "a schedule is given in the configuration and in the program; remove the section "
            "scheduler, or use a DummyScheduler in the program");
    const DummyScheduler* const dummy = objects.dummy_scheduler;
    if (!has_scheduler && dummy != nullptr && !dummy->lr_scheduler_callable)
        refuse(
            "a DummyScheduler needs the section scheduler; add it, or set "
            "lr_scheduler_callable");
    if (has_optimizer && dummy_optim != nullptr && objects.has_scheduler)
        refuse("a DummyOptim for the section optimizer can only be used with a DummyScheduler");
}

// Returns the number of samples of one process in a micro-batch, or nullopt if it is not known. If
// the configuration has "auto", this is the smallest or largest batch size of the loaders. Throws
// ValueError if the value is invalid, or if a loader has no batch size.
std::optional<std::int64_t> micro_batch_size(const DeepSpeedPlugin& plugin,
                                             const DeepSpeedObjects& objects) {
    constexpr const char* kName = "train_micro_batch_size_per_gpu";
    const DeepSpeedConfig& config = *plugin.hf_ds_config;
    if (!config.is_auto(kName)) {
        const Tree value = config.get_value(kName);
        if (value.is_null()) return std::nullopt;
        if (!value.is_integer() || value.integer() < 1)
            throw ValueError(
                str("prepare: ", config.source(), ": ", kName,
                    ": must be a positive integer or \"auto\": ", printable(str(value))));
        return value.integer();
    }
    std::vector<std::int64_t> sizes;
    for (const auto& size : objects.batch_sizes) {
        if (!size)
            throw ValueError(
                str("prepare: a loader has no batch size; write ", kName, " in ", config.source()));
        sizes.push_back(*size);
    }
    if (sizes.empty()) return std::nullopt;
    return plugin.is_train_batch_min ? *std::min_element(sizes.begin(), sizes.end())
                                     : *std::max_element(sizes.begin(), sizes.end());
}

void add_batch_sizes(const DeepSpeedPlugin& plugin, const DeepSpeedObjects& objects, Tree& values) {
    const auto micro = micro_batch_size(plugin, objects);
    if (!micro) return;
    const DeepSpeedConfig& config = *plugin.hf_ds_config;
    const std::int64_t steps = plugin.gradient_accumulation_steps.value_or(1);
    const std::int64_t total = *micro * steps * objects.data_parallel_size;
    values.set("train_micro_batch_size_per_gpu", *micro);
    values.set("train_batch_size", total);
    const Tree given = config.get_value("train_batch_size");
    if (given.is_null() || config.is_auto("train_batch_size")) return;
    if (!given.is_integer() || given.integer() != total)
        throw ValueError(
            str("prepare: ", config.source(), ": train_batch_size is ", printable(str(given)),
                ", but must be train_micro_batch_size_per_gpu * "
                "gradient_accumulation_steps * processes = ",
                *micro, " * ", steps, " * ", objects.data_parallel_size, " = ", total));
}

void add_bucket_sizes(const DeepSpeedConfig& config, std::optional<std::int64_t> hidden_size,
                      Tree& values) {
    const std::array names = {"zero_optimization.reduce_bucket_size",
                              "zero_optimization.stage3_prefetch_bucket_size",
                              "zero_optimization.stage3_param_persistence_threshold"};
    std::string unknown;
    for (const char* name : names)
        if (config.is_auto(name)) unknown += (unknown.empty() ? "" : ", ") + std::string(name);
    if (unknown.empty()) return;
    if (!hidden_size)
        throw ValueError(str("prepare: ", config.source(), ": ", unknown,
                             ": \"auto\" needs a model with a known hidden size; write numbers"));
    const std::int64_t square = *hidden_size * *hidden_size;
    values.set(names[0], square);
    values.set(names[1], static_cast<std::int64_t>(0.9 * static_cast<double>(square)));
    values.set(names[2], 10 * *hidden_size);
}

// Throws ValueError if a value is "auto" and no later call of prepare() can fill it.
void check_filled(DeepSpeedConfig config) {
    for (const char* name :
         {"train_batch_size", "train_micro_batch_size_per_gpu", "optimizer", "scheduler"})
        config.del_config_sub_tree(name);
    config.deepspeed_config_process(Tree::map(), false);
}

}  // namespace

DummyOptim::DummyOptim(std::vector<Tensor> params, double lr_, double weight_decay_)
    : groups({{std::move(params)}}), lr(lr_), weight_decay(weight_decay_) {}

DummyOptim::DummyOptim(std::vector<Group> groups_, double lr_, double weight_decay_)
    : groups(std::move(groups_)), lr(lr_), weight_decay(weight_decay_) {}

optim::Optimizer& DummyOptim::operator*() const {
    if (!created) throw UsageError("DummyOptim: there is no optimizer yet; call prepare() first");
    return *created;
}

optim::Scheduler& DummyScheduler::operator*() const {
    if (!created)
        throw UsageError("DummyScheduler: there is no schedule yet; call prepare() first");
    return *created;
}

std::unique_ptr<optim::Optimizer> make_optimizer(DeepSpeedConfig& config, const DummyOptim& dummy) {
    config.fill_match("optimizer.params.lr", {{"optimizer.params.lr", dummy.lr}});
    config.fill_match("optimizer.params.weight_decay",
                      {{"optimizer.params.weight_decay", dummy.weight_decay}});
    const DeepSpeedSection section(config, "optimizer");
    const std::string type = lower(section.type());
    if (type == "adamw" || (type == "adam" && section.flag("adam_w_mode", true)))
        return make_adam<optim::AdamW, optim::AdamWOptions>(section, dummy);
    if (type == "adam") return make_adam<optim::Adam, optim::AdamOptions>(section, dummy);
    if (type == "sgd") return make_sgd(section, dummy);
    throw NotImplementedError(str("DeepSpeedConfig: ", config.source(),
                                  ": optimizer.type: ", in_quotes(section.type()),
                                  " is not implemented; use Adam, AdamW or SGD"));
}

void fill_deepspeed_config(DeepSpeedPlugin& plugin, const DeepSpeedObjects& objects) {
    DeepSpeedConfig& config = *plugin.hf_ds_config;
    check_objects(config, objects);
    Tree values = {{"gradient_clipping", 1.0},
                   {"gradient_accumulation_steps", plugin.gradient_accumulation_steps.value_or(1)},
                   {"zero_optimization.stage3_gather_16bit_weights_on_model_save", false}};
    add_batch_sizes(plugin, objects, values);
    if (objects.has_model) add_bucket_sizes(config, objects.hidden_size, values);
    for (const auto& [name, value] : values.entries()) config.fill_match(name, values);
    plugin.gradient_clipping = gradient_clipping_of(plugin);
    if (objects.has_model) check_filled(config);
}

std::optional<std::int64_t> hidden_size_of(const nn::Module& model) {
    if (const auto* gpt = dynamic_cast<const nn::Gpt*>(&model)) return gpt->config.n_embd;
    if (const auto* llama = dynamic_cast<const nn::Llama*>(&model))
        return llama->config.hidden_size;
    if (const auto* bert = dynamic_cast<const nn::Bert*>(&model)) return bert->config.hidden_size;
    if (const auto* bert = dynamic_cast<const nn::BertForSequenceClassification*>(&model))
        return bert->config.hidden_size;
    if (const auto* bert = dynamic_cast<const nn::BertForMaskedLM*>(&model))
        return bert->config.hidden_size;
    return std::nullopt;
}

}  // namespace axle::accel
