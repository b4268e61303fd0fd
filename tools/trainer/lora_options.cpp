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
