// Saves the states of sharded models, and loads them into models that are sharded in other ways.
#pragma once

#include <filesystem>
#include <optional>
#include <vector>

#include "dist/sharding/full_state.h"
#include "dist/sharding/sharded_state.h"
#include "tests/dist/sharding/rank_runner.h"
#include "tests/dist/sharding/sharded_models.h"
#include "tests/temporary_folder.h"

namespace axle::tests {

// A way to shard a model over all ranks. If `strategy` is empty, the model is not sharded.
struct ShardedLayout {
    int ranks = 1;
    std::optional<dist::ShardingStrategy> strategy = {};
    bool has_units = true;
    int replicas = 1;  // the number of ranks that store the same part
};

// Moves the model to the device, shards it as the layout describes, and calls f with an optimizer
// of the model.
template <class F>
void with_layout(const ShardedLayout& layout, const Gpt64& gpt, nn::Gpt& model, const Group& group,
                 Device device, F&& f) {
    std::optional<dist::ShardedDataParallel> sharded;
    if (layout.strategy) {
        const int shards = layout.ranks / layout.replicas;
        const bool has_replicas = layout.replicas > 1;
        sharded.emplace(
            model, has_replicas ? group->split(group->rank() / shards) : group,
            dist::ShardingOptions{
                .strategy = *layout.strategy,
                .units = layout.has_units ? gpt.units() : std::vector<dist::ShardUnit>(),
                .device = device,
                .replicas = has_replicas ? group->split(group->rank() % shards) : nullptr});
    } else {
        model.to(device);
    }
    optim::AdamW optimizer(model.parameters(), {.lr = 0.01});
    f(optimizer);
}

inline void make_state_folders(const TemporaryFolder& folder) {
    for (const char* name : {"model", "optimizer"})
        std::filesystem::create_directories(folder / name);
}

// The complete states of a model and an optimizer, copied to the CPU.
struct CompleteState {
    nn::StateDict weights;
    Tree moments;
};

// Returns the complete states on rank 0, and no tensors on the other ranks.
inline CompleteState complete_state(const nn::Gpt& model, optim::Optimizer& optimizer,
                                    const dist::ProcessGroup& group) {
    CompleteState result{dist::full_state_dict(model), dist::full_state_dict(optimizer)};
    if (group.rank() > 0) return {};
    for (auto& [name, tensor] : result.weights) tensor = tensor.detach().cpu().clone();
    result.moments =
        map_tensors(result.moments, [](const Tensor& t) { return t.detach().cpu().clone(); });
    return result;
}

inline void expect_same_bits(const CompleteState& actual, const CompleteState& expected) {
    ASSERT_EQ(actual.weights.size(), expected.weights.size());
    for (std::size_t i = 0; i < actual.weights.size(); ++i) {
        SCOPED_TRACE(expected.weights[i].first);
        expect_same_bits(actual.weights[i].second, expected.weights[i].second);
    }
    const Tree &state = actual.moments["state"], &wanted = expected.moments["state"];
    ASSERT_EQ(state.size(), wanted.size());
    for (const auto& [number, entry] : wanted.entries())
        for (const auto& [name, value] : entry.entries()) {
            SCOPED_TRACE(number + " " + name);
            expect_same_bits(state[number][name].tensor(), value.tensor());
        }
    EXPECT_EQ(to_json(actual.moments["param_groups"]), to_json(expected.moments["param_groups"]));
}

// Saves with each layout, loads with each layout, and compares all bits.
inline void expect_same_bits_after_resharding(const RankRunner& run, const Gpt64& gpt) {
    using enum dist::ShardingStrategy;
    const std::vector<ShardedLayout> layouts = {{1},
                                                {2, full_shard},
                                                {3, shard_optimizer},
                                                {4, shard_grad_op, false},
                                                {4, full_shard, true, 2}};
    for (const ShardedLayout& saved : layouts) {
        const TemporaryFolder folder(FolderStorage::in_memory);
        make_state_folders(folder);
        auto models = clones_of(gpt.make(), saved.ranks);
        CompleteState expected;
        run(saved.ranks, [&](const Group& group, Device device) {
            nn::Gpt& model = models[at(group)];
            with_layout(saved, gpt, model, group, device, [&](optim::Optimizer& optimizer) {
                for (std::int64_t step = 0; step < 2; ++step) {
                    loss_of(model, step, *group).backward();
                    optimizer.step();
                    optimizer.zero_grad();
                }
                CompleteState own = complete_state(model, optimizer, *group);
                const bool is_main = group->rank() == 0;
                if (is_main) expected = std::move(own);
                save_sharded(folder / "model", dist::sharded_state(model, is_main), *group);
                save_sharded(folder / "optimizer", dist::sharded_state(optimizer, is_main), *group);
            });
        });
        for (const ShardedLayout& loaded : layouts) {
            auto others = clones_of(gpt.make(), loaded.ranks);
            run(loaded.ranks, [&](const Group& group, Device device) {
                SCOPED_TRACE(str("from ", saved.ranks, " to ", loaded.ranks, " ranks"));
                nn::Gpt& model = others[at(group)];
                with_layout(loaded, gpt, model, group, device, [&](optim::Optimizer& optimizer) {
                    dist::load_sharded(ShardedFolder(folder / "model"), model);
                    dist::load_sharded(ShardedFolder(folder / "optimizer"), optimizer);
                    const CompleteState state = complete_state(model, optimizer, *group);
                    if (group->rank() == 0) expect_same_bits(state, expected);
                });
            });
        }
    }
}

}  // namespace axle::tests
