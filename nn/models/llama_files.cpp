// Reading and writing Llama models: config.json and model.safetensors in Hugging Face's layout.
#include "core/files/file.h"
#include "core/tree/tree.h"
#include "nn/models/llama.h"
#include "nn/models/pretrained.h"

namespace axle::nn {
namespace {

// Reads the base of the rotary positions. Versions of transformers before 5 write rope_theta and,
// for scaled positions, rope_scaling. Later versions write both into rope_parameters.
void read_rope(const ConfigFields& fields, double& theta) {
    fields.read("rope_theta", theta);
    for (const char* name : {"rope_scaling", "rope_parameters"}) {
        const Tree* rope = fields.find(name);
        if (rope == nullptr) continue;
        if (!rope->is_map()) fields.fail(name, str("must be an object: ", shown(*rope)));
        for (const char* key : {"rope_type", "type"}) {
            const Tree* type = rope->find(key);
            if (type != nullptr && !(type->is_string() && type->string() == "default"))
                fields.fail(
                    name, str(key, ": must be default, the only supported value: ", shown(*type)));
        }
        const Tree* base = rope->find("rope_theta");
        if (base == nullptr || base->is_null()) continue;
        if (!base->is_number())
            fields.fail(name, str("rope_theta: must be a number: ", shown(*base)));
        theta = base->number();
    }
}

}  // namespace

std::string LlamaConfig::to_json() const {
    const Tree fields{
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
        {"rope_theta", rope_theta},
        {"rope_parameters", {{"rope_type", "default"}, {"rope_theta", rope_theta}}},
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
    read_rope(fields, config.rope_theta);
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
    // rope_parameters, which to_json() writes, replaces rope_scaling.
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
