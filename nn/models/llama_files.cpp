// Reads and writes Llama models in Hugging Face's layout: config.json, generation_config.json and
// the weight files.
#include "core/files/file.h"
#include "core/tree/tree.h"
#include "nn/models/llama.h"
#include "nn/models/pretrained.h"
#include "nn/models/rope_fields.h"

namespace axle::nn {

std::string LlamaConfig::to_json() const {
    Tree fields{
        {"model_type", "llama"},
        {"vocab_size", vocab_size},
        {"hidden_size", hidden_size},
        {"intermediate_size", intermediate_size},
        {"num_hidden_layers", num_hidden_layers},
        {"num_attention_heads", num_attention_heads},
        {"num_key_value_heads", key_value_heads()},
        {"head_dim", head_size()},
        {"hidden_act", "silu"},
        {"max_position_embeddings", max_position_embeddings},
        {"rms_norm_eps", rms_norm_eps},
        {"attention_dropout", attention_dropout},
        {"initializer_range", initializer_range},
        {"attention_bias", attention_bias},
        {"mlp_bias", mlp_bias},
        {"tie_word_embeddings", tie_word_embeddings},
        {"pad_token_id", or_null(pad_token_id)},
        {"bos_token_id", or_null(bos_token_id)},
        {"eos_token_id", ids_or_null(eos_token_id)},
    };
    write_rope(fields, rope_theta, rope_scaling);
    return config_text(fields, other_fields);
}

LlamaConfig LlamaConfig::from_json(const std::string& text) {
    const ConfigFields fields("LlamaConfig", text, "llama");
    Activation activation = Activation::silu;
    fields.read("hidden_act", activation, {Activation::silu});
    LlamaConfig config;
    fields.read("vocab_size", config.vocab_size);
    fields.read("hidden_size", config.hidden_size);
    fields.read("intermediate_size", config.intermediate_size);
    fields.read("num_hidden_layers", config.num_hidden_layers);
    fields.read("num_attention_heads", config.num_attention_heads);
    fields.read("num_key_value_heads", config.num_key_value_heads);
    fields.read("head_dim", config.head_dim);
    fields.read("max_position_embeddings", config.max_position_embeddings);
    read_rope(fields, config.rope_theta, config.rope_scaling);
    fields.read("rms_norm_eps", config.rms_norm_eps);
    fields.read("attention_dropout", config.attention_dropout);
    fields.read("initializer_range", config.initializer_range);
    fields.read("attention_bias", config.attention_bias);
    fields.read("mlp_bias", config.mlp_bias);
    fields.read("tie_word_embeddings", config.tie_word_embeddings);
    fields.read("pad_token_id", config.pad_token_id);
    // A negative padding index counts from the end, as in PyTorch.
    if (config.pad_token_id && *config.pad_token_id < 0) *config.pad_token_id += config.vocab_size;
    fields.read("bos_token_id", config.bos_token_id);
    fields.read("eos_token_id", config.eos_token_id);
    config.validate();
    // to_json() writes rope_parameters and, for scaled positions, rope_scaling.
    config.other_fields = fields.others(config.to_json(), {"rope_scaling"});
    return config;
}

Llama Llama::from_pretrained(const std::string& path) {
    const PretrainedFolder folder(path);
    const auto config = folder.config<LlamaConfig>();
    Llama model = folder.build<Llama>(config, config.num_hidden_layers);
    folder.load(model, {.inner = "model.", .ignored = [](const std::string& name) {
                            // Older files contain the frequencies of the rotary positions.
                            return name.ends_with(".rotary_emb.inv_freq");
                        }});
    model.generation_config = folder.generation_config();
    return model;
}

void Llama::save_pretrained(const std::string& directory,
                            const SavePretrainedOptions& options) const {
    save_transformers(*this, "LlamaForCausalLM", config.to_json(), directory, options,
                      generation_config);
}

}  // namespace axle::nn
