// GPT-2 as files: config.json and model.safetensors in Hugging Face's layout.
#include <algorithm>
#include <filesystem>

#include "core/file.h"
#include "core/safetensors.h"
#include "core/tree.h"
#include "nn/models/gpt.h"

namespace axle::inline v0::nn {
namespace {

namespace fs = std::filesystem;

constexpr const char* kPrefix = "transformer.";
constexpr const char* kHead = "lm_head.weight";

Gelu activation_from(const std::string& name) {
    if (name == "gelu") return Gelu::erf;
    if (name == "gelu_new" || name == "gelu_pytorch_tanh") return Gelu::tanh;
    throw ValueError(
        str("GptConfig: activation_function must be gelu or gelu_new: '", printable(name), "'"));
}

// Fields of transformers' that change what the model computes, in ways that Gpt does not know.
void check_supported(const Tree& tree) {
    const auto refuse = [&](const char* name, bool value) {
        const Tree* field = tree.find(name);
        if (field != nullptr && field->boolean() == value)
            throw ValueError(
                str("GptConfig: ", name, value ? " true" : " false", " is not supported"));
    };
    refuse("tie_word_embeddings", false);
    refuse("scale_attn_weights", false);
    refuse("scale_attn_by_inverse_layer_idx", true);
    refuse("add_cross_attention", true);
}

// Causal masks, which GPT-2's older files carry along.
bool is_mask(const std::string& name) {
    return name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias");
}

}  // namespace

std::string GptConfig::to_json() const {
    // GPT-2's end of text, which a smaller vocabulary lacks.
    constexpr std::int64_t kEndOfText = 50256;
    const Tree end_of_text = vocab_size > kEndOfText ? Tree(kEndOfText) : Tree();
    return axle::to_json(Tree{
        {"architectures", Tree::list({"GPT2LMHeadModel"})},
        {"model_type", "gpt2"},
        {"vocab_size", vocab_size},
        {"n_positions", block_size},
        {"n_layer", n_layer},
        {"n_head", n_head},
        {"n_embd", n_embd},
        {"bos_token_id", end_of_text},
        {"eos_token_id", end_of_text},
        {"activation_function", activation == Gelu::tanh ? "gelu_new" : "gelu"},
        {"resid_pdrop", dropout},
        {"embd_pdrop", dropout},
        {"attn_pdrop", dropout},
        {"layer_norm_epsilon", layer_norm_epsilon},
        {"tie_word_embeddings", true},
        {"bias", bias},
        {"torch_dtype", "float32"},
    });
}

GptConfig GptConfig::from_json(const std::string& text) {
    const Tree tree = axle::from_json(text);
    if (const Tree* type = tree.find("model_type"); type != nullptr && type->string() != "gpt2")
        throw ValueError(
            str("GptConfig: model_type must be gpt2: '", printable(type->string()), "'"));
    check_supported(tree);
    GptConfig config;
    const auto integer = [&](const char* name, std::int64_t& value) {
        if (const Tree* field = tree.find(name)) value = field->integer();
    };
    integer("vocab_size", config.vocab_size);
    integer("n_positions", config.block_size);
    integer("n_layer", config.n_layer);
    integer("n_head", config.n_head);
    integer("n_embd", config.n_embd);
    if (const Tree* field = tree.find("resid_pdrop")) config.dropout = field->number();
    if (const Tree* field = tree.find("layer_norm_epsilon"))
        config.layer_norm_epsilon = field->number();
    if (const Tree* field = tree.find("activation_function"))
        config.activation = activation_from(field->string());
    if (const Tree* field = tree.find("bias")) config.bias = field->boolean();
    config.validate();
    if (const Tree* inner = tree.find("n_inner"); inner != nullptr && !inner->is_null())
        if (inner->integer() != 4 * config.n_embd)
            throw ValueError(str("GptConfig: n_inner must be four times n_embd ", config.n_embd,
                                 ": ", inner->integer()));
    return config;
}

Gpt Gpt::from_pretrained(const std::string& path) {
    std::error_code unreadable;  // then opening it says why
    const bool is_file =
        fs::path(path).extension() == ".safetensors" && !fs::is_directory(path, unreadable);
    const fs::path weights = is_file ? fs::path(path) : fs::path(path) / "model.safetensors";
    const std::string config_path = (weights.parent_path() / "config.json").string();
    const std::string text = read_file(config_path);
    GptConfig config;
    try {
        config = GptConfig::from_json(text);
    } catch (const Error& error) {
        throw FileError(str(printable(config_path), ": ", error.what()));
    }

    const Safetensors file = load_safetensors(weights.string());
    StateDict state;
    for (const auto& [name, tensor] : file.tensors) {
        if (is_mask(name)) continue;
        const bool whole = name.starts_with(kPrefix) || name == kHead;
        state.emplace_back(whole ? name : kPrefix + name, tensor);
    }
    // Of the two names of the tied weight the embedding's counts.
    const auto named = [](const char* name) {
        return [name](const auto& entry) { return entry.first == name; };
    };
    if (std::any_of(state.begin(), state.end(), named("transformer.wte.weight")))
        std::erase_if(state, named(kHead));
    Gpt model(config);
    try {
        model.load_state_dict(state);
    } catch (const Error& error) {
        throw FileError(str(printable(weights.string()), ": ", error.what()));
    }
    return model;
}

void Gpt::save_pretrained(const std::string& directory) const {
    create_directories(directory);
    const fs::path folder(directory);
    // The format wants "pt" to tell that the layout is PyTorch's.
    save_safetensors((folder / "model.safetensors").string(), saved_state(), {{"format", "pt"}});
    write_file_atomically((folder / "config.json").string(), config.to_json() + "\n");
}

}  // namespace axle::inline v0::nn
