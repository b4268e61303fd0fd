// Reads and writes vision transformers in Hugging Face's layout: config.json and the weight files.
#include <utility>

#include "nn/models/pretrained.h"
#include "nn/models/vision/vit.h"

namespace axle::nn {

std::string ViTConfig::to_json() const {
    const auto [id2label, label2id] = label_maps(labels);
    const Tree fields{
        {"model_type", "vit"},
        {"hidden_size", hidden_size},
        {"num_hidden_layers", num_hidden_layers},
        {"num_attention_heads", num_attention_heads},
        {"intermediate_size", intermediate_size},
        {"hidden_act", activation_name(hidden_act)},
        {"hidden_dropout_prob", hidden_dropout_prob},
        {"attention_probs_dropout_prob", attention_probs_dropout_prob},
        {"initializer_range", initializer_range},
        {"layer_norm_eps", layer_norm_eps},
        {"image_size", image_size},
        {"patch_size", patch_size},
        {"num_channels", num_channels},
        {"qkv_bias", qkv_bias},
        {"id2label", id2label},
        {"label2id", label2id},
    };
    return config_text(fields, other_fields);
}

ViTConfig ViTConfig::from_json(const std::string& text) {
    const ConfigFields fields("ViTConfig", text, "vit");
    ViTConfig config;
    fields.read("hidden_size", config.hidden_size);
    fields.read("num_hidden_layers", config.num_hidden_layers);
    fields.read("num_attention_heads", config.num_attention_heads);
    fields.read("intermediate_size", config.intermediate_size);
    fields.read("hidden_act", config.hidden_act,
                {Activation::gelu, Activation::gelu_tanh, Activation::relu, Activation::silu});
    fields.read("hidden_dropout_prob", config.hidden_dropout_prob);
    fields.read("attention_probs_dropout_prob", config.attention_probs_dropout_prob);
    fields.read("initializer_range", config.initializer_range);
    fields.read("layer_norm_eps", config.layer_norm_eps);
    fields.read("image_size", config.image_size);
    fields.read("patch_size", config.patch_size);
    fields.read("num_channels", config.num_channels);
    fields.read("qkv_bias", config.qkv_bias);
    read_labels(fields, config.labels);
    config.validate();
    config.other_fields = fields.others(config.to_json());
    return config;
}

ViTForImageClassification ViTForImageClassification::from_pretrained(
    const std::string& path, std::optional<std::int64_t> num_labels) {
    using Model = ViTForImageClassification;
    const PretrainedFolder folder(path);
    auto config = folder.config<ViTConfig>();
    if (num_labels && *num_labels != std::ssize(config.labels))
        config.labels = default_labels("ViTForImageClassification", *num_labels);
    auto model = folder.build<Model>(config, config.num_hidden_layers);
    const auto is_pooler = [](const std::string& name) {
        return name.starts_with("pooler.") || name.starts_with("vit.pooler.");
    };
    folder.load(model,
                {.inner = "vit.",
                 .ignored = is_pooler,
                 .heads = {{"classifier.", [&] { model.classifier = new_classifier(config); }}}});
    return model;
}

void ViTForImageClassification::save_pretrained(const std::string& directory,
                                                const SavePretrainedOptions& options) const {
    save_transformers(*this, "ViTForImageClassification", config.to_json(), directory, options);
}

}  // namespace axle::nn
