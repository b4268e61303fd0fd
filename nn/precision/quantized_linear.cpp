#include "nn/precision/quantized_linear.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <typeinfo>
#include <unordered_map>
#include <utility>

#include "core/autograd/autocast.h"
#include "core/autograd/autograd.h"
#include "core/files/file.h"
#include "core/text/pattern.h"
#include "core/text/type_name.h"
#include "nn/layers/linear_selection.h"

namespace axle::nn {
namespace {

constexpr const char* kQuantizeLinears = "quantize_linears";

// Returns whether a layer or a module around it is selected by an element.
bool is_excluded(std::string name, const std::vector<std::string>& elements) {
    while (!is_selected(name, elements)) {
        const std::size_t dot = name.rfind('.');
        if (dot == std::string::npos) return false;
        name.resize(dot);
    }
    return true;
}

// Throws the errors of quantize_linears() for the policies of layers.
void check_policies(const NamedLinears& layers) {
    for (const auto& [name, layer] : layers) {
        const LinearPolicy* const policy = layer->policy.get();
        if (policy == nullptr) continue;
        if (quantized_policy(*layer) != nullptr)
            throw UsageError(str(kQuantizeLinears, ": the layer ", name,
                                 " is already quantized: call ",
                                 "dequantize_linears() first to change its format"));
        if (policy->is_adapter())
            throw UsageError(str(kQuantizeLinears, ": the layer ", name,
                                 " has an adapter: quantize the model before add_lora()"));
        throw UsageError(str(kQuantizeLinears, ": the layer ", name, " already has a policy: a ",
                             type_name(typeid(*policy))));
    }
}

// Throws if a weight has another name in the model, or is on the meta device.
void check_weights(const Module& model, const NamedLinears& layers) {
    std::unordered_map<const Impl*, std::string> selected;
    for (const auto& [name, layer] : layers) {
        if (layer->weight.device().is_meta())
            throw DeviceError(str(kQuantizeLinears, ": the weight of the layer ", name,
                                  " is on the meta device and has no values"));
        selected.emplace(layer->weight.impl().get(), name);
    }
    std::unordered_map<const Impl*, std::string> names;
    for (const auto& [name, tensor] : model.state_dict({.keep_vars = true})) {
        const auto layer = selected.find(tensor.impl().get());
        if (layer == selected.end()) continue;
        const auto [other, is_first] = names.emplace(layer->first, name);
        if (!is_first)
            throw ValueError(str(kQuantizeLinears, ": the weight of the layer ", layer->second,
                                 " is tied: ", other->second, " is also ", name,
                                 "; add the layer to exclude_modules"));
    }
}

}  // namespace

void QuantizationConfig::validate() const {
    constexpr const char* kConfig = "QuantizationConfig";
    if (block_size < 32 || block_size > 4096 ||
        !std::has_single_bit(static_cast<std::uint64_t>(block_size)))
        throw ValueError(
            str(kConfig, ": block_size must be a power of two in [32, 4096]: ", block_size));
    if (llm_int8_threshold) {
        if (format != WeightFormat::int8)
            throw ValueError(str(kConfig, ": llm_int8_threshold needs the format int8"));
        if (!std::isfinite(*llm_int8_threshold) || *llm_int8_threshold < 0)
            throw ValueError(str(kConfig, ": llm_int8_threshold must be finite and at least 0: ",
                                 *llm_int8_threshold));
    }
    if (compute_dtype && !is_floating(*compute_dtype))
        throw DTypeError(str(kConfig, ": compute_dtype must be floating: ", *compute_dtype));
    if (!target_modules.empty() && !target_pattern.empty())
        throw ValueError(str(kConfig, ": at most one of target_modules and target_pattern must be ",
                             "given: target_pattern is ", in_quotes(target_pattern)));
    if (target_pattern.empty()) return;
    try {
        const Pattern pattern(target_pattern);
    } catch (const ValueError& error) {
        throw ValueError(str(kConfig, ": target_pattern: ", error.what()));
    }
}

// --- QuantizedLinear

QuantizedLinear::QuantizedLinear(QuantizedWeight weight, std::optional<DType> compute_dtype)
    : weight_(std::move(weight)), compute_dtype_(compute_dtype) {}

QuantizedLinear::QuantizedLinear(const QuantizedLinear& other) = default;

Tensor QuantizedLinear::multiply(Linear& layer, const Tensor& x, Activation activation) {
    const bool converts = compute_dtype_ && !autocast_dtype();
    const Tensor y = quantized_linear(converts ? x.to(*compute_dtype_) : x, weight_, layer.bias);
    return apply_activation(converts ? y.to(x.dtype()) : y, activation);
}

std::shared_ptr<LinearPolicy> QuantizedLinear::clone() const {
    return std::make_shared<QuantizedLinear>(*this);
}

void QuantizedLinear::visit(Visitor& v) {
    const BufferOptions options{.constant = true};
    v.buffer("weight", weight_.values, options);
    v.buffer("absmax", weight_.absmax, options);
    v.buffer("nested_absmax", weight_.nested_absmax, options);
    v.buffer("nested_offset", weight_.nested_offset, options);
}

Tensor QuantizedLinear::dequantized(bool transposed) const {
    const NoGrad no_grad;
    const Tensor weight = dequantize_weight(weight_, weight_.dtype);
    return transposed ? contiguous(weight.t()) : weight;
}

// --- the layers of a model

QuantizedLinear* quantized_policy(const Linear& layer) {
    return dynamic_cast<QuantizedLinear*>(layer.policy.get());
}

std::int64_t quantize_linears(Module& model, const QuantizationConfig& config) {
    config.validate();
    check_unprepared(model, kQuantizeLinears, "quantize it");
    const bool is_all = config.target_modules.empty() && config.target_pattern.empty();
    const NamedLinears layers = select_linears(
        model,
        {.targets = is_all ? std::vector<std::string>{"all-linear"} : config.target_modules,
         .pattern = config.target_pattern,
         .is_excluded =
             [&](const std::string& name) { return is_excluded(name, config.exclude_modules); }},
        kQuantizeLinears, "quantized");
    check_policies(layers);
    check_weights(model, layers);
    warn_of_unused(model, kQuantizeLinears, "target_modules", config.target_modules);
    warn_of_unused(model, kQuantizeLinears, "exclude_modules", config.exclude_modules);

    const WeightQuantization options{.format = config.format,
                                     .block_size = config.block_size,
                                     .double_quantization = config.double_quantization,
                                     .llm_int8_threshold = config.llm_int8_threshold};
    const NoGrad no_grad;
    for (const auto& [name, layer] : layers) {
        const Tensor weight = layer->weight.detach();
        QuantizedWeight quantized;
        try {
            quantized = quantize_weight(layer->options().transposed ? weight.t() : weight, options);
        } catch (const ValueError& error) {
            throw ValueError(str(kQuantizeLinears, ": the layer ", name, ": ", error.what()));
        }
        auto policy = std::make_shared<QuantizedLinear>(std::move(quantized), config.compute_dtype);
        policy->train(layer->is_training());
        layer->policy = std::move(policy);
        layer->weight = Tensor();
    }
    return std::ssize(layers);
}

std::int64_t dequantize_linears(Module& model) {
    constexpr const char* kDequantizeLinears = "dequantize_linears";
    check_unprepared(model, kDequantizeLinears, "dequantize it");
    NamedLinears layers;
    for (const auto& [name, module] : model.named_modules()) {
        auto* const layer = dynamic_cast<Linear*>(module);
        if (layer == nullptr || layer->policy == nullptr) continue;
        if (layer->policy->is_adapter() && !layer->weight.defined())
            throw UsageError(str(kDequantizeLinears, ": the layer ", name, " has an adapter: call ",
                                 "merge_and_unload() or unload_adapter() first"));
        if (quantized_policy(*layer) != nullptr) layers.emplace_back(name, layer);
    }
    for (const auto& [name, layer] : layers) {
        layer->weight = quantized_policy(*layer)->dequantized(layer->options().transposed);
        layer->policy = nullptr;
    }
    return std::ssize(layers);
}

}  // namespace axle::nn
