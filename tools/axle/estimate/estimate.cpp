#include "tools/axle/estimate/estimate.h"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <iostream>
#include <map>

#include "core/files/file.h"
#include "core/files/safetensors.h"
#include "core/text/size_text.h"
#include "core/text/text.h"
#include "core/tree/tree.h"
#include "kernels/error.h"
#include "nn/init.h"
#include "nn/models/bert.h"
#include "nn/models/gpt.h"
#include "nn/models/llama.h"
#include "nn/models/resnet.h"
#include "tools/axle/commands.h"
#include "tools/axle/estimate/sharded_estimate.h"
#include "tools/axle/estimate/table.h"
#include "tools/options/options.h"

namespace axle::launcher {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kMaxLayers = 4096;  // a file with a larger number is invalid
constexpr std::int64_t kMaxConfig = std::int64_t{2} << 20;

// Returns the size in bytes of a tensor after a floating dtype is replaced by f32. Other dtypes
// stay the same.
std::int64_t float32_bytes(DType dtype, std::int64_t numel) {
    return is_floating(dtype) ? 4 * numel : static_cast<std::int64_t>(size_of(dtype)) * numel;
}

template <class Model, class Config>
TensorBytes built(const Config& config, std::int64_t layers) {
    if (layers > kMaxLayers)
        throw ValueError(str("estimate-memory: the number of layers must be at most ", kMaxLayers,
                             ": ", layers));
    const nn::init::EmptyWeights without_memory;
    TensorBytes tensors;
    for (const auto& [name, tensor] : Model(config).saved_state())
        tensors.emplace_back(name, float32_bytes(tensor.dtype(), tensor.numel()));
    return tensors;
}

TensorBytes gpt(const nn::GptConfig& c) { return built<nn::Gpt>(c, c.n_layer); }
TensorBytes bert(const nn::BertConfig& c) { return built<nn::Bert>(c, c.num_hidden_layers); }
TensorBytes llama(const nn::LlamaConfig& c) { return built<nn::Llama>(c, c.num_hidden_layers); }
TensorBytes resnet(const nn::ResNetConfig& c) { return built<nn::ResNet>(c, 0); }

TensorBytes gpt(std::int64_t layers, std::int64_t heads, std::int64_t width) {
    return gpt(nn::GptConfig{.n_layer = layers, .n_head = heads, .n_embd = width});
}
TensorBytes bert(std::int64_t vocabulary, bool large) {
    nn::BertConfig config;
    config.vocab_size = vocabulary;
    if (large) {
        config.hidden_size = 1024, config.num_hidden_layers = 24;
        config.num_attention_heads = 16, config.intermediate_size = 4096;
    }
    return bert(config);
}

const std::map<std::string, std::function<TensorBytes()>>& known_models() {
    static const auto* const models = new std::map<std::string, std::function<TensorBytes()>>{
        {"bert-base-cased", [] { return bert(28996, false); }},
        {"bert-base-uncased", [] { return bert(30522, false); }},
        {"bert-large-cased", [] { return bert(28996, true); }},
        {"bert-large-uncased", [] { return bert(30522, true); }},
        {"gpt2", [] { return gpt(12, 12, 768); }},
        {"gpt2-medium", [] { return gpt(24, 16, 1024); }},
        {"gpt2-large", [] { return gpt(36, 20, 1280); }},
        {"gpt2-xl", [] { return gpt(48, 25, 1600); }},
        {"resnet18", [] { return resnet(nn::resnet18()); }},
        {"resnet34", [] { return resnet(nn::resnet34()); }},
        {"resnet50", [] { return resnet(nn::resnet50()); }},
    };
    return *models;
}

// Returns the tensors of the model that a config.json describes, or nullopt if Axle does not have
// this model type.
std::optional<TensorBytes> from_config(const std::string& path) {
    const std::string text = read_file(path, kMaxConfig);
    try {
        const Tree fields = from_json(text);
        const Tree* type = fields.is_map() ? fields.find("model_type") : nullptr;
        const std::string name = type && type->is_string() ? type->string() : "";
        if (name == "gpt2") return gpt(nn::GptConfig::from_json(text));
        if (name == "bert") return bert(nn::BertConfig::from_json(text));
        if (name == "llama") return llama(nn::LlamaConfig::from_json(text));
        return std::nullopt;
    } catch (const FileError&) {
        throw;
    } catch (const Error& error) {
        throw FileError(printable(path) + ": " + error.what());
    }
}

void add_file(TensorBytes& tensors, const std::string& path) {
    const SafetensorsFile file(path);
    for (const SafetensorsFile::Entry& entry : file.entries()) {
        const std::int64_t bytes = entry.end - entry.begin;
        tensors.emplace_back(entry.name, is_floating(entry.dtype)
                                             ? bytes / static_cast<int>(size_of(entry.dtype)) * 4
                                             : bytes);
    }
}

TensorBytes from_folder(const std::string& path) {
    const fs::path config = fs::path(path) / "config.json";
    const bool has_config = fs::exists(config);
    if (has_config)
        if (auto tensors = from_config(config.string())) return *tensors;
    std::vector<std::string> files;
    for (const auto& entry : fs::directory_iterator(path))
        if (entry.path().extension() == ".safetensors") files.push_back(entry.path().string());
    if (files.empty())
        throw FileError(printable(path) +
                        (has_config ? ": the folder contains no .safetensors file, and Axle does "
                                      "not have the model type in its config.json"
                                    : ": the folder contains neither config.json nor a "
                                      ".safetensors file"));
    std::sort(files.begin(), files.end());
    TensorBytes tensors;
    for (const std::string& file : files) add_file(tensors, file);
    return tensors;
}

bool is_number(const std::string& text) {
    return !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
}

// Returns whether modules in a container of this name are the blocks of a transformer.
bool contains_blocks(const std::string& name) {
    return name == "h" || name == "layer" || name == "layers";
}

// Returns the name of the layer to which a tensor belongs. The argument is the tensor's name. A
// layer is a block of a transformer, a module named embeddings, or else the module that has the
// tensor.
std::string layer_of(const std::string& name) {
    std::string before;  // the previous part of the name
    for (std::size_t begin = 0; begin < name.size();) {
        const std::size_t end = std::min(name.find('.', begin), name.size());
        const std::string part = name.substr(begin, end - begin);
        const bool number = is_number(part);
        if ((number && contains_blocks(before)) || (part == "embeddings" && end < name.size()))
            return name.substr(0, end);
        before = part;
        begin = end + 1;
    }
    const std::size_t dot = name.rfind('.');
    return dot == std::string::npos ? name : name.substr(0, dot);
}

// Returns whether a layer is a block of a transformer, such as "transformer.h.3".
bool is_block(const std::string& layer) {
    const std::size_t dot = layer.rfind('.');
    if (dot == std::string::npos || !is_number(layer.substr(dot + 1))) return false;
    const std::string container = layer.substr(0, dot);
    return contains_blocks(container.substr(container.rfind('.') + 1));
}

constexpr std::pair<const char*, EstimateDType> kDTypes[] = {
    {"float32", EstimateDType::float32},   {"float16", EstimateDType::float16},
    {"bfloat16", EstimateDType::bfloat16}, {"int8", EstimateDType::int8},
    {"int4", EstimateDType::int4},         {"fp8", EstimateDType::fp8},
};

}  // namespace

