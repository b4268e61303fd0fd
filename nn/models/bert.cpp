#include "nn/models/bert.h"

#include "nn/init.h"
#include "nn/layers/sequence_policy.h"
#include "nn/models/pretrained.h"
#include "nn/models/transformer.h"

namespace axle::nn {

void BertConfig::validate() const {
    constexpr const char* kWho = "BertConfig";
    check_size(kWho, "vocab_size", vocab_size);
    check_size(kWho, "hidden_size", hidden_size);
    check_size(kWho, "num_hidden_layers", num_hidden_layers);
    check_size(kWho, "num_attention_heads", num_attention_heads);
    check_size(kWho, "intermediate_size", intermediate_size);
    check_size(kWho, "max_position_embeddings", max_position_embeddings);
    check_size(kWho, "type_vocab_size", type_vocab_size);
    check_size(kWho, "the number of labels", std::ssize(labels));
    if (hidden_size % num_attention_heads != 0)
        throw ValueError(str("BertConfig: hidden_size ", hidden_size,
                             " is not a multiple of num_attention_heads ", num_attention_heads));
    check_probability(kWho, "hidden_dropout_prob", hidden_dropout_prob);
    check_probability(kWho, "attention_probs_dropout_prob", attention_probs_dropout_prob);
    check_probability(kWho, "classifier_dropout", classifier_dropout.value_or(0));
    check_positive(kWho, "initializer_range", initializer_range);
    check_positive(kWho, "layer_norm_eps", layer_norm_eps);
    check_row(kWho, "pad_token_id", pad_token_id, vocab_size);
}

namespace {

const BertConfig& validated(const BertConfig& config) {
    config.validate();
    return config;
}

Linear linear_of(const BertConfig& config, std::int64_t in, std::int64_t out) {
    return normal_linear(in, out, config.initializer_range);
}

Embedding embedding_of(const BertConfig& config, std::int64_t rows,
                       std::optional<std::int64_t> padding_idx = {}) {
    return normal_embedding(rows, config.hidden_size, config.initializer_range, padding_idx);
}

LayerNorm norm_of(const BertConfig& config) {
    return LayerNorm(config.hidden_size, {.eps = config.layer_norm_eps});
}

std::vector<Tensor> inputs_of(const Tree& batch) {
    return nn::inputs_of(
        "bert", batch, {"input_ids", "labels", "attention_mask", "token_type_ids", "position_ids"});
}

}  // namespace

BertEmbeddings::BertEmbeddings(const BertConfig& config)
    : word(embedding_of(config, config.vocab_size, config.pad_token_id)),
      position(embedding_of(config, config.max_position_embeddings)),
      token_type(embedding_of(config, config.type_vocab_size)),
      norm(norm_of(config)),
      dropout(config.hidden_dropout_prob) {}

Tensor BertEmbeddings::forward(const Tensor& ids, const Tensor& token_type_ids,
                               const Tensor& position_ids) {
    const Tensor positions =
        token_positions("bert", position_ids, ids, position.weight.size(0)).positions;
    const Tensor types =
        token_type_ids.defined() ? token_type(token_type_ids) : token_type.weight[0];
    return dropout(
        norm(word(ids) + types + position_rows(position.weight, ids.size(1), positions)));
}

BertSelfAttention::BertSelfAttention(const BertConfig& config)
    : query(linear_of(config, config.hidden_size, config.hidden_size)),
      key(linear_of(config, config.hidden_size, config.hidden_size)),
      value(linear_of(config, config.hidden_size, config.hidden_size)),
      head_size(config.hidden_size / config.num_attention_heads),
      dropout(config.attention_probs_dropout_prob) {}

Tensor BertSelfAttention::forward(const Tensor& x, const Tensor& mask) {
    // Reshapes [B, T, C] to [B, heads, T, C / heads].
    const auto split_heads = [&](const Tensor& y) {
        return y.reshape({y.size(0), y.size(1), -1, head_size}).transpose(1, 2);
    };
    const Tensor q = split_heads(query(x)), k = split_heads(key(x)), v = split_heads(value(x));
    const RandomPartGuard guard(random_part);
    const Tensor y =
        nn::attention(q, k, v, {.mask = mask, .dropout_p = is_training() ? dropout : 0});
    return y.transpose(1, 2).reshape({y.size(0), y.size(2), -1});
}

BertOutput::BertOutput(const BertConfig& config, std::int64_t in)
    : dense(linear_of(config, in, config.hidden_size)),
      norm(norm_of(config)),
      dropout(config.hidden_dropout_prob) {}

Tensor BertOutput::forward(const Tensor& x, const Tensor& residual) {
    return norm(dropout(dense(x)) + residual);
}

BertAttention::BertAttention(const BertConfig& config)
    : self(config), output(config, config.hidden_size) {}

Tensor BertAttention::forward(const Tensor& x, const Tensor& mask) {
    return output(self(x, mask), x);
}

BertIntermediate::BertIntermediate(const BertConfig& config)
    : dense(linear_of(config, config.hidden_size, config.intermediate_size)),
      activation(config.hidden_act) {}

Tensor BertIntermediate::forward(const Tensor& x) { return dense(x, activation); }

BertLayer::BertLayer(const BertConfig& config)
    : attention(config), intermediate(config), output(config, config.intermediate_size) {}

Tensor BertLayer::forward(const Tensor& x, const Tensor& mask) {
    const Tensor y = attention(x, mask);
    return output(intermediate(y), y);
}

BertEncoder::BertEncoder(const BertConfig& config) {
    for (std::int64_t i = 0; i < config.num_hidden_layers; ++i) layer.push_back(BertLayer(config));
}

Tensor BertEncoder::forward(Tensor x, const Tensor& mask) {
    x = enter_blocks(x);
    for (BertLayer& each : layer) x = each(x, mask);
    return leave_blocks(x);
}

BertPooler::BertPooler(const BertConfig& config)
    : dense(linear_of(config, config.hidden_size, config.hidden_size)) {}

Tensor BertPooler::forward(const Tensor& hidden) { return tanh(dense(hidden.select(1, 0))); }

Bert::Bert(const BertConfig& config_, bool with_pooler)
    : config(validated(config_)), embeddings(config), encoder(config) {
    if (with_pooler) pooler.emplace(config);
}

Tensor Bert::forward(const Tensor& ids, const Tensor& attention_mask, const Tensor& token_type_ids,
                     const Tensor& position_ids) {
    if (ids.dim() != 2 ||
        (!position_ids.defined() && whole_length(ids.size(1)) > config.max_position_embeddings))
        throw ShapeError(
            str("bert: ids must be [batch, time] with time at most max_position_embeddings ",
                config.max_position_embeddings, ": they are ", ids.shape(),
                sequence_policy() == nullptr ? "" : ", a part of each sequence"));
    if (token_type_ids.defined() && token_type_ids.shape() != ids.shape())
        throw ShapeError(str("bert: shapes differ: token_type_ids ", token_type_ids.shape(),
                             ", ids ", ids.shape()));
    const Tensor mask = padding_mask("bert", attention_mask, ids);
    return encoder(embeddings(ids, token_type_ids, position_ids), mask);
}

Tensor Bert::pooled(const Tensor& hidden) {
    return enter([&] {
        if (!pooler)
            throw UsageError(
                "bert: pooled() needs a model with a pooler: pass with_pooler = true to the "
                "constructor");
        if (sequence_policy() != nullptr)
            throw UsageError(
                "bert: pooled() needs the first token of whole sequences, but processes share the "
                "sequences (context parallelism or Ulysses)");
        return (*pooler)(hidden);
    });
}

BertForSequenceClassification::BertForSequenceClassification(const BertConfig& config_)
    : config(config_),
      bert(config),
      dropout(config.classifier_dropout.value_or(config.hidden_dropout_prob)),
      classifier(new_classifier(config)) {}

Linear BertForSequenceClassification::new_classifier(const BertConfig& config) {
    return linear_of(config, config.hidden_size, std::ssize(config.labels));
}

Tensor BertForSequenceClassification::forward(const Tensor& ids, const Tensor& attention_mask,
                                              const Tensor& token_type_ids,
                                              const Tensor& position_ids) {
    return classifier(
        dropout(bert.pooled(bert(ids, attention_mask, token_type_ids, position_ids))));
}

void BertForSequenceClassification::check_labels(const Tensor& ids, const Tensor& labels) {
    if (labels.shape() != Shape{ids.size(0)})
        throw ShapeError(str("bert: labels must be [", ids.size(0),
                             "], one for each sequence: labels ", labels.shape(), ", ids ",
                             ids.shape()));
}

Tensor BertForSequenceClassification::loss_of(const Tensor& logits, const Tensor& labels) const {
    if (config.labels.size() > 1) return cross_entropy(logits, labels);
    return mse_loss(logits.squeeze(-1), labels.to(logits.dtype()));
}

Tensor BertForSequenceClassification::loss(const Tensor& ids, const Tensor& labels,
                                           const Tensor& attention_mask,
                                           const Tensor& token_type_ids,
                                           const Tensor& position_ids) {
    return enter([&] {
        check_labels(ids, labels);
        return loss_of(forward(ids, attention_mask, token_type_ids, position_ids), labels);
    });
}

ModelOutput BertForSequenceClassification::outputs(const Tensor& ids, const Tensor& labels,
                                                   const Tensor& attention_mask,
                                                   const Tensor& token_type_ids,
                                                   const Tensor& position_ids) {
    return enter([&] {
        if (labels.defined()) check_labels(ids, labels);
        ModelOutput output{.logits = forward(ids, attention_mask, token_type_ids, position_ids)};
        if (labels.defined()) output.loss = loss_of(output.logits, labels);
        return output;
    });
}

ModelOutput BertForSequenceClassification::outputs(const Tree& batch) {
    const std::vector<Tensor> inputs = inputs_of(batch);
    return outputs(inputs[0], inputs[1], inputs[2], inputs[3], inputs[4]);
}

BertPredictions::BertPredictions(const BertConfig& config, const Tensor& word_embeddings)
    : dense(linear_of(config, config.hidden_size, config.hidden_size)),
      norm(norm_of(config)),
      bias(init::parameter({config.vocab_size})),
      decoder(word_embeddings),
      activation(config.hidden_act) {
    init::zeros_(bias);
}

Tensor BertPredictions::forward(const Tensor& x) { return head_logits(norm(dense(x, activation))); }

Tensor BertPredictions::loss(const Tensor& x, const Tensor& targets) {
    return enter([&] { return head_loss(norm(dense(x, activation)), targets); });
}

void BertPredictions::visit(Visitor& v) {
    v("bias", bias);
    v("transform.dense", dense), v("transform.LayerNorm", norm);
    v("decoder.weight", decoder), v("decoder.bias", bias);
}

BertForMaskedLM::BertForMaskedLM(const BertConfig& config_)
    : config(config_), bert(config, false), predictions(config, bert.embeddings.word.weight) {}

Tensor BertForMaskedLM::forward(const Tensor& ids, const Tensor& attention_mask,
                                const Tensor& token_type_ids, const Tensor& position_ids) {
    return predictions(bert(ids, attention_mask, token_type_ids, position_ids));
}

void BertForMaskedLM::check_labels(const Tensor& ids, const Tensor& labels) {
    if (labels.shape() != ids.shape())
        throw ShapeError(
            str("bert: shapes differ: labels ", labels.shape(), ", ids ", ids.shape()));
}

ModelOutput BertForMaskedLM::outputs(const Tensor& ids, const Tensor& labels,
                                     const Tensor& attention_mask, const Tensor& token_type_ids,
                                     const Tensor& position_ids) {
    return enter([&] {
        if (labels.defined()) check_labels(ids, labels);
        ModelOutput output{.logits = forward(ids, attention_mask, token_type_ids, position_ids)};
        if (labels.defined())
            output.loss =
                cross_entropy(output.logits.reshape({-1, config.vocab_size}), labels.reshape({-1}));
        return output;
    });
}

ModelOutput BertForMaskedLM::outputs(const Tree& batch) {
    const std::vector<Tensor> inputs = inputs_of(batch);
    return outputs(inputs[0], inputs[1], inputs[2], inputs[3], inputs[4]);
}

Tensor BertForMaskedLM::loss(const Tensor& ids, const Tensor& labels, const Tensor& attention_mask,
                             const Tensor& token_type_ids, const Tensor& position_ids) {
    return enter([&] {
        check_labels(ids, labels);
        const Tensor x = bert(ids, attention_mask, token_type_ids, position_ids);
        return predictions.loss(x.reshape({-1, config.hidden_size}), labels.reshape({-1}));
    });
}

}  // namespace axle::nn
