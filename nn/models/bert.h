// BERT: a bidirectional encoder with the names and the layout of Hugging Face's, so that its files
// load here and ours there (Devlin et al., arXiv:1810.04805). Bert is the encoder; around it are
// BertForSequenceClassification and BertForMaskedLM.
//
// All three take ids [B, T], T <= max_position_embeddings; attention_mask [B, T], zero where a
// token is padding, which nobody attends to (undefined: no padding); and token_type_ids [B, T]
// (undefined: all zero). ShapeError for others.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "nn/files/pretrained.h"
#include "nn/layers/container.h"
#include "nn/layers/layers.h"
#include "nn/layers/linear.h"
#include "nn/layers/norm.h"

namespace axle::inline v0::nn {

// Hugging Face's names and defaults.
struct BertConfig {
    std::int64_t vocab_size = 30522;
    std::int64_t hidden_size = 768;
    std::int64_t num_hidden_layers = 12;
    std::int64_t num_attention_heads = 12;
    std::int64_t intermediate_size = 3072;
    std::int64_t max_position_embeddings = 512;
    std::int64_t type_vocab_size = 2;
    Activation hidden_act = Activation::gelu;
    double hidden_dropout_prob = 0.1;
    double attention_probs_dropout_prob = 0.1;
    std::optional<double> classifier_dropout = {};  // hidden_dropout_prob unless said
    double initializer_range = 0.02;
    double layer_norm_eps = 1e-12;
    std::optional<std::int64_t> pad_token_id = 0;  // its embedding gets no gradient
    // The classes of a classifier, id2label; one alone is a regression.
    std::vector<std::string> labels = {"LABEL_0", "LABEL_1"};

    // Throws ValueError naming the field.
    void validate() const;
    // config.json as Hugging Face writes it for BERT; fields that it lacks keep their defaults.
    // Throws ValueError for text that is no such configuration.
    std::string to_json() const;
    static BertConfig from_json(const std::string& text);
};

struct BertEmbeddings : Model<BertEmbeddings> {
    explicit BertEmbeddings(const BertConfig& config);
    Tensor forward(const Tensor& ids, const Tensor& token_type_ids);
    void visit(Visitor& v) override {
        v("word_embeddings", word), v("position_embeddings", position);
        v("token_type_embeddings", token_type), v("LayerNorm", norm), v("dropout", dropout);
    }

    Embedding word, position, token_type;
    LayerNorm norm;
    Dropout dropout;
};

struct BertSelfAttention : Model<BertSelfAttention> {
    explicit BertSelfAttention(const BertConfig& config);
    // `mask` as in AttentionOptions, or undefined.
    Tensor forward(const Tensor& x, const Tensor& mask);
    void visit(Visitor& v) override { v("query", query), v("key", key), v("value", value); }

    Linear query, key, value;
    std::int64_t heads;
    double dropout;
};

// norm(residual + dropout(dense(x))).
struct BertOutput : Model<BertOutput> {
    BertOutput(const BertConfig& config, std::int64_t in);
    Tensor forward(const Tensor& x, const Tensor& residual);
    void visit(Visitor& v) override {
        v("dense", dense), v("LayerNorm", norm), v("dropout", dropout);
    }

    Linear dense;
    LayerNorm norm;
    Dropout dropout;
};

struct BertAttention : Model<BertAttention> {
    explicit BertAttention(const BertConfig& config);
    Tensor forward(const Tensor& x, const Tensor& mask) { return output(self(x, mask), x); }
    void visit(Visitor& v) override { v("self", self), v("output", output); }

    BertSelfAttention self;
    BertOutput output;
};

struct BertIntermediate : Model<BertIntermediate> {
    explicit BertIntermediate(const BertConfig& config);
    Tensor forward(const Tensor& x) { return dense(x, activation); }
    void visit(Visitor& v) override { v("dense", dense); }

    Linear dense;
    Activation activation;
};

struct BertLayer : Model<BertLayer> {
    explicit BertLayer(const BertConfig& config);
    Tensor forward(const Tensor& x, const Tensor& mask);
    void visit(Visitor& v) override {
        v("attention", attention), v("intermediate", intermediate), v("output", output);
    }

