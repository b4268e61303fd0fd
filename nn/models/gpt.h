// GPT-2: a decoder-only transformer with the names and the layout of Hugging Face's
// GPT2LMHeadModel, so that its files load here and ours there (Radford et al., "Language models are
// unsupervised multitask learners", 2019).
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
#include "nn/models/generate.h"

namespace axle::inline v0::nn {

struct GptConfig {
    std::int64_t vocab_size = 50257;
    std::int64_t block_size = 1024;  // positions; sequences may be shorter
    std::int64_t n_layer = 12;
    std::int64_t n_head = 12;
    std::int64_t n_embd = 768;
    double dropout = 0;
    bool bias = true;              // of linear layers and norms
    Gelu activation = Gelu::tanh;  // GPT-2's own
    double layer_norm_epsilon = 1e-5;
    bool checkpoint_blocks =
        false;  // recompute each block in the backward pass instead of keeping it

    // Throws ValueError naming the field.
    void validate() const;
    // config.json as Hugging Face writes it for GPT-2; fields that it lacks keep their defaults.
    // Throws ValueError for text that is no such configuration.
    std::string to_json() const;
    static GptConfig from_json(const std::string& text);
};

struct GptAttention : Model<GptAttention> {
    explicit GptAttention(const GptConfig& config);
    Tensor forward(const Tensor& x);
    void visit(Visitor& v) override {
        v("c_attn", c_attn), v("c_proj", c_proj), v("resid_dropout", resid_dropout);
    }

    Linear c_attn, c_proj;
    Dropout resid_dropout;
    std::int64_t heads;
    double attn_dropout;
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
    Tensor forward(const Tensor& x);
    void visit(Visitor& v) override {
        v("ln_1", ln_1), v("attn", attn), v("ln_2", ln_2), v("mlp", mlp);
    }

    LayerNorm ln_1;
    GptAttention attn;
    LayerNorm ln_2;
    GptMlp mlp;
};

struct GptTransformer : Model<GptTransformer> {
    explicit GptTransformer(const GptConfig& config);
    // Ids [B, T] to the final hidden state [B, T, C].
    Tensor forward(const Tensor& ids);
    void visit(Visitor& v) override {
        v("wte", wte), v("wpe", wpe), v("drop", embd_dropout), v("h", h), v("ln_f", ln_f);
    }

    Embedding wte, wpe;
    Dropout embd_dropout;
    ModuleList<GptBlock> h;
    LayerNorm ln_f;
    bool checkpoint_blocks;
};

struct Gpt : Model<Gpt> {
    // Weights from N(0, 0.02), residual projections from N(0, 0.02 / sqrt(2 layers)), biases zero.
    explicit Gpt(const GptConfig& config);

    // A folder as this class or transformers writes it (nn/models/pretrained.h); FileError.
    static Gpt from_pretrained(const std::string& path);
    // Writes config.json, model.safetensors and README.md into a directory (nn/files/pretrained.h).
    void save_pretrained(const std::string& directory,
                         const SavePretrainedOptions& options = {}) const;

    // Ids [B, T], T <= block_size (ShapeError), to logits [B, T, vocab_size].
    Tensor forward(const Tensor& ids);
    // Mean cross entropy of labels [B, T] (-100 is ignored), in nats, without the logits in memory.
    Tensor loss(const Tensor& ids, const Tensor& labels);
    // Continues one sequence by `count` tokens, from the default generator.
    std::vector<std::int64_t> generate(std::vector<std::int64_t> ids, std::int64_t count,
                                       GenerateOptions options = {});
    // The head's weight is the token embedding.
    void visit(Visitor& v) override {
        v("transformer", transformer), v("lm_head.weight", transformer.wte.weight);
    }

    GptConfig config;
    GptTransformer transformer;

  private:
    Tensor hidden(const Tensor& ids);
};

}  // namespace axle::inline v0::nn
