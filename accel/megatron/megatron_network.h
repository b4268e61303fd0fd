// Options of MegatronLMPlugin that depend on the model, and the parameter groups of its optimizer.
#pragma once

#include <array>
#include <optional>
#include <vector>

#include "accel/megatron/megatron_plugin.h"
#include "nn/module.h"
#include "optim/optimizer.h"

namespace axle::accel {

// Returns the sizes of a Gpt, Llama, BertForMaskedLM or BertForSequenceClassification, or nullopt
// for another type.
std::optional<MegatronNetwork> network_of(nn::Module& model, int tp_degree = 1);

// Sets the options of a resolved plugin that are computed from a model, unless an earlier model has
// set them. These are `network`, seq_length (if it is not set, or to encoder_seq_length or
// decoder_seq_length), and eod_token if it is not set. prepare() calls this function for each
// model, except in evaluation mode, before the model is divided. Throws ValueError if the model
// contradicts attention_dropout, hidden_dropout, use_rotary_position_embeddings or num_experts.
// Also throws it if seq_length exceeds the model's max_position_embeddings, and if eod_mask_loss is
// set but no eod_token is known.
void set_network_size_args(MegatronLMPlugin& plugin, nn::Module& model);

// The parameters that need a gradient, indexed by [is_scaled][has_no_decay], as scale_lr_cond and
// no_wd_decay_cond of the plugin select them.
using MegatronParameters = std::array<std::array<std::vector<Tensor>, 2>, 2>;
MegatronParameters divide_parameters(const nn::Module& model, const MegatronLMPlugin& plugin);

// Returns groups for an optimizer, as in Megatron-LM. Parameters that no_wd_decay_cond selects have
// no weight decay. The rate of parameters that scale_lr_cond selects is multiplied by lr_mult.
// Groups without parameters are left out.
//     optim::AdamW adamw(megatron_param_groups<optim::AdamWOptions>(gpt, plugin, {.lr = 3e-4}));
template <class Options>
std::vector<optim::ParamGroup<Options>> megatron_param_groups(const nn::Module& model,
                                                              const MegatronLMPlugin& plugin,
                                                              const Options& options) {
    MegatronParameters parameters = divide_parameters(model, plugin);
    std::vector<optim::ParamGroup<Options>> groups;
    for (const bool is_scaled : {false, true})
        for (const bool has_no_decay : {false, true}) {
            std::vector<Tensor>& members = parameters[is_scaled][has_no_decay];
            if (members.empty()) continue;
            Options own = options;
            if (is_scaled) own.lr *= plugin.lr_mult;
            if (has_no_decay) own.weight_decay = 0;
            groups.emplace_back(std::move(members), own);
        }
    return groups;
}

}  // namespace axle::accel
