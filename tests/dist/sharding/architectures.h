// Small models of several architectures, which several ranks train with sharded parameters.
#pragma once

#include <cstdint>
#include <vector>

#include "nn/models/bert.h"
#include "nn/models/llama.h"
#include "tests/dist/sharding/sharded_models.h"

namespace axle::tests {

inline nn::Gpt small_architecture(nn::Gpt*) {
    return nn::Gpt({.vocab_size = 13, .block_size = 6, .n_layer = 2, .n_head = 2, .n_embd = 8});
}
inline nn::Llama small_architecture(nn::Llama*) {
    return nn::Llama({.vocab_size = 13,
                      .hidden_size = 8,
                      .intermediate_size = 12,
                      .num_hidden_layers = 2,
                      .num_attention_heads = 4,
                      .num_key_value_heads = 2});
}
inline nn::BertForMaskedLM small_architecture(nn::BertForMaskedLM*) {
    nn::BertConfig config{.vocab_size = 13, .hidden_size = 8, .num_hidden_layers = 2};
    config.num_attention_heads = 2, config.intermediate_size = 12;
    config.hidden_dropout_prob = 0, config.attention_probs_dropout_prob = 0;
    return nn::BertForMaskedLM(config);
}

// Returns the mean loss of this rank's part of a batch of 12 sequences.
template <class Model>
Tensor architecture_loss(Model& model, std::int64_t step, const dist::ProcessGroup& group) {
    const auto [ids, labels] = batch_of(step);
    const Device device = model.parameters()[0].device();
    return model.loss(part(ids, group).to(device), part(labels, group).to(device));
}

// Trains with AdamW and clipping. Returns the losses, averaged over the ranks.
template <class Model>
std::vector<double> train_architecture(Model& model, const Group& group, std::int64_t steps = 20) {
    std::vector<double> losses;
    model.train();
    optim::AdamW optimizer(model.parameters(), {.lr = 0.01});
    for (std::int64_t step = 0; step < steps; ++step) {
        const Tensor loss = architecture_loss(model, step, *group);
        loss.backward();
        optim::clip_grad_norm_(model.parameters(), kMaxNorm);
        optimizer.step();
        optimizer.zero_grad();
        const Tensor mean = loss.detach().cpu().clone();
        group->all_reduce(mean, dist::ReduceOp::mean);
        losses.push_back(mean.item());
    }
    return losses;
}

}  // namespace axle::tests
