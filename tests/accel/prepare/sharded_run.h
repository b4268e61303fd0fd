// Training runs of an Accelerator that shards models over the ranks of a group.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "accel/accelerator.h"
#include "tests/dist/sharding/sharded_models.h"

namespace axle::tests {

inline accel::FullyShardedDataParallelPlugin fsdp(const std::string& strategy = "FULL_SHARD") {
    return {.reshard_after_forward = strategy,
            .auto_wrap_policy = "TRANSFORMER_BASED_WRAP",
            .sync_module_states = true};
}

// Returns the options with the group, for training on the CPU. Adds fsdp() if the group has several
// ranks and the options have neither an FSDP nor a DeepSpeed plugin.
inline accel::AcceleratorOptions on_group(const Group& group,
                                          accel::AcceleratorOptions options = {}) {
    options.cpu = true;
    options.process_group = group;
    if (group->size() > 1 && !options.fsdp_plugin && !options.deepspeed_plugin)
        options.fsdp_plugin = fsdp();
    return options;
}

// A model with its optimizer and Accelerator.
struct ShardedRun {
    ShardedRun(nn::Gpt& model_, accel::AcceleratorOptions options)
        : model(model_), accelerator(std::move(options)) {
        accelerator.prepare(model, optimizer);
    }

    // Trains with micro-batches of the steps [from, to) and returns the losses of this rank.
    std::vector<double> train(std::int64_t from, std::int64_t to, const Group& group) {
        std::vector<double> losses;
        for (std::int64_t step = from; step < to; ++step) {
            auto scope = accelerator.accumulate(model);
            const Tensor loss = loss_of(model, step, *group);
            accelerator.backward(loss);
            if (accelerator.sync_gradients())
                norm = accelerator.clip_grad_norm_(model.parameters(), 0.3).item();
            optimizer.step();
            optimizer.zero_grad();
            losses.push_back(loss.item());
        }
        return losses;
    }

    void expect_weights(const nn::Gpt& expected, double tolerance = 1e-9) {
        const dist::FullParameters full(model);
        const auto actual = model.named_parameters(), wanted = expected.named_parameters();
        for (std::size_t i = 0; i < wanted.size(); ++i) {
            SCOPED_TRACE(wanted[i].first);
            expect_close(actual[i].second.detach(), wanted[i].second.detach(), tolerance);
        }
    }

    nn::Gpt& model;
    optim::AdamW optimizer{model.parameters(), {.lr = 0.01}};
    double norm = 0;
    accel::Accelerator accelerator;
};

}  // namespace axle::tests
