// GPT-2: a decoder-only transformer (Radford et al., "Language models are unsupervised multitask
// learners", 2019). It has the parameter names and file layout of Hugging Face's GPT2LMHeadModel,
// so that files can be exchanged in both directions. In this file, B is the number of sequences, T
// their length in tokens, and C = n_embd.
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

namespace axle::nn {

struct GptConfig {
    std::int64_t vocab_size = 50257;
    std::int64_t block_size = 1024;  // number of positions
    std::int64_t n_layer = 12;
    std::int64_t n_head = 12;
    std::int64_t n_embd = 768;
    // The probabilities of dropout: `dropout` is applied to the outputs of attention and MLP in
    // each block, embd_dropout to the embeddings, and attn_dropout to the attention weights. The
    // last two are equal to `dropout` if they are unset.
    double dropout = 0;
    std::optional<double> embd_dropout = {}, attn_dropout = {};
    bool bias = true;              // whether linear layers and norms have biases
    Gelu activation = Gelu::tanh;  // as in GPT-2
    double layer_norm_epsilon = 1e-5;
    bool checkpoint_blocks = false;  // recomputes each block in the backward pass to save memory
    // The ids of the tokens that begin and end a text; the default is GPT-2's end-of-text token.
    // to_json() leaves out ids that are not below vocab_size. generate() does not use these ids.
    std::optional<std::int64_t> bos_token_id = 50256;
    std::vector<std::int64_t> eos_token_id = {50256};
    // A map of the fields of config.json that Axle does not read, or null. to_json() writes them.
    Tree other_fields = {};

    // Throws ValueError with the name of the first invalid field.
    void validate() const;
    // Convert to and from the text of Hugging Face's config.json. Missing fields keep their
    // defaults. from_json throws ValueError if the text is not a supported GPT-2 configuration, and
    // to_json if a field contains a tensor or text that is not UTF-8.
    std::string to_json() const;
    static GptConfig from_json(const std::string& text);
};

struct GptAttention : Model<GptAttention> {
    explicit GptAttention(const GptConfig& config);
    // Maps x [B, T, C] to [B, T, C]. `mask` has the meaning of AttentionOptions::mask
    // (core/functional.h) and can be undefined.
    Tensor forward(const Tensor& x, const Tensor& mask = {});
    void visit(Visitor& v) override {
        v("c_attn", c_attn), v("c_proj", c_proj), v("resid_dropout", resid_dropout);
    }

    Linear c_attn, c_proj;
    Dropout resid_dropout;
    std::int64_t head_size;
    double attn_dropout;
    // Set if c_attn computes only a part of the heads (dimension 1), while other processes compute
    // the other heads. Selects the random numbers of dropout for this part.
    RandomPart random_part = {};
};

struct GptMlp : Model<GptMlp> {
    explicit GptMlp(const GptConfig& config);
    Tensor forward(const Tensor& x);
    void visit(Visitor& v) override {
        v("c_fc", c_fc), v("c_proj", c_proj), v("dropout", resid_dropout);
    }

    Linear c_fc, c_proj;
    Dropout resid_dropout;
    Activation activation;
};

struct GptBlock : Model<GptBlock> {
    explicit GptBlock(const GptConfig& config);
    Tensor forward(const Tensor& x, const Tensor& mask = {});
    void visit(Visitor& v) override {
        v("ln_1", ln_1), v("attn", attn), v("ln_2", ln_2), v("mlp", mlp);
    }

    LayerNorm ln_1;
    GptAttention attn;
    LayerNorm ln_2;
    GptMlp mlp;
};

struct GptTransformer : Model<GptTransformer>, BlockStack {
    explicit GptTransformer(const GptConfig& config);
    // Maps ids [B, T] to the final hidden state [B, T, C]. position_ids are as in Gpt::forward().
    // Throws the errors of axle::embedding() and of token_positions() (nn/models/transformer.h).
    Tensor forward(const Tensor& ids, const Tensor& position_ids = {});
    void visit(Visitor& v) override {
        v("wte", wte), v("wpe", wpe), v("drop", embd_dropout), v("h", h), v("ln_f", ln_f);
    }

