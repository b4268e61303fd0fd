// Reads and writes GPT-2 models in Hugging Face's layout: config.json, generation_config.json and
// the weight files.
#include "core/tree/tree.h"
#include "nn/models/gpt.h"
#include "nn/models/pretrained.h"

namespace axle::nn {

std::string GptConfig::to_json() const {
    std::optional<std::int64_t> bos = bos_token_id;
    if (bos && *bos >= vocab_size) bos.reset();
    std::vector<std::int64_t> eos = eos_token_id;
    std::erase_if(eos, [&](std::int64_t id) { return id >= vocab_size; });
    const Tree fields{
        {"model_type", "gpt2"},
        {"vocab_size", vocab_size},
        {"n_positions", block_size},
        {"n_layer", n_layer},
        {"n_head", n_head},
        {"n_embd", n_embd},
        {"bos_token_id", or_null(bos)},
        {"eos_token_id", ids_or_null(eos)},
        {"activation_function", activation == Gelu::tanh ? "gelu_new" : "gelu"},
        {"resid_pdrop", dropout},
        {"embd_pdrop", embd_dropout.value_or(dropout)},
        {"attn_pdrop", attn_dropout.value_or(dropout)},
        {"layer_norm_epsilon", layer_norm_epsilon},
        {"tie_word_embeddings", true},
        {"bias", bias},
    };
    return config_text(fields, other_fields);
}

GptConfig GptConfig::from_json(const std::string& text) {
    const ConfigFields fields("GptConfig", text, "gpt2");
    // Other values of these options select model variants that Axle does not support.
    fields.require("tie_word_embeddings", true);
    fields.require("scale_attn_weights", true);
    fields.require("scale_attn_by_inverse_layer_idx", false);
    fields.require("add_cross_attention", false);

    GptConfig config;
    fields.read("vocab_size", config.vocab_size);
    fields.read("n_positions", config.block_size);
    fields.read("n_layer", config.n_layer);
    fields.read("n_head", config.n_head);
    fields.read("n_embd", config.n_embd);
    fields.read("resid_pdrop", config.dropout);
    fields.read("embd_pdrop", config.embd_dropout);
    fields.read("attn_pdrop", config.attn_dropout);
    fields.read("layer_norm_epsilon", config.layer_norm_epsilon);
    fields.read("bias", config.bias);
    fields.read("bos_token_id", config.bos_token_id);
    fields.read("eos_token_id", config.eos_token_id);
    Activation activation = Activation::gelu_tanh;
    fields.read("activation_function", activation, {Activation::gelu, Activation::gelu_tanh});
    config.activation = activation == Activation::gelu ? Gelu::erf : Gelu::tanh;
    config.validate();
    std::int64_t inner = 4 * config.n_embd;
    fields.read("n_inner", inner);
    if (inner != 4 * config.n_embd)
        fields.fail("n_inner", str("must be four times n_embd ", config.n_embd, ": ", inner));
    config.other_fields = fields.others(config.to_json(), {"n_inner"});
    return config;
}

Gpt Gpt::from_pretrained(const std::string& path) {
    const PretrainedFolder folder(path);
    const auto config = folder.config<GptConfig>();
    Gpt model = folder.build<Gpt>(config, config.n_layer);
    folder.load(model, {.inner = "transformer.", .ignored = [](const std::string& name) {
                            // Older files contain the causal masks as buffers.
                            return name.ends_with(".attn.bias") ||
                                   name.ends_with(".attn.masked_bias");
                        }});
    model.generation_config = folder.generation_config();
    return model;
}

void Gpt::save_pretrained(const std::string& directory,
                          const SavePretrainedOptions& options) const {
    save_transformers(*this, "GPT2LMHeadModel", config.to_json(), directory, options,
                      generation_config);
}

}  // namespace axle::nn
