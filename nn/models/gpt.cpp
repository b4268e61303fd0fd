#include "nn/models/gpt.h"

#include <cmath>
#include <utility>

#include "nn/layers/sequence_policy.h"
#include "nn/models/pretrained.h"
#include "nn/models/transformer.h"

namespace axle::nn {

void GptConfig::validate() const {
    constexpr const char* kWho = "GptConfig";
    check_size(kWho, "vocab_size", vocab_size);
    check_size(kWho, "block_size", block_size);
    check_size(kWho, "n_layer", n_layer);
    check_size(kWho, "n_head", n_head);
    check_size(kWho, "n_embd", n_embd);
    if (n_embd % n_head != 0)
        throw ValueError(
            str("GptConfig: n_embd ", n_embd, " is not a multiple of n_head ", n_head));
    check_probability(kWho, "dropout", dropout);
    check_probability(kWho, "embd_dropout", embd_dropout.value_or(0));
    check_probability(kWho, "attn_dropout", attn_dropout.value_or(0));
    check_positive(kWho, "layer_norm_epsilon", layer_norm_epsilon);
}

namespace {

const GptConfig& validated(const GptConfig& config) {
    config.validate();
    return config;
}

LayerNorm norm_of(const GptConfig& config) {
    return LayerNorm(config.n_embd, {.eps = config.layer_norm_epsilon, .bias = config.bias});
}

// The weight is transposed, because GPT-2's files contain weights as [in, out].
Linear linear_of(const GptConfig& config, std::int64_t in, std::int64_t out, double std) {
    return normal_linear(in, out, std, {.bias = config.bias, .transposed = true});
}

constexpr double kStd = 0.02;  // the standard deviation of new weights, as in GPT-2

double residual_std(const GptConfig& config) {
    return kStd / std::sqrt(2.0 * static_cast<double>(config.n_layer));
}

}  // namespace

GptAttention::GptAttention(const GptConfig& config)
    : c_attn(linear_of(config, config.n_embd, 3 * config.n_embd, kStd)),
      c_proj(linear_of(config, config.n_embd, config.n_embd, residual_std(config))),
      resid_dropout(config.dropout),
      head_size(config.n_embd / config.n_head),
      attn_dropout(config.attn_dropout.value_or(config.dropout)) {}

Tensor GptAttention::forward(const Tensor& x, const Tensor& mask) {
    const Tensor projected = c_attn(x);
    const std::int64_t batch = projected.size(0), time = projected.size(1);
    const std::int64_t width = projected.size(2) / 3;
    // Splits [B, T, 3 C] into three [B, heads, T, C / heads].
    std::vector<Tensor> qkv = split(projected, width, -1);
    for (Tensor& part : qkv)
        part = part.view({batch, time, width / head_size, head_size}).transpose(1, 2);
    Tensor y;
    {
        const RandomPartGuard guard(random_part);
        y = attention(
            qkv[0], qkv[1], qkv[2],
            {.mask = mask, .dropout_p = is_training() ? attn_dropout : 0, .causal = true});
    }
    return resid_dropout(c_proj(y.transpose(1, 2).reshape({batch, time, width})));
}

GptMlp::GptMlp(const GptConfig& config)
    : c_fc(linear_of(config, config.n_embd, 4 * config.n_embd, kStd)),
      c_proj(linear_of(config, 4 * config.n_embd, config.n_embd, residual_std(config))),
      resid_dropout(config.dropout),
      activation(config.activation == Gelu::tanh ? Activation::gelu_tanh : Activation::gelu) {}

Tensor GptMlp::forward(const Tensor& x) {
    return resid_dropout(feed_forward(c_fc, c_proj, x, activation));
}

GptBlock::GptBlock(const GptConfig& config)
    : ln_1(norm_of(config)), attn(config), ln_2(norm_of(config)), mlp(config) {}

Tensor GptBlock::forward(const Tensor& x, const Tensor& mask) {
    const Tensor y = x + attn(ln_1(x), mask);
    return y + mlp(ln_2(y));
}

GptTransformer::GptTransformer(const GptConfig& config)
    : wte(normal_embedding(config.vocab_size, config.n_embd, kStd)),
      wpe(normal_embedding(config.block_size, config.n_embd, kStd)),
      embd_dropout(config.embd_dropout.value_or(config.dropout)),
      ln_f(norm_of(config)),
      checkpoint_blocks(config.checkpoint_blocks) {
    for (std::int64_t i = 0; i < config.n_layer; ++i) h.push_back(GptBlock(config));
}

Tensor GptTransformer::forward(const Tensor& ids, const Tensor& position_ids) {
    const TokenPositions at = token_positions("gpt", position_ids, ids, wpe.weight.size(0));
    Tensor x =
        enter_blocks(embd_dropout(wte(ids) + position_rows(wpe.weight, ids.size(1), at.positions)));
    for (GptBlock& block : h) {
        if (checkpoint_blocks && is_training())
            x = checkpoint([&block, mask = at.documents](
                               const std::vector<Tensor>& in) { return block(in[0], mask); },
                           {x});
        else
            x = block(x, at.documents);
    }
    return leave_blocks(ln_f(x));
}

Gpt::Gpt(const GptConfig& config_) : config(validated(config_)), transformer(config) {}

Tensor Gpt::hidden(const Tensor& ids, const Tensor& position_ids) {
    if (ids.dim() != 2 ||
        (!position_ids.defined() && whole_length(ids.size(1)) > config.block_size))
        throw ShapeError(str("gpt: ids must be [batch, time] with time at most block_size ",
                             config.block_size, ": they are ", ids.shape(),
                             sequence_policy() == nullptr ? "" : ", a part of each sequence"));
    return transformer(ids, position_ids);
}

Tensor Gpt::forward(const Tensor& ids, const Tensor& position_ids) {
    return head_logits(hidden(ids, position_ids));
}

void Gpt::check_labels(const Tensor& ids, const Tensor& labels) {
    if (labels.shape() != ids.shape())
        throw ShapeError(str("gpt: shapes differ: labels ", labels.shape(), ", ids ", ids.shape()));
}

ModelOutput Gpt::outputs(const Tensor& ids, const Tensor& labels, const Tensor& position_ids) {
    return enter([&] {
        if (labels.defined()) check_labels(ids, labels);
        ModelOutput output{.logits = forward(ids, position_ids)};
        if (labels.defined())
            output.loss =
                cross_entropy(output.logits.reshape({-1, config.vocab_size}), labels.reshape({-1}));
        return output;
    });
}

ModelOutput Gpt::outputs(const Tree& batch) {
    const std::vector<Tensor> inputs =
        inputs_of("gpt", batch, {"input_ids", "labels", "position_ids", "shift_labels"});
    return outputs(inputs[0], inputs[3].defined() ? inputs[3] : inputs[1], inputs[2]);
}

Tensor Gpt::loss(const Tensor& ids, const Tensor& labels, const Tensor& position_ids) {
    return enter([&] {
        check_labels(ids, labels);
        const Tensor x = hidden(ids, position_ids);
        return head_loss(x.reshape({-1, config.n_embd}), labels.reshape({-1}));
    });
}

DecoderFunctions Gpt::decoder() {
    return {.logits =
                [this](const Tensor& ids, const Tensor& position_ids,
                       const DecoderFunctions::LastTokens& last) {
                    // Hooks expect the logits of all tokens.
                    if (has_registered_hooks()) return last((*this)(ids, position_ids));
                    return enter([&] { return head_logits(last(hidden(ids, position_ids))); });
                },
            .longest = config.block_size};
}

TokenIds Gpt::generate(TokenIds ids, std::int64_t count, const GenerateOptions& options) {
    return generate_batch({std::move(ids)}, count, options).front();
}

std::vector<TokenIds> Gpt::generate_batch(std::vector<TokenIds> prompts, std::int64_t count,
                                          const GenerateOptions& options) {
    return nn::generate(*this, decoder(), std::move(prompts), count, options);
}

}  // namespace axle::nn
