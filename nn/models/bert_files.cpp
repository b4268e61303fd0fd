// Reads and writes BERT models in Hugging Face's layout: config.json and the weight files.
#include <string_view>
#include <utility>

#include "core/tree/tree.h"
#include "nn/models/bert.h"
#include "nn/models/pretrained.h"

namespace axle::nn {
namespace {

// Returns the current name of a parameter. Older files use the names "gamma" and "beta" for the
// parameters of a LayerNorm.
std::string current_name(const std::string& name) {
    const auto with_end = [&](const char* old, const char* now) {
        return name.substr(0, name.size() - std::string_view(old).size()) + now;
    };
    if (name.ends_with("LayerNorm.gamma")) return with_end("gamma", "weight");
    if (name.ends_with("LayerNorm.beta")) return with_end("beta", "bias");
    return name;
}

// Returns whether to ignore a tensor that the model does not have: a weight of another model's
// head, or the position ids in older files.
bool is_ignored(const std::string& name) {
    return name.ends_with("embeddings.position_ids") || name.starts_with("cls.") ||
           name.starts_with("classifier.") || name.starts_with("pooler.") ||
           name.starts_with("bert.pooler.");
}

// Loads a model. heads(model) must return the heads that can be missing in the files.
template <class Model, class Heads>
Model load_model(const PretrainedFolder& folder, const BertConfig& config, Heads&& heads) {
    auto model = folder.build<Model>(config, config.num_hidden_layers);
    folder.load(model, {.inner = "bert.",
                        .current_name = current_name,
                        .ignored = is_ignored,
                        .heads = heads(model)});
    return model;
}

}  // namespace

std::string BertConfig::to_json() const {
    const auto [id2label, label2id] = label_maps(labels);
    const Tree fields{
        {"model_type", "bert"},
        {"vocab_size", vocab_size},
        {"hidden_size", hidden_size},
        {"num_hidden_layers", num_hidden_layers},
        {"num_attention_heads", num_attention_heads},
        {"intermediate_size", intermediate_size},
        {"max_position_embeddings", max_position_embeddings},
        {"type_vocab_size", type_vocab_size},
        {"hidden_act", activation_name(hidden_act)},
        {"hidden_dropout_prob", hidden_dropout_prob},
        {"attention_probs_dropout_prob", attention_probs_dropout_prob},
        {"classifier_dropout", or_null(classifier_dropout)},
        {"initializer_range", initializer_range},
        {"layer_norm_eps", layer_norm_eps},
        {"pad_token_id", or_null(pad_token_id)},
        {"position_embedding_type", "absolute"},
        {"tie_word_embeddings", true},
        {"id2label", id2label},
        {"label2id", label2id},
    };
    return config_text(fields, other_fields);
}

BertConfig BertConfig::from_json(const std::string& text) {
    const ConfigFields fields("BertConfig", text, "bert");
    // Other values of these options select model variants that Axle does not support.
    fields.require("position_embedding_type", "absolute");
    fields.require("is_decoder", false);
    fields.require("add_cross_attention", false);
    fields.require("tie_word_embeddings", true);

    BertConfig config;
    fields.read("vocab_size", config.vocab_size);
    fields.read("hidden_size", config.hidden_size);
    fields.read("num_hidden_layers", config.num_hidden_layers);
    fields.read("num_attention_heads", config.num_attention_heads);
    fields.read("intermediate_size", config.intermediate_size);
    fields.read("max_position_embeddings", config.max_position_embeddings);
    fields.read("type_vocab_size", config.type_vocab_size);
    fields.read("hidden_act", config.hidden_act,
                {Activation::gelu, Activation::gelu_tanh, Activation::relu, Activation::silu});
    fields.read("hidden_dropout_prob", config.hidden_dropout_prob);
    fields.read("attention_probs_dropout_prob", config.attention_probs_dropout_prob);
    fields.read("classifier_dropout", config.classifier_dropout);
    fields.read("initializer_range", config.initializer_range);
    fields.read("layer_norm_eps", config.layer_norm_eps);
    fields.read("pad_token_id", config.pad_token_id);
    read_labels(fields, config.labels);
    config.validate();
    config.other_fields = fields.others(config.to_json());
    return config;
}

Bert Bert::from_pretrained(const std::string& path) {
    const PretrainedFolder folder(path);
    const auto config = folder.config<BertConfig>();
    return load_model<Bert>(folder, config, [&](Bert& model) -> std::vector<PretrainedNames::Head> {
        return {{"pooler.", [&] { model.pooler.emplace(config); }}};
    });
}

BertForSequenceClassification BertForSequenceClassification::from_pretrained(
    const std::string& path, std::optional<std::int64_t> num_labels) {
    using Model = BertForSequenceClassification;
    const PretrainedFolder folder(path);
    auto config = folder.config<BertConfig>();
    if (num_labels && *num_labels != std::ssize(config.labels))
        config.labels = default_labels("BertForSequenceClassification", *num_labels);
    return load_model<Model>(
        folder, config, [&](Model& model) -> std::vector<PretrainedNames::Head> {
            return {{"bert.pooler.", [&] { model.bert.pooler.emplace(config); }},
                    {"classifier.", [&] { model.classifier = new_classifier(config); }}};
        });
}

BertForMaskedLM BertForMaskedLM::from_pretrained(const std::string& path) {
    using Model = BertForMaskedLM;
    const PretrainedFolder folder(path);
    const auto config = folder.config<BertConfig>();
    return load_model<Model>(
        folder, config, [&](Model& model) -> std::vector<PretrainedNames::Head> {
            return {{"cls.predictions.", [&] {
                         const Tensor& words = model.bert.embeddings.word.weight;
                         model.predictions = BertPredictions(config, words);
                     }}};
        });
}

void Bert::save_pretrained(const std::string& directory,
                           const SavePretrainedOptions& options) const {
    save_transformers(*this, "BertModel", config.to_json(), directory, options);
}
void BertForSequenceClassification::save_pretrained(const std::string& directory,
                                                    const SavePretrainedOptions& options) const {
    save_transformers(*this, "BertForSequenceClassification", config.to_json(), directory, options);
}
void BertForMaskedLM::save_pretrained(const std::string& directory,
                                      const SavePretrainedOptions& options) const {
    save_transformers(*this, "BertForMaskedLM", config.to_json(), directory, options);
}

}  // namespace axle::nn
