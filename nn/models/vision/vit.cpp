#include "nn/models/vision/vit.h"

#include <cmath>

#include "nn/init.h"
#include "nn/models/pretrained.h"

namespace axle::nn {
namespace {

constexpr double kVitEps = 1e-6;  // eps of all norms in torchvision's vision transformers

const VisionTransformerConfig& checked_vit(const VisionTransformerConfig& config) {
    constexpr const char* kWho = "VisionTransformer";
    check_size(kWho, "image_size", config.image_size);
    check_size(kWho, "patch_size", config.patch_size);
    check_size(kWho, "num_layers", config.num_layers);
    check_size(kWho, "num_heads", config.num_heads);
    check_size(kWho, "hidden_dim", config.hidden_dim);
    check_size(kWho, "mlp_dim", config.mlp_dim);
    check_size(kWho, "num_classes", config.num_classes);
    check_size(kWho, "representation_size", config.representation_size.value_or(1));
    check_size(kWho, "in_channels", config.in_channels);
    if (config.image_size % config.patch_size != 0)
        throw ValueError(str(kWho, ": image_size ", config.image_size,
                             " is not a multiple of patch_size ", config.patch_size));
    return config;
}

std::int64_t tokens_of(std::int64_t image_size, std::int64_t patch_size) {
    return (image_size / patch_size) * (image_size / patch_size) + 1;
}

void check_images(const char* who, const Tensor& images, const Conv2d& projection,
                  std::int64_t size) {
    const std::int64_t channels = projection.weight.size(1);
    if (images.dim() != 4 || images.size(1) != channels || images.size(2) != size ||
        images.size(3) != size)
        throw ShapeError(str(who, ": images must be [batch, ", channels, ", ", size, ", ", size,
                             "]: they are ", images.shape()));
}

// Returns the class token and the projected patches of images: [B, T, width].
Tensor patches_of(const Tensor& images, Conv2d& projection, const Tensor& class_token) {
    const Tensor patches = projection(images).flatten(2).transpose(1, 2);
    return cat({class_token.expand({images.size(0), 1, patches.size(2)}), patches}, 1);
}

void truncated_normal(Tensor& weight, double std) { init::trunc_normal_(weight, 0, std); }

// Returns a Linear whose weight has a truncated normal distribution. The bias is zero.
Linear truncated_linear(std::int64_t in, std::int64_t out, double std, bool bias = true) {
    Linear layer(in, out, {.bias = bias});
    truncated_normal(layer.weight, std);
    if (bias) init::zeros_(layer.bias);
    return layer;
}

Conv2d truncated_projection(std::int64_t channels, std::int64_t width, std::int64_t patch,
                            double std) {
    Conv2d layer(channels, width, patch, {.stride = patch});
    truncated_normal(layer.weight, std);
    init::zeros_(layer.bias);
    return layer;
}

Linear xavier_linear(std::int64_t in, std::int64_t out) {
    Linear layer(in, out);
    init::xavier_uniform_(layer.weight);
    init::normal_(layer.bias, 0, 1e-6);
    return layer;
}

Linear zero_head(const VisionTransformerConfig& config) {
    Linear layer(config.representation_size.value_or(config.hidden_dim), config.num_classes);
    init::zeros_(layer.weight), init::zeros_(layer.bias);
    return layer;
}

VisionTransformerConfig vit_of(std::int64_t patch, std::int64_t layers, std::int64_t heads,
                               std::int64_t width) {
    return {.patch_size = patch,
            .num_layers = layers,
            .num_heads = heads,
            .hidden_dim = width,
            .mlp_dim = 4 * width};
}

}  // namespace

VisionMlp::VisionMlp(const VisionTransformerConfig& config)
    : hidden(xavier_linear(config.hidden_dim, config.mlp_dim)),
      out(xavier_linear(config.mlp_dim, config.hidden_dim)),
      hidden_dropout(config.dropout),
      dropout(config.dropout) {}

Tensor VisionMlp::forward(const Tensor& x) {
    return dropout(out(hidden_dropout(hidden(x, Activation::gelu))));
}

VisionEncoderBlock::VisionEncoderBlock(const VisionTransformerConfig& config)
    : ln_1(config.hidden_dim, {.eps = kVitEps}),
      self_attention(config.hidden_dim, config.num_heads,
                     {.dropout = config.attention_dropout, .batch_first = true}),
      dropout(config.dropout),
      ln_2(config.hidden_dim, {.eps = kVitEps}),
      mlp(config) {}

Tensor VisionEncoderBlock::forward(const Tensor& x) {
    const Tensor normalized = ln_1(x);
    const Tensor y = dropout(self_attention(normalized, normalized, normalized)) + x;
    return y + mlp(ln_2(y));
}

VisionEncoder::VisionEncoder(const VisionTransformerConfig& config)
    : pos_embedding(
          init::parameter({1, tokens_of(config.image_size, config.patch_size), config.hidden_dim})),
      dropout(config.dropout),
      ln(config.hidden_dim, {.eps = kVitEps}) {
    init::normal_(pos_embedding, 0, 0.02);
    for (std::int64_t i = 0; i < config.num_layers; ++i) layers.emplace_back(config);
}

Tensor VisionEncoder::forward(const Tensor& x) {
    Tensor y = dropout(x + pos_embedding);
    for (VisionEncoderBlock& layer : layers) y = layer(y);
    return ln(y);
}

void VisionEncoder::visit(Visitor& v) {
    v("pos_embedding", pos_embedding), v("dropout", dropout);
    for (std::size_t i = 0; i < layers.size(); ++i) v(str("layers.encoder_layer_", i), layers[i]);
    v("ln", ln);
}

VisionTransformer::VisionTransformer(const VisionTransformerConfig& given)
    : config(checked_vit(given)),
      class_token(init::parameter({1, 1, given.hidden_dim})),
      conv_proj(truncated_projection(
          given.in_channels, given.hidden_dim, given.patch_size,
          1 / std::sqrt(
                  static_cast<double>(given.in_channels * given.patch_size * given.patch_size)))),
      encoder(given),
      head(zero_head(given)) {
    init::zeros_(class_token);
    if (config.representation_size)
        pre_logits.emplace(truncated_linear(config.hidden_dim, *config.representation_size,
                                            1 / std::sqrt(static_cast<double>(config.hidden_dim))));
}

Tensor VisionTransformer::forward(const Tensor& images) {
    check_images("VisionTransformer", images, conv_proj, config.image_size);
    const Tensor x = encoder(patches_of(images, conv_proj, class_token)).select(1, 0);
    return head(pre_logits ? tanh((*pre_logits)(x)) : x);
}

void VisionTransformer::visit(Visitor& v) {
    v("class_token", class_token), v("conv_proj", conv_proj), v("encoder", encoder);
    if (pre_logits) v("heads.pre_logits", *pre_logits);
    v("heads.head", head);
}

VisionTransformerConfig vit_b_16() { return vit_of(16, 12, 12, 768); }
VisionTransformerConfig vit_b_32() { return vit_of(32, 12, 12, 768); }
VisionTransformerConfig vit_l_16() { return vit_of(16, 24, 16, 1024); }
VisionTransformerConfig vit_l_32() { return vit_of(32, 24, 16, 1024); }
VisionTransformerConfig vit_h_14() { return vit_of(14, 32, 16, 1280); }

// --- Hugging Face's form

void ViTConfig::validate() const {
    constexpr const char* kWho = "ViTConfig";
    check_size(kWho, "hidden_size", hidden_size);
    check_size(kWho, "num_hidden_layers", num_hidden_layers);
    check_size(kWho, "num_attention_heads", num_attention_heads);
    check_size(kWho, "intermediate_size", intermediate_size);
    check_size(kWho, "image_size", image_size);
    check_size(kWho, "patch_size", patch_size);
    check_size(kWho, "num_channels", num_channels);
    check_size(kWho, "the number of labels", std::ssize(labels));
    if (hidden_size % num_attention_heads != 0)
        throw ValueError(str(kWho, ": hidden_size ", hidden_size,
                             " is not a multiple of num_attention_heads ", num_attention_heads));
    if (image_size < patch_size)
        throw ValueError(
            str(kWho, ": patch_size ", patch_size, " is larger than image_size ", image_size));
    // The position embeddings have fewer than 2^31 rows.
    check_size(kWho, "the number of patches", tokens_of(image_size, patch_size));
    check_probability(kWho, "hidden_dropout_prob", hidden_dropout_prob);
    check_probability(kWho, "attention_probs_dropout_prob", attention_probs_dropout_prob);
    check_positive(kWho, "initializer_range", initializer_range);
    check_positive(kWho, "layer_norm_eps", layer_norm_eps);
}

namespace {

const ViTConfig& validated_vit(const ViTConfig& config) {
    config.validate();
    return config;
}

Linear vit_linear(const ViTConfig& config, std::int64_t in, std::int64_t out, bool bias = true) {
    return truncated_linear(in, out, config.initializer_range, bias);
}

}  // namespace

ViTEmbeddings::ViTEmbeddings(const ViTConfig& config)
    : cls_token(init::parameter({1, 1, config.hidden_size})),
      position_embeddings(init::parameter(
          {1, tokens_of(config.image_size, config.patch_size), config.hidden_size})),
      projection(truncated_projection(config.num_channels, config.hidden_size, config.patch_size,
                                      config.initializer_range)),
      dropout(config.hidden_dropout_prob),
      image_size(config.image_size) {
    truncated_normal(cls_token, config.initializer_range);
    truncated_normal(position_embeddings, config.initializer_range);
}

Tensor ViTEmbeddings::forward(const Tensor& images) {
    check_images("vit", images, projection, image_size);
    return dropout(patches_of(images, projection, cls_token) + position_embeddings);
}

ViTLayer::ViTLayer(const ViTConfig& config)
    : layernorm_before(config.hidden_size, {.eps = config.layer_norm_eps}),
      query(vit_linear(config, config.hidden_size, config.hidden_size, config.qkv_bias)),
      key(vit_linear(config, config.hidden_size, config.hidden_size, config.qkv_bias)),
      value(vit_linear(config, config.hidden_size, config.hidden_size, config.qkv_bias)),
      attention_output(vit_linear(config, config.hidden_size, config.hidden_size)),
      layernorm_after(config.hidden_size, {.eps = config.layer_norm_eps}),
      intermediate(vit_linear(config, config.hidden_size, config.intermediate_size)),
      output(vit_linear(config, config.intermediate_size, config.hidden_size)),
      dropout(config.hidden_dropout_prob),
      activation(config.hidden_act),
      head_size(config.hidden_size / config.num_attention_heads),
      attention_dropout(config.attention_probs_dropout_prob) {}

Tensor ViTLayer::forward(const Tensor& x) {
    const auto heads = [&](const Tensor& y) {
        return y.reshape({y.size(0), y.size(1), -1, head_size}).transpose(1, 2);
    };
    const Tensor normalized = layernorm_before(x);
    const Tensor y = scaled_dot_product_attention(
        heads(query(normalized)), heads(key(normalized)), heads(value(normalized)),
        {.dropout_p = is_training() ? attention_dropout : 0});
    const Tensor attended = attention_output(y.transpose(1, 2).reshape(x.shape()));
    const Tensor z = dropout(attended) + x;
    return dropout(feed_forward(intermediate, output, layernorm_after(z), activation)) + z;
}

void ViTLayer::visit(Visitor& v) {
    v("attention.attention.query", query), v("attention.attention.key", key);
    v("attention.attention.value", value), v("attention.output.dense", attention_output);
    v("intermediate.dense", intermediate), v("output.dense", output);
    v("layernorm_before", layernorm_before), v("layernorm_after", layernorm_after);
    v("dropout", dropout);
}

ViTModel::ViTModel(const ViTConfig& config)
    : embeddings(config), layernorm(config.hidden_size, {.eps = config.layer_norm_eps}) {
    for (std::int64_t i = 0; i < config.num_hidden_layers; ++i) layers.push_back(ViTLayer(config));
}

Tensor ViTModel::forward(const Tensor& images) {
    Tensor x = embeddings(images);
    for (ViTLayer& layer : layers) x = layer(x);
    return layernorm(x);
}

ViTForImageClassification::ViTForImageClassification(const ViTConfig& given)
    : config(validated_vit(given)), vit(config), classifier(new_classifier(config)) {}

Linear ViTForImageClassification::new_classifier(const ViTConfig& config) {
    return vit_linear(config, config.hidden_size, std::ssize(config.labels));
}

Tensor ViTForImageClassification::forward(const Tensor& images) {
    return classifier(vit(images).select(1, 0));
}

Tensor ViTForImageClassification::loss(const Tensor& images, const Tensor& labels) {
    return enter([&] { return cross_entropy(forward(images), labels); });
}

ModelOutput ViTForImageClassification::outputs(const Tensor& images, const Tensor& labels) {
    return enter([&] {
        ModelOutput output{.logits = forward(images)};
        if (labels.defined()) output.loss = cross_entropy(output.logits, labels);
        return output;
    });
}

ModelOutput ViTForImageClassification::outputs(const Tree& batch) {
    const std::vector<Tensor> inputs = inputs_of("vit", batch, {"pixel_values", "labels"});
    return outputs(inputs[0], inputs[1]);
}

}  // namespace axle::nn