    BertAttention attention;
    BertIntermediate intermediate;
    BertOutput output;
};

struct BertEncoder : Model<BertEncoder> {
    explicit BertEncoder(const BertConfig& config);
    Tensor forward(Tensor x, const Tensor& mask);
    void visit(Visitor& v) override { v("layer", layer); }

    ModuleList<BertLayer> layer;
};

// tanh(dense(the first token)): [B, T, C] to [B, C].
struct BertPooler : Model<BertPooler> {
    explicit BertPooler(const BertConfig& config);
    Tensor forward(const Tensor& hidden) { return tanh(dense(hidden.select(1, 0))); }
    void visit(Visitor& v) override { v("dense", dense); }

    Linear dense;
};

// Weights from N(0, initializer_range), biases zero, in all three models. Their files are folders
// (nn/models/pretrained.h), as these classes or transformers write them; each finds its part in
// the file of any other and makes a head that is missing there anew. FileError.
struct Bert : Model<Bert> {
    explicit Bert(const BertConfig& config, bool with_pooler = true);
    static Bert from_pretrained(const std::string& path);
    void save_pretrained(const std::string& directory,
                         const SavePretrainedOptions& options = {}) const;

    // The last hidden state [B, T, C].
    Tensor forward(const Tensor& ids, const Tensor& attention_mask = {},
                   const Tensor& token_type_ids = {});
    // [B, C] of it. Throws UsageError without a pooler.
    Tensor pooled(const Tensor& hidden);
    void visit(Visitor& v) override {
        v("embeddings", embeddings), v("encoder", encoder);
        if (pooler) v("pooler", *pooler);
    }

    BertConfig config;
    BertEmbeddings embeddings;
    BertEncoder encoder;
    std::optional<BertPooler> pooler;
};

struct BertForSequenceClassification : Model<BertForSequenceClassification> {
    explicit BertForSequenceClassification(const BertConfig& config);
    // With as many classes as the configuration has labels, or as said here.
    static BertForSequenceClassification from_pretrained(
        const std::string& path, std::optional<std::int64_t> num_labels = {});
    void save_pretrained(const std::string& directory,
                         const SavePretrainedOptions& options = {}) const;

    // Logits [B, labels].
    Tensor forward(const Tensor& ids, const Tensor& attention_mask = {},
                   const Tensor& token_type_ids = {});
    // Mean cross entropy of the classes labels [B] (-100 is ignored), in nats. With one label, the
    // mean squared error to the numbers labels [B].
    Tensor loss(const Tensor& ids, const Tensor& labels, const Tensor& attention_mask = {},
                const Tensor& token_type_ids = {});
    void visit(Visitor& v) override {
        v("bert", bert), v("dropout", dropout), v("classifier", classifier);
    }

    BertConfig config;
    Bert bert;
    Dropout dropout;
    Linear classifier;

  private:
    static Linear new_classifier(const BertConfig& config);
};

// bias + norm(act(dense(x))) times the word embeddings.
struct BertPredictions : Model<BertPredictions> {
    BertPredictions(const BertConfig& config, const Tensor& word_embeddings);
    Tensor forward(const Tensor& x);
    void visit(Visitor& v) override;

    Linear dense;
    LayerNorm norm;
    Tensor bias;     // [vocab_size]
    Tensor decoder;  // the word embeddings themselves
    Activation activation;
};

struct BertForMaskedLM : Model<BertForMaskedLM> {
    explicit BertForMaskedLM(const BertConfig& config);
    static BertForMaskedLM from_pretrained(const std::string& path);
    void save_pretrained(const std::string& directory,
                         const SavePretrainedOptions& options = {}) const;

    // Logits [B, T, vocab_size].
    Tensor forward(const Tensor& ids, const Tensor& attention_mask = {},
                   const Tensor& token_type_ids = {});
    // Mean cross entropy of labels [B, T] (-100 is ignored), in nats.
    Tensor loss(const Tensor& ids, const Tensor& labels, const Tensor& attention_mask = {},
                const Tensor& token_type_ids = {});
    void visit(Visitor& v) override { v("bert", bert), v("cls.predictions", predictions); }

    BertConfig config;
    Bert bert;
    BertPredictions predictions;
};

}  // namespace axle::inline v0::nn
