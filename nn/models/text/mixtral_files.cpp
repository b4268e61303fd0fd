// Reads and writes Mixtral models in Hugging Face's layout: config.json, generation_config.json and
// the weight files.
#include "nn/models/pretrained.h"
#include "nn/models/rope_fields.h"
#include "nn/models/text/mixtral.h"

namespace axle::nn {

std::string MixtralConfig::to_json() const {
    Tree fields{
        {"model_type", "mixtral"},
        {"vocab_size", vocab_size},
        {"hidden_size", hidden_size},
        {"intermediate_size", intermediate_size},
        {"num_hidden_layers", num_hidden_layers},
        {"num_attention_heads", num_attention_heads},
        {"num_key_value_heads", num_key_value_heads},
        {"head_dim", or_null(head_dim)},
        {"hidden_act", "silu"},
        {"max_position_embeddings", max_position_embeddings},
        {"rms_norm_eps", rms_norm_eps},
        {"attention_dropout", attention_dropout},
        {"initializer_range", initializer_range},
        {"tie_word_embeddings", tie_word_embeddings},
        {"num_local_experts", num_local_experts},
        {"num_experts_per_tok", num_experts_per_tok},
        {"output_router_logits", output_router_logits},
        {"router_aux_loss_coef", router_aux_loss_coef},
        {"router_jitter_noise", 0.0},
        {"sliding_window", Tree()},
        {"pad_token_id", or_null(pad_token_id)},
        {"bos_token_id", or_null(bos_token_id)},
        {"eos_token_id", ids_or_null(eos_token_id)},
    };
    write_rope(fields, rope_theta, rope_scaling);
    return config_text(fields, other_fields);
}

MixtralConfig MixtralConfig::from_json(const std::string& text) {
    const ConfigFields fields("MixtralConfig", text, "mixtral");
    Activation activation = Activation::silu;
    fields.read("hidden_act", activation, {Activation::silu});
    if (const Tree* window = fields.find("sliding_window"))
        fields.fail("sliding_window",
                    str("must be null, the only supported value: ", shown(*window)));
    double noise = 0;
    fields.read("router_jitter_noise", noise);
    if (noise != 0) fields.fail("router_jitter_noise", str("must be 0: ", noise));
    MixtralConfig config;
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
    fields.read("tie_word_embeddings", config.tie_word_embeddings);
    fields.read("num_local_experts", config.num_local_experts);
    fields.read("num_experts_per_tok", config.num_experts_per_tok);
    fields.read("output_router_logits", config.output_router_logits);
    fields.read("router_aux_loss_coef", config.router_aux_loss_coef);
    fields.read("pad_token_id", config.pad_token_id);
    // A negative padding index counts from the end, as in PyTorch.
    if (config.pad_token_id && *config.pad_token_id < 0) *config.pad_token_id += config.vocab_size;
    fields.read("bos_token_id", config.bos_token_id);
    fields.read("eos_token_id", config.eos_token_id);
    config.validate();
    config.other_fields = fields.others(config.to_json(), {"rope_scaling"});
    return config;
}

Mixtral Mixtral::from_pretrained(const std::string& path) {
    const PretrainedFolder folder(path);
    const auto config = folder.config<MixtralConfig>();
    // Every layer has at least one tensor for each expert, so the product is at most the number of
    // tensors.
    Mixtral model =
        folder.build<Mixtral>(config, config.num_hidden_layers * config.num_local_experts);
    folder.load(model, {.inner = "model."});
    model.generation_config = folder.generation_config();
    return model;
}

void Mixtral::save_pretrained(const std::string& directory,
                              const SavePretrainedOptions& options) const {
    save_transformers(*this, "MixtralForCausalLM", config.to_json(), directory, options,
                      generation_config);
}

}  // namespace axle::nn
