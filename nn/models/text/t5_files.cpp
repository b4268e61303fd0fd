// Reads and writes T5 models in Hugging Face's layout: config.json, generation_config.json and the
// weight files.
#include "nn/models/pretrained.h"
#include "nn/models/text/t5.h"

namespace axle::nn {

std::string T5Config::to_json() const {
    const Tree fields{
        {"model_type", "t5"},
        {"vocab_size", vocab_size},
        {"d_model", d_model},
        {"d_kv", d_kv},
        {"d_ff", d_ff},
        {"num_layers", num_layers},
        {"num_decoder_layers", decoder_layers()},
        {"num_heads", num_heads},
        {"relative_attention_num_buckets", relative_attention_num_buckets},
        {"relative_attention_max_distance", relative_attention_max_distance},
        {"dropout_rate", dropout_rate},
        {"layer_norm_epsilon", layer_norm_epsilon},
        {"initializer_factor", initializer_factor},
        {"feed_forward_proj", feed_forward_proj},
        {"is_encoder_decoder", true},
        {"tie_word_embeddings", tie_word_embeddings},
        {"scale_decoder_outputs", tie_word_embeddings},
        {"pad_token_id", pad_token_id},
        {"eos_token_id", ids_or_null(eos_token_id)},
        {"decoder_start_token_id", decoder_start_token_id},
    };
    return config_text(fields, other_fields);
}

T5Config T5Config::from_json(const std::string& text) {
    const ConfigFields fields("T5Config", text, "t5");
    fields.require("is_encoder_decoder", true);
    T5Config config;
    fields.read("vocab_size", config.vocab_size);
    fields.read("d_model", config.d_model);
    fields.read("d_kv", config.d_kv);
    fields.read("d_ff", config.d_ff);
    fields.read("num_layers", config.num_layers);
    fields.read("num_decoder_layers", config.num_decoder_layers);
    fields.read("num_heads", config.num_heads);
    fields.read("relative_attention_num_buckets", config.relative_attention_num_buckets);
    fields.read("relative_attention_max_distance", config.relative_attention_max_distance);
    fields.read("dropout_rate", config.dropout_rate);
    fields.read("layer_norm_epsilon", config.layer_norm_epsilon);
    fields.read("initializer_factor", config.initializer_factor);
    fields.read("feed_forward_proj", config.feed_forward_proj);
    // Transformers 5 writes tie_word_embeddings = true for every model. The embeddings of models
    // that do not scale the decoder's outputs are not tied.
    fields.read("tie_word_embeddings", config.tie_word_embeddings);
    bool scales = config.tie_word_embeddings;
    fields.read("scale_decoder_outputs", scales);
    config.tie_word_embeddings = config.tie_word_embeddings && scales;
    fields.read("pad_token_id", config.pad_token_id);
    fields.read("eos_token_id", config.eos_token_id);
    fields.read("decoder_start_token_id", config.decoder_start_token_id);
    config.validate();
    config.other_fields = fields.others(config.to_json());
    return config;
}

T5ForConditionalGeneration T5ForConditionalGeneration::from_pretrained(const std::string& path) {
    using Model = T5ForConditionalGeneration;
    const PretrainedFolder folder(path);
    const auto config = folder.config<T5Config>();
    Model model = folder.build<Model>(config, config.num_layers + config.decoder_layers());
    const auto is_ignored = [](const std::string& name) {
        // Older files contain a bias that no model uses.
        return name == "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight";
    };
    folder.load(model, {.inner = "transformer.",
                        .ignored = is_ignored,
                        .heads = {{"lm_head.", [&] { model.lm_head = model.shared; }}}});
    model.generation_config = folder.generation_config();
    return model;
}

void T5ForConditionalGeneration::save_pretrained(const std::string& directory,
                                                 const SavePretrainedOptions& options) const {
    save_transformers(*this, "T5ForConditionalGeneration", config.to_json(), directory, options,
                      generation_config);
}

}  // namespace axle::nn
