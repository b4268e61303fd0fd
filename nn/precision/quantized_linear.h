// Linear layers with weights in 4 or 8 bits, for frozen base models. With LoRA, which trains
// updates of such weights (nn/adapters/lora.h), this is QLoRA (Dettmers et al., arXiv:2305.14314).
//
//     nn::Llama model = nn::Llama::from_pretrained("llama");
//     nn::quantize_linears(model);  // nf4 with double quantization: 4.13 bits per weight
//     nn::add_lora(model, {.r = 16, .lora_alpha = 32, .target_modules = {"all-linear"}});
//     optim::AdamW adamw(nn::trainable_parameters(model), {.lr = 2e-4});
//
// The values are those of bitsandbytes. By default, int8 is weight-only, as in bitsandbytes on a
// CPU. With llm_int8_threshold, inputs are quantized as well, as in bitsandbytes on a GPU.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/quantization/quantized_weight.h"
#include "nn/layers/linear.h"
#include "nn/module.h"

namespace axle::nn {

// The options of quantize_linears(). BitsAndBytesConfig of Transformers has them as load_in_4bit or
// load_in_8bit, bnb_4bit_use_double_quant, bnb_4bit_compute_dtype, llm_int8_threshold (default: 6)
// and llm_int8_skip_modules.
struct QuantizationConfig {
    WeightFormat format = WeightFormat::nf4;
    // The following two options apply to nf4 only; WeightQuantization documents them.
    bool double_quantization = true;
    std::int64_t block_size = 64;
    // int8 only: the threshold of outliers with which products quantize their inputs, by LLM.int8
    // (see WeightQuantization). If it is not set, they do not quantize them.
    std::optional<double> llm_int8_threshold = {};
    // The dtype to which inputs are converted for the product. Results have the dtype of the input.
    // If it is not set, the product is computed in the dtype of the input. Autocast takes
    // precedence.
    std::optional<DType> compute_dtype = {};
    // The Linear layers to quantize, by the rules of LoraConfig. If both target_modules and
    // target_pattern are empty, all Linear layers are selected.
    std::vector<std::string> target_modules = {};
    std::string target_pattern = {};
    // Layers that are not quantized although they are selected, by the rule of target_modules. The
    // name of a module excludes all layers inside of it.
    std::vector<std::string> exclude_modules = {};

    // Throws ValueError unless block_size is a power of two in [32, 4096], llm_int8_threshold is
    // finite, at least 0 and set for int8 only, target_pattern is a regular expression, and at most
    // one of target_modules and target_pattern is given. Throws DTypeError unless compute_dtype is
    // floating.
    void validate() const;
};

// The policy of a quantized Linear, which has no weight: computes activation(x W^T + b), where W is
// the dequantized weight, a block of rows at a time. The tensors of the weight are constant
// buffers: "weight", "absmax" and, with double quantization, "nested_absmax" and "nested_offset".
// They have no gradient, move and are saved with the layer, and keep their dtypes in
// Module::to(DType).
class QuantizedLinear : public LinearPolicy {
  public:
    QuantizedLinear(QuantizedWeight weight, std::optional<DType> compute_dtype);
    // Only clone() may call this constructor (see Module).
    QuantizedLinear(const QuantizedLinear& other);

    // Throws ShapeError if the last dimension of x is not `in`.
    Tensor multiply(Linear& layer, const Tensor& x, Activation activation) override;
    std::shared_ptr<LinearPolicy> clone() const override;
    void visit(Visitor& v) override;

    // Returns the weight, [out, in] also for a layer with LinearOptions::transposed.
    const QuantizedWeight& weight() const { return weight_; }
    // Returns the dequantized weight in the dtype it had before quantization, in the layout of the
    // layer: [out, in], or [in, out] if `transposed` is true. It does not require a gradient.
    Tensor dequantized(bool transposed) const;

  private:
    QuantizedWeight weight_;
    std::optional<DType> compute_dtype_;
};

// Quantizes the weights of the selected layers, one layer after the other, and releases them:
// Linear::weight becomes undefined, and a QuantizedLinear becomes the layer's policy. Returns the
// number of quantized layers. Other parameters are unchanged, also whether they require a gradient.
// Call it before add_lora(), Accelerator::prepare() and before creating the optimizer, which would
// keep the weights in memory. Logs a warning for elements of target_modules and exclude_modules
// that select no module. Throws ValueError for an invalid configuration, if no layer is selected,
// if a selected module is not a Linear, and if a weight is tied to another parameter or has an
// element that is infinite or NaN. Throws UsageError if the model is prepared or sharded, or if a
// selected layer has a policy: it is already quantized, has an adapter or another policy. Throws
// DeviceError for weights on the meta device. The model is then unchanged, except that layers
// before a weight with an infinite element or NaN stay quantized.
std::int64_t quantize_linears(Module& model, const QuantizationConfig& config = {});

// Replaces all quantized weights by their dequantized values, which do not require a gradient, in
// the dtype that they had before. Returns the number of layers. Throws UsageError if the model is
// prepared or has an adapter on a quantized layer: call merge_and_unload() or unload_adapter()
// first.
std::int64_t dequantize_linears(Module& model);

// Returns the policy of a quantized layer without an adapter, or nullptr.
QuantizedLinear* quantized_policy(const Linear& layer);

}  // namespace axle::nn
