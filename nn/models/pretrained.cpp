#include "nn/models/pretrained.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <unordered_map>
#include <unordered_set>

#include "core/autograd/autograd.h"
#include "core/autograd/tensor_slice.h"
#include "core/files/file.h"
#include "nn/files/deferred_weight.h"

namespace axle::nn {
namespace {

namespace fs = std::filesystem;

// Returns the path of the weight file or index in a folder: the first name that exists. If none
// exists, returns the path of model.safetensors; opening that file then throws FileError.
fs::path weights_in(const fs::path& folder) {
    static constexpr const char* kNames[] = {kWeightsName, kWeightsIndexName, kTorchWeightsName,
                                             kTorchWeightsIndexName};
    std::error_code unreadable;
    for (const char* name : kNames)
        if (fs::exists(folder / name, unreadable)) return folder / name;
    return folder / kWeightsName;
}

struct ActivationName {
    const char* name;
    Activation activation;
};
// If an activation has several names, the first name is written to config.json.
constexpr std::array<ActivationName, 7> kActivations = {{
    {"gelu", Activation::gelu},
    {"gelu_new", Activation::gelu_tanh},
    {"gelu_pytorch_tanh", Activation::gelu_tanh},
    {"gelu_python", Activation::gelu},
    {"relu", Activation::relu},
    {"silu", Activation::silu},
    {"swish", Activation::silu},
}};

}  // namespace

std::string shown(const Tree& value) { return printable(str(value)); }

void check_size(const char* who, const char* what, std::int64_t value) {
    if (value < 1) throw ValueError(str(who, ": ", what, " must be positive: ", value));
    if (value > INT32_MAX) throw ValueError(str(who, ": ", what, " must be below 2^31: ", value));
}

void check_probability(const char* who, const char* what, double value) {
    if (!(value >= 0 && value < 1))
        throw ValueError(str(who, ": ", what, " must be in [0, 1): ", value));
}

void check_positive(const char* who, const char* what, double value) {
    if (!(value > 0 && std::isfinite(value)))
        throw ValueError(str(who, ": ", what, " must be positive and finite: ", value));
}

void check_row(const char* who, const char* what, std::optional<std::int64_t> value,
               std::int64_t rows) {
    if (value && (*value < 0 || *value >= rows))
        throw ValueError(str(who, ": ", what, " must be in [0, ", rows, "): ", *value));
}

// --- config.json

ConfigFields::ConfigFields(const char* who, std::string_view text)
    : who_(who), fields_(from_json(text)) {
    if (!fields_.is_map())
        throw ValueError(str(who, ": the file must contain a JSON object: ", shown(fields_)));
}

ConfigFields::ConfigFields(const char* who, std::string_view text, const char* model_type)
    : ConfigFields(who, text) {
    require("model_type", model_type);
}

const Tree* ConfigFields::find(const char* name) const {
    const Tree* field = fields_.find(name);
    return field == nullptr || field->is_null() ? nullptr : field;
}

void ConfigFields::fail(const char* name, const std::string& reason) const {
    throw ValueError(str(who_, ": ", name, ": ", reason));
}

void ConfigFields::read(const char* name, std::int64_t& value) const {
    const Tree* field = find(name);
    if (field == nullptr) return;
    if (!field->is_integer()) fail(name, str("must be an integer: ", shown(*field)));
    value = field->integer();
}
void ConfigFields::read(const char* name, double& value) const {
    const Tree* field = find(name);
    if (field == nullptr) return;
    if (!field->is_number()) fail(name, str("must be a number: ", shown(*field)));
    value = field->number();
}
void ConfigFields::read(const char* name, bool& value) const {
    const Tree* field = find(name);
    if (field == nullptr) return;
    if (!field->is_boolean()) fail(name, str("must be true or false: ", shown(*field)));
    value = field->boolean();
}
void ConfigFields::read(const char* name, std::string& value) const {
    const Tree* field = find(name);
    if (field == nullptr) return;
    if (!field->is_string()) fail(name, str("must be a string: ", shown(*field)));
    value = field->string();
}
void ConfigFields::read(const char* name, std::optional<std::int64_t>& value) const {
    if (!fields_.contains(name)) return;
    value.reset();
    if (find(name) != nullptr) read(name, value.emplace());
}
void ConfigFields::read(const char* name, std::optional<double>& value) const {
    if (!fields_.contains(name)) return;
    value.reset();
    if (find(name) != nullptr) read(name, value.emplace());
}

void ConfigFields::read(const char* name, std::vector<std::int64_t>& ids) const {
    if (!fields_.contains(name)) return;
    ids.clear();
    const Tree* field = find(name);
    if (field == nullptr) return;
    if (!field->is_list()) return read(name, ids.emplace_back());
    for (const Tree& id : field->elements()) {
        if (!id.is_integer())
            fail(name, str("must be an integer or a list of integers: ", shown(*field)));
        ids.push_back(id.integer());
    }
}

void ConfigFields::read(const char* name, Activation& value,
                        std::initializer_list<Activation> known) const {
    std::string said = activation_name(value);
    read(name, said);
    for (const ActivationName& one : kActivations) {
        if (said != one.name || std::ranges::find(known, one.activation) == known.end()) continue;
        value = one.activation;
        return;
    }
    std::string names;
    for (const Activation activation : known)
        names += (names.empty() ? "" : ", ") + std::string(activation_name(activation));
    fail(name, str("must be one of ", names, ": '", printable(said), "'"));
}

void ConfigFields::require(const char* name, bool value) const {
    const Tree* field = find(name);
    if (field == nullptr || (field->is_boolean() && field->boolean() == value)) return;
    fail(name,
         str("must be ", value ? "true" : "false", ", the only supported value: ", shown(*field)));
}
void ConfigFields::require(const char* name, const char* value) const {
    const Tree* field = find(name);
    if (field == nullptr || (field->is_string() && field->string() == value)) return;
    fail(name, str("must be ", value, ": ",
                   field->is_string() ? in_quotes(field->string()) : shown(*field)));
}

Tree ConfigFields::others(std::string_view known,
                          std::initializer_list<std::string_view> derived) const {
    const Tree own = from_json(known);
    Tree others = Tree::map();
    for (const auto& [name, value] : fields_.entries()) {
        const bool is_written = name == "architectures" || name == "torch_dtype" || name == "dtype";
        if (!is_written && !own.contains(name) && std::ranges::find(derived, name) == derived.end())
            others.entries().push_back({name, value});
    }
    return others;
}

std::string config_text(const Tree& fields, const Tree& others) {
    if (others.is_null()) return to_json(fields);
    Tree all = fields;
    for (const auto& [name, value] : others.entries())
        if (!fields.contains(name)) all.entries().push_back({name, value});
    return to_json(all);
}

void read_labels(const ConfigFields& fields, std::vector<std::string>& labels) {
    constexpr const char* kName = "id2label";
    const Tree* field = fields.find(kName);
    if (field == nullptr) return;
    if (!field->is_map()) fields.fail(kName, str("must be an object: ", shown(*field)));
    std::unordered_map<std::string_view, const Tree*> named;
    for (const auto& [id, label] : field->entries()) named.emplace(id, &label);
    labels.clear();
    for (std::size_t i = 0; i < field->size(); ++i) {
        const auto label = named.find(std::to_string(i));
        if (label == named.end() || !label->second->is_string())
            fields.fail(kName, str("no name for class ", i, " of ", field->size(), " classes"));
        labels.push_back(label->second->string());
    }
}

std::pair<Tree, Tree> label_maps(const std::vector<std::string>& labels) {
    Tree id2label = Tree::map(), label2id = Tree::map();
    std::unordered_map<std::string_view, std::size_t> entries;  // indices in label2id
    for (std::size_t i = 0; i < labels.size(); ++i) {
        id2label.entries().push_back({std::to_string(i), labels[i]});
        const auto [entry, is_new] = entries.try_emplace(labels[i], label2id.size());
        if (is_new)
            label2id.entries().push_back({labels[i], i});
        else
            label2id.entries()[entry->second].value = i;
    }
    return {std::move(id2label), std::move(label2id)};
}

std::vector<std::string> default_labels(const char* who, std::int64_t count) {
    check_size(who, "num_labels", count);
    std::vector<std::string> labels;
    for (std::int64_t i = 0; i < count; ++i) labels.push_back(str("LABEL_", i));
    return labels;
}

Tree ids_or_null(const std::vector<std::int64_t>& ids) {
    if (ids.empty()) return {};
    if (ids.size() == 1) return ids[0];
    return Tree::list(Tree::List(ids.begin(), ids.end()));
}

Tree or_null(const std::optional<std::int64_t>& value) {
    if (!value) return {};
    return *value;
}
Tree or_null(const std::optional<double>& value) {
    if (!value) return {};
    return *value;
}

const char* activation_name(Activation activation) {
    for (const ActivationName& known : kActivations)
        if (known.activation == activation) return known.name;
    throw ValueError("to_json: the activation must not be none, which has no name in config.json");
}

// --- PretrainedFolder

PretrainedFolder::PretrainedFolder(const std::string& path) {
    std::error_code unreadable;
    const bool is_file =
        fs::path(path).extension() == ".safetensors" && !fs::is_directory(path, unreadable);
    const fs::path folder = is_file ? fs::path(path).parent_path() : fs::path(path);
    config_path_ = (folder / "config.json").string();
    config_text_ = read_file(config_path_, kMaxConfig);
    files_.emplace(is_file ? path : weights_in(folder).string());
}

void PretrainedFolder::fail(const std::string& path, const std::string& reason) {
    throw FileError(str(printable(path), ": ", reason));
}

Tree PretrainedFolder::generation_config() const {
    const fs::path path = fs::path(config_path_).parent_path() / kGenerationConfigName;
    std::error_code unreadable;
    if (!fs::exists(path, unreadable)) return {};
    const std::string text = read_file(path.string(), kMaxConfig);
    const Tree config = in_file(path.string(), [&] { return from_json(text); });
    if (!config.is_map())
        fail(path.string(), str("must contain a JSON object: it contains ", shown(config)));
    return config;
}

void PretrainedFolder::check_layers(std::int64_t layers) const {
    if (layers > std::ssize(files_->weights()))
        fail(config_path_,
             str("the model has ", layers, " layers, but the weight files contain only ",
                 files_->weights().size(), " tensors"));
}

// Returns the weights in the files by their names in the model. Weights that the model does not
// have are left out if names.ignored() is true for them, and otherwise keep the names that
// names.current_name() returns. Throws FileError if two weights have the same name.
std::map<std::string, const WeightFiles::Weight*> PretrainedFolder::weights_for(
    const StateDict& own, const PretrainedNames& names) const {
    std::unordered_set<std::string> known;
    for (const auto& [name, tensor] : own) known.insert(name);
    const auto own_name = [&](const std::string& file_name) {
        std::string name = names.current_name ? names.current_name(file_name) : file_name;
        if (known.contains(name)) return name;
        if (known.contains(names.inner + name)) return names.inner + name;
        if (name.starts_with(names.inner) && known.contains(name.substr(names.inner.size())))
            return name.substr(names.inner.size());
        return name;
    };
    std::map<std::string, const WeightFiles::Weight*> named;
    for (const auto& [file_name, weight] : files_->weights()) {
        const std::string name = own_name(file_name);
        if (!known.contains(name) && names.ignored && names.ignored(name)) continue;
        if (!named.emplace(name, &weight).second)
            fail(files_->path(), str("two tensors belong to the parameter ", printable(name),
                                     " of the model; one of them is ", printable(file_name)));
    }
    return named;
}

void PretrainedFolder::load(Module& model, const PretrainedNames& names) const {
    const StateDict own = model.state_dict({.keep_vars = true});
    const auto named = weights_for(own, names);
    std::vector<PretrainedNames::Head> absent = names.heads;
    std::erase_if(absent, [&](const PretrainedNames::Head& head) {
        const auto first = named.lower_bound(head.prefix);
        return first != named.end() && first->first.starts_with(head.prefix);
    });

    // Compares names and shapes with meta tensors, which need no memory.
    StateDict shapes;
    for (const auto& [name, weight] : named)
        shapes.emplace_back(name, Tensor::empty(weight->shape(), {.device = Device::meta()}));
    for (const auto& [name, tensor] : own)
        for (const PretrainedNames::Head& head : absent)
            if (name.starts_with(head.prefix)) shapes.emplace_back(name, tensor);
    in_file(files_->path(), [&] { return model.load_state_dict(shapes); });

    const NoGrad no_grad;
    std::unordered_set<const Impl*> loaded;  // only the first name of a tied weight is loaded
    for (const auto& [name, tensor] : own) {
        const auto found = named.find(name);
        if (found == named.end() || !loaded.insert(tensor.impl().get()).second) continue;
        const WeightFiles::Weight& weight = *found->second;
        if (is_floating(weight.dtype()) != is_floating(tensor.dtype()))
            fail(files_->path(), str(name, " is ", weight.dtype(), ", which can't be converted to ",
                                     tensor.dtype()));
        tensor.set_data(in_file(files_->path(), [&] {
            if (autograd::slice_of(tensor) != nullptr)
                return to(autograd::slice_for(tensor, weight.mapped()), tensor.dtype());
            return init::defers_weights() && tensor.numel() > 0
                       ? deferred_weight(weight, tensor.dtype(), files_->path())
                       : to(weight.read(), tensor.dtype());
        }));
    }
    for (const PretrainedNames::Head& head : absent) head.make();
    model.eval();
}

void PretrainedFolder::load(Module& model) const {
    StateDict state;
    for (const auto& [name, weight] : files_->weights()) state.emplace_back(name, weight.mapped());
    in_file(files_->path(), [&] { return model.load_state_dict(state); });
}

}  // namespace axle::nn
