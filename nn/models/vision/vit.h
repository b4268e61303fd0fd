// Vision transformers (Dosovitskiy et al., arXiv:2010.11929) in two forms, which compute the same
// function and differ in names, defaults and files: VisionTransformer has torchvision's parameter
// names (vit_b_16 and others), and ViTForImageClassification has the names and the file layout of
// Hugging Face's class. In this file, B is the number of images and T the number of patches plus
// one, for the class token.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/tree/tree.h"
#include "nn/files/pretrained.h"
#include "nn/layers/attention.h"
#include "nn/layers/container.h"
#include "nn/layers/conv.h"
#include "nn/layers/layers.h"
#include "nn/layers/linear.h"
#include "nn/layers/norm.h"
#include "nn/models/output.h"

namespace axle::nn {

// --- torchvision's form

struct VisionTransformerConfig {
    std::int64_t image_size = 224;  // height and width of the images
    std::int64_t patch_size = 16;   // must divide image_size
    std::int64_t num_layers = 12;
    std::int64_t num_heads = 12;
    std::int64_t hidden_dim = 768;
    std::int64_t mlp_dim = 3072;
    double dropout = 0;
    double attention_dropout = 0;
    std::int64_t num_classes = 1000;
    // If set, the head has a hidden layer of this width with tanh.
    std::optional<std::int64_t> representation_size = {};
    std::int64_t in_channels = 3;
};

// Two linear layers with gelu between them; dropout follows both.
struct VisionMlp : Model<VisionMlp> {
    explicit VisionMlp(const VisionTransformerConfig& config);
    Tensor forward(const Tensor& x);
    void visit(Visitor& v) override {
        v("0", hidden), v("2", hidden_dropout), v("3", out), v("4", dropout);
    }

    Linear hidden, out;
    Dropout hidden_dropout, dropout;
};

struct VisionEncoderBlock : Model<VisionEncoderBlock> {
    explicit VisionEncoderBlock(const VisionTransformerConfig& config);
    Tensor forward(const Tensor& x);  // maps [B, T, hidden_dim] to the same shape
    void visit(Visitor& v) override {
        v("ln_1", ln_1), v("self_attention", self_attention), v("dropout", dropout);
        v("ln_2", ln_2), v("mlp", mlp);
    }

    LayerNorm ln_1;
    MultiheadAttention self_attention;
    Dropout dropout;
    LayerNorm ln_2;
    VisionMlp mlp;
};

struct VisionEncoder : Model<VisionEncoder> {
    explicit VisionEncoder(const VisionTransformerConfig& config);
    Tensor forward(const Tensor& x);
    void visit(Visitor& v) override;

    Tensor pos_embedding;  // [1, T, hidden_dim]
    Dropout dropout;
    std::vector<VisionEncoderBlock> layers;  // layers.encoder_layer_0, ...
    LayerNorm ln;
};

struct VisionTransformer : Model<VisionTransformer> {
    // Initializes the weights as torchvision does; the weights of the head are 0. Throws ValueError
    // unless all sizes are positive and below 2^31, patch_size divides image_size, num_heads
    // divides hidden_dim, and `dropout` is in [0, 1].
    explicit VisionTransformer(const VisionTransformerConfig& config);

    // Maps images [B, in_channels, image_size, image_size] to logits [B, num_classes]. Throws
    // ShapeError for other shapes.
    Tensor forward(const Tensor& images);
    void visit(Visitor& v) override;
    std::vector<std::string> no_split_modules() const override { return {"VisionEncoderBlock"}; }

    VisionTransformerConfig config;
    Tensor class_token;  // [1, 1, hidden_dim]
    Conv2d conv_proj;
    VisionEncoder encoder;
    std::optional<Linear> pre_logits;  // only with representation_size
    Linear head;
};

// Return the configurations of the paper, whose fields can be changed before building the model.
VisionTransformerConfig vit_b_16();
VisionTransformerConfig vit_b_32();
VisionTransformerConfig vit_l_16();
VisionTransformerConfig vit_l_32();
VisionTransformerConfig vit_h_14();

// --- Hugging Face's form

// The configuration of ViTForImageClassification, with Hugging Face's names and defaults.
struct ViTConfig {
    std::int64_t hidden_size = 768;
    std::int64_t num_hidden_layers = 12;
    std::int64_t num_attention_heads = 12;
    std::int64_t intermediate_size = 3072;
    Activation hidden_act = Activation::gelu;
    double hidden_dropout_prob = 0;
    double attention_probs_dropout_prob = 0;
    double initializer_range = 0.02;
    double layer_norm_eps = 1e-12;
    std::int64_t image_size = 224;
    std::int64_t patch_size = 16;
    std::int64_t num_channels = 3;
    bool qkv_bias = true;
    std::vector<std::string> labels = {"LABEL_0", "LABEL_1"};  // class names (id2label)
    // A map of the fields of config.json that Axle does not read, or null. to_json() writes them.
    Tree other_fields = {};

