#include "nn/models/text/t5.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/autograd/autograd.h"
#include "nn/evaluation_scope.h"
#include "nn/init.h"
#include "nn/models/pretrained.h"
#include "nn/models/transformer.h"

namespace axle::nn {

Activation T5Config::activation() const {
    const std::string name = is_gated() ? feed_forward_proj.substr(6) : feed_forward_proj;
    if (feed_forward_proj == "gated-gelu" || name == "gelu_new") return Activation::gelu_tanh;
    if (name == "relu") return Activation::relu;
    if (name == "gelu") return Activation::gelu;
    if (name == "silu") return Activation::silu;
    throw ValueError(
        str("T5Config: feed_forward_proj must be relu, gelu, gelu_new or silu, or one ",
            "of them after \"gated-\": ", in_quotes(feed_forward_proj)));
}

void T5Config::validate() const {
    constexpr const char* kWho = "T5Config";
    check_size(kWho, "vocab_size", vocab_size);
    check_size(kWho, "d_model", d_model);
    check_size(kWho, "d_kv", d_kv);
    check_size(kWho, "d_ff", d_ff);
    check_size(kWho, "num_layers", num_layers);
    check_size(kWho, "num_decoder_layers", decoder_layers());
    check_size(kWho, "num_heads", num_heads);
    check_size(kWho, "num_heads times d_kv", num_heads * d_kv);
    check_size(kWho, "relative_attention_num_buckets", relative_attention_num_buckets);
    check_size(kWho, "relative_attention_max_distance", relative_attention_max_distance);
    // Half of the buckets of a direction contain one distance each.
    if (relative_attention_num_buckets < 4 ||
        relative_attention_max_distance <= relative_attention_num_buckets / 2)
        throw ValueError(str(
            kWho, ": relative_attention_num_buckets must be at least 4, and ",
            "relative_attention_max_distance above half of it: ", relative_attention_num_buckets,
            ", ", relative_attention_max_distance));
    check_probability(kWho, "dropout_rate", dropout_rate);
    check_positive(kWho, "layer_norm_epsilon", layer_norm_epsilon);
    check_positive(kWho, "initializer_factor", initializer_factor);
    check_row(kWho, "pad_token_id", pad_token_id, vocab_size);
    check_row(kWho, "decoder_start_token_id", decoder_start_token_id, vocab_size);
    activation();
}

namespace {

const T5Config& validated_t5(const T5Config& config) {
    config.validate();
    return config;
}

// Returns a Linear without bias, with the standard deviation initializer_factor / sqrt(fan).
Linear t5_linear(const T5Config& config, std::int64_t in, std::int64_t out, std::int64_t fan) {
    return normal_linear(in, out, config.initializer_factor / std::sqrt(static_cast<double>(fan)),
                         {.bias = false});
}

Tensor t5_embedding(const T5Config& config) {
    Tensor weight = init::parameter({config.vocab_size, config.d_model});
    init::normal_(weight, 0, config.initializer_factor);
    return weight;
}

RMSNorm t5_norm(const T5Config& config) {
    return RMSNorm(config.d_model, config.layer_norm_epsilon);
}

// Returns a mask [1, 1, time, time] that is true for keys up to the query.
Tensor causal_t5_mask(std::int64_t time, Device device) {
    const Tensor positions = arange(time, {.dtype = i64, .device = device});
    return ge(positions.unsqueeze(1), positions.unsqueeze(0)).unsqueeze(0).unsqueeze(0);
}

void check_t5_labels(const Tensor& ids, const Tensor& labels) {
    if (!labels.defined()) throw ValueError("t5: labels must be given: they are undefined");
    if (labels.dim() != 2 || ids.dim() != 2 || labels.size(0) != ids.size(0))
        throw ShapeError(str("t5: ids and labels must be 2-d with the same batch size: ids ",
                             ids.shape(), ", labels ", labels.shape()));
}

}  // namespace

std::vector<std::int64_t> relative_position_buckets(std::int64_t time, bool is_decoder,
                                                    std::int64_t buckets,
                                                    std::int64_t max_distance) {
    const std::int64_t all = is_decoder ? buckets : buckets / 2, exact = all / 2;
    std::vector<std::int64_t> result;
    for (std::int64_t relative = 1 - time; relative < time; ++relative) {
        const std::int64_t first = !is_decoder && relative > 0 ? all : 0;
        const std::int64_t distance =
            is_decoder ? std::max<std::int64_t>(0, -relative) : std::abs(relative);
        if (distance < exact) {
            result.push_back(first + distance);
            continue;
        }
        // Longer distances are in buckets of logarithmic width. Transformers computes them in f32.
        const auto ratio = static_cast<float>(distance) / static_cast<float>(exact);
        const auto scale = static_cast<float>(
            std::log(static_cast<double>(max_distance) / static_cast<double>(exact)));
        const auto steps =
            static_cast<std::int64_t>(std::log(ratio) / scale * static_cast<float>(all - exact));
        result.push_back(first + std::min(exact + steps, all - 1));
    }
    return result;
}

T5Attention::T5Attention(const T5Config& config, bool is_decoder_, bool has_bias)
    : q(t5_linear(config, config.d_model, config.num_heads * config.d_kv,
                  config.d_model * config.d_kv)),
      k(t5_linear(config, config.d_model, config.num_heads * config.d_kv, config.d_model)),
      v(t5_linear(config, config.d_model, config.num_heads * config.d_kv, config.d_model)),
      o(t5_linear(config, config.num_heads * config.d_kv, config.d_model,
                  config.num_heads * config.d_kv)),
      head_size(config.d_kv),
      max_distance(config.relative_attention_max_distance),
      dropout(config.dropout_rate),
      is_decoder(is_decoder_) {
    if (!has_bias) return;
    relative_attention_bias.emplace(normal_embedding(
        config.relative_attention_num_buckets, config.num_heads,
        config.initializer_factor / std::sqrt(static_cast<double>(config.d_model))));
}

Tensor T5Attention::position_bias(std::int64_t time) {
    if (!relative_attention_bias)
        throw UsageError(
            "T5Attention: position_bias() needs relative_attention_bias, which only the first "
            "layer has");
    const std::vector<std::int64_t> buckets = relative_position_buckets(
        time, is_decoder, relative_attention_bias->weight.size(0), max_distance);
    const Device device = relative_attention_bias->weight.device();
    const Tensor positions = arange(time, {.dtype = i64, .device = device});
    const Tensor relative = positions.unsqueeze(0) - positions.unsqueeze(1) + (time - 1);
    const Tensor bucket =
        index_select(tensor(buckets).to(device), 0, relative.reshape({-1})).reshape({time, time});
    return (*relative_attention_bias)(bucket).permute({2, 0, 1}).unsqueeze(0);
}

Tensor T5Attention::forward(const Tensor& x, const Tensor& memory, const Tensor& bias,
                            const Tensor& mask) {
    const auto heads = [&](const Tensor& y) {
        return y.reshape({y.size(0), y.size(1), -1, head_size}).transpose(1, 2);
    };
    // Does not call scaled_dot_product_attention(), because T5 does not scale the products and
    // needs the gradient of the bias.
    Tensor scores = matmul(heads(q(x)), heads(k(memory)).transpose(-2, -1));
    if (bias.defined()) scores = scores + bias;
    if (mask.defined())
        scores = masked_fill(scores, logical_not(mask), scores.dtype() == f16 ? -65504.0 : -3e38);
    const Tensor weights = axle::dropout(softmax(scores), dropout, is_training());
    const Tensor y = matmul(weights.to(scores.dtype()), heads(v(memory)));
    return o(y.transpose(1, 2).reshape({y.size(0), y.size(2), -1}));
}

T5LayerSelfAttention::T5LayerSelfAttention(const T5Config& config, bool is_decoder, bool has_bias)
    : attention(config, is_decoder, has_bias),
      layer_norm(t5_norm(config)),
      dropout(config.dropout_rate) {}

Tensor T5LayerSelfAttention::forward(const Tensor& x, const Tensor& bias, const Tensor& mask) {
    const Tensor normalized = layer_norm(x);
    return x + dropout(attention(normalized, normalized, bias, mask));
}

T5LayerCrossAttention::T5LayerCrossAttention(const T5Config& config)
    : attention(config, true, false), layer_norm(t5_norm(config)), dropout(config.dropout_rate) {}

Tensor T5LayerCrossAttention::forward(const Tensor& x, const Tensor& memory, const Tensor& mask) {
    return x + dropout(attention(layer_norm(x), memory, Tensor(), mask));
}

T5LayerFF::T5LayerFF(const T5Config& config)
    : wi(t5_linear(config, config.d_model, config.d_ff, config.d_model)),
      wo(t5_linear(config, config.d_ff, config.d_model, config.d_ff)),
      layer_norm(t5_norm(config)),
      hidden_dropout(config.dropout_rate),
      dropout(config.dropout_rate),
      activation(config.activation()) {
    if (config.is_gated())
        wi_1.emplace(t5_linear(config, config.d_model, config.d_ff, config.d_model));
}

Tensor T5LayerFF::forward(const Tensor& x) {
    const Tensor normalized = layer_norm(x);
    Tensor hidden = wi(normalized, activation);
    if (wi_1) hidden = hidden * (*wi_1)(normalized);
    return x + dropout(wo(hidden_dropout(hidden)));
}

void T5LayerFF::visit(Visitor& v) {
    v(wi_1 ? "DenseReluDense.wi_0" : "DenseReluDense.wi", wi);
    if (wi_1) v("DenseReluDense.wi_1", *wi_1);
    v("DenseReluDense.wo", wo), v("DenseReluDense.dropout", hidden_dropout);
    v("layer_norm", layer_norm), v("dropout", dropout);
}

T5Block::T5Block(const T5Config& config, bool is_decoder, bool has_bias)
    : self_attention(config, is_decoder, has_bias), feed_forward(config) {
    if (is_decoder) cross_attention.emplace(config);
}

Tensor T5Block::forward(const Tensor& x, const Tensor& bias, const Tensor& mask,
                        const Tensor& memory, const Tensor& memory_mask) {
    Tensor y = self_attention(x, bias, mask);
    if (cross_attention) y = (*cross_attention)(y, memory, memory_mask);
    return feed_forward(y);
}

void T5Block::visit(Visitor& v) {
    v("layer.0", self_attention);
    if (cross_attention) v("layer.1", *cross_attention);
    v(cross_attention ? "layer.2" : "layer.1", feed_forward);
}

T5Stack::T5Stack(const T5Config& config, const Tensor& shared, bool is_decoder_)
    : embed_tokens(shared),
      final_layer_norm(t5_norm(config)),
      dropout(config.dropout_rate),
      is_decoder(is_decoder_) {
    const std::int64_t layers = is_decoder ? config.decoder_layers() : config.num_layers;
    for (std::int64_t i = 0; i < layers; ++i) block.push_back(T5Block(config, is_decoder, i == 0));
}

Tensor T5Stack::forward(const Tensor& ids, const Tensor& mask, const Tensor& memory,
                        const Tensor& memory_mask) {
    if (ids.dim() != 2)
        throw ShapeError(str("t5: ids must be [batch, time]: they are ", ids.shape()));
    Tensor attends = padding_mask("t5", mask, ids);
    if (is_decoder) {
        const Tensor causal = causal_t5_mask(ids.size(1), ids.device());
        attends = attends.defined() ? logical_and(attends, causal) : causal;
    }
    Tensor memory_attends;
    if (memory_mask.defined()) memory_attends = ne(memory_mask, 0).unsqueeze(1).unsqueeze(1);
    Tensor x = dropout(embedding(ids, embed_tokens));
    const Tensor bias = block[0].self_attention.attention.position_bias(ids.size(1)).to(x.dtype());
    for (T5Block& one : block) x = one(x, bias, attends, memory, memory_attends);
    return dropout(final_layer_norm(x));
}

void T5Stack::visit(Visitor& v) {
    v("embed_tokens.weight", embed_tokens), v("block", block);
    v("final_layer_norm", final_layer_norm), v("dropout", dropout);
}

T5ForConditionalGeneration::T5ForConditionalGeneration(const T5Config& given)
    : config(validated_t5(given)),
      shared(t5_embedding(config)),
      encoder(config, shared, false),
      decoder(config, shared, true),
      lm_head(config.tie_word_embeddings ? shared : t5_embedding(config)) {}

Tensor T5ForConditionalGeneration::logits_of(const Tensor& hidden) const {
    const double scale = 1 / std::sqrt(static_cast<double>(config.d_model));
    return linear(config.tie_word_embeddings ? hidden * scale : hidden, lm_head);
}

Tensor T5ForConditionalGeneration::forward(const Tensor& ids, const Tensor& decoder_ids,
                                           const Tensor& attention_mask) {
    if (ids.defined() && decoder_ids.defined() && ids.dim() == 2 && decoder_ids.dim() == 2 &&
        ids.size(0) != decoder_ids.size(0))
        throw ShapeError(str("t5: ids and decoder_ids must have the same batch size: ids ",
                             ids.shape(), ", decoder_ids ", decoder_ids.shape()));
    const Tensor memory = encoder(ids, attention_mask);
    return logits_of(decoder(decoder_ids, Tensor(), memory, attention_mask));
}

Tensor T5ForConditionalGeneration::shift_right(const Tensor& labels) const {
    const NoGrad no_grad;
    const Tensor first = full({labels.size(0), 1}, config.decoder_start_token_id,
                              {.dtype = labels.dtype(), .device = labels.device()});
    const Tensor shifted = cat({first, labels.narrow(1, 0, labels.size(1) - 1)}, 1);
    return masked_fill(shifted, eq(shifted, -100), config.pad_token_id);
}

Tensor T5ForConditionalGeneration::loss(const Tensor& ids, const Tensor& labels,
                                        const Tensor& attention_mask) {
    return outputs(ids, labels, attention_mask).loss;
}

ModelOutput T5ForConditionalGeneration::outputs(const Tensor& ids, const Tensor& labels,
                                                const Tensor& attention_mask) {
    return enter([&] {
        check_t5_labels(ids, labels);
        ModelOutput output{.logits = forward(ids, shift_right(labels), attention_mask)};
        output.loss =
            cross_entropy(output.logits.reshape({-1, config.vocab_size}), labels.reshape({-1}));
        return output;
    });
}

ModelOutput T5ForConditionalGeneration::outputs(const Tree& batch) {
    const std::vector<Tensor> inputs =
        inputs_of("t5", batch, {"input_ids", "labels", "attention_mask"});
    return outputs(inputs[0], inputs[1], inputs[2]);
}

std::vector<std::int64_t> T5ForConditionalGeneration::generate(const std::vector<std::int64_t>& ids,
                                                               std::int64_t count) {
    if (ids.empty())
        throw ValueError("generate: the source must have at least one id: ids is empty");
    if (count < 0) throw ValueError(str("generate: count must be at least 0: ", count));
    const NoGrad no_grad;
    const EvaluationScope evaluating("generate", *this);
    return enter([&] {
        const Device device = shared.device();
        const Tensor memory = encoder(tensor(ids).unsqueeze(0).to(device), Tensor());
        std::vector<std::int64_t> target = {config.decoder_start_token_id};
        while (std::ssize(target) <= count) {
            const Tensor hidden =
                decoder(tensor(target).unsqueeze(0).to(device), Tensor(), memory, Tensor());
            target.push_back(argmax(logits_of(hidden.select(1, -1)), -1).item_int());
            if (std::ranges::find(config.eos_token_id, target.back()) != config.eos_token_id.end())
                break;
        }
        target.erase(target.begin());
        return target;
    });
}

}  // namespace axle::nn
