#include "nn/models/text/mixtral.h"

#include <utility>

#include "core/autograd/autograd.h"
#include "nn/init.h"
#include "nn/layers/mixture.h"
#include "nn/models/pretrained.h"
#include "nn/models/transformer.h"

namespace axle::nn {

LlamaConfig MixtralConfig::llama() const {
    return {.vocab_size = vocab_size,
            .hidden_size = hidden_size,
            .intermediate_size = intermediate_size,
            .num_hidden_layers = num_hidden_layers,
            .num_attention_heads = num_attention_heads,
            .num_key_value_heads = num_key_value_heads,
            .head_dim = head_dim,
            .max_position_embeddings = max_position_embeddings,
            .rope_theta = rope_theta,
            .rope_scaling = rope_scaling,
            .rms_norm_eps = rms_norm_eps,
            .attention_dropout = attention_dropout,
            .initializer_range = initializer_range,
            .tie_word_embeddings = tie_word_embeddings,
            .pad_token_id = pad_token_id,
            .bos_token_id = bos_token_id,
            .eos_token_id = eos_token_id};
}

void MixtralConfig::validate() const {
    constexpr const char* kWho = "MixtralConfig";
    check_size(kWho, "num_local_experts", num_local_experts);
    check_size(kWho, "num_experts_per_tok", num_experts_per_tok);
    if (num_experts_per_tok > num_local_experts)
        throw ValueError(str(kWho, ": num_experts_per_tok ", num_experts_per_tok,
                             " is larger than num_local_experts ", num_local_experts));
    if (!(router_aux_loss_coef >= 0))
        throw ValueError(
            str(kWho, ": router_aux_loss_coef must be at least 0: ", router_aux_loss_coef));
    check_size(kWho, "num_key_value_heads", num_key_value_heads);
    llama().validate(kWho);
}

namespace {

const MixtralConfig& validated_mixtral(const MixtralConfig& config) {
    config.validate();
    return config;
}

Linear mixtral_linear(const MixtralConfig& config, std::int64_t in, std::int64_t out) {
    return normal_linear(in, out, config.initializer_range, {.bias = false});
}

void check_mixtral_labels(const Tensor& ids, const Tensor& labels) {
    if (labels.shape() != ids.shape())
        throw ShapeError(
            str("mixtral: shapes differ: labels ", labels.shape(), ", ids ", ids.shape()));
}

}  // namespace

MixtralExpert::MixtralExpert(const MixtralConfig& config)
    : w1(mixtral_linear(config, config.hidden_size, config.intermediate_size)),
      w2(mixtral_linear(config, config.intermediate_size, config.hidden_size)),
      w3(mixtral_linear(config, config.hidden_size, config.intermediate_size)) {}

Tensor MixtralExpert::forward(const Tensor& x) { return w2(w1(x, Activation::silu) * w3(x)); }

MixtralSparseMoeBlock::MixtralSparseMoeBlock(const MixtralConfig& config)
    : gate(mixtral_linear(config, config.hidden_size, config.num_local_experts)),
      top_k(config.num_experts_per_tok) {
    for (std::int64_t i = 0; i < config.num_local_experts; ++i)
        experts.push_back(MixtralExpert(config));
}

std::pair<Tensor, Tensor> MixtralSparseMoeBlock::forward(const Tensor& x) {
    const Tensor logits = gate(x.reshape({-1, x.size(-1)}));
    const auto compute = [this](const Tensor& rows, const std::vector<std::int64_t>& counts) {
        // Includes experts without rows, so that all processes use the same parameters.
        std::vector<Tensor> parts;
        std::int64_t begin = 0;
        for (std::size_t e = 0; e < counts.size(); begin += counts[e], ++e)
            parts.push_back(
                experts[static_cast<std::int64_t>(e)](rows.narrow(0, begin, counts[e])));
        return cat(parts, 0);
    };
    const MixtureOptions options{.experts = logits.size(-1), .top_k = top_k};
    return {mix_experts(x, logits, options, compute).output, logits};
}

MixtralDecoderLayer::MixtralDecoderLayer(const MixtralConfig& config)
    : self_attn(config.llama()),
      block_sparse_moe(config),
      input_layernorm(config.hidden_size, config.rms_norm_eps),
      post_attention_layernorm(config.hidden_size, config.rms_norm_eps) {}

std::pair<Tensor, Tensor> MixtralDecoderLayer::forward(const Tensor& x, const Tensor& mask,
                                                       const Tensor& rotation) {
    const Tensor y = x + self_attn(input_layernorm(x), mask, rotation);
    const auto [mixed, logits] = block_sparse_moe(post_attention_layernorm(y));
    return {y + mixed, logits};
}

MixtralModel::MixtralModel(const MixtralConfig& config)
    : embed_tokens(normal_embedding(config.vocab_size, config.hidden_size, config.initializer_range,
                                    config.pad_token_id)),
      norm(config.hidden_size, config.rms_norm_eps),
      rotary{.base = config.rope_theta,
             .head_size = config.llama().head_size(),
             .max_position_embeddings = config.max_position_embeddings,
             .scaling = config.rope_scaling} {
    for (std::int64_t i = 0; i < config.num_hidden_layers; ++i)
        layers.push_back(MixtralDecoderLayer(config));
}

std::pair<Tensor, Tensor> MixtralModel::forward(const Tensor& ids, const Tensor& attention_mask,
                                                const Tensor& position_ids) {
    if (ids.dim() != 2)
        throw ShapeError(str("mixtral: ids must be [batch, time]: they are ", ids.shape()));
    Tensor x = embed_tokens(ids);
    const LlamaContext context =
        attention_context("mixtral", rotary, ids, attention_mask, position_ids, x.dtype());
    std::vector<Tensor> all;
    for (MixtralDecoderLayer& layer : layers) {
        auto [y, logits] = layer(x, context.mask, context.rotation);
        x = std::move(y);
        all.push_back(std::move(logits));
    }
    return {norm(x), stack(all)};
}

Tensor load_balancing_loss(const Tensor& router_logits, std::int64_t top_k,
                           const Tensor& attention_mask) {
    if (router_logits.dim() != 3)
        throw ShapeError(str("load_balancing_loss: router_logits must be [layers, tokens, ",
                             "experts]: they are ", router_logits.shape()));
    const std::int64_t layers = router_logits.size(0), tokens = router_logits.size(1),
                       experts = router_logits.size(2);
    if (attention_mask.defined() && attention_mask.numel() != tokens)
        throw ShapeError(str("load_balancing_loss: attention_mask must have one element for each ",
                             "of the ", tokens, " tokens: it is ", attention_mask.shape()));
    const Tensor logits = router_logits.reshape({-1, experts});
    Tensor probabilities = softmax(logits.to(logits.dtype() == f64 ? f64 : f32));
    const DType dtype = probabilities.dtype();
    Tensor choices, rows;  // [layers * tokens, experts]; number of rows without padding
    {
        const NoGrad no_grad;
        choices = sum(one_hot(topk(probabilities, top_k).second, experts), {1}).to(dtype);
        rows = full({}, static_cast<double>(layers * tokens), {dtype, logits.device()});
    }
    if (attention_mask.defined()) {
        const Tensor counts = ne(attention_mask.reshape({1, tokens, 1}), 0)
                                  .to(dtype)
                                  .expand({layers, tokens, 1})
                                  .reshape({-1, 1});
        rows = sum(counts);
        choices = choices * counts;
        probabilities = probabilities * counts;
    }
    const Tensor shares = sum(choices, {0}) / rows, means = sum(probabilities, {0}) / rows;
    return sum(shares * means) * static_cast<double>(experts);
}

Mixtral::Mixtral(const MixtralConfig& given) : config(validated_mixtral(given)), model(config) {
    if (config.tie_word_embeddings) {
        lm_head = model.embed_tokens.weight;
        return;
    }
    lm_head = init::parameter({config.vocab_size, config.hidden_size});
    init::normal_(lm_head, 0, config.initializer_range);
}

Tensor Mixtral::forward(const Tensor& ids, const Tensor& attention_mask,
                        const Tensor& position_ids) {
    return linear(model(ids, attention_mask, position_ids).first, lm_head);
}

Tensor Mixtral::with_balance(const Tensor& loss, const Tensor& router_logits,
                             const Tensor& attention_mask) const {
    if (!config.output_router_logits) return loss;
    return loss + config.router_aux_loss_coef * load_balancing_loss(router_logits,
                                                                    config.num_experts_per_tok,
                                                                    attention_mask);
}

Tensor Mixtral::loss(const Tensor& ids, const Tensor& labels, const Tensor& attention_mask,
                     const Tensor& position_ids) {
    return enter([&] {
        check_mixtral_labels(ids, labels);
        const auto [x, router_logits] = model(ids, attention_mask, position_ids);
        const Tensor rows = x.reshape({-1, config.hidden_size});
        return with_balance(linear_cross_entropy(rows, lm_head, labels.reshape({-1})),
                            router_logits, attention_mask);
    });
}

ModelOutput Mixtral::outputs(const Tensor& ids, const Tensor& labels, const Tensor& attention_mask,
                             const Tensor& position_ids) {
    return enter([&] {
        if (labels.defined()) check_mixtral_labels(ids, labels);
        const auto [x, router_logits] = model(ids, attention_mask, position_ids);
        ModelOutput output{.logits = linear(x, lm_head)};
        if (labels.defined())
            output.loss = with_balance(
                cross_entropy(output.logits.reshape({-1, config.vocab_size}), labels.reshape({-1})),
                router_logits, attention_mask);
        return output;
    });
}

ModelOutput Mixtral::outputs(const Tree& batch) {
    const std::vector<Tensor> inputs =
        inputs_of("mixtral", batch,
                  {"input_ids", "labels", "attention_mask", "position_ids", "shift_labels"});
    return outputs(inputs[0], inputs[4].defined() ? inputs[4] : inputs[1], inputs[2], inputs[3]);
}

DecoderFunctions Mixtral::decoder() {
    return {.logits =
                [this](const Tensor& ids, const Tensor& position_ids,
                       const DecoderFunctions::LastTokens& last) {
                    // Hooks expect the logits of all tokens.
                    if (has_registered_hooks()) return last((*this)(ids, Tensor(), position_ids));
                    return enter([&] {
                        return linear(last(model(ids, Tensor(), position_ids).first), lm_head);
                    });
                },
            .longest = config.max_position_embeddings};
}

TokenIds Mixtral::generate(TokenIds ids, std::int64_t count, const GenerateOptions& options) {
    return generate_batch({std::move(ids)}, count, options).front();
}

std::vector<TokenIds> Mixtral::generate_batch(std::vector<TokenIds> prompts, std::int64_t count,
                                              const GenerateOptions& options) {
    return nn::generate(*this, decoder(), std::move(prompts), count, options);
}

}  // namespace axle::nn
