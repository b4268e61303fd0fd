// Llama: a decoder-only transformer with RMSNorm, rotary positions, grouped-query attention and
// SwiGLU. Parameter names and file layout match Hugging Face's LlamaForCausalLM, so that files can
// be exchanged in both directions (Touvron et al., arXiv:2302.13971 and arXiv:2307.09288). In this
// file, B is the number of sequences, T their length in tokens, and C = hidden_size.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/tree/tree.h"
#include "nn/files/pretrained.h"
#include "nn/generation/generate.h"
#include "nn/layers/container.h"
#include "nn/layers/layers.h"
#include "nn/layers/linear.h"
#include "nn/layers/norm.h"
#include "nn/models/extension_points.h"
#include "nn/models/output.h"
#include "nn/models/rope.h"

namespace axle::nn {

// The configuration of Llama, with Hugging Face's names and defaults.
struct LlamaConfig {
    std::int64_t vocab_size = 32000;
    std::int64_t hidden_size = 4096;
    std::int64_t intermediate_size = 11008;
    std::int64_t num_hidden_layers = 32;
    std::int64_t num_attention_heads = 32;
    // The number of key-value heads, which must divide num_attention_heads and is equal to it by
    // default.
    std::optional<std::int64_t> num_key_value_heads = {};
    std::optional<std::int64_t> head_dim = {};  // default: hidden_size / num_attention_heads
    // The maximum number of tokens that generate() passes to the model, and the length above which
    // "dynamic" rope_scaling changes the frequencies. forward() accepts any length.
    std::int64_t max_position_embeddings = 2048;
    double rope_theta = 10000;
    std::optional<RopeScaling> rope_scaling = {};  // unset: the frequencies are not scaled
    double rms_norm_eps = 1e-6;
    double attention_dropout = 0;
    double initializer_range = 0.02;
    bool attention_bias = false;
    bool mlp_bias = false;
    bool tie_word_embeddings = false;
    std::optional<std::int64_t> pad_token_id = {};  // padding_idx of embed_tokens
    // The ids of the tokens that begin and end a text. generate() does not use these ids.
    std::optional<std::int64_t> bos_token_id = 1;
    std::vector<std::int64_t> eos_token_id = {2};
    bool checkpoint_layers = false;  // recomputes each layer in the backward pass to save memory
    // A map of the fields of config.json that Axle does not read, or null. to_json() writes them.
    Tree other_fields = {};

    std::int64_t key_value_heads() const {
        return num_key_value_heads.value_or(num_attention_heads);
    }
    std::int64_t head_size() const { return head_dim.value_or(hidden_size / num_attention_heads); }
    // Throws ValueError with the name of the first invalid field; the message begins with `who`.
    void validate(const char* who = "LlamaConfig") const;
    // Convert to and from the text of Hugging Face's config.json. Missing fields keep their
    // defaults. from_json throws ValueError if the text is not a supported Llama configuration, and
    // to_json if a field contains a tensor or text that is not UTF-8.
    std::string to_json() const;
    static LlamaConfig from_json(const std::string& text);
};

struct LlamaAttention : Model<LlamaAttention> {
    explicit LlamaAttention(const LlamaConfig& config);
    // Maps x [B, T, C] to [B, T, C]. `mask` has the meaning of AttentionOptions::mask
    // (core/functional.h), `rotation` is the argument of rotary_positions()
    // (nn/layers/sequence_policy.h), and both can be undefined.
    Tensor forward(const Tensor& x, const Tensor& mask, const Tensor& rotation = {});
    void visit(Visitor& v) override {
        v("q_proj", q_proj), v("k_proj", k_proj), v("v_proj", v_proj), v("o_proj", o_proj);
    }

    Linear q_proj, k_proj, v_proj, o_proj;
    std::int64_t head_size;
    double rope_theta, dropout;
    // Set if q_proj computes only a part of the heads (dimension 1), while other processes compute
    // the other heads. Selects the random numbers of dropout for this part.
    RandomPart random_part = {};
};

struct LlamaMlp : Model<LlamaMlp> {
    explicit LlamaMlp(const LlamaConfig& config);
    Tensor forward(const Tensor& x);
    void visit(Visitor& v) override {
        v("gate_proj", gate_proj), v("up_proj", up_proj), v("down_proj", down_proj);
    }

    Linear gate_proj, up_proj, down_proj;
};

struct LlamaDecoderLayer : Model<LlamaDecoderLayer> {
    explicit LlamaDecoderLayer(const LlamaConfig& config);
    Tensor forward(const Tensor& x, const Tensor& mask, const Tensor& rotation = {});
    void visit(Visitor& v) override {
        v("self_attn", self_attn), v("mlp", mlp), v("input_layernorm", input_layernorm);
        v("post_attention_layernorm", post_attention_layernorm);
    }

