#include "nn/adapters/lora.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <typeinfo>
#include <unordered_map>

#include "core/autograd/autocast.h"
#include "core/autograd/autograd.h"
#include "core/files/file.h"
#include "core/system/log.h"
#include "core/text/pattern.h"
#include "core/text/type_name.h"
#include "nn/adapters/lora_layers.h"
#include "nn/init.h"
#include "nn/layers/linear_selection.h"
#include "nn/layers/sequence_policy.h"

namespace axle::nn {
namespace {

// Returns the expression that matches whole names whose end, after a dot or not, matches a pattern.
std::string pattern_of(const std::string& pattern) { return "(.*\\.)?(" + pattern + ")"; }

// The values of the layers whose names match patterns.
template <class Value>
class MatchedValues {
  public:
    explicit MatchedValues(const std::vector<std::pair<std::string, Value>>& patterns) {
        for (const auto& [pattern, value] : patterns)
            patterns_.emplace_back(Pattern(pattern_of(pattern)), value);
    }
    // Returns the value of the first pattern that matches the name or the part of it after a dot.
    Value of(const std::string& name, Value otherwise) const {
        for (const auto& [pattern, value] : patterns_)
            if (pattern.matches(name)) return value;
        return otherwise;
    }

  private:
    std::vector<std::pair<Pattern, Value>> patterns_;
};

using NamedModules = std::vector<std::pair<std::string, Module*>>;

// Returns the modules that are trained completely. Throws ValueError if an element of
// modules_to_save selects none.
NamedModules saved_modules(Module& model, const LoraConfig& config) {
    constexpr const char* kHeads[] = {"classifier", "score"};  // of classifiers of Transformers
    const bool has_head = config.task_type == "SEQ_CLS" || config.task_type == "TOKEN_CLS";
    std::vector<std::string> elements = config.modules_to_save;
    if (has_head) elements.insert(elements.end(), std::begin(kHeads), std::end(kHeads));
    const auto modules = model.named_modules();
    for (const std::string& element : config.modules_to_save)
        if (std::ranges::none_of(modules,
                                 [&](const auto& one) {
                                     return !one.first.empty() && is_selected(one.first, {element});
                                 }) &&
            !(has_head && std::ranges::find(kHeads, element) != std::end(kHeads)))
            throw ValueError(
                str("add_lora: modules_to_save: the model has no module ", in_quotes(element)));
    NamedModules result;
    for (const auto& [name, module] : modules)
        if (!name.empty() && is_selected(name, elements)) result.emplace_back(name, module);
    return result;
}

// Throws ValueError if a parameter of a module that is trained completely is tied to a parameter
// outside of these modules, because PEFT would train a copy for one of the names.
void check_tied(const Module& model, const NamedModules& saved) {
    const StateDict state = model.state_dict({.keep_vars = true});
    const auto is_saved = [&](const std::string& name) {
        return std::ranges::any_of(saved,
                                   [&](const auto& one) { return is_below(name, one.first); });
    };
    std::unordered_map<const Impl*, std::string> others;  // names outside of the saved modules
    for (const auto& [name, tensor] : state)
        if (!is_saved(name)) others.emplace(tensor.impl().get(), name);
    for (const auto& [name, tensor] : state)
        if (const auto other = others.find(tensor.impl().get());
            is_saved(name) && other != others.end())
            throw ValueError(str("add_lora: modules_to_save must not have tied weights: ", name,
                                 " is also ", other->second));
}

// Throws UsageError if the model has an adapter or is prepared or sharded.
void check_no_adapter(Module& model) {
    check_unprepared(model, "add_lora", "add adapters");
    for (const auto& [name, module] : model.named_modules())
        if (auto* const layer = dynamic_cast<Linear*>(module);
            layer != nullptr && dynamic_cast<LoraLinear*>(layer->policy.get()) != nullptr)
            throw UsageError(str("add_lora: the layer ", name,
                                 " already has an adapter: remove it ",
                                 "first with merge_and_unload() or unload_adapter()"));
}

// Throws ValueError if a module that is trained completely has a quantized layer.
void check_not_quantized(const NamedModules& saved) {
    for (const auto& [parent, module] : saved)
        for (const auto& [name, child] : module->named_modules())
            if (const auto* const layer = dynamic_cast<const Linear*>(child);
                layer != nullptr && quantized_policy(*layer) != nullptr)
                throw ValueError(str("add_lora: modules_to_save: the layer ", parent,
                                     name.empty() ? "" : ".", name,
                                     " is quantized and can't be trained; name it in "
                                     "QuantizationConfig::exclude_modules"));
}

// Returns the layers to adapt. Throws the errors of add_lora().
NamedLinears selected_layers(Module& model, const LoraConfig& config, const NamedModules& saved) {
    const auto is_excluded = [&](const std::string& name) {
        return is_selected(name, config.exclude_modules) ||
               std::ranges::any_of(saved, [&](const auto& one) {
                   return name == one.first || is_below(name, one.first);
               });
    };
    NamedLinears layers = select_linears(model,
                                         {.targets = config.target_modules,
                                          .pattern = config.target_pattern,
                                          .is_excluded = is_excluded},
                                         "add_lora", "adapted");
    for (const auto& [name, layer] : layers)
        if (const LinearPolicy* const policy = layer->policy.get();
            policy != nullptr && quantized_policy(*layer) == nullptr)
            throw UsageError(str("add_lora: the layer ", name, " already has a policy: a ",
                                 type_name(typeid(*policy))));
    return layers;
}

// Logs a warning for each list of the configuration with elements that have no effect. PEFT warns
// of exclude_modules and patterns too, but accepts elements of target_modules that select nothing
// if another one selects a layer.
void warn_of_all_unused(Module& model, const LoraConfig& config, const NamedLinears& layers) {
    constexpr const char* kWho = "add_lora";
    warn_of_unused(model, kWho, "target_modules", config.target_modules);
    warn_of_unused(model, kWho, "exclude_modules", config.exclude_modules);
    const auto unmatched = [&](const auto& patterns) {
        std::vector<std::string> unused;
        for (const auto& entry : patterns) {
            const Pattern pattern(pattern_of(entry.first));
            if (std::ranges::none_of(layers,
                                     [&](const auto& one) { return pattern.matches(one.first); }))
                unused.push_back(entry.first);
        }
        return unused;
    };
    constexpr const char* kWhat = "adapted layer that matches";
    warn_of_unused(kWho, "rank_pattern", unmatched(config.rank_pattern), kWhat);
    warn_of_unused(kWho, "alpha_pattern", unmatched(config.alpha_pattern), kWhat);
}

// Throws UsageError if the weight of an adapted layer is quantized, because updates can't be added
// to it.
void check_plain(const std::vector<LoraLayer>& layers, const char* who) {
    for (const LoraLayer& one : layers)
        if (one.lora->base() != nullptr)
            throw UsageError(str(who, ": the layer ", one.name, " is quantized: call ",
                                 "merge_and_unload(), which dequantizes the weights"));
}

// Adds the updates to the weights or subtracts them, unless this is already done. Quantized layers
// are left out.
void add_update(Module& model, const char* who, bool merge) {
    check_whole(model, who);
    const NoGrad no_grad;
    for (const auto& [name, layer, lora] : lora_layers(model, who)) {
        if (lora->is_merged == merge || lora->base() != nullptr) continue;
        const Tensor update = layer->options().transposed ? lora->update().t() : lora->update();
        const Tensor sum = merge ? layer->weight.to(update.dtype()) + update
                                 : layer->weight.to(update.dtype()) - update;
        layer->weight.copy_(sum);
        lora->is_merged = merge;
    }
}

}  // namespace

// --- LoraLinear

LoraLinear::LoraLinear(const Linear& layer, std::shared_ptr<const LoraConfig> config,
                       std::int64_t rank, double alpha, bool initialize)
    : config_(std::move(config)) {
    if (quantized_policy(layer) != nullptr)
        base_ = std::static_pointer_cast<QuantizedLinear>(layer.policy);
    const Tensor& weight = layer.weight;
    const bool transposed = layer.options().transposed;
    const std::int64_t in = base_ ? base_->weight().in : weight.size(transposed ? 0 : 1);
    const std::int64_t out = base_ ? base_->weight().out : weight.size(transposed ? 1 : 0);
    const auto ratio = static_cast<double>(rank);
    scale = alpha / (config_->use_rslora ? std::sqrt(ratio) : ratio);

    const DType dtype = base_ ? base_->weight().dtype : weight.dtype();
    const TensorOptions options{.dtype = is_half(dtype) ? f32 : dtype,
                                .device = base_ ? base_->weight().values.device() : weight.device(),
                                .requires_grad = true};
    lora_A = Tensor::empty({rank, in}, options);
    lora_B = initialize ? zeros({out, rank}, options) : Tensor::empty({out, rank}, options);
    train(layer.is_training());
    if (!initialize) return;
    if (config_->init_lora_weights == LoraConfig::Init::gaussian)
        init::normal_(lora_A, 0, 1 / ratio);
    else
        init::kaiming_uniform_(lora_A, std::sqrt(5));
}

LoraLinear::LoraLinear(const LoraLinear& other)
    : LinearPolicy(other),
      lora_A(other.lora_A),
      lora_B(other.lora_B),
      scale(other.scale),
      is_enabled(other.is_enabled),
      is_merged(other.is_merged),
      config_(other.config_),
      base_(other.base_ ? std::make_shared<QuantizedLinear>(*other.base_) : nullptr) {}

Tensor LoraLinear::multiply_base(Linear& layer, const Tensor& x, Activation activation) {
    if (base_) return base_->multiply(layer, x, activation);
    const Tensor weight = layer.options().transposed ? layer.weight.t() : layer.weight;
    return linear(x, weight, layer.bias, activation);
}

Tensor LoraLinear::multiply(Linear& layer, const Tensor& x, Activation activation) {
    if (is_merged || !is_enabled) return multiply_base(layer, x, activation);
    const Tensor y = multiply_base(layer, x, Activation::none);
    // Autocast converts x for the product.
    const Tensor input = autocast_dtype() ? x : x.to(lora_A.dtype());
    const bool drops = layer.is_training() && config_->lora_dropout > 0;
    const Tensor hidden =
        linear(drops ? sequence_dropout(input, config_->lora_dropout) : input, lora_A);
    const Tensor update = linear(hidden * scale, lora_B);
    return apply_activation(y + update.to(y.dtype()), activation);
}

std::shared_ptr<LinearPolicy> LoraLinear::clone() const {
    return std::make_shared<LoraLinear>(*this);
}

void LoraLinear::visit(Visitor& v) {
    v("lora_A.weight", lora_A);
    v("lora_B.weight", lora_B);
    if (base_) v("base_layer", *base_);
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

std::int64_t install_lora(Module& model, const LoraConfig& config,
                          std::optional<std::int64_t> largest_rank) {
    config.validate();
    check_no_adapter(model);
    const NamedModules saved = saved_modules(model, config);
    check_tied(model, saved);
    check_not_quantized(saved);
    const auto layers = selected_layers(model, config, saved);
    auto stored = std::make_shared<LoraConfig>(config);
    stored->modules_to_save.clear();
    for (const auto& one : saved) stored->modules_to_save.push_back(one.first);
    const MatchedValues<std::int64_t> ranks(config.rank_pattern);
    const MatchedValues<double> alphas(config.alpha_pattern);
    std::vector<std::shared_ptr<LoraLinear>> policies;
    policies.reserve(layers.size());
    for (const auto& [name, layer] : layers) {
        const std::int64_t rank = ranks.of(name, config.r);
        if (largest_rank && rank > *largest_rank)
            throw ValueError(str("the layer ", name, " has rank ", rank,
                                 ", but the tensors lora_A in the files have at most ",
                                 *largest_rank, " rows"));
        policies.push_back(std::make_shared<LoraLinear>(
            *layer, stored, rank, alphas.of(name, config.lora_alpha), !largest_rank));
    }
    if (!largest_rank) warn_of_all_unused(model, config, layers);

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

std::int64_t add_lora(Module& model, const LoraConfig& config) {
    return install_lora(model, config, std::nullopt);
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

void merge_adapter(Module& model) {
    check_plain(lora_layers(model, "merge_adapter"), "merge_adapter");
    add_update(model, "merge_adapter", true);
}
void unmerge_adapter(Module& model) { add_update(model, "unmerge_adapter", false); }

void merge_and_unload(Module& model) {
    add_update(model, "merge_and_unload", true);
    const NoGrad no_grad;
    std::size_t dequantized = 0;
    for (const auto& [name, layer, lora] : lora_layers(model, "merge_and_unload")) {
        if (lora->base() != nullptr) {
            const bool transposed = layer->options().transposed;
            const Tensor weight = lora->base()->dequantized(transposed), update = lora->update();
            const Tensor sum = weight.to(update.dtype()) + (transposed ? update.t() : update);
            layer->weight = sum.to(weight.dtype());
            ++dequantized;
        }
        layer->policy = nullptr;
    }
    if (dequantized > 0)
        log(LogLevel::warning, "merge_and_unload: the weights of ", dequantized,
            " quantized layers are not quantized any more; they contain the rounding errors of "
            "quantization");
}
void unload_adapter(Module& model) {
    add_update(model, "unload_adapter", false);
    for (const auto& [name, layer, lora] : lora_layers(model, "unload_adapter"))
        layer->policy = lora->base();
}

}  // namespace axle::nn
