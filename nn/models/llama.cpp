#include "nn/models/llama.h"

#include <algorithm>
#include <utility>

#include "nn/init.h"
#include "nn/layers/sequence_policy.h"
#include "nn/models/pretrained.h"
#include "nn/models/transformer.h"

namespace axle::nn {

void LlamaConfig::validate(const char* who) const {
    check_size(who, "vocab_size", vocab_size);
    check_size(who, "hidden_size", hidden_size);
    check_size(who, "intermediate_size", intermediate_size);
    check_size(who, "num_hidden_layers", num_hidden_layers);
    check_size(who, "num_attention_heads", num_attention_heads);
    check_size(who, "num_key_value_heads", key_value_heads());
    check_size(who, "head_dim", head_size());
    check_size(who, "max_position_embeddings", max_position_embeddings);
    if (!head_dim && hidden_size % num_attention_heads != 0)
        throw ValueError(str(who, ": hidden_size ", hidden_size,
                             " is not a multiple of num_attention_heads ", num_attention_heads));
    if (num_attention_heads % key_value_heads() != 0)
        throw ValueError(str(who, ": num_attention_heads ", num_attention_heads,
                             " is not a multiple of num_key_value_heads ", key_value_heads()));
    if (head_size() % 2 != 0)
        throw ValueError(str(who, ": head_dim must be even for rotary positions: ", head_size()));
    check_positive(who, "rope_theta", rope_theta);
    if (rope_scaling) rope_scaling->validate(who);
    check_positive(who, "rms_norm_eps", rms_norm_eps);
    check_positive(who, "initializer_range", initializer_range);
    check_probability(who, "attention_dropout", attention_dropout);
    check_row(who, "pad_token_id", pad_token_id, vocab_size);
}

namespace {

const LlamaConfig& validated(const LlamaConfig& config) {
    config.validate();
    return config;
}

Linear linear_of(const LlamaConfig& config, std::int64_t in, std::int64_t out, bool bias) {
    return normal_linear(in, out, config.initializer_range, {.bias = bias});
}

}  // namespace

LlamaAttention::LlamaAttention(const LlamaConfig& config)
    : q_proj(linear_of(config, config.hidden_size, config.num_attention_heads * config.head_size(),
                       config.attention_bias)),
      k_proj(linear_of(config, config.hidden_size, config.key_value_heads() * config.head_size(),
                       config.attention_bias)),
      v_proj(linear_of(config, config.hidden_size, config.key_value_heads() * config.head_size(),
                       config.attention_bias)),
      o_proj(linear_of(config, config.num_attention_heads * config.head_size(), config.hidden_size,
                       config.attention_bias)),
      head_size(config.head_size()),
      rope_theta(config.rope_theta),
      dropout(config.attention_dropout) {}

Tensor LlamaAttention::forward(const Tensor& x, const Tensor& mask, const Tensor& rotation) {
    // Reshapes [B, T, heads * head size] to [B, heads, T, head size].
    const auto heads = [&](const Tensor& y) {
        return y.reshape({y.size(0), y.size(1), -1, head_size}).transpose(1, 2);
    };
    const Tensor q = rotary_positions(heads(q_proj(x)), rope_theta, rotation);
    const Tensor k = rotary_positions(heads(k_proj(x)), rope_theta, rotation);
    const Tensor v = heads(v_proj(x));
    Tensor y;
    {
        const RandomPartGuard guard(random_part);
        y = attention(q, k, v,
                      {.mask = mask, .dropout_p = is_training() ? dropout : 0, .causal = true});
    }
    return o_proj(y.transpose(1, 2).reshape({y.size(0), y.size(2), -1}));
}

LlamaMlp::LlamaMlp(const LlamaConfig& config)
    : gate_proj(linear_of(config, config.hidden_size, config.intermediate_size, config.mlp_bias)),
      up_proj(linear_of(config, config.hidden_size, config.intermediate_size, config.mlp_bias)),
      down_proj(linear_of(config, config.intermediate_size, config.hidden_size, config.mlp_bias)) {}

Tensor LlamaMlp::forward(const Tensor& x) {
    return down_proj(gate_proj(x, Activation::silu) * up_proj(x));
}

LlamaDecoderLayer::LlamaDecoderLayer(const LlamaConfig& config)
    : self_attn(config),
      mlp(config),
      input_layernorm(config.hidden_size, config.rms_norm_eps),
      post_attention_layernorm(config.hidden_size, config.rms_norm_eps) {}

Tensor LlamaDecoderLayer::forward(const Tensor& x, const Tensor& mask, const Tensor& rotation) {
    const Tensor y = x + self_attn(input_layernorm(x), mask, rotation);
    return y + mlp(post_attention_layernorm(y));
}

LlamaContext attention_context(const char* who, const RotaryOptions& rotary, const Tensor& ids,
                               const Tensor& attention_mask, const Tensor& position_ids,
                               DType dtype) {
    const std::int64_t whole = whole_length(ids.size(1));
    const TokenPositions at =
        token_positions(who, position_ids, ids, std::max(rotary.max_position_embeddings, whole));
    LlamaContext context{
        .mask = attention_mask.defined() ? padding_mask(who, attention_mask, ids) : at.documents,
        .rotation = {}};
    const bool has_positions = at.positions.defined();
    const DType rotated = dtype == f64 ? f64 : f32;
    if (rotary.scaling)
        context.rotation =
            rotary_rotation(has_positions ? at.positions : token_numbers(ids.size(1), ids.device()),
                            rotary.scaling->frequencies(rotary.base, rotary.head_size,
                                                        has_positions ? at.length : whole,
                                                        rotary.max_position_embeddings),
                            rotated);
    else if (has_positions)
        context.rotation =
            rotary_rotation(at.positions, at.length, rotary.head_size, rotary.base, rotated);
    return context;
}

LlamaModel::LlamaModel(const LlamaConfig& config)
    : embed_tokens(normal_embedding(config.vocab_size, config.hidden_size, config.initializer_range,
                                    config.pad_token_id)),
      norm(config.hidden_size, config.rms_norm_eps),
      checkpoint_layers(config.checkpoint_layers),
      max_position_embeddings(config.max_position_embeddings),
      rope_scaling(config.rope_scaling) {
    for (std::int64_t i = 0; i < config.num_hidden_layers; ++i)
        layers.push_back(LlamaDecoderLayer(config));
}

LlamaContext LlamaModel::context_of(const Tensor& ids, const Tensor& attention_mask,
                                    const Tensor& position_ids, DType dtype) {
    const LlamaAttention& attention = layers[0].self_attn;
    return attention_context("llama",
                             {.base = attention.rope_theta,
                              .head_size = attention.head_size,
                              .max_position_embeddings = max_position_embeddings,
                              .scaling = rope_scaling},
                             ids, attention_mask, position_ids, dtype);
}

Tensor LlamaModel::forward(const Tensor& ids, const Tensor& attention_mask,
                           const Tensor& position_ids) {
    if (ids.dim() != 2)
        throw ShapeError(str("llama: ids must be [batch, time]: they are ", ids.shape()));
    Tensor x = enter_blocks(embed_tokens(ids));
    const LlamaContext context = context_of(ids, attention_mask, position_ids, x.dtype());
    for (LlamaDecoderLayer& layer : layers) {
        if (checkpoint_layers && is_training())
            x = checkpoint(
                [&layer, context](const std::vector<Tensor>& in) {
                    return layer(in[0], context.mask, context.rotation);
                },
                {x});
        else
            x = layer(x, context.mask, context.rotation);
    }
    return leave_blocks(norm(x));
}

Llama::Llama(const LlamaConfig& config_) : config(validated(config_)), model(config) {
    if (config.tie_word_embeddings) {
        lm_head = model.embed_tokens.weight;
        return;
    }
    lm_head = init::parameter({config.vocab_size, config.hidden_size});
    init::normal_(lm_head, 0, config.initializer_range);
}

Tensor Llama::forward(const Tensor& ids, const Tensor& attention_mask, const Tensor& position_ids) {
    return head_logits(model(ids, attention_mask, position_ids));
}

void Llama::check_labels(const Tensor& ids, const Tensor& labels) {
    if (labels.shape() != ids.shape())
        throw ShapeError(
            str("llama: shapes differ: labels ", labels.shape(), ", ids ", ids.shape()));
}

ModelOutput Llama::outputs(const Tensor& ids, const Tensor& labels, const Tensor& attention_mask,
                           const Tensor& position_ids) {
    return enter([&] {
        if (labels.defined()) check_labels(ids, labels);
        ModelOutput output{.logits = forward(ids, attention_mask, position_ids)};
        if (labels.defined())
            output.loss =
                cross_entropy(output.logits.reshape({-1, config.vocab_size}), labels.reshape({-1}));
        return output;
    });
}

ModelOutput Llama::outputs(const Tree& batch) {
    const std::vector<Tensor> inputs = inputs_of(
        "llama", batch, {"input_ids", "labels", "attention_mask", "position_ids", "shift_labels"});
    return outputs(inputs[0], inputs[4].defined() ? inputs[4] : inputs[1], inputs[2], inputs[3]);
}

Tensor Llama::loss(const Tensor& ids, const Tensor& labels, const Tensor& attention_mask,
                   const Tensor& position_ids) {
    return enter([&] {
        check_labels(ids, labels);
        const Tensor x = model(ids, attention_mask, position_ids);
        return head_loss(x.reshape({-1, config.hidden_size}), labels.reshape({-1}));
    });
}

DecoderFunctions Llama::decoder() {
    return {
        .logits =
            [this](const Tensor& ids, const Tensor& position_ids,
                   const DecoderFunctions::LastTokens& last) {
                // Hooks expect the logits of all tokens.
                if (has_registered_hooks()) return last((*this)(ids, Tensor(), position_ids));
                return enter([&] { return head_logits(last(model(ids, Tensor(), position_ids))); });
            },
        .longest = config.max_position_embeddings};
}

TokenIds Llama::generate(TokenIds ids, std::int64_t count, const GenerateOptions& options) {
    return generate_batch({std::move(ids)}, count, options).front();
}

std::vector<TokenIds> Llama::generate_batch(std::vector<TokenIds> prompts, std::int64_t count,
                                            const GenerateOptions& options) {
    return nn::generate(*this, decoder(), std::move(prompts), count, options);
}

}  // namespace axle::nn