    // Throws ValueError with the name of the first invalid field.
    void validate() const;
    // Convert to and from the text of Hugging Face's config.json. Missing fields keep their
    // defaults. from_json throws ValueError if the text is not a supported ViT configuration.
    // to_json throws ValueError if hidden_act is Activation::none, or if a field contains a tensor
    // or text that is not UTF-8.
    std::string to_json() const;
    static ViTConfig from_json(const std::string& text);
};

struct ViTEmbeddings : Model<ViTEmbeddings> {
    explicit ViTEmbeddings(const ViTConfig& config);
    // Maps images to [B, T, hidden_size].
    Tensor forward(const Tensor& images);
    void visit(Visitor& v) override {
        v("cls_token", cls_token), v("position_embeddings", position_embeddings);
        v("patch_embeddings.projection", projection), v("dropout", dropout);
    }

    Tensor cls_token;            // [1, 1, hidden_size]
    Tensor position_embeddings;  // [1, T, hidden_size]
    Conv2d projection;
    Dropout dropout;
    std::int64_t image_size;
};

struct ViTLayer : Model<ViTLayer> {
    explicit ViTLayer(const ViTConfig& config);
    Tensor forward(const Tensor& x);  // maps [B, T, hidden_size] to the same shape
    void visit(Visitor& v) override;

    LayerNorm layernorm_before;
    Linear query, key, value, attention_output;
    LayerNorm layernorm_after;
    Linear intermediate, output;
    Dropout dropout;  // applied to the outputs of attention and MLP
    Activation activation;
    std::int64_t head_size;
    double attention_dropout;
};

// The encoder, without pooler.
struct ViTModel : Model<ViTModel> {
    explicit ViTModel(const ViTConfig& config);
    // Maps images [B, num_channels, image_size, image_size] to the last hidden state [B, T,
    // hidden_size], normalized. Throws ShapeError for other shapes.
    Tensor forward(const Tensor& images);
    void visit(Visitor& v) override {
        v("embeddings", embeddings), v("encoder.layer", layers), v("layernorm", layernorm);
    }

    ViTEmbeddings embeddings;
    ModuleList<ViTLayer> layers;
    LayerNorm layernorm;
};

struct ViTForImageClassification : Model<ViTForImageClassification> {
    // Initializes weights from a truncated normal distribution with standard deviation
    // initializer_range, norms with 1, and biases with 0. Throws ValueError for an invalid
    // configuration.
    explicit ViTForImageClassification(const ViTConfig& config);

    // Loads a folder written by this class or by transformers (nn/files/pretrained.h) with
    // num_labels classes; by default, with the labels in the configuration. A missing classifier is
    // initialized. The model is in evaluation mode. Throws ValueError unless num_labels is positive
    // and below 2^31, and FileError if a file is missing or invalid, or if names, shapes or dtypes
    // do not fit the model.
    static ViTForImageClassification from_pretrained(const std::string& path,
                                                     std::optional<std::int64_t> num_labels = {});
    // Writes config.json and the weights into a directory (nn/files/pretrained.h).
    // SavePretrainedOptions::model_card describes when README.md is written. Throws the errors of
    // nn::save_pretrained().
    void save_pretrained(const std::string& directory,
                         const SavePretrainedOptions& options = {}) const;

    // Maps images [B, num_channels, image_size, image_size] to logits [B, number of labels]. Throws
    // ShapeError for other shapes.
    Tensor forward(const Tensor& images);
    // Returns the mean cross entropy of the logits, in nats. labels [B] are class indices. Throws
    // the errors of forward() and cross_entropy().
    Tensor loss(const Tensor& images, const Tensor& labels);
    // Returns the logits and, if labels are given, the loss, computed in one forward pass. The
    // batch has "pixel_values" and, optionally, "labels". Throws the errors of loss(), and
    // ValueError for other keys, for values that are not tensors and if "pixel_values" is missing.
    ModelOutput outputs(const Tensor& images, const Tensor& labels = {});
    ModelOutput outputs(const Tree& batch);
    void visit(Visitor& v) override { v("vit", vit), v("classifier", classifier); }
    std::vector<std::string> no_split_modules() const override {
        return {"ViTEmbeddings", "ViTLayer"};
    }

    ViTConfig config;
    ViTModel vit;
    Linear classifier;

  private:
    static Linear new_classifier(const ViTConfig& config);
};

}  // namespace axle::nn
