// Mixtral: Llama whose feed-forward layers are mixtures of experts. Parameter names and file layout
// match Hugging Face's MixtralForCausalLM (as it writes files), so that files can be exchanged in
// both directions (Jiang et al., arXiv:2401.04088). In this file, B is the number of sequences, T
// their length in tokens, and C = hidden_size.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/tree/tree.h"
#include "nn/files/pretrained.h"
#include "nn/generation/generate.h"
#include "nn/layers/container.h"
#include "nn/layers/layers.h"
#include "nn/layers/linear.h"
#include "nn/layers/norm.h"
#include "nn/models/llama.h"
#include "nn/models/output.h"

namespace axle::nn {

// The configuration of Mixtral, with Hugging Face's names and defaults. The fields of attention
// have the same meaning as in LlamaConfig.
struct MixtralConfig {
    std::int64_t vocab_size = 32000;
    std::int64_t hidden_size = 4096;
    std::int64_t intermediate_size = 14336;  // hidden size of each expert
    std::int64_t num_hidden_layers = 32;
    std::int64_t num_attention_heads = 32;
    std::int64_t num_key_value_heads = 8;
    std::optional<std::int64_t> head_dim = {};
    std::int64_t max_position_embeddings = 131072;
    double rope_theta = 1e6;
    std::optional<RopeScaling> rope_scaling = {};
    double rms_norm_eps = 1e-5;
    double attention_dropout = 0;
    double initializer_range = 0.02;
    bool tie_word_embeddings = false;
    std::int64_t num_local_experts = 8;
    std::int64_t num_experts_per_tok = 2;
    // Whether losses include router_aux_loss_coef times the load balancing loss.
    bool output_router_logits = false;
    double router_aux_loss_coef = 0.001;
    std::optional<std::int64_t> pad_token_id = {};
    std::optional<std::int64_t> bos_token_id = 1;
    std::vector<std::int64_t> eos_token_id = {2};
    // A map of the fields of config.json that Axle does not read, or null. to_json() writes them.
    Tree other_fields = {};

    // Returns the configuration of a Llama with the same attention and embeddings.
    LlamaConfig llama() const;
    // Throws ValueError with the name of the first invalid field.
    void validate() const;
    // Convert to and from the text of Hugging Face's config.json. Missing fields keep their
    // defaults. from_json throws ValueError if the text is not a supported Mixtral configuration,
    // and to_json if a field contains a tensor or text that is not UTF-8. Sliding windows and
    // router_jitter_noise are not supported.
    std::string to_json() const;
    static MixtralConfig from_json(const std::string& text);
};

// Computes w2(silu(w1(x)) * w3(x)).
struct MixtralExpert : Model<MixtralExpert> {
    explicit MixtralExpert(const MixtralConfig& config);
    Tensor forward(const Tensor& x);
    void visit(Visitor& v) override { v("w1", w1), v("w2", w2), v("w3", w3); }

    Linear w1, w2, w3;
};

struct MixtralSparseMoeBlock : Model<MixtralSparseMoeBlock> {
    explicit MixtralSparseMoeBlock(const MixtralConfig& config);
    // Returns the output [B, T, C] and the logits of the router [B * T, experts]. The host waits
    // for the router's choices.
    std::pair<Tensor, Tensor> forward(const Tensor& x);
    void visit(Visitor& v) override { v("gate", gate), v("experts", experts); }

    Linear gate;
    ModuleList<MixtralExpert> experts;
    std::int64_t top_k;
};

struct MixtralDecoderLayer : Model<MixtralDecoderLayer> {
    explicit MixtralDecoderLayer(const MixtralConfig& config);
    // Maps x [B, T, C] to the output [B, T, C] and the logits of the router [B * T, experts]. mask
    // and rotation are as in LlamaAttention::forward().
    std::pair<Tensor, Tensor> forward(const Tensor& x, const Tensor& mask,
                                      const Tensor& rotation = {});
    void visit(Visitor& v) override {
        v("self_attn", self_attn), v("block_sparse_moe", block_sparse_moe);
        v("input_layernorm", input_layernorm);
        v("post_attention_layernorm", post_attention_layernorm);
    }

    LlamaAttention self_attn;
    MixtralSparseMoeBlock block_sparse_moe;
    RMSNorm input_layernorm, post_attention_layernorm;
};

struct MixtralModel : Model<MixtralModel> {
    explicit MixtralModel(const MixtralConfig& config);
    // Returns the final hidden state [B, T, C] and the logits of all routers [layers, B * T,
    // experts]. The arguments have the same meaning, and the errors are the same, as in
    // Llama::forward().
    std::pair<Tensor, Tensor> forward(const Tensor& ids, const Tensor& attention_mask = {},
                                      const Tensor& position_ids = {});
    void visit(Visitor& v) override {
        v("embed_tokens", embed_tokens), v("layers", layers), v("norm", norm);
    }

