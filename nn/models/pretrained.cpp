#include "nn/models/pretrained.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <unordered_set>

#include "core/autograd.h"
#include "core/file.h"

namespace axle::inline v0::nn {
namespace {

namespace fs = std::filesystem;

constexpr const char* kWeights = "model.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";

bool is_there(const fs::path& path) {
    std::error_code unreadable;  // then opening it says why
    return fs::exists(path, unreadable);
}

struct ActivationName {
    const char* name;
    Activation activation;
};
// The first name of each is the one that is written.
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

ConfigFields::ConfigFields(const char* who, std::string_view text, const char* model_type)
    : who_(who), fields_(from_json(text)) {
    if (!fields_.is_map()) throw ValueError(str(who, ": must be a JSON object"));
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
    if (!field->is_integer()) fail(name, str("must be an integer: ", *field));
    value = field->integer();
}
void ConfigFields::read(const char* name, double& value) const {
    const Tree* field = find(name);
    if (field == nullptr) return;
    if (!field->is_number()) fail(name, str("must be a number: ", *field));
    value = field->number();
}
void ConfigFields::read(const char* name, bool& value) const {
    const Tree* field = find(name);
    if (field == nullptr) return;
    if (!field->is_boolean()) fail(name, str("must be true or false: ", *field));
    value = field->boolean();
}
void ConfigFields::read(const char* name, std::string& value) const {
    const Tree* field = find(name);
    if (field == nullptr) return;
    if (!field->is_string()) fail(name, str("must be a string: ", *field));
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
    bool said = value;
    read(name, said);
    if (said != value) fail(name, str(said ? "true" : "false", " is not supported"));
}
void ConfigFields::require(const char* name, const char* value) const {
    std::string said = value;
    read(name, said);
    if (said != value) fail(name, str("must be ", value, ": '", printable(said), "'"));
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
    throw ValueError("activation: has no name in a config.json: none");
}

// --- the folder

PretrainedFolder::PretrainedFolder(const std::string& path) {
    std::error_code unreadable;
    const bool is_file =
        fs::path(path).extension() == ".safetensors" && !fs::is_directory(path, unreadable);
    const fs::path folder = is_file ? fs::path(path).parent_path() : fs::path(path);
    config_path_ = (folder / "config.json").string();
    config_text_ = read_file(config_path_);
    const fs::path weights = is_file ? fs::path(path) : folder / kWeights;
    const bool sharded = !is_file && !is_there(weights) && is_there(folder / kIndex);
    weights_path_ = sharded ? (folder / kIndex).string() : weights.string();
    sharded ? open_shards() : open_whole();
}

void PretrainedFolder::fail(const std::string& path, const std::string& reason) {
    throw FileError(str(printable(path), ": ", reason));
}

void PretrainedFolder::open_whole() {
    const SafetensorsFile file(weights_path_);
    for (const SafetensorsFile::Entry& entry : file.entries())
        weights_.emplace(entry.name, Weight{file, entry});
}

void PretrainedFolder::open_shards() {
    const std::string text = read_file(weights_path_);
    const Tree index = in_file(weights_path_, [&] { return from_json(text); });
    const Tree* map = index.is_map() ? index.find("weight_map") : nullptr;
    if (map == nullptr || !map->is_map()) fail(weights_path_, "has no map \"weight_map\"");
    struct Shard {
        SafetensorsFile file;
        std::map<std::string, const SafetensorsFile::Entry*> entries;
    };
    std::map<std::string, Shard> shards;
    for (const auto& [name, shard] : map->entries()) {
        const std::string file = shard.is_string() ? shard.string() : "";
        // A name that leads out of the folder is no shard.
        if (!file.ends_with(".safetensors") || fs::path(file).filename() != file)
            fail(weights_path_, str("weight_map: no file for ", printable(name), ": ", shard));
        auto found = shards.find(file);
        if (found == shards.end()) {
            const fs::path path = fs::path(weights_path_).parent_path() / file;
            found = shards.emplace(file, Shard{SafetensorsFile(path.string()), {}}).first;
            for (const auto& entry : found->second.file.entries())
                found->second.entries.emplace(entry.name, &entry);
        }
        const auto entry = found->second.entries.find(name);
        if (entry == found->second.entries.end())
            fail(weights_path_, str(printable(file), " lacks ", printable(name)));
        weights_.emplace(name, Weight{found->second.file, *entry->second});
    }
}

void PretrainedFolder::check_layers(std::int64_t layers) const {
    if (layers > std::ssize(weights_))
        fail(config_path_,
             str(layers, " layers, but the weights are only ", weights_.size(), " tensors"));
}

// What the files have for the model, under the model's own names, and what it doesn't know.
std::map<std::string, const PretrainedFolder::Weight*> PretrainedFolder::named_for(
    const StateDict& own, const PretrainedNames& names) const {
    std::unordered_set<std::string> known;
    for (const auto& [name, tensor] : own) known.insert(name);
    const auto own_name = [&](const std::string& file_name) {
        std::string name = names.modern ? names.modern(file_name) : file_name;
        if (known.contains(name)) return name;
        if (known.contains(names.inner + name)) return names.inner + name;
        if (name.starts_with(names.inner) && known.contains(name.substr(names.inner.size())))
            return name.substr(names.inner.size());
        return name;
    };
    std::map<std::string, const Weight*> named;
    for (const auto& [file_name, weight] : weights_) {
        const std::string name = own_name(file_name);
        if (!known.contains(name) && names.ignored && names.ignored(name)) continue;
        if (!named.emplace(name, &weight).second)
            fail(weights_path_,
                 str("two tensors for ", printable(name), ", one is ", printable(file_name)));
    }
    return named;
}

void PretrainedFolder::load(Module& model, const PretrainedNames& names) const {
    const StateDict own = model.state_dict();
    const auto named = named_for(own, names);
    std::vector<PretrainedNames::Head> absent = names.heads;
    std::erase_if(absent, [&](const PretrainedNames::Head& head) {
        const auto first = named.lower_bound(head.prefix);
        return first != named.end() && first->first.starts_with(head.prefix);
    });

    // The names and the shapes alone, which cost nothing.
    StateDict shapes;
    for (const auto& [name, weight] : named)
        shapes.emplace_back(name, Tensor::empty(weight->entry.shape, {.device = Device::meta()}));
    for (const auto& [name, tensor] : own)
        for (const PretrainedNames::Head& head : absent)
            if (name.starts_with(head.prefix)) shapes.emplace_back(name, tensor);
    in_file(weights_path_, [&] { return model.load_state_dict(shapes); });

    const NoGrad no_grad;
    std::unordered_set<const Impl*> loaded;  // of a tied weight's names the first counts
    for (const auto& [name, tensor] : own) {
        const auto found = named.find(name);
        if (found == named.end() || !loaded.insert(tensor.impl().get()).second) continue;
        const auto& [file, entry] = *found->second;
        if (is_floating(entry.dtype) != is_floating(tensor.dtype()))
            fail(weights_path_, str(name, " is ", entry.dtype, ", but must be ", tensor.dtype()));
        tensor.set_data(
            in_file(weights_path_, [&] { return to(file.tensor(entry), tensor.dtype()); }));
    }
    for (const PretrainedNames::Head& head : absent) head.make();
}

void save_pretrained(const Module& model, const char* architecture, const std::string& config,
                     const std::string& directory) {
    create_directories(directory);
    const fs::path folder(directory);
    const StateDict state = model.saved_state();
    // The format wants "pt" to tell that the layout is PyTorch's.
    save_safetensors((folder / kWeights).string(), state, {{"format", "pt"}});
    Tree whole = {{"architectures", Tree::list({architecture})}};
    const Tree fields = from_json(config);
    for (const auto& [name, value] : fields.entries()) whole.set(name, value);
    if (!state.empty()) whole.set("torch_dtype", str(state.front().second.dtype()));
    write_file_atomically((folder / "config.json").string(), to_json(whole) + "\n");
}

}  // namespace axle::inline v0::nn
