// T5: an encoder and a decoder with relative position biases (Raffel et al., arXiv:1910.10683). It
// has the parameter names and file layout of Hugging Face's T5ForConditionalGeneration, so that
// files can be exchanged in both directions. The variants of T5 1.1 (feed_forward_proj =
// "gated-gelu") and of Flan-T5 are included. In this file, B is the number of sequences, S and T
// the lengths of source and target in tokens, and C = d_model.
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
#include "nn/models/output.h"

namespace axle::nn {

// The configuration of T5, with Hugging Face's names and defaults.
struct T5Config {
    std::int64_t vocab_size = 32128;
    std::int64_t d_model = 512;
    std::int64_t d_kv = 64;  // the size of each head
    std::int64_t d_ff = 2048;
    std::int64_t num_layers = 6;                          // layers of the encoder
    std::optional<std::int64_t> num_decoder_layers = {};  // default: num_layers
    std::int64_t num_heads = 8;
    std::int64_t relative_attention_num_buckets = 32;
    std::int64_t relative_attention_max_distance = 128;
    double dropout_rate = 0.1;
    double layer_norm_epsilon = 1e-6;
    double initializer_factor = 1;
    // "relu", or "gated-gelu" for T5 1.1. The prefix "gated-" selects a product of two linear
    // layers. The activation after the first layer is relu, gelu, gelu_new or silu; "gated-gelu"
    // selects gelu_new.
    std::string feed_forward_proj = "relu";
    // Whether the output layer is the token embedding, as in T5 but not in T5 1.1. With tied
    // embeddings, the decoder's output is multiplied by d_model^-0.5.
    bool tie_word_embeddings = true;
    std::int64_t pad_token_id = 0;
    std::vector<std::int64_t> eos_token_id = {1};
    std::int64_t decoder_start_token_id = 0;
    // A map of the fields of config.json that Axle does not read, or null. to_json() writes them.
    Tree other_fields = {};

    std::int64_t decoder_layers() const { return num_decoder_layers.value_or(num_layers); }
    bool is_gated() const { return feed_forward_proj.starts_with("gated-"); }
    // Returns the activation in feed_forward_proj. Throws ValueError if it is unknown.
    Activation activation() const;
    // Throws ValueError with the name of the first invalid field.
    void validate() const;
    // Convert to and from the text of Hugging Face's config.json. Missing fields keep their
    // defaults. from_json throws ValueError if the text is not a supported T5 configuration, and
    // to_json if a field contains a tensor or text that is not UTF-8.
    std::string to_json() const;
    static T5Config from_json(const std::string& text);
};

struct T5Attention : Model<T5Attention> {
    T5Attention(const T5Config& config, bool is_decoder, bool has_bias);
    // Returns the attention of x [B, T, C] to `memory` [B, S, C], which is x itself in
    // self-attention. `bias`, which is added to the scores, is the result of position_bias();
    // `mask` is boolean (true: attend). Both can be undefined, and are broadcast to [B, heads, T,
    // S].
    Tensor forward(const Tensor& x, const Tensor& memory, const Tensor& bias, const Tensor& mask);
    // Returns the bias [1, heads, T, T] of the relative positions of T tokens. Throws UsageError
    // except in the first layer, which has the embedding of these positions.
    Tensor position_bias(std::int64_t time);
    void visit(Visitor& visitor) override {
        visitor("q", q), visitor("k", k), visitor("v", v), visitor("o", o);
        if (relative_attention_bias) visitor("relative_attention_bias", *relative_attention_bias);
    }

    Linear q, k, v, o;
    std::optional<Embedding> relative_attention_bias;  // [buckets, heads]
    std::int64_t head_size, max_distance;
    double dropout;
    bool is_decoder;
};

struct T5LayerSelfAttention : Model<T5LayerSelfAttention> {
    T5LayerSelfAttention(const T5Config& config, bool is_decoder, bool has_bias);
    Tensor forward(const Tensor& x, const Tensor& bias, const Tensor& mask);
    void visit(Visitor& v) override {
        v("SelfAttention", attention), v("layer_norm", layer_norm), v("dropout", dropout);
    }

    T5Attention attention;
    RMSNorm layer_norm;
    Dropout dropout;
};

struct T5LayerCrossAttention : Model<T5LayerCrossAttention> {
    explicit T5LayerCrossAttention(const T5Config& config);
    Tensor forward(const Tensor& x, const Tensor& memory, const Tensor& mask);
    void visit(Visitor& v) override {
        v("EncDecAttention", attention), v("layer_norm", layer_norm), v("dropout", dropout);
    }

    T5Attention attention;
    RMSNorm layer_norm;
    Dropout dropout;
};

struct T5LayerFF : Model<T5LayerFF> {
    explicit T5LayerFF(const T5Config& config);
    Tensor forward(const Tensor& x);
    void visit(Visitor& v) override;

    Linear wi;                   // DenseReluDense.wi, or wi_0 if the configuration is_gated()
    std::optional<Linear> wi_1;  // only if the configuration is_gated()
    Linear wo;
    RMSNorm layer_norm;
    Dropout hidden_dropout, dropout;
    Activation activation;
};

struct T5Block : Model<T5Block> {
    T5Block(const T5Config& config, bool is_decoder, bool has_bias);
    // Maps x [B, T, C] to the same shape. `bias` and the masks have the meaning of bias and mask in
    // T5Attention::forward(). A block of the decoder needs `memory` [B, S, C], the output of the
    // encoder; a block of the encoder ignores memory and memory_mask.
    Tensor forward(const Tensor& x, const Tensor& bias, const Tensor& mask,
                   const Tensor& memory = {}, const Tensor& memory_mask = {});
    void visit(Visitor& v) override;

