#include "nn/adapters/lora.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <typeinfo>

#include "core/autograd/autocast.h"
#include "core/autograd/autograd.h"
#include "core/files/file.h"
#include "core/text/pattern.h"
#include "core/text/type_name.h"
#include "nn/adapters/lora_layers.h"
#include "nn/init.h"
#include "nn/layers/activation.h"

namespace axle::nn {
namespace {

// Returns the value of the first pattern that matches a name or the part of it after a dot.
template <class Value>
Value matched(const std::vector<std::pair<std::string, Value>>& patterns, const std::string& name,
              Value otherwise) {
    for (const auto& [pattern, value] : patterns)
        if (Pattern("(.*\\.)?(" + pattern + ")").matches(name)) return value;
    return otherwise;
}

// Returns whether an element is the name, or the part of the name after a dot.
bool is_selected(const std::string& name, const std::vector<std::string>& elements) {
    return std::ranges::any_of(
        elements, [&](const std::string& one) { return name == one || name.ends_with("." + one); });
}

bool is_below(const std::string& name, const std::string& parent) {
    return name.starts_with(parent + ".");
}

using NamedModules = std::vector<std::pair<std::string, Module*>>;

// Returns the modules that are trained completely.
NamedModules saved_modules(Module& model, const LoraConfig& config) {
    std::vector<std::string> elements = config.modules_to_save;
    if (config.task_type == "SEQ_CLS" || config.task_type == "TOKEN_CLS")
        elements.insert(elements.end(), {"classifier", "score"});
    NamedModules result;
    for (const auto& [name, module] : model.named_modules())
        if (!name.empty() && is_selected(name, elements)) result.emplace_back(name, module);
    return result;
}

// Returns the names of all Linear layers, for an error message.
std::string layer_names(Module& model) {
    constexpr std::size_t kShown = 8;
    std::string names;
    std::size_t count = 0;
    for (const auto& [name, module] : model.named_modules()) {
        if (dynamic_cast<Linear*>(module) == nullptr) continue;
        if (++count <= kShown) names += (names.empty() ? "" : ", ") + name;
    }
    return str(count, " Linear layers: ", names, count > kShown ? ", ..." : "");
}

// Returns the layers to adapt. Throws the errors of add_lora().
std::vector<std::pair<std::string, Linear*>> selected_layers(Module& model,
                                                             const LoraConfig& config,
                                                             const NamedModules& saved) {
    const bool is_all = config.target_modules == std::vector<std::string>{"all-linear"};
    const std::optional<Pattern> pattern = config.target_pattern.empty()
                                               ? std::nullopt
                                               : std::optional(Pattern(config.target_pattern));
    const auto is_target = [&](const std::string& name, const Module& module) {
        if (is_all) return dynamic_cast<const Linear*>(&module) != nullptr;
        return pattern ? pattern->matches(name) : is_selected(name, config.target_modules);
    };
    const auto is_excluded = [&](const std::string& name) {
        return is_selected(name, config.exclude_modules) ||
               std::ranges::any_of(saved, [&](const auto& one) {
                   return name == one.first || is_below(name, one.first);
               });
    };
    std::vector<std::pair<std::string, Linear*>> layers;
    for (const auto& [name, module] : model.named_modules()) {
        if (name.empty() || !is_target(name, *module) || is_excluded(name)) continue;
        auto* const layer = dynamic_cast<Linear*>(module);
        if (layer == nullptr)
            throw ValueError(str("add_lora: only Linear layers can be adapted: ", name, " is a ",
                                 type_name(typeid(*module))));
        if (const LinearPolicy* const policy = layer->policy.get(); policy != nullptr)
            throw UsageError(str("add_lora: the layer ", name, " already has a policy: a ",
                                 type_name(typeid(*policy))));
        if (std::ranges::none_of(layers, [&](const auto& one) { return one.second == layer; }))
            layers.emplace_back(name, layer);
    }
    if (layers.empty())
        throw ValueError(str("add_lora: target_modules and target_pattern select no layer of the ",
                             "model, which has ", layer_names(model)));
    return layers;
}

void add_update(Module& model, const char* who, bool merge) {
    const NoGrad no_grad;
    for (const auto& [name, layer, lora] : lora_layers(model, who)) {
        if (lora->is_merged == merge) continue;
        const Tensor update = layer->options().transposed ? lora->update().t() : lora->update();
        const Tensor sum = merge ? layer->weight.to(update.dtype()) + update
                                 : layer->weight.to(update.dtype()) - update;
        layer->weight.copy_(sum);
        lora->is_merged = merge;
    }
}

void remove_policies(Module& model, const char* who) {
    for (const auto& [name, layer, lora] : lora_layers(model, who)) layer->policy = nullptr;
}

}  // namespace

// --- LoraLinear

LoraLinear::LoraLinear(const Linear& layer, std::shared_ptr<const LoraConfig> config,
                       const std::string& name)
    : config_(std::move(config)) {
    const Tensor& weight = layer.weight;
    const bool transposed = layer.options().transposed;
    const std::int64_t in = weight.size(transposed ? 0 : 1), out = weight.size(transposed ? 1 : 0);
    const std::int64_t rank = matched(config_->rank_pattern, name, config_->r);
    const double alpha = matched(config_->alpha_pattern, name, config_->lora_alpha);
    const auto ratio = static_cast<double>(rank);
    scale = alpha / (config_->use_rslora ? std::sqrt(ratio) : ratio);

    const TensorOptions options{.dtype = is_half(weight.dtype()) ? f32 : weight.dtype(),
                                .device = weight.device(),
                                .requires_grad = true};
    lora_A = Tensor::empty({rank, in}, options);
    if (config_->init_lora_weights == LoraConfig::Init::gaussian)
        init::normal_(lora_A, 0, 1 / ratio);
    else
        init::kaiming_uniform_(lora_A, std::sqrt(5));
    lora_B = zeros({out, rank}, options);
    train(layer.is_training());
}

LoraLinear::LoraLinear(const LoraLinear& other) = default;

Tensor LoraLinear::multiply(Linear& layer, const Tensor& x, Activation activation) {
    const Tensor weight = layer.options().transposed ? layer.weight.t() : layer.weight;
    if (is_merged || !is_enabled) return linear(x, weight, layer.bias, activation);
    const Tensor y = linear(x, weight, layer.bias);
    // Autocast converts x for the product.
    const Tensor input = autocast_dtype() ? x : x.to(lora_A.dtype());
    const Tensor hidden =
        linear(dropout(input, config_->lora_dropout, layer.is_training()), lora_A);
    const Tensor update = linear(hidden * scale, lora_B);
    return apply_activation(y + update.to(y.dtype()), activation);
}

std::shared_ptr<LinearPolicy> LoraLinear::clone() const {
    return std::make_shared<LoraLinear>(*this);
}

void LoraLinear::visit(Visitor& v) {
    v("lora_A.weight", lora_A);
    v("lora_B.weight", lora_B);
}

Tensor LoraLinear::update() const {
    const NoGrad no_grad;
    return matmul(lora_B, lora_A) * scale;
}

// --- the adapter of a model

std::vector<LoraLayer> lora_layers(Module& model, const char* who) {
    std::vector<LoraLayer> layers;
    for (const auto& [name, module] : model.named_modules()) {
        auto* const layer = dynamic_cast<Linear*>(module);
        if (layer == nullptr || layer->policy == nullptr) continue;
        if (auto* const lora = dynamic_cast<LoraLinear*>(layer->policy.get()))
            layers.push_back({name, layer, lora});
    }
    if (layers.empty())
        throw UsageError(
            str(who, ": the model has no adapter: call add_lora() or load_adapter() first"));
    return layers;
}

std::int64_t add_lora(Module& model, const LoraConfig& config) {
    config.validate();
    const NamedModules saved = saved_modules(model, config);
    if (saved.empty() && !config.modules_to_save.empty())
        throw ValueError(str("add_lora: modules_to_save selects no module of the model: ",
                             printable(config.modules_to_save.front())));
    const auto layers = selected_layers(model, config, saved);
    auto stored = std::make_shared<LoraConfig>(config);
    stored->modules_to_save.clear();
    for (const auto& [name, module] : saved) stored->modules_to_save.push_back(name);
    std::vector<std::shared_ptr<LoraLinear>> policies;
    for (const auto& [name, layer] : layers)
        policies.push_back(std::make_shared<LoraLinear>(*layer, stored, name));

    model.requires_grad_(false);
    for (const auto& [name, module] : saved) module->requires_grad_(true);
    if (config.bias == LoraConfig::Bias::all)
        for (auto& [name, parameter] : model.named_parameters())
            if (name == "bias" || name.ends_with(".bias")) parameter.requires_grad_(true);
    for (std::size_t i = 0; i < layers.size(); ++i) {
        Linear& layer = *layers[i].second;
        layer.policy = policies[i];
        if (config.bias == LoraConfig::Bias::lora_only && layer.bias.defined())
            layer.bias.requires_grad_(true);
    }
    return std::ssize(layers);
}

std::vector<Tensor> trainable_parameters(const Module& model) {
    std::vector<Tensor> result = model.parameters();
    std::erase_if(result, [](const Tensor& parameter) { return !parameter.requires_grad(); });
    return result;
}

void set_adapter_enabled(Module& model, bool enabled) {
    const std::vector<LoraLayer> layers = lora_layers(model, "set_adapter_enabled");
    for (const LoraLayer& one : layers)
        if (one.lora->is_merged)
            throw UsageError(str("set_adapter_enabled: the adapter of the layer ", one.name,
                                 " is merged: call unmerge_adapter() first"));
    for (const LoraLayer& one : layers) one.lora->is_enabled = enabled;
}

void merge_adapter(Module& model) { add_update(model, "merge_adapter", true); }
void unmerge_adapter(Module& model) { add_update(model, "unmerge_adapter", false); }

void merge_and_unload(Module& model) {
    add_update(model, "merge_and_unload", true);
    remove_policies(model, "merge_and_unload");
}
void unload_adapter(Module& model) {
    add_update(model, "unload_adapter", false);
    remove_policies(model, "unload_adapter");
}

}  // namespace axle::nn