    LlamaAttention self_attn;
    LlamaMlp mlp;
    RMSNorm input_layernorm, post_attention_layernorm;
};

// The arguments of attention that are equal in all layers. Both can be undefined.
struct LlamaContext {
    Tensor mask;      // has the meaning of AttentionOptions::mask (core/functional.h)
    Tensor rotation;  // the argument of rotary_positions() (nn/layers/sequence_policy.h)
};

// The rotary positions of a model: rope_theta and the other fields of its configuration.
struct RotaryOptions {
    double base = 10000;
    std::int64_t head_size = 0;
    std::int64_t max_position_embeddings = 0;
    std::optional<RopeScaling> scaling = {};
};
// Returns the arguments of attention for ids [B, T], in layers whose hidden states have the given
// dtype. ids, attention_mask and position_ids are as in Llama::forward(). Throws the errors of
// Llama::forward() for attention_mask and position_ids, with messages that begin with `who`. If
// processes share the sequences, they must call this function together.
LlamaContext attention_context(const char* who, const RotaryOptions& rotary, const Tensor& ids,
                               const Tensor& attention_mask, const Tensor& position_ids,
                               DType dtype);

struct LlamaModel : Model<LlamaModel>, BlockStack {
    explicit LlamaModel(const LlamaConfig& config);
    // Maps ids [B, T] to the final hidden state [B, T, C]. attention_mask [B, T] is 0 for padding
    // tokens, which are ignored; if it is undefined, there is no padding. position_ids are as in
    // Llama::forward(). Throws the errors of Llama::forward().
    Tensor forward(const Tensor& ids, const Tensor& attention_mask = {},
                   const Tensor& position_ids = {});
    // Returns attention_context() for the layers of this model.
    LlamaContext context_of(const Tensor& ids, const Tensor& attention_mask,
                            const Tensor& position_ids, DType dtype);
    void visit(Visitor& v) override {
        v("embed_tokens", embed_tokens), v("layers", layers), v("norm", norm);
    }

    Embedding embed_tokens;
    ModuleList<LlamaDecoderLayer> layers;
    RMSNorm norm;
    bool checkpoint_layers;
    std::int64_t max_position_embeddings;
    std::optional<RopeScaling> rope_scaling;
};

struct Llama : Model<Llama>, LanguageHead {
    // Initializes the weights of norms with 1, other weights from a normal distribution with
    // standard deviation initializer_range, and biases with 0. Row pad_token_id of the embedding is
    // 0. Throws ValueError for an invalid configuration.
    explicit Llama(const LlamaConfig& config);

    // Loads a folder written by this class or by transformers (nn/files/pretrained.h). The model is
    // in evaluation mode: call train() before training it. Throws FileError if a file is missing or
    // invalid, or if names, shapes or dtypes do not fit the model.
    static Llama from_pretrained(const std::string& path);
    // Writes config.json, the weights and, unless generation_config is null, generation_config.json
    // into a directory (nn/files/pretrained.h). SavePretrainedOptions::model_card describes when
    // README.md is written. Throws the errors of nn::save_pretrained().
    void save_pretrained(const std::string& directory,
                         const SavePretrainedOptions& options = {}) const;

    // Maps ids [B, T] (i64 or i32) to logits [B, T, vocab_size]. attention_mask [B, T] is 0 for
    // padding tokens; if it is undefined, there is no padding. position_ids [B or 1, T] (i64 or
    // i32) are the positions of the tokens, by default 0 to T - 1. As in Transformers, without an
    // attention_mask a token begins a new document if its position is not the previous token's
    // position plus 1. Tokens attend only to tokens of their own document. If position_ids are on a
    // GPU, the host waits for them. Throws ShapeError for other shapes, the errors of
    // axle::embedding() for ids, DTypeError for other dtypes of position_ids, and IndexError for
    // positions that are negative or not below the larger of max_position_embeddings and the length
    // of whole sequences.
    Tensor forward(const Tensor& ids, const Tensor& attention_mask = {},
                   const Tensor& position_ids = {});
    // Returns the mean cross entropy of the logits, in nats, without storing all logits. labels
    // [B, T] are token ids: labels[b, t] is the token that follows ids[b, t], or -100 to ignore the
    // position. (In Transformers, labels are equal to the ids, and the model shifts them.) Throws
    // ShapeError for other shapes of labels, and the errors of forward() and cross_entropy().
    Tensor loss(const Tensor& ids, const Tensor& labels, const Tensor& attention_mask = {},
                const Tensor& position_ids = {});
    // Returns the logits and, if labels are given, the loss, computed in one forward pass. labels
    // have the same meaning as in loss(), and the errors are the same. If only the loss is needed,
    // loss() uses less memory.
    ModelOutput outputs(const Tensor& ids, const Tensor& labels = {},
                        const Tensor& attention_mask = {}, const Tensor& position_ids = {});
    // Returns outputs() for the tensors of a batch: "input_ids" and, optionally, "labels",
    // "attention_mask", "position_ids" and "shift_labels". As in Transformers, "shift_labels" takes
    // precedence over "labels". Throws ValueError for other keys, for values that are not tensors
    // and if "input_ids" is missing, and the errors of the other outputs().
    ModelOutput outputs(const Tree& batch);
    // Appends up to `count` tokens to `ids`, or to each of the prompts, and returns the complete
    // sequences. nn::generate() documents the options and the errors; also throws those of
    // forward().
    TokenIds generate(TokenIds ids, std::int64_t count, const GenerateOptions& options = {});
    std::vector<TokenIds> generate_batch(std::vector<TokenIds> prompts, std::int64_t count,
                                         const GenerateOptions& options = {});
    void visit(Visitor& v) override { v("model", model), v("lm_head.weight", lm_head); }
    std::vector<std::string> no_split_modules() const override { return {"LlamaDecoderLayer"}; }
    const char* head_name() const override { return "lm_head"; }
    Tensor head_weight() const override { return lm_head; }

    LlamaConfig config;
    // The contents of generation_config.json, or null. generate() does not use it.
    Tree generation_config = {};
    LlamaModel model;
    Tensor lm_head;  // [vocab_size, C]; the embedding's weight if tie_word_embeddings is true

  private:
    DecoderFunctions decoder();
    static void check_labels(const Tensor& ids, const Tensor& labels);
};

}  // namespace axle::nn
