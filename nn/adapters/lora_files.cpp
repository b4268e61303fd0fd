// Reads and writes adapter folders in PEFT's format: adapter_config.json and
// adapter_model.safetensors, whose names are "base_model.model.<name in the model>". PEFT also
// reads adapter_model.bin, a file of torch.save.
#include <algorithm>
#include <filesystem>
#include <unordered_set>

#include "core/files/file.h"
#include "core/files/safetensors.h"
#include "nn/adapters/lora_layers.h"
#include "nn/files/weight_files.h"
#include "nn/layers/linear_selection.h"
#include "nn/models/pretrained.h"

namespace axle::nn {
namespace {

namespace fs = std::filesystem;

constexpr const char* kConfig = "adapter_config.json";
constexpr const char* kWeights = "adapter_model.safetensors";
constexpr const char* kTorchWeights = "adapter_model.bin";
constexpr std::string_view kPrefix = "base_model.model.";
constexpr std::string_view kPolicy = ".policy.";
constexpr std::string_view kBase = ".policy.base_layer.";  // quantized weights

bool is_bias(const std::string& name) { return name == "bias" || name.ends_with(".bias"); }

// The names of an adapter's tensors in the model and in files.
class AdapterNames {
  public:
    AdapterNames(const std::vector<LoraLayer>& layers, const LoraConfig& config) : config_(config) {
        for (const LoraLayer& one : layers) adapted_.insert(one.name);
    }

    // Returns whether a tensor of the model belongs to the adapter.
    bool contains(const std::string& name) const {
        if (name.find(kBase) != std::string::npos) return false;
        if (policy_of(name) != std::string::npos) return true;
        if (std::ranges::any_of(config_.modules_to_save, [&](const std::string& module) {
                return name.starts_with(module + ".");
            }))
            return true;
        switch (config_.bias) {
            case LoraConfig::Bias::none:
                return false;
            case LoraConfig::Bias::all:
                return is_bias(name);
            case LoraConfig::Bias::lora_only:
                return is_bias_of_adapted(name);
        }
        return false;
    }

    std::string in_file(std::string name) const {
        const std::size_t policy = policy_of(name);
        if (policy != std::string::npos)
            name.replace(policy, kPolicy.size(), ".");
        else if (is_bias_of_adapted(name))
            name.insert(name.size() - std::string_view("bias").size(), "base_layer.");
        return std::string(kPrefix) + name;
    }

    // Returns whether a tensor of a file is a copy that PEFT writes of a module of modules_to_save:
    // the module before training, or the trained biases a second time.
    bool is_copy(const std::string& file_name) const {
        return std::ranges::any_of(config_.modules_to_save, [&](const std::string& module) {
            const std::string begin = std::string(kPrefix) + module;
            return file_name.starts_with(begin + ".original_module.") ||
                   file_name.starts_with(begin + ".modules_to_save.");
        });
    }

  private:
    // Returns the position of kPolicy in the name of a tensor of an adapted layer's policy, or
    // npos.
    std::size_t policy_of(const std::string& name) const {
        const std::size_t at = name.rfind(kPolicy);
        return at != std::string::npos && adapted_.contains(name.substr(0, at)) ? at
                                                                                : std::string::npos;
    }
    bool is_bias_of_adapted(const std::string& name) const {
        return is_bias(name) && adapted_.contains(name.substr(0, name.rfind('.')));
    }

    const LoraConfig& config_;
    std::unordered_set<std::string> adapted_;
};

// Returns the tensors of the adapter with all their names in the model.
StateDict adapter_state(const Module& model, const AdapterNames& names) {
    StateDict state = model.state_dict({.keep_vars = true});
    std::erase_if(state, [&](const auto& one) { return !names.contains(one.first); });
    return state;
}

// Undoes add_lora() at the end of the scope if it was called between begin() and commit().
class Undo {
  public:
    explicit Undo(Module& model) : model_(model) {
        for (const Tensor& parameter : model.parameters())
            flags_.emplace_back(parameter, parameter.requires_grad());
    }
    ~Undo() {
        if (!is_needed_) return;
        for (const auto& [name, module] : model_.named_modules())
            if (auto* layer = dynamic_cast<Linear*>(module); layer != nullptr)
                if (auto* lora = dynamic_cast<LoraLinear*>(layer->policy.get()))
                    layer->policy = lora->base();
        for (auto& [parameter, flag] : flags_) parameter.requires_grad_(flag);
    }
    Undo(const Undo&) = delete;
    Undo& operator=(const Undo&) = delete;
    // Called when add_lora() has succeeded.
    void begin() { is_needed_ = true; }
    void commit() { is_needed_ = false; }

