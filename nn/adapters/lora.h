// LoRA: trains low-rank updates of the weights of Linear layers, while the model itself is frozen
// (Hu et al., arXiv:2106.09685). Adapter folders are in PEFT's format, in both directions.
//
//     nn::Llama model = nn::Llama::from_pretrained("llama");
//     nn::add_lora(model, {.r = 16, .lora_alpha = 32, .target_modules = {"q_proj", "v_proj"}});
//     optim::AdamW adamw(nn::trainable_parameters(model), {.lr = 1e-4});
//     ...
//     nn::save_adapter(model, "adapter");  // only the updates, a few megabytes
//
//     nn::Llama tuned = nn::Llama::from_pretrained("llama");
//     nn::load_adapter(tuned, "adapter");
//     nn::merge_and_unload(tuned);  // a plain Llama with the updated weights
//     tuned.save_pretrained("tuned");
//
// A model has at most one adapter. The functions that change a model must not run while another
// thread uses it. They find layers of the type Linear only; adapters for embeddings and
// convolutions are refused. Updates of a model with weights in 4 or 8 bits (QLoRA) are trained in
// the same way, see nn/precision/quantized_linear.h.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "nn/layers/linear.h"
#include "nn/module.h"
#include "nn/precision/quantized_linear.h"

namespace axle::nn {

// The options of an adapter, with the names and the defaults of PEFT's LoraConfig.
struct LoraConfig {
    std::int64_t r = 8;       // the rank of the updates, in [1, 2^31)
    double lora_alpha = 8;    // updates are multiplied by lora_alpha / r
    double lora_dropout = 0;  // the probability of dropout before lora_A, in [0, 1)
    // The Linear layers to adapt. A layer is selected if its dotted name is an element or ends with
    // "." and an element. {"all-linear"} selects all Linear layers.
    std::vector<std::string> target_modules = {};
    // A regular expression (core/text/pattern.h) in place of target_modules. It must match the
    // whole name of a layer.
    std::string target_pattern = {};
    // Layers that are not adapted although they are selected, by the rule of target_modules.
    std::vector<std::string> exclude_modules = {};
    // Modules that are trained and saved completely, by the rule of target_modules, for example a
    // new classifier.
    std::vector<std::string> modules_to_save = {};
    // The biases that are trained and saved: none, those of all modules, or those of the adapted
    // layers.
    enum class Bias : std::uint8_t { none, all, lora_only };
    Bias bias = Bias::none;
    bool use_rslora = false;  // if true, updates are multiplied by lora_alpha / sqrt(r)
    // The first values of lora_A; lora_B is zero, so that the model computes the same as before.
    // standard: kaiming_uniform_ with a = sqrt(5); gaussian: normal with the standard deviation 1 /
    // r.
    enum class Init : std::uint8_t { standard, gaussian };
    Init init_lora_weights = Init::standard;
    // Other ranks and other values of lora_alpha for some layers: pairs of a regular expression and
    // a value. The expression must match the whole name or the part after a dot. The first pair
    // that matches applies.
    std::vector<std::pair<std::string, std::int64_t>> rank_pattern = {};
    std::vector<std::pair<std::string, double>> alpha_pattern = {};
    // The folder or the name of the base model, which load_adapter() does not use.
    std::string base_model_name_or_path = {};
    // PEFT's name of the task, for example "CAUSAL_LM". With "SEQ_CLS" and "TOKEN_CLS", the modules
    // `classifier` and `score` are in modules_to_save, if the model has them.
    std::string task_type = {};

    // Returns the text of adapter_config.json.
    std::string to_json() const;
    // Reads the text of adapter_config.json. Throws ValueError if the text is not a JSON object, if
    // an entry has the wrong type or range, or if the adapter needs something that Axle does not
    // support, such as DoRA; the message names the entry.
    static LoraConfig from_json(const std::string& text);
    // Throws ValueError unless r, lora_alpha (positive, finite), lora_dropout and the values of the
    // patterns are in their ranges, patterns are regular expressions, and exactly one of
    // target_modules and target_pattern is given.
    void validate() const;
};

// The policy of an adapted Linear: computes activation(x W^T + b + scale * dropout(x) A^T B^T). A
// and B are created in f32 if the weight is f16 or bf16, and otherwise in the dtype of the weight.
// If the layer is quantized, W is its dequantized weight, and the names of its tensors in the
// policy begin with "base_layer.".
class LoraLinear : public LinearPolicy {
  public:
    // Creates A and B on the device of the layer's weight. If `initialize` is false, their values
    // are undefined.
    LoraLinear(const Linear& layer, std::shared_ptr<const LoraConfig> config, std::int64_t rank,
               double alpha, bool initialize = true);
    // Only clone() may call this constructor (see Module).
    LoraLinear(const LoraLinear& other);

