#include "accel/megatron/megatron_network.h"

#include <string>
#include <type_traits>
#include <utility>

#include "core/files/file.h"
#include "core/system/log.h"
#include "kernels/error.h"
#include "nn/layers/mixture.h"
#include "nn/models/bert.h"
#include "nn/models/gpt.h"
#include "nn/models/llama.h"

namespace axle::accel {
namespace {

constexpr const char* kPlugin = "MegatronLMPlugin";

std::optional<std::int64_t> first_of(const std::vector<std::int64_t>& ids,
                                     std::int64_t vocabulary) {
    if (ids.empty() || ids.front() < 0 || ids.front() >= vocabulary) return std::nullopt;
    return ids.front();
}

MegatronNetwork network_of(const nn::GptConfig& config) {
    return {.model_type_name = "gpt",
            .num_layers = config.n_layer,
            .hidden_size = config.n_embd,
            .ffn_hidden_size = 4 * config.n_embd,
            .num_attention_heads = config.n_head,
            .num_query_groups = config.n_head,
            .max_position_embeddings = config.block_size,
            .orig_vocab_size = config.vocab_size,
            .hidden_dropout = config.dropout,
            .attention_dropout = config.attn_dropout.value_or(config.dropout),
            .eos_token_id = first_of(config.eos_token_id, config.vocab_size)};
}

MegatronNetwork network_of(const nn::LlamaConfig& config) {
    return {.model_type_name = "llama",
            .num_layers = config.num_hidden_layers,
            .hidden_size = config.hidden_size,
            .ffn_hidden_size = config.intermediate_size,
            .num_attention_heads = config.num_attention_heads,
            .num_query_groups = config.num_key_value_heads.value_or(config.num_attention_heads),
            .max_position_embeddings = config.max_position_embeddings,
            .orig_vocab_size = config.vocab_size,
            .attention_dropout = config.attention_dropout,
            .use_rotary_position_embeddings = true,
            .eos_token_id = first_of(config.eos_token_id, config.vocab_size)};
}

MegatronNetwork network_of(const nn::BertConfig& config, bool is_classifier) {
    return {.model_type_name = "bert",
            .pretraining_flag = !is_classifier,
            .num_layers = config.num_hidden_layers,
            .hidden_size = config.hidden_size,
            .ffn_hidden_size = config.intermediate_size,
            .num_attention_heads = config.num_attention_heads,
            .num_query_groups = config.num_attention_heads,
            .max_position_embeddings = config.max_position_embeddings,
            .orig_vocab_size = config.vocab_size,
            .num_labels = is_classifier ? std::ssize(config.labels) : 0,
            .hidden_dropout = config.hidden_dropout_prob,
            .attention_dropout = config.attention_probs_dropout_prob};
}

std::optional<MegatronNetwork> known_network_of(const nn::Module& model) {
    if (const auto* gpt = dynamic_cast<const nn::Gpt*>(&model)) return network_of(gpt->config);
    if (const auto* llama = dynamic_cast<const nn::Llama*>(&model))
        return network_of(llama->config);
    if (const auto* bert = dynamic_cast<const nn::BertForMaskedLM*>(&model))
        return network_of(bert->config, false);
    if (const auto* bert = dynamic_cast<const nn::BertForSequenceClassification*>(&model))
        return network_of(bert->config, true);
    return std::nullopt;
}

// Returns the number of experts of the first mixture, or 0 if the model has none.
std::int64_t experts_of(nn::Module& model) {
    for (const auto& [name, module] : model.named_modules())
        if (const auto* mixture = dynamic_cast<const nn::MixtureOfExperts*>(module))
            return mixture->options().experts;
    return 0;
}

template <class T>
void check_equal(const char* option, const std::optional<T>& given, const T& own) {
    const auto text = [](const T& value) {
        if constexpr (std::is_same_v<T, bool>)
            return value ? "true" : "false";
        else
            return value;
    };
    if (given && *given != own)
        throw ValueError(str(kPlugin, ": ", option, " is ", text(*given), ", but the model has ",
                             text(own), "; set it in the configuration of the model"));
}

void set_sequence_options(MegatronLMPlugin& plugin, const MegatronNetwork& network) {
    const bool is_encoder = network.model_type_name == "bert";
    const auto& own = is_encoder ? plugin.encoder_seq_length : plugin.decoder_seq_length;
    const char* const name = is_encoder ? "encoder_seq_length" : "decoder_seq_length";
    if (own && plugin.seq_length && *own != *plugin.seq_length)
        log(LogLevel::warning, kPlugin, ": both seq_length and ", name, " are set: seq_length is ",
            *plugin.seq_length, ", ", name, " is ", *own, "; ", name, " is used");
    if (own) plugin.seq_length = own;
    if (!plugin.seq_length) plugin.seq_length = network.max_position_embeddings;
    if (*plugin.seq_length > network.max_position_embeddings)
        throw ValueError(str(kPlugin,
                             ": seq_length must be at most max_position_embeddings of the model: "
                             "seq_length is ",
                             *plugin.seq_length, ", max_position_embeddings ",
                             network.max_position_embeddings));
    if (!plugin.eod_token) plugin.eod_token = network.eos_token_id;
    plugin.network = network;
}

}  // namespace

std::optional<MegatronNetwork> network_of(nn::Module& model, int tp_degree) {
    std::optional<MegatronNetwork> network = known_network_of(model);
    if (!network) return network;
    network->padded_vocab_size = (network->orig_vocab_size + tp_degree - 1) / tp_degree * tp_degree;
    network->num_experts = experts_of(model);
    return network;
}

void set_network_size_args(MegatronLMPlugin& plugin, nn::Module& model) {
    if (plugin.num_experts)
        check_equal<std::int64_t>("num_experts", *plugin.num_experts, experts_of(model));
    const std::optional<MegatronNetwork> network = network_of(model, plugin.tp_degree.value_or(1));
    if (network) {
        check_equal("attention_dropout", plugin.attention_dropout, network->attention_dropout);
        check_equal("hidden_dropout", plugin.hidden_dropout, network->hidden_dropout);
        check_equal("use_rotary_position_embeddings", plugin.use_rotary_position_embeddings,
                    network->use_rotary_position_embeddings);
        if (!plugin.network) set_sequence_options(plugin, *network);
    }
    if (plugin.eod_mask_loss.value_or(false) && !plugin.eod_token)
        throw ValueError(str(kPlugin,
                             ": eod_mask_loss needs eod_token, because the configuration of the "
                             "model has no end-of-text token in its vocabulary"));
}

MegatronParameters divide_parameters(const nn::Module& model, const MegatronLMPlugin& plugin) {
    MegatronParameters parameters;
    for (const auto& [name, parameter] : model.named_parameters()) {
        if (!parameter.requires_grad()) continue;
        const bool has_no_decay = plugin.no_wd_decay_cond
                                      ? plugin.no_wd_decay_cond(name, parameter)
                                      : name.ends_with(".bias") || parameter.dim() == 1;
        const bool is_scaled = plugin.scale_lr_cond && plugin.scale_lr_cond(name, parameter);
        parameters[is_scaled][has_no_decay].push_back(parameter);
    }
    return parameters;
}

}  // namespace axle::accel
