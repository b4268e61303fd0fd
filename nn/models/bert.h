// BERT: a bidirectional encoder (Devlin et al., arXiv:1810.04805). It has the parameter names and
// file layout of Hugging Face's models, so that files can be exchanged in both directions. Bert is
// the encoder; BertForSequenceClassification and BertForMaskedLM add heads.
//
// The forward functions of the three models have these parameters: ids [B, T] (i64 or i32), with T
// <= max_position_embeddings unless position_ids are given; attention_mask [B, T], which is 0 for
// padding tokens (if undefined, there is no padding); token_type_ids [B, T] (if undefined, all are
// zero); position_ids [B or 1, T] (i64 or i32), the positions of the tokens (if undefined, they
// count from 0). Tokens attend to the whole sequence for all positions, as in Transformers. The
// functions throw ShapeError for other shapes, the errors of axle::embedding() for ids and
// token_type_ids, DTypeError for other dtypes of position_ids, and IndexError for positions that
// are negative or not below max_position_embeddings. In this file, B is the number of sequences, T
// their length in tokens, and C = hidden_size.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/tree/tree.h"
#include "nn/files/pretrained.h"
#include "nn/layers/container.h"
#include "nn/layers/layers.h"
#include "nn/layers/linear.h"
#include "nn/layers/norm.h"
#include "nn/models/extension_points.h"
#include "nn/models/output.h"

namespace axle::nn {

// The configuration of the BERT models, with Hugging Face's names and defaults.
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
    std::optional<double> classifier_dropout = {};  // default: hidden_dropout_prob
    double initializer_range = 0.02;
    double layer_norm_eps = 1e-12;
    std::optional<std::int64_t> pad_token_id = 0;  // padding_idx of the word embeddings
    // The class names of a classifier (id2label in config.json). With a single label, the model is
    // a regression model.
    std::vector<std::string> labels = {"LABEL_0", "LABEL_1"};
    // A map of the fields of config.json that Axle does not read, or null. to_json() writes them.
    Tree other_fields = {};

    // Throws ValueError with the name of the first invalid field.
    void validate() const;
    // Convert to and from the text of Hugging Face's config.json. Missing fields keep their
    // defaults. from_json throws ValueError if the text is not a supported BERT configuration.
    // to_json throws ValueError if hidden_act is Activation::none, or if a field contains a tensor
    // or text that is not UTF-8.
    std::string to_json() const;
    static BertConfig from_json(const std::string& text);
};

struct BertEmbeddings : Model<BertEmbeddings> {
    explicit BertEmbeddings(const BertConfig& config);
    // Returns the sum of the word, position and token type embeddings of ids [B, T], normalized and
    // with dropout: [B, T, C].
    Tensor forward(const Tensor& ids, const Tensor& token_type_ids,
                   const Tensor& position_ids = {});
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
    // Maps x [B, T, C] to [B, T, C]. `mask` has the meaning of AttentionOptions::mask
    // (core/functional.h) and can be undefined.
    Tensor forward(const Tensor& x, const Tensor& mask);
    void visit(Visitor& v) override { v("query", query), v("key", key), v("value", value); }

    Linear query, key, value;
    std::int64_t head_size;
    double dropout;
    // Set if query computes only a part of the heads (dimension 1), while other processes compute
    // the other heads. Selects the random numbers of dropout for this part.
    RandomPart random_part = {};
};

// Computes norm(residual + dropout(dense(x))).
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
    Tensor forward(const Tensor& x, const Tensor& mask);
    void visit(Visitor& v) override { v("self", self), v("output", output); }

    BertSelfAttention self;
    BertOutput output;
};

struct BertIntermediate : Model<BertIntermediate> {
    explicit BertIntermediate(const BertConfig& config);
    Tensor forward(const Tensor& x);
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

struct BertEncoder : Model<BertEncoder>, BlockStack {
    explicit BertEncoder(const BertConfig& config);
    Tensor forward(Tensor x, const Tensor& mask);
    void visit(Visitor& v) override { v("layer", layer); }

    ModuleList<BertLayer> layer;
};

// Maps the hidden state [B, T, C] to [B, C]: tanh(dense(hidden state of the first token)).
struct BertPooler : Model<BertPooler> {
    explicit BertPooler(const BertConfig& config);
    Tensor forward(const Tensor& hidden);
    void visit(Visitor& v) override { v("dense", dense); }

    Linear dense;
};

// The BERT encoder. The following holds for Bert, BertForSequenceClassification and
// BertForMaskedLM. New weights are 1 in norms and otherwise normally distributed with standard
// deviation initializer_range; new biases and row pad_token_id of the word embeddings are 0.
// Constructors throw ValueError for an invalid configuration. The models are saved as folders
// (nn/files/pretrained.h) that transformers can read, and can load folders written by transformers.
// Each model can load the files of the other two models; heads that the files do not contain are
// initialized. Loaded models are in evaluation mode: call train() before training them. Loading
// throws FileError if a file is missing or invalid, or if names, shapes or dtypes do not fit the
// model. Saving throws the errors of nn::save_pretrained().
struct Bert : Model<Bert> {
    explicit Bert(const BertConfig& config, bool with_pooler = true);
    static Bert from_pretrained(const std::string& path);
    void save_pretrained(const std::string& directory,
                         const SavePretrainedOptions& options = {}) const;