    Embedding embed_tokens;
    ModuleList<MixtralDecoderLayer> layers;
    RMSNorm norm;
    RotaryOptions rotary;
};

// Returns the load balancing loss of router logits [layers, B * T, experts], a 0-d tensor: experts
// * sum over e of f_e p_e. Here, f_e is the mean number of choices of expert e per token, and p_e
// its mean probability. Padding tokens, for which attention_mask [B, T] is 0, do not count; if it
// is undefined, there is no padding. (f_e counts top_k choices per token, so the loss is top_k
// times MixtureOfExperts::auxiliary_loss().) Throws ShapeError for other shapes, and the errors of
// topk() for top_k.
Tensor load_balancing_loss(const Tensor& router_logits, std::int64_t top_k,
                           const Tensor& attention_mask = {});

struct Mixtral : Model<Mixtral> {
    // Initializes the weights of norms with 1 and other weights from a normal distribution with
    // standard deviation initializer_range. Row pad_token_id of the embedding is 0. Throws
    // ValueError for an invalid configuration.
    explicit Mixtral(const MixtralConfig& config);

    // Loads a folder written by this class or by transformers (nn/files/pretrained.h). The model is
    // in evaluation mode: call train() before training it. Throws FileError if a file is missing or
    // invalid, or if names, shapes or dtypes do not fit the model.
    static Mixtral from_pretrained(const std::string& path);
    // Writes config.json, the weights and, unless generation_config is null, generation_config.json
    // into a directory (nn/files/pretrained.h). SavePretrainedOptions::model_card describes when
    // README.md is written. Throws the errors of nn::save_pretrained().
    void save_pretrained(const std::string& directory,
                         const SavePretrainedOptions& options = {}) const;

    // Maps ids [B, T] (i64 or i32) to logits [B, T, vocab_size]. attention_mask and position_ids
    // have the same meaning, and the errors are the same, as in Llama::forward().
    Tensor forward(const Tensor& ids, const Tensor& attention_mask = {},
                   const Tensor& position_ids = {});
    // Returns the mean cross entropy of the logits, in nats, without storing all logits. If
    // output_router_logits is true, adds router_aux_loss_coef times load_balancing_loss(). labels
    // [B, T] are token ids: labels[b, t] is the token that follows ids[b, t], or -100 to ignore the
    // position. Throws ShapeError for other shapes of labels, and the errors of forward() and
    // cross_entropy().
    Tensor loss(const Tensor& ids, const Tensor& labels, const Tensor& attention_mask = {},
                const Tensor& position_ids = {});
    // Returns the logits and, if labels are given, the result of loss(), computed in one forward
    // pass. Throws the errors of loss().
    ModelOutput outputs(const Tensor& ids, const Tensor& labels = {},
                        const Tensor& attention_mask = {}, const Tensor& position_ids = {});
    // Returns outputs() for the tensors of a batch: "input_ids" and, optionally, "labels",
    // "attention_mask", "position_ids" and "shift_labels". "shift_labels" takes precedence over
    // "labels". Throws ValueError for other keys, for values that are not tensors and if
    // "input_ids" is missing, and the errors of the other outputs().
    ModelOutput outputs(const Tree& batch);
    // Appends up to `count` tokens to `ids`, or to each of the prompts, and returns the complete
    // sequences. nn::generate() documents the options and the errors; also throws those of
    // forward().
    TokenIds generate(TokenIds ids, std::int64_t count, const GenerateOptions& options = {});
    std::vector<TokenIds> generate_batch(std::vector<TokenIds> prompts, std::int64_t count,
                                         const GenerateOptions& options = {});
    void visit(Visitor& v) override { v("model", model), v("lm_head.weight", lm_head); }
    std::vector<std::string> no_split_modules() const override { return {"MixtralDecoderLayer"}; }

    MixtralConfig config;
    // The contents of generation_config.json, or null. generate() does not use it.
    Tree generation_config = {};
    MixtralModel model;
    Tensor lm_head;  // [vocab_size, C]; the embedding's weight if tie_word_embeddings is true

  private:
    DecoderFunctions decoder();
    Tensor with_balance(const Tensor& loss, const Tensor& router_logits,
                        const Tensor& attention_mask) const;
};

}  // namespace axle::nn
