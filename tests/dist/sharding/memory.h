// Measures the memory of sharded training.
#pragma once

#include <cstdint>
#include <functional>

#include "core/autograd/autograd.h"
#include "core/memory/memory.h"
#include "tests/dist/sharding/rank_runner.h"
#include "tests/dist/sharding/sharded_models.h"

namespace axle::tests {

// The statistics of the allocator of the tensors of all ranks.
struct MeasuredMemory {
    std::function<MemoryStats()> stats;
    std::function<void()> reset_peak;
    // Whether kernels allocate temporary memory from the allocator. If so, peaks are not measured.
    bool has_workspaces = false;
};

// The memory of one process and, as means of four ranks, of sharded training, in bytes.
struct ShardedBytes {
    double alone = 0;            // parameters, gradients and moments of one process
    double parts = 0;            // parameters, gradients and moments of a rank
    double forward = 0;          // peak of a rank in forward without gradients
    double step = 0;             // peak of a rank in a training step
    double root = 0, block = 0;  // parameters of the unit of the model, and of the unit of a block

    ShardedBytes& operator+=(const ShardedBytes& other) {
        alone += other.alone, parts += other.parts, forward += other.forward, step += other.step;
        root += other.root, block += other.block;
        return *this;
    }
};

// Measures the memory of a GPT with four blocks, on one process and sharded over four ranks.
inline ShardedBytes measure_sharded_bytes(const RankRunner& run, const MeasuredMemory& memory,
                                          Device device, std::int64_t width) {
    constexpr int kRanks = 4, kLayers = 4;
    const auto make = [&] {
        return nn::Gpt(
            {.vocab_size = 128, .block_size = 6, .n_layer = kLayers, .n_head = 2, .n_embd = width});
    };
    const std::int64_t before = memory.stats().current;
    const auto since = [&](std::int64_t bytes) { return static_cast<double>(bytes - before); };
    ShardedBytes result;
    {
        nn::Gpt whole = make();
        whole.to(device);
        optim::AdamW optimizer(whole.parameters());
        tiny_loss(whole, device).backward();
        optimizer.step();
        result.alone = since(memory.stats().current);
        result.block = 4.0 * static_cast<double>(whole.transformer.h[0].num_parameters());
        result.root = 4.0 * static_cast<double>(whole.num_parameters()) - kLayers * result.block;
    }
    auto models = clones_of(make(), kRanks);
    run(kRanks, [&](const Group& group, Device own) {
        nn::Gpt& model = models[at(group)];
        const dist::ShardedDataParallel sharded(
            model, group, {.units = Gpt64{.layers = kLayers}.units(), .device = own});
        optim::AdamW optimizer(model.parameters());
        // Calls f on all ranks, and returns the memory afterwards.
        const auto measure = [&](auto&& f) {
            group->barrier();
            if (group->rank() == 0) memory.reset_peak();
            group->barrier();
            f();
            group->barrier();
            return memory.stats();
        };
        const auto train = [&] {
            tiny_loss(model, own).backward();
            optimizer.step();
        };
        train();
        const MemoryStats step = measure(train);
        const MemoryStats forward = measure([&] {
            const NoGrad no_grad;
            static_cast<void>(tiny_loss(model, own));
        });
        if (group->rank() == 0) result.parts = since(step.current) / kRanks;
        if (group->rank() == 0 && !memory.has_workspaces) {
            result.step = since(step.peak) / kRanks;
            result.forward = since(forward.peak) / kRanks;
        }
        group->barrier();
    });
    return result;
}

// Expects that a rank needs at most 0.27 of the memory of one process. While it trains, it may also
// need memory for the gathered parameters and the gradients of a few units. In forward, the unit of
// the model and two blocks are gathered. In backward, there are also whole gradients of the unit of
// the model, of two blocks that are being reduced, and of the next block. There are also the
// reduced parts of these gradients, and the gradient of one parameter, which is at most a third of
// a block. Allocated sizes are larger by up to a factor of `rounding`. If `bytes` is a sum over
// models of several widths, the rounding of the sizes of parts averages out.
inline void expect_memory_of_parts(const ShardedBytes& bytes, double rounding) {
    const double parts = 0.27 * bytes.alone;
    EXPECT_LE(bytes.parts, parts);
    const double gathered = bytes.root + 2 * bytes.block;
    EXPECT_LE(bytes.forward, parts + rounding * gathered);
    const double gradients = 1.25 * (bytes.root + 3 * bytes.block) + bytes.block / 3;
    EXPECT_LE(bytes.step, parts + rounding * (gathered + gradients));
}

}  // namespace axle::tests
