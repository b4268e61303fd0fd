#include "dist/sharding/full_state.h"

#include "core/autograd/local_part.h"
#include "gmock/gmock.h"
#include "tests/dist/sharding/sharded_models.h"

namespace axle {
namespace {

using dist::full_state_dict;
using dist::ShardedDataParallel;
using tests::clones_of;
using tests::expect_close;
using tests::expect_same_bits;
using tests::Gpt64;
using tests::Group;
using tests::loss_of;
using tests::on_ranks;

using tests::at;

// Takes one step of training.
void train(nn::Gpt& model, optim::Optimizer& optimizer, std::int64_t step,
           const dist::ProcessGroup& group) {
    loss_of(model, step, group).backward();
    optimizer.step();
    optimizer.zero_grad();
}

// Covers 14.state_dict_type, 14.state_dict_config.
TEST(FullStateDict, HasTheWholeTensorsOnRankZeroOnlyByDefault) {
    const Gpt64 gpt;
    nn::Gpt whole = gpt.make();
    auto models = clones_of(whole, 3);
    on_ranks(3, [&](const Group& group) {
        nn::Gpt& model = models[at(group)];
        const ShardedDataParallel sharded(
            model, group, {.units = gpt.units(), .precision = {.param_dtype = bf16}});
        const nn::StateDict state = full_state_dict(model);
        const nn::StateDict expected = whole.saved_state();
        ASSERT_EQ(state.size(), group->rank() == 0 ? expected.size() : 0);
        for (std::size_t i = 0; i < state.size(); ++i) {
            EXPECT_EQ(state[i].first, expected[i].first);
            expect_same_bits(state[i].second, expected[i].second);
        }
        const nn::StateDict everywhere = full_state_dict(model, {.rank0_only = false});
        EXPECT_EQ(everywhere.size(), expected.size());
    });
}

TEST(FullStateDict, SharesTheMemoryOfAnUnshardedModel) {
    nn::Gpt model = Gpt64().make();
    const nn::StateDict state = full_state_dict(model);
    const nn::StateDict expected = model.saved_state();
    ASSERT_EQ(state.size(), expected.size());
    for (std::size_t i = 0; i < state.size(); ++i)
        EXPECT_EQ(state[i].second.raw_data(), expected[i].second.raw_data());
}

// Covers 14.state_dict_config.
TEST(FullStateDict, MatchesTheOptimizerStateOfOneProcess) {
    const Gpt64 gpt;
    nn::Gpt whole = gpt.make();
    auto models = clones_of(whole, 3);
    optim::AdamW alone(whole.parameters(), {.lr = 0.01});
    train(whole, alone, 0, *dist::ProcessGroup::alone());
    const Tree expected = alone.state_dict();
    on_ranks(3, [&](const Group& group) {
        nn::Gpt& model = models[at(group)];
        const ShardedDataParallel sharded(model, group, {.units = gpt.units()});
        optim::AdamW optimizer(model.parameters(), {.lr = 0.01});
        train(model, optimizer, 0, *group);
        const Tree tree = full_state_dict(optimizer);
        EXPECT_EQ(tree["param_groups"].size(), 1U);
        ASSERT_EQ(tree["state"].size(), group->rank() == 0 ? expected["state"].size() : 0);
        for (const auto& [number, entry] : tree["state"].entries())
            for (const auto& [name, value] : entry.entries()) {
                SCOPED_TRACE(number + " " + name);
                expect_close(value.tensor(), expected["state"][number][name].tensor(), 1e-12);
            }
    });
}

// Saves on 3 ranks, loads on 2 and 4 ranks and on one process without sharding, and continues
// training.
TEST(FullStateDict, CanBeResumedOnOtherNumbersOfRanks) {
    const Gpt64 gpt;
    nn::Gpt whole = gpt.make();
    auto models = clones_of(whole, 3);
    optim::AdamW alone(whole.parameters(), {.lr = 0.01});
    for (std::int64_t step = 0; step < 2; ++step)
        train(whole, alone, step, *dist::ProcessGroup::alone());
    nn::StateDict weights;
    Tree moments;
    on_ranks(3, [&](const Group& group) {
        nn::Gpt& model = models[at(group)];
        const ShardedDataParallel sharded(model, group, {.units = gpt.units()});
        optim::AdamW optimizer(model.parameters(), {.lr = 0.01});
        train(model, optimizer, 0, *group);
        nn::StateDict own = full_state_dict(model);
        Tree own_moments = full_state_dict(optimizer);
        if (group->rank() == 0) weights = std::move(own), moments = std::move(own_moments);
    });
    for (const int ranks : {1, 2, 4}) {
        SCOPED_TRACE(ranks);
        auto others = clones_of(Gpt64().make(), ranks);
        on_ranks(ranks, [&](const Group& group) {
            nn::Gpt& model = others[at(group)];
            std::optional<ShardedDataParallel> sharded;
            if (ranks > 1)
                sharded.emplace(model, group, dist::ShardingOptions{.units = gpt.units()});
            optim::AdamW optimizer(model.parameters());
            model.load_state_dict(weights);
            optimizer.load_state_dict(moments);
            train(model, optimizer, 1, *group);
            const nn::StateDict state = full_state_dict(model, {.rank0_only = false});
            const nn::StateDict expected = whole.saved_state();
            for (std::size_t i = 0; i < state.size(); ++i) {
                SCOPED_TRACE(state[i].first);
                expect_close(state[i].second, expected[i].second, 1e-10);
            }
        });
    }
}

}  // namespace
}  // namespace axle
