#include "nn/models/gpt.h"

#include <algorithm>
#include <cmath>

#include "core/autograd.h"
#include "nn/init.h"

namespace axle::inline v0::nn {

void GptConfig::validate() const {
    const auto positive = [](const char* name, std::int64_t value) {
        if (value < 1) throw ValueError(str("GptConfig: ", name, " must be positive: ", value));
    };
    positive("vocab_size", vocab_size);
    positive("block_size", block_size);
    positive("n_layer", n_layer);
    positive("n_head", n_head);
    positive("n_embd", n_embd);
    if (n_embd % n_head != 0)
        throw ValueError(
            str("GptConfig: n_embd ", n_embd, " is not a multiple of n_head ", n_head));
    if (!(dropout >= 0 && dropout < 1))
        throw ValueError(str("GptConfig: dropout must be in [0, 1): ", dropout));
}

namespace {

const GptConfig& validated(const GptConfig& config) {
    config.validate();
    return config;
}

LayerNorm norm_of(const GptConfig& config) {
    return LayerNorm(config.n_embd, {.eps = config.layer_norm_epsilon, .bias = config.bias});
}

// GPT-2 stores [in, out].
Linear linear_of(const GptConfig& config, std::int64_t in, std::int64_t out, double std) {
    Linear layer(in, out, {.bias = config.bias, .transposed = true});
    init::normal_(layer.weight, 0, std);
    if (config.bias) init::zeros_(layer.bias);
    return layer;
}

constexpr double kStd = 0.02;

double residual_std(const GptConfig& config) {
    return kStd / std::sqrt(2.0 * static_cast<double>(config.n_layer));
}

Embedding embedding_of(std::int64_t rows, std::int64_t width) {
    Embedding table(rows, width);
    init::normal_(table.weight, 0, kStd);
    return table;
}

// eval() for a scope; afterwards every module is in the mode that it was in.
class Evaluating {
  public:
    explicit Evaluating(Module& model) {
        for (const auto& [name, module] : model.named_modules())
            before_.emplace_back(module, module->is_training());
        model.eval();
    }
    ~Evaluating() {
        // Parents come first, so that children have the last word.
        for (const auto& [module, training] : before_) module->train(training);
    }
    Evaluating(const Evaluating&) = delete;
    Evaluating& operator=(const Evaluating&) = delete;

  private:
    std::vector<std::pair<Module*, bool>> before_;
};

}  // namespace

GptAttention::GptAttention(const GptConfig& config)
    : c_attn(linear_of(config, config.n_embd, 3 * config.n_embd, kStd)),
      c_proj(linear_of(config, config.n_embd, config.n_embd, residual_std(config))),
      resid_dropout(config.dropout),
      heads(config.n_head),
      attn_dropout(config.dropout) {}

Tensor GptAttention::forward(const Tensor& x) {
    const std::int64_t batch = x.size(0), time = x.size(1), width = x.size(2);
    // [B, T, 3 C] as three [B, heads, T, C / heads]
    std::vector<Tensor> qkv = split(c_attn(x), width, -1);
    for (Tensor& part : qkv) part = part.view({batch, time, heads, width / heads}).transpose(1, 2);
    const Tensor y = scaled_dot_product_attention(
        qkv[0], qkv[1], qkv[2], {.dropout_p = is_training() ? attn_dropout : 0, .causal = true});
    return resid_dropout(c_proj(y.transpose(1, 2).reshape({batch, time, width})));
}

GptMlp::GptMlp(const GptConfig& config)
    : c_fc(linear_of(config, config.n_embd, 4 * config.n_embd, kStd)),
      c_proj(linear_of(config, 4 * config.n_embd, config.n_embd, residual_std(config))),
      resid_dropout(config.dropout),
      activation(config.activation == Gelu::tanh ? Activation::gelu_tanh : Activation::gelu) {}

Tensor GptMlp::forward(const Tensor& x) { return resid_dropout(c_proj(c_fc(x, activation))); }

GptBlock::GptBlock(const GptConfig& config)
    : ln_1(norm_of(config)), attn(config), ln_2(norm_of(config)), mlp(config) {}

Tensor GptBlock::forward(const Tensor& x) {
    const Tensor y = x + attn(ln_1(x));
    return y + mlp(ln_2(y));
}

GptTransformer::GptTransformer(const GptConfig& config)
    : wte(embedding_of(config.vocab_size, config.n_embd)),
      wpe(embedding_of(config.block_size, config.n_embd)),
      embd_dropout(config.dropout),
      ln_f(norm_of(config)),
      checkpoint_blocks(config.checkpoint_blocks) {
    for (std::int64_t i = 0; i < config.n_layer; ++i) h.push_back(GptBlock(config));
}

Tensor GptTransformer::forward(const Tensor& ids) {
    const Tensor positions = wpe.weight.narrow(0, 0, ids.size(1));
    Tensor x = embd_dropout(wte(ids) + positions);
    for (GptBlock& block : h) {
        if (checkpoint_blocks && is_training())
            x = checkpoint([&block](const std::vector<Tensor>& in) { return block(in[0]); }, {x});
        else
            x = block(x);
    }
    return ln_f(x);
}

Gpt::Gpt(const GptConfig& config_) : config(validated(config_)), transformer(config) {}

Tensor Gpt::hidden(const Tensor& ids) {
    if (ids.dim() != 2 || ids.size(1) > config.block_size)
        throw ShapeError(str("gpt: ids must be [batch, time] with time at most block_size ",
                             config.block_size, ": ", ids.shape()));
    return transformer(ids);
}

Tensor Gpt::forward(const Tensor& ids) { return linear(hidden(ids), transformer.wte.weight); }

Tensor Gpt::loss(const Tensor& ids, const Tensor& labels) {
    return enter([&] {
        if (labels.shape() != ids.shape())
            throw ShapeError(str("gpt: labels ", labels.shape(), " don't match ids ", ids.shape()));
        const Tensor x = hidden(ids);
        return linear_cross_entropy(x.reshape({-1, config.n_embd}), transformer.wte.weight,
                                    labels.reshape({-1}));
    });
}

std::vector<std::int64_t> Gpt::generate(std::vector<std::int64_t> ids, std::int64_t count,
                                        GenerateOptions options) {
    if (ids.empty()) throw ValueError("generate: needs at least one token to continue");
    if (!(options.temperature >= 0))
        throw ValueError(str("generate: the temperature can't be negative: ", options.temperature));
    if (count < 0 || options.top_k < 0)
        throw ValueError(
            str("generate: count and top_k can't be negative: ", count, ", ", options.top_k));
    const NoGrad no_grad;
    const Evaluating evaluating(*this);
    for (std::int64_t i = 0; i < count; ++i) {
        const auto context = std::min(static_cast<std::int64_t>(ids.size()), config.block_size);
        const std::vector<std::int64_t> window(ids.end() - context, ids.end());
        const Tensor x = (*this)(tensor(window, {1, context}));
        Tensor logits = x.select(1, -1).to(f32);
        if (options.temperature == 0) {
            ids.push_back(argmax(logits, -1).item_int());
            continue;
        }
        logits = logits / options.temperature;
        if (options.top_k > 0 && options.top_k < config.vocab_size) {
            const Tensor least = topk(logits, options.top_k).first.slice(-1, -1);
            logits = masked_fill(logits, lt(logits, least), -INFINITY);
        }
        ids.push_back(multinomial(softmax(logits), 1).item_int());
    }
    return ids;
}

}  // namespace axle::inline v0::nn
