#include "tools/trainer/lora_options.h"

#include <sstream>

namespace axle::trainer {

void LoraOptions::add_to(CommandLine& line) {
    line.add("lora-r", r, "Train a LoRA adapter of this rank; 0: all parameters", 0, 4096);
    line.add("lora-alpha", alpha,
             "Updates are multiplied by this divided by the rank; 0: twice the rank");
    line.add("lora-dropout", dropout, "Probability of dropout before the adapter", 0, 0.99);
    line.add("lora-targets", targets,
             "Names of Linear layers to adapt, separated by commas, or all-linear");
    line.add("quantize", quantize,
             "With --lora-r: store the weights of the base model's Linear layers as nf4 or int8 "
             "(QLoRA), or as int8 with products of 8-bit inputs (llm-int8)");
}

void LoraOptions::check() const {
    if (quantize.empty()) return;
    if (quantize != "nf4" && quantize != "int8" && quantize != "llm-int8")
        throw_unknown("format of --quantize", quantize, {"nf4", "int8", "llm-int8"});
    if (!is_used())
        throw UsageError("--quantize needs --lora-r: quantized weights can't be trained");
}

std::int64_t LoraOptions::quantize_base(nn::Module& model,
                                        std::vector<std::string> excluded) const {
    if (quantize.empty()) return 0;
    const std::int64_t before = model.num_parameters();
    nn::QuantizationConfig config{
        .format = quantize == "nf4" ? WeightFormat::nf4 : WeightFormat::int8,
        .exclude_modules = std::move(excluded)};
    if (quantize == "llm-int8") config.llm_int8_threshold = 6;  // as in Transformers
    nn::quantize_linears(model, config);
    return before - model.num_parameters();
}

std::string LoraOptions::identity() const {
    return quantize.empty() ? std::to_string(r) : str(r, " over ", quantize);
}

nn::LoraConfig LoraOptions::config(const std::string& base_model,
                                   const std::string& task_type) const {
    nn::LoraConfig config{.r = r,
                          .lora_alpha = alpha > 0 ? alpha : 2 * static_cast<double>(r),
                          .lora_dropout = dropout,
                          .base_model_name_or_path = base_model,
                          .task_type = task_type};
    std::istringstream stream(targets);
    for (std::string name; std::getline(stream, name, ',');)
        if (!name.empty()) config.target_modules.push_back(name);
    return config;
}

}  // namespace axle::trainer