TensorBytes tensors_of(const std::string& model) {
    if (const auto known = known_models().find(model); known != known_models().end())
        return known->second();
    if (fs::is_directory(model)) return from_folder(model);
    TensorBytes tensors;
    if (model.ends_with(".safetensors")) {
        add_file(tensors, model);
        return tensors;
    }
    if (model.ends_with(".json")) {
        if (auto from = from_config(model)) return *from;
        throw FileError("estimate-memory: the model_type must be gpt2, bert or llama: " +
                        printable(model) + " has another one or none");
    }
    std::vector<std::string> names;
    for (const auto& [name, make] : known_models()) names.push_back(name);
    const std::string near = nearest(model, names);
    throw ValueError("estimate-memory: " + in_quotes(model) +
                     " is not a folder, a config.json, a .safetensors file or a known "
                     "model name" +
                     (near.empty() ? "" : "; did you mean " + near + "?"));
}

ModelSize model_size(const TensorBytes& tensors) {
    std::map<std::string, std::int64_t> layers, blocks;
    ModelSize size;
    for (const auto& [name, bytes] : tensors) {
        const std::string layer = layer_of(name);
        size.total += bytes;
        size.largest = std::max(size.largest, layers[layer] += bytes);
        if (is_block(layer))
            size.largest_block = std::max(size.largest_block, blocks[layer] += bytes);
        else
            size.outside_of_blocks += bytes;
    }
    for (const auto& [name, bytes] : layers)
        if (bytes == size.largest) size.largest_layers.push_back(name);
    return size;
}