    // Throws ShapeError if the last dimension of x is not `in`.
    Tensor multiply(Linear& layer, const Tensor& x, Activation activation) override;
    bool is_adapter() const override { return true; }
    std::shared_ptr<LinearPolicy> clone() const override;
    void visit(Visitor& v) override;

    // Returns scale * B A, the update of the weight, as [out, in] in the dtype of A.
    Tensor update() const;
    const LoraConfig& config() const { return *config_; }
    // Returns the policy that the layer had before the adapter, or nullptr if the layer was not
    // quantized.
    const std::shared_ptr<QuantizedLinear>& base() const { return base_; }

    Tensor lora_A, lora_B;   // [r, in] and [out, r]
    double scale = 1;        // lora_alpha / r, or lora_alpha / sqrt(r) with use_rslora
    bool is_enabled = true;  // if false, multiply() leaves out the update
    bool is_merged = false;  // whether the layer's weight contains the update

  private:
    Tensor multiply_base(Linear& layer, const Tensor& x, Activation activation);

    std::shared_ptr<const LoraConfig> config_;
    std::shared_ptr<QuantizedLinear> base_;
};

// Freezes the model and adds an adapter to the selected layers. Only the adapter, the biases that
// `bias` selects and modules_to_save then require a gradient. Returns the number of adapted layers.
// Call it before Accelerator::prepare() and before creating the optimizer: prepare() throws
// UsageError for an optimizer that has the frozen parameters instead of the adapter. Logs a warning
// for elements of target_modules and exclude_modules that select no module, and for patterns that
// match no adapted layer. Throws ValueError for an invalid configuration (LoraConfig::validate()),
// if no layer is selected, if a selected module is not a Linear, and if a module of modules_to_save
// is missing, has tied weights or is quantized. Throws UsageError if the model has an adapter, is
// prepared or sharded, or if a selected layer has a policy other than QuantizedLinear. The model is
// then unchanged.
std::int64_t add_lora(Module& model, const LoraConfig& config);

// Returns the parameters that require a gradient.
std::vector<Tensor> trainable_parameters(const Module& model);

// Sets whether calls of the model add the updates of the adapter, for example to compare with the
// base model. Trained biases and modules_to_save keep their values. Throws UsageError if the model
// has no adapter, or if the adapter is merged.
void set_adapter_enabled(Module& model, bool enabled);

// Add the updates to the weights, or subtract them again. Products with merged weights are as fast
// as those of the base model. The sums are rounded to the dtype of the weights, so that unmerging
// restores a weight only up to rounding. Do nothing if the adapter is merged, or not merged. Throw
// UsageError if the model has no adapter or is sharded. merge_adapter() also throws UsageError if
// an adapted layer is quantized.
void merge_adapter(Module& model);
void unmerge_adapter(Module& model);
// Remove the adapter, after its updates have been added to the weights (merge_and_unload) or
// subtracted from them if they were merged (unload_adapter). Trained biases and modules_to_save
// keep their values. No parameter changes whether it requires a gradient. For a quantized layer,
// merge_and_unload() computes the weight from the dequantized weight, in its dtype before
// quantization, and logs a warning; unload_adapter() restores the quantized layer. Throw UsageError
// if the model has no adapter or is sharded.
void merge_and_unload(Module& model);
void unload_adapter(Module& model);

struct SaveAdapterOptions {
    bool is_main_process = true;  // if false, nothing is written
};
// Writes the adapter into a folder, which is created if necessary: adapter_model.safetensors and
// adapter_config.json. Other files of the folder are kept. Throws UsageError if the model has no
// adapter or is sharded (FSDP, ZeRO): call dist::unshard() first. Throws ValueError for the
// directory "", and FileError if a file cannot be written.
void save_adapter(const Module& model, const std::string& directory,
                  const SaveAdapterOptions& options = {});

struct LoadAdapterOptions {
    // Whether the adapter requires a gradient. The other parameters never do.
    bool is_trainable = false;
};
// Adds the adapter in a folder to the model and returns its configuration. Reads
// adapter_model.safetensors, or adapter_model.bin if the former is missing. Throws FileError if a
// file is missing or invalid, or does not fit the model: its layers, names or shapes. Throws
// UsageError as add_lora() does. The model is then unchanged. The copies that PEFT writes of
// modules before training (original_module) are ignored.
LoraConfig load_adapter(Module& model, const std::string& directory,
                        const LoadAdapterOptions& options = {});

}  // namespace axle::nn