    // Returns the last hidden state [B, T, C].
    Tensor forward(const Tensor& ids, const Tensor& attention_mask = {},
                   const Tensor& token_type_ids = {}, const Tensor& position_ids = {});
    // Returns the pooled output [B, C] of a hidden state [B, T, C] (BertPooler). Throws UsageError
    // if the model has no pooler, or if processes share the sequences
    // (nn/layers/sequence_policy.h).
    Tensor pooled(const Tensor& hidden);
    void visit(Visitor& v) override {
        v("embeddings", embeddings), v("encoder", encoder);
        if (pooler) v("pooler", *pooler);
    }
    std::vector<std::string> no_split_modules() const override {
        return {"BertEmbeddings", "BertLayer"};
    }

    BertConfig config;
    BertEmbeddings embeddings;
    BertEncoder encoder;
    std::optional<BertPooler> pooler;
};

struct BertForSequenceClassification : Model<BertForSequenceClassification> {
    explicit BertForSequenceClassification(const BertConfig& config);
    // Loads a model with num_labels classes; by default, with the number of labels in the
    // configuration. Throws ValueError unless num_labels is positive and below 2^31, and FileError
    // if the files contain a classifier with another number of classes.
    static BertForSequenceClassification from_pretrained(
        const std::string& path, std::optional<std::int64_t> num_labels = {});
    void save_pretrained(const std::string& directory,
                         const SavePretrainedOptions& options = {}) const;

    // Returns logits [B, number of labels]. Also throws the errors of Bert::pooled().
    Tensor forward(const Tensor& ids, const Tensor& attention_mask = {},
                   const Tensor& token_type_ids = {}, const Tensor& position_ids = {});
    // Returns the mean cross entropy of the logits, in nats. labels [B] are class indices;
    // sequences with the label -100 are ignored. If the model has a single label (regression),
    // returns the mean squared error to labels [B]. Throws ShapeError for other shapes of labels,
    // and the errors of forward() and cross_entropy().
    Tensor loss(const Tensor& ids, const Tensor& labels, const Tensor& attention_mask = {},
                const Tensor& token_type_ids = {}, const Tensor& position_ids = {});
    // Returns the logits and, if labels are given, the loss, computed in one forward pass. Throws
    // the errors of loss().
    ModelOutput outputs(const Tensor& ids, const Tensor& labels = {},
                        const Tensor& attention_mask = {}, const Tensor& token_type_ids = {},
                        const Tensor& position_ids = {});
    // Returns outputs() for the tensors of a batch: "input_ids" and, optionally, "labels",
    // "attention_mask", "token_type_ids" and "position_ids". Throws ValueError for other keys, for
    // values that are not tensors and if "input_ids" is missing, and the errors of the other
    // outputs().
    ModelOutput outputs(const Tree& batch);
    void visit(Visitor& v) override {
        v("bert", bert), v("dropout", dropout), v("classifier", classifier);
    }
    std::vector<std::string> no_split_modules() const override { return bert.no_split_modules(); }

    BertConfig config;
    Bert bert;
    Dropout dropout;
    Linear classifier;

  private:
    static Linear new_classifier(const BertConfig& config);
    static void check_labels(const Tensor& ids, const Tensor& labels);
    Tensor loss_of(const Tensor& logits, const Tensor& labels) const;
};

// The head for masked language modeling: norm(activation(dense(x))) times the transposed word
// embeddings, plus a bias.
struct BertPredictions : Model<BertPredictions>, LanguageHead {
    BertPredictions(const BertConfig& config, const Tensor& word_embeddings);
    Tensor forward(const Tensor& x);
    // Returns the mean cross entropy of the logits of x [N, C] and targets [N].
    Tensor loss(const Tensor& x, const Tensor& targets);
    void visit(Visitor& v) override;

    Linear dense;
    LayerNorm norm;
    Tensor bias;     // [vocab_size]
    Tensor decoder;  // the word embeddings (tied)
    Activation activation;
    const char* head_name() const override { return "decoder"; }
    Tensor head_weight() const override { return decoder; }
    Tensor head_bias() const override { return bias; }
};

struct BertForMaskedLM : Model<BertForMaskedLM> {
    explicit BertForMaskedLM(const BertConfig& config);
    static BertForMaskedLM from_pretrained(const std::string& path);
    void save_pretrained(const std::string& directory,
                         const SavePretrainedOptions& options = {}) const;

    // Returns logits [B, T, vocab_size].
    Tensor forward(const Tensor& ids, const Tensor& attention_mask = {},
                   const Tensor& token_type_ids = {}, const Tensor& position_ids = {});
    // Returns the mean cross entropy of the logits, in nats. labels [B, T] are token ids; positions
    // with the label -100 are ignored. Throws ShapeError for other shapes of labels, and the errors
    // of forward() and cross_entropy().
    Tensor loss(const Tensor& ids, const Tensor& labels, const Tensor& attention_mask = {},
                const Tensor& token_type_ids = {}, const Tensor& position_ids = {});
    // Returns the logits and, if labels are given, the loss, computed in one forward pass. Throws
    // the errors of loss().
    ModelOutput outputs(const Tensor& ids, const Tensor& labels = {},
                        const Tensor& attention_mask = {}, const Tensor& token_type_ids = {},
                        const Tensor& position_ids = {});
    // Returns outputs() for the tensors of a batch: "input_ids" and, optionally, "labels",
    // "attention_mask", "token_type_ids" and "position_ids". Throws ValueError for other keys, for
    // values that are not tensors and if "input_ids" is missing, and the errors of the other
    // outputs().
    ModelOutput outputs(const Tree& batch);
    void visit(Visitor& v) override { v("bert", bert), v("cls.predictions", predictions); }
    std::vector<std::string> no_split_modules() const override { return bert.no_split_modules(); }

    BertConfig config;
    Bert bert;
    BertPredictions predictions;

  private:
    static void check_labels(const Tensor& ids, const Tensor& labels);
};

}  // namespace axle::nn