EstimateDType estimate_dtype(const std::string& name) {
    for (const auto& [known, dtype] : kDTypes)
        if (name == known) return dtype;
    throw UsageError("estimate-memory: unknown dtype " + in_quotes(name) +
                     "; expected float32, float16, bfloat16, int8, int4 or fp8");
}

double bytes_in(std::int64_t float32_bytes, EstimateDType dtype) {
    const int parts[] = {1, 2, 2, 4, 8, 2};
    return static_cast<double>(float32_bytes) / parts[static_cast<int>(dtype)];
}

std::optional<TrainingBytes> training_bytes(std::int64_t float32_bytes, EstimateDType dtype) {
    const std::int64_t weights = float32_bytes, optimizer = 2 * float32_bytes;
    switch (dtype) {
        case EstimateDType::float32:
            return TrainingBytes{weights, optimizer, weights, 4 * float32_bytes};
        case EstimateDType::float16:
        case EstimateDType::bfloat16:
        case EstimateDType::fp8:
            return TrainingBytes{weights, optimizer, weights + float32_bytes / 2, optimizer};
        default:
            return std::nullopt;
    }
}

int run_estimate_memory(std::vector<std::string> arguments) {
    tools::Options options(
        "Shows how much memory a model needs: for its weights, and for training with Adam. "
        "The memory of activations is not included.",
        "axle estimate-memory");
    std::string model;
    std::vector<std::string> dtypes = {"float32", "float16", "int8", "int4"};
    options
        .add("model", model,
             "a name such as gpt2, bert-base-cased or resnet50, a folder, a config.json, or a "
             ".safetensors file")
        .required();
    std::vector<int> processes = {2, 4, 8};
    options.add("--num_processes", processes,
                "The numbers of processes for which the memory of sharded training is shown");
    options.add("--dtypes", dtypes, "Any of float32, float16, bfloat16, int8, int4 and fp8");
    if (!options.parse(std::move(arguments))) return 0;
    std::vector<TableRow> rows = {{"dtype", "Largest Layer", "Total Size", "Training using Adam"}};
    std::vector<EstimateDType> wanted;
    wanted.reserve(dtypes.size());
    for (const std::string& name : dtypes) wanted.push_back(estimate_dtype(name));
    const ModelSize size = model_size(tensors_of(model));
    for (std::size_t i = 0; i < wanted.size(); ++i) {
        const auto bytes = [&](std::int64_t whole) {
            return wanted[i] == EstimateDType::float32 ? convert_bytes(whole)
                                                       : convert_bytes(bytes_in(whole, wanted[i]));
        };
        const auto training = training_bytes(size.total, wanted[i]);
        rows.push_back({dtypes[i], bytes(size.largest), bytes(size.total),
                        training ? convert_bytes(training->step) : "N/A"});
    }
    std::cout << table("Memory Usage for loading `" + model + "`", rows)
              << sharded_table(size, processes);
    return 0;
}

}  // namespace axle::launcher
