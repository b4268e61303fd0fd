#include "nn/files/pretrained.h"

#include <filesystem>

#include "core/files/file.h"
#include "nn/models/pretrained.h"

namespace axle::nn {
namespace {

namespace fs = std::filesystem;

constexpr const char* kConfig = "config.json";
constexpr const char* kReadme = "README.md";
constexpr const char* kGeneratedMark = "<!-- written by axle -->";

// Returns the text of README.md, which starts with metadata for the Hugging Face Hub.
std::string model_card(const Module& model, const std::string& architecture, const char* library) {
    return str("---\nlibrary_name: ", library, "\ntags:\n- axle\n---\n", kGeneratedMark, "\n\n# ",
               architecture, "\n\n", model.num_parameters(), " parameters, trained with Axle. `",
               kConfig, "` describes the model; the weights are in the `.safetensors` files.\n");
}

// Returns whether a user wrote the card. Cards that Axle generates are smaller than a kilobyte.
bool is_user_written(const fs::path& card) {
    constexpr std::int64_t kMaxGenerated = 1 << 16;
    std::error_code ignored;
    if (!fs::exists(card, ignored)) return false;
    const InputFile file(card.string());
    return file.size() > kMaxGenerated ||
           file.read(kMaxGenerated).find(kGeneratedMark) == std::string::npos;
}

}  // namespace

void save_folder(const Module& model, const std::string& architecture, const Tree& config,
                 const Tree& generation, const char* library, const std::string& directory,
                 const SavePretrainedOptions& options) {
    if (!options.is_main_process) return;
    if (!config.is_map()) throw ValueError(str("save_pretrained: config must be a map: ", config));
    const StateDict state = model.saved_state();
    save_weights(state, directory, options.max_shard_size);
    Tree whole{{"architectures", Tree::list({architecture})}};
    for (const auto& [name, value] : config.entries()) {
        if (name == "architectures" || name == "torch_dtype")
            whole.set(name, value);
        else
            whole.entries().push_back({name, value});
    }
    if (!state.empty()) whole.set("torch_dtype", str(state.front().second.dtype()));
    const fs::path folder(directory);
    write_file_atomically((folder / kConfig).string(), to_json(whole) + "\n");
    if (!generation.is_null())
        write_file_atomically((folder / kGenerationConfigName).string(),
                              to_json(generation) + "\n");
    std::string card = options.model_card;
    if (card.empty()) {
        if (is_user_written(folder / kReadme)) return;
        card = model_card(model, architecture, library);
    }
    write_file_atomically((folder / kReadme).string(), card);
}

void save_pretrained(const Module& model, const std::string& architecture, const Tree& config,
                     const std::string& directory, const SavePretrainedOptions& options) {
    save_folder(model, architecture, config, {}, "axle", directory, options);
}

Tree pretrained_config(const std::string& directory) {
    const std::string path = (fs::path(directory) / kConfig).string();
    const std::string text = read_file(path, kMaxConfig);
    try {
        return from_json(text);
    } catch (const ValueError& error) {
        throw FileError(str(printable(path), ": ", error.what()));
    }
}

void load_pretrained(Module& model, const std::string& directory) {
    PretrainedFolder(directory).load(model);
}

}  // namespace axle::nn
