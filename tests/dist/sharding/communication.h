// Compares the collectives of sharded training, and their bytes, with a formula.
#pragma once

#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include "optim/sgd.h"
#include "tests/dist/sharding/rank_runner.h"
#include "tests/dist/sharding/sharded_models.h"

namespace axle::tests {

// The numbers of collectives, and the total sizes in bytes of the buffers that they gather and
// reduce.
struct Communication {
    std::int64_t all_gathers = 0, reduce_scatters = 0, all_reduces = 0;
    std::int64_t gathered_bytes = 0, reduced_bytes = 0;

    Communication() = default;
    explicit Communication(const dist::ShardingCounters& counters)
        : all_gathers(counters.all_gathers),
          reduce_scatters(counters.reduce_scatters),
          all_reduces(counters.all_reduces),
          gathered_bytes(counters.gathered_bytes),
          reduced_bytes(counters.reduced_bytes) {}
    bool operator==(const Communication&) const = default;
    Communication& operator+=(const Communication& other) {
        all_gathers += other.all_gathers;
        reduce_scatters += other.reduce_scatters;
        all_reduces += other.all_reduces;
        gathered_bytes += other.gathered_bytes;
        reduced_bytes += other.reduced_bytes;
        return *this;
    }
    friend std::ostream& operator<<(std::ostream& out, const Communication& c) {
        return out << c.all_gathers << " all-gathers of " << c.gathered_bytes << " bytes, "
                   << c.reduce_scatters << " reduce-scatters of " << c.reduced_bytes << " bytes, "
                   << c.all_reduces << " all-reduces";
    }
};

// Returns the bytes of the unit of the model and of the units of its blocks. A parameter begins at
// a multiple of 64 bytes, and a unit consists of equal parts whose sizes are multiples of 64 bytes.
inline std::vector<std::int64_t> unit_bytes(const nn::Gpt& model, int parts) {
    const auto round_up = [](std::int64_t n, std::int64_t to) { return (n + to - 1) / to * to; };
    const std::string blocks = "transformer.h.";
    std::vector<std::int64_t> bytes(1 + model.transformer.h.size());
    for (const auto& [name, parameter] : model.named_parameters()) {
        const bool is_in_block = name.starts_with(blocks);
        const std::size_t unit = is_in_block ? 1 + std::stoul(name.substr(blocks.size())) : 0;
        bytes[unit] += round_up(parameter.numel() * size_of(parameter.dtype()), 64);
    }
    for (std::int64_t& size : bytes) size = round_up(size, std::int64_t{64} * parts);
    return bytes;
}

// Returns the communication of one rank in one micro-batch. `is_first` is true in the first
// micro-batch and after an update of the parameters. Each unit is gathered for forward unless it
// was kept, and once more for backward if it was freed. If the micro-batch syncs, the gradients of
// each unit are reduced to parts, and averaged over the replicas of the parts.
inline Communication formula(const std::vector<std::int64_t>& units,
                             dist::ShardingStrategy strategy, bool is_first, bool syncs,
                             bool has_replicas) {
    using enum dist::ShardingStrategy;
    Communication result;
    for (const std::int64_t& bytes : units) {
        const bool is_freed_after_forward = strategy == full_shard && &bytes != &units.front();
        const bool is_kept_after_backward = strategy == shard_optimizer;
        const std::int64_t gathers =
            (is_first || !is_kept_after_backward ? 1 : 0) + (is_freed_after_forward ? 1 : 0);
        result.all_gathers += gathers;
        result.gathered_bytes += gathers * bytes;
        if (!syncs) continue;
        result.reduce_scatters += 1;
        result.reduced_bytes += bytes;
        if (has_replicas) result.all_reduces += 1;
    }
    return result;
}

// Runs three micro-batches. Only the second micro-batch syncs, and the parameters are updated after
// it. Expects the communication of formula() in each micro-batch. Returns the sum over all ranks
// and micro-batches.
inline Communication expect_communication_of_formula(const RankRunner& run, int ranks,
                                                     dist::ShardingStrategy strategy,
                                                     bool has_replicas = false) {
    const Gpt64 gpt{.layers = 2};
    const nn::Gpt whole = gpt.make();
    const int shards = has_replicas ? ranks / 2 : ranks;
    const std::vector<std::int64_t> units = unit_bytes(whole, shards);
    auto models = clones_of(whole, ranks);
    std::vector<Communication> totals(models.size());
    run(ranks, [&](const Group& group, Device device) {
        SCOPED_TRACE(
            str(ranks, " ranks, ", name_of(strategy), has_replicas ? " with replicas" : ""));
        nn::Gpt& model = models[at(group)];
        dist::ShardedDataParallel sharded(
            model, has_replicas ? group->split(group->rank() / shards) : group,
            {.strategy = strategy,
             .units = gpt.units(),
             .device = device,
             .replicas = has_replicas ? group->split(group->rank() % shards) : nullptr});
        optim::SGD optimizer(model.parameters(), {.lr = 0.1});
        for (int batch = 0; batch < 3; ++batch) {
            const bool syncs = batch % 2 == 1;
            sharded.set_sync(syncs);
            sharded.reset_counters();
            tiny_loss(model, device).backward();
            const Communication actual(sharded.counters());
            EXPECT_EQ(actual, formula(units, strategy, !syncs, syncs, has_replicas))
                << "micro-batch " << batch;
            totals[at(group)] += actual;
            if (!syncs) continue;
            optimizer.step();
            optimizer.zero_grad();
        }
    });
    Communication total;
    for (const Communication& own : totals) total += own;
    return total;
}

}  // namespace axle::tests