    T5LayerSelfAttention self_attention;                   // layer.0
    std::optional<T5LayerCrossAttention> cross_attention;  // layer.1 in the decoder
    T5LayerFF feed_forward;                                // the last layer
};

struct T5Stack : Model<T5Stack> {
    T5Stack(const T5Config& config, const Tensor& shared, bool is_decoder);
    // Maps ids [B, T] to hidden states [B, T, C]. `mask` [B, T] is 0 for padding tokens; in the
    // decoder, tokens attend only to themselves and to earlier tokens. `memory` [B, S, C] is the
    // output of the encoder, and `memory_mask` [B, S] is 0 for its padding tokens. Both masks can
    // be undefined. Throws ShapeError for other shapes, and the errors of axle::embedding() for
    // ids.
    Tensor forward(const Tensor& ids, const Tensor& mask, const Tensor& memory = {},
                   const Tensor& memory_mask = {});
    void visit(Visitor& v) override;

    Tensor embed_tokens;  // [vocab_size, C], shared by encoder and decoder
    ModuleList<T5Block> block;
    RMSNorm final_layer_norm;
    Dropout dropout;
    bool is_decoder;
};

struct T5ForConditionalGeneration : Model<T5ForConditionalGeneration> {
    // Initializes the weights as Transformers does. Throws ValueError for an invalid configuration.
    explicit T5ForConditionalGeneration(const T5Config& config);

    // Loads a folder written by this class or by transformers (nn/files/pretrained.h). The model is
    // in evaluation mode: call train() before training it. Throws FileError if a file is missing or
    // invalid, or if names, shapes or dtypes do not fit the model.
    static T5ForConditionalGeneration from_pretrained(const std::string& path);
    // Writes config.json, the weights and, unless generation_config is null, generation_config.json
    // into a directory (nn/files/pretrained.h). SavePretrainedOptions::model_card describes when
    // README.md is written. Throws the errors of nn::save_pretrained().
    void save_pretrained(const std::string& directory,
                         const SavePretrainedOptions& options = {}) const;

    // Maps source ids [B, S] and target ids [B, T] to logits [B, T, vocab_size]. attention_mask
    // [B, S] is 0 for padding tokens of the source; if it is undefined, there is no padding. Throws
    // ShapeError for other shapes, also if the batch sizes differ, and the errors of
    // axle::embedding() for ids.
    Tensor forward(const Tensor& ids, const Tensor& decoder_ids, const Tensor& attention_mask = {});
    // Returns the mean cross entropy of the logits, in nats. labels [B, T] are the target ids, or
    // -100 to ignore a position; the decoder gets shift_right(labels). Throws ValueError if labels
    // are undefined, ShapeError for other shapes of labels, and the errors of forward() and
    // cross_entropy().
    Tensor loss(const Tensor& ids, const Tensor& labels, const Tensor& attention_mask = {});
    // Returns the logits and the loss, computed in one forward pass. Throws the errors of loss().
    ModelOutput outputs(const Tensor& ids, const Tensor& labels, const Tensor& attention_mask = {});
    // Returns outputs() for the tensors of a batch: "input_ids", "labels" and, optionally,
    // "attention_mask". Throws ValueError for other keys, for values that are not tensors and if
    // one of the first two is missing, and the errors of the other outputs().
    ModelOutput outputs(const Tree& batch);
    // Returns the input of the decoder for labels [B, T]: decoder_start_token_id and all labels
    // except the last of each sequence, with pad_token_id instead of -100.
    Tensor shift_right(const Tensor& labels) const;
    // Returns the ids that the decoder generates for one source sequence, without
    // decoder_start_token_id. Selects the most likely id in each step. Ends with an id of
    // eos_token_id, or after `count` ids. Throws ValueError if the source is empty or count is
    // negative, and the errors of axle::embedding() for ids.
    std::vector<std::int64_t> generate(const std::vector<std::int64_t>& ids, std::int64_t count);
    void visit(Visitor& v) override {
        v("shared.weight", shared), v("encoder", encoder), v("decoder", decoder);
        v("lm_head.weight", lm_head);
    }
    std::vector<std::string> no_split_modules() const override { return {"T5Block"}; }

    T5Config config;
    // The contents of generation_config.json, or null. generate() does not use it.
    Tree generation_config = {};
    Tensor shared;  // [vocab_size, C]
    T5Stack encoder, decoder;
    Tensor lm_head;  // [vocab_size, C]; `shared` if tie_word_embeddings is true

  private:
    Tensor logits_of(const Tensor& hidden) const;
};

// Returns the bucket, in [0, buckets), of each relative position (key minus query) from -(time - 1)
// to time - 1. In each direction, distances of at least max_distance share a bucket. In a decoder,
// keys after the query share the bucket of distance 0.
std::vector<std::int64_t> relative_position_buckets(std::int64_t time, bool is_decoder,
                                                    std::int64_t buckets,
                                                    std::int64_t max_distance);

}  // namespace axle::nn