    Embedding wte, wpe;
    Dropout embd_dropout;
    ModuleList<GptBlock> h;
    LayerNorm ln_f;
    bool checkpoint_blocks;
};

struct Gpt : Model<Gpt>, LanguageHead {
    // Initializes the weights of norms with 1, and biases with 0. Initializes the weights of
    // embeddings and linear layers from a normal distribution with standard deviation 0.02, or 0.02
    // / sqrt(2 n_layer) for layers named c_proj. Throws ValueError for an invalid configuration.
    explicit Gpt(const GptConfig& config);

    // Loads a folder written by this class or by transformers (nn/files/pretrained.h). The model is
    // in evaluation mode: call train() before training it. Throws FileError if a file is missing or
    // invalid, or if names, shapes or dtypes do not fit the model.
    static Gpt from_pretrained(const std::string& path);
    // Writes config.json, the weights and, unless generation_config is null, generation_config.json
    // into a directory (nn/files/pretrained.h). SavePretrainedOptions::model_card describes when
    // README.md is written. Throws the errors of nn::save_pretrained().
    void save_pretrained(const std::string& directory,
                         const SavePretrainedOptions& options = {}) const;

    // Maps ids [B, T] (i64 or i32) to logits [B, T, vocab_size]. position_ids [B or 1, T] (i64 or
    // i32) are the positions of the tokens, by default 0 to T - 1. As in Transformers, a token
    // begins a new document if its position is not the previous token's position plus 1. Tokens
    // attend only to tokens of their own document. If position_ids are on a GPU, the host waits for
    // them. Throws ShapeError if ids are not 2-d, for T > block_size without position_ids, and for
    // other shapes of position_ids; the errors of axle::embedding() for ids; DTypeError for other
    // dtypes of position_ids; and IndexError for positions that are negative or not below
    // block_size.
    Tensor forward(const Tensor& ids, const Tensor& position_ids = {});
    // Returns the mean cross entropy of the logits, in nats, without storing all logits. labels
    // [B, T] are token ids: labels[b, t] is the token that follows ids[b, t], or -100 to ignore the
    // position. (In Transformers, labels are equal to the ids, and the model shifts them.) Throws
    // ShapeError for other shapes of labels, and the errors of forward() and cross_entropy().
    Tensor loss(const Tensor& ids, const Tensor& labels, const Tensor& position_ids = {});
    // Returns the logits and, if labels are given, the loss, computed in one forward pass. labels
    // have the same meaning as in loss(), and the errors are the same. If only the loss is needed,
    // loss() uses less memory.
    ModelOutput outputs(const Tensor& ids, const Tensor& labels = {},
                        const Tensor& position_ids = {});
    // Returns outputs() for the tensors of a batch: "input_ids" and, optionally, "labels",
    // "position_ids" and "shift_labels". As in Transformers, "shift_labels" takes precedence over
    // "labels". Throws ValueError for other keys, for values that are not tensors and if
    // "input_ids" is missing, and the errors of the other outputs().
    ModelOutput outputs(const Tree& batch);
    // Appends up to `count` tokens to `ids`, or to each of the prompts, and returns the complete
    // sequences. nn::generate() documents the options and the errors; also throws those of
    // forward().
    TokenIds generate(TokenIds ids, std::int64_t count, const GenerateOptions& options = {});
    std::vector<TokenIds> generate_batch(std::vector<TokenIds> prompts, std::int64_t count,
                                         const GenerateOptions& options = {});
    // The weight of the output head is tied to the token embedding.
    void visit(Visitor& v) override {
        v("transformer", transformer), v("lm_head.weight", transformer.wte.weight);
    }
    std::vector<std::string> no_split_modules() const override { return {"GPT2Block"}; }
    const char* head_name() const override { return "lm_head"; }
    Tensor head_weight() const override { return transformer.wte.weight; }

    GptConfig config;
    // The contents of generation_config.json, or null. generate() does not use it.
    Tree generation_config = {};
    GptTransformer transformer;

  private:
    DecoderFunctions decoder();
    Tensor hidden(const Tensor& ids, const Tensor& position_ids);
    static void check_labels(const Tensor& ids, const Tensor& labels);
};

}  // namespace axle::nn