  private:
    Module& model_;
    std::vector<std::pair<Tensor, bool>> flags_;
    bool is_needed_ = false;
};

[[noreturn]] void fail(const fs::path& path, const Error& error) {
    throw FileError(str(printable(path.string()), ": ", error.what()));
}

// Calls f, and throws its ValueError, ShapeError or DTypeError as a FileError with the path.
template <class F>
auto in_file(const fs::path& path, F&& f) {
    try {
        return f();
    } catch (const ValueError& error) {
        fail(path, error);
    } catch (const ShapeError& error) {
        fail(path, error);
    } catch (const DTypeError& error) {
        fail(path, error);
    }
}

fs::path weights_path(const fs::path& folder) {
    std::error_code unreadable;
    if (!fs::exists(folder / kWeights, unreadable) &&
        fs::exists(folder / kTorchWeights, unreadable))
        return folder / kTorchWeights;
    return folder / kWeights;
}

// Copies the weights of the files into the adapter of the model.
void load_weights(Module& model, const LoraConfig& config, const WeightFiles& files) {
    const std::vector<LoraLayer> layers = lora_layers(model, "load_adapter");
    const AdapterNames names(layers, config);
    const StateDict own = adapter_state(model, names);
    StateDict state;
    std::unordered_set<std::string> known;
    std::unordered_set<const Impl*> found;
    for (const auto& [name, tensor] : own) {
        const auto weight = files.weights().find(names.in_file(name));
        if (weight == files.weights().end()) continue;
        known.insert(weight->first);
        found.insert(tensor.impl().get());
        state.emplace_back(name, weight->second.mapped());
    }
    for (const auto& [name, tensor] : own)  // one name of a tied tensor is sufficient
        if (!found.contains(tensor.impl().get()))
            throw ValueError(str("the adapter needs the tensor ", printable(names.in_file(name)),
                                 ", which is missing"));
    for (const auto& [name, weight] : files.weights())
        if (!known.contains(name) && !names.is_copy(name))
            throw ValueError(
                str("the tensor ", printable(name), " belongs to no adapted layer of the model"));
    model.load_state_dict(state, {.strict = false});
}

// Returns the largest rank of the adapter's layers in the files.
std::int64_t largest_rank(const WeightFiles& files) {
    std::int64_t largest = 0;
    for (const auto& [name, weight] : files.weights())
        if (name.ends_with(".lora_A.weight") && !weight.shape().empty())
            largest = std::max(largest, weight.shape()[0]);
    return largest;
}

}  // namespace

void save_adapter(const Module& model, const std::string& directory,
                  const SaveAdapterOptions& options) {
    // Only functions that change modules list them.
    auto& listed = const_cast<Module&>(model);
    const std::vector<LoraLayer> layers = lora_layers(listed, "save_adapter");
    check_whole(model, "save_adapter");
    if (directory.empty()) throw ValueError("save_adapter: the directory must not be empty: \"\"");
    if (!options.is_main_process) return;
    const LoraConfig& config = layers.front().lora->config();
    const AdapterNames names(layers, config);
    NamedTensors tensors;
    for (auto& [name, tensor] : adapter_state(model, names))
        tensors.emplace_back(names.in_file(name), tensor);
    Tree entries = from_json(config.to_json());
    entries.set("fan_in_fan_out", layers.front().layer->options().transposed);

    create_directories(directory, Durability::full);
    const fs::path folder(directory);
    save_safetensors((folder / kWeights).string(), tensors, {{"format", "pt"}});
    write_file_atomically((folder / kConfig).string(), to_json(entries) + "\n");
}

LoraConfig load_adapter(Module& model, const std::string& directory,
                        const LoadAdapterOptions& options) {
    const fs::path folder(directory), config_path = folder / kConfig;
    const std::string text = read_file(config_path.string(), kMaxConfig);
    const LoraConfig config = in_file(config_path, [&] { return LoraConfig::from_json(text); });
    const WeightFiles files(weights_path(folder).string());
    Undo undo(model);
    in_file(config_path, [&] { return install_lora(model, config, largest_rank(files)); });
    undo.begin();
    const LoraConfig effective = lora_layers(model, "load_adapter").front().lora->config();
    in_file(files.path(), [&] { load_weights(model, effective, files); });
    if (!options.is_trainable) model.requires_grad_(false);
    undo.commit();
    return effective;
}

}  // namespace axle::nn
