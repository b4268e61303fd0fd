// Tests of sharded training with small models of several architectures.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "dist/sharding/wrap_policy.h"
#include "nn/models/bert.h"
#include "nn/models/llama.h"
#include "tests/dist/sharding/rank_runner.h"
#include "tests/dist/sharding/sharded_models.h"

namespace axle::tests {

inline nn::Gpt small_architecture(nn::Gpt*) {
    return nn::Gpt({.vocab_size = 13, .block_size = 6, .n_layer = 2, .n_head = 1, .n_embd = 8});
}
inline nn::Llama small_architecture(nn::Llama*) {
    return nn::Llama({.vocab_size = 13,
                      .hidden_size = 8,
                      .intermediate_size = 12,
                      .num_hidden_layers = 2,
                      .num_attention_heads = 2,
                      .num_key_value_heads = 1});
}
inline nn::BertForMaskedLM small_architecture(nn::BertForMaskedLM*) {
    nn::BertConfig config{.vocab_size = 13, .hidden_size = 8, .num_hidden_layers = 2};
    config.num_attention_heads = 1, config.intermediate_size = 12;
    config.hidden_dropout_prob = 0, config.attention_probs_dropout_prob = 0;
    return nn::BertForMaskedLM(config);
}

// Expects that sharded training gives the losses and, in f64, the parameters of one process on the
// CPU. Runs each strategy on 2 to 4 ranks, and full_shard and shard_grad_op also on 4 ranks with
// replicas. In f32, Adam enlarges rounding errors of gradients that are zero in exact arithmetic,
// such as gradients of the biases of keys.
template <class Model>
void expect_training_of_one_process(const RankRunner& run, DType dtype, double tolerance,
                                    std::int64_t steps = 20) {
    manual_seed(3);
    Model whole = small_architecture(static_cast<Model*>(nullptr));
    whole.to(dtype);
    const Model start = whole.clone();
    const ReferenceRun expected = train_alone(whole, steps);
    const Tensor change = whole.parameters()[0].detach() - start.parameters()[0].detach();
    EXPECT_GT(max(abs(change)).item(), 0.001 * static_cast<double>(steps));
    const auto expect = [&](int ranks, dist::ShardingStrategy strategy, bool has_replicas) {
        auto models = clones_of(start, ranks);
        run(ranks, [&](const Group& group, Device device) {
            SCOPED_TRACE(
                str(ranks, " ranks, ", name_of(strategy), has_replicas ? " with replicas" : ""));
            Model& model = models[at(group)];
            const int shards = has_replicas ? ranks / 2 : ranks;
            const dist::ShardedDataParallel sharded(
                model, has_replicas ? group->split(group->rank() / shards) : group,
                {.strategy = strategy,
                 .units = dist::units_by_type(model, model.no_split_modules()),
                 .device = device,
                 .replicas = has_replicas ? group->split(group->rank() % shards) : nullptr});
            EXPECT_EQ(model.parameters()[0].device(), device);
            if (dtype == f64)
                expect_same_training(model, group, expected, tolerance);
            else
                expect_same_losses(model, group, expected, tolerance);
        });
    };
    using enum dist::ShardingStrategy;
    for (const auto strategy : {full_shard, shard_grad_op, shard_optimizer})
        for (const int ranks : {2, 3, 4}) expect(ranks, strategy, false);
    for (const auto strategy : {full_shard, shard_grad_op}) expect(4, strategy, true);
}

}  // namespace axle::tests
