#include "dist/sharding/sharded_state.h"

#include <filesystem>
#include <optional>

#include "dist/sharding/full_state.h"
#include "gmock/gmock.h"
#include "tests/dist/sharding/sharded_models.h"
#include "tests/temporary_folder.h"

namespace axle {
namespace {

using dist::full_state_dict;
using dist::load_sharded;
using dist::ShardedDataParallel;
using dist::ShardingStrategy;
using tests::clones_of;
using tests::expect_error;
using tests::expect_same_bits;
using tests::Gpt64;
using tests::Group;
using tests::loss_of;
using tests::on_ranks;
using tests::run_ranks;
using tests::TemporaryFolder;

using tests::at;

// A way to shard a model over all ranks. If `strategy` is empty, the model is not sharded.
struct Layout {
    int ranks = 1;
    std::optional<ShardingStrategy> strategy = {};
    bool has_units = true;
};

// Shards the model as the layout describes, and calls f with the model's optimizer.
template <class F>
void with_layout(const Layout& layout, nn::Gpt& model, const Group& group, F&& f) {
    std::optional<ShardedDataParallel> sharded;
    if (layout.strategy)
        sharded.emplace(
            model, group,
            dist::ShardingOptions{
                .strategy = *layout.strategy,
                .units = layout.has_units ? Gpt64().units() : std::vector<dist::ShardUnit>()});
    optim::AdamW optimizer(model.parameters(), {.lr = 0.01});
    f(optimizer);
}

void make_folders(const TemporaryFolder& folder) {
    for (const char* name : {"model", "optimizer"})
        std::filesystem::create_directories(folder / name);
}

void save(const TemporaryFolder& folder, nn::Gpt& model, optim::Optimizer& optimizer,
          dist::ProcessGroup& group) {
    const bool is_main = group.rank() == 0;
    save_sharded(folder / "model", dist::sharded_state(model, is_main), group);
    save_sharded(folder / "optimizer", dist::sharded_state(optimizer, is_main), group);
}

void load(const TemporaryFolder& folder, nn::Gpt& model, optim::Optimizer& optimizer) {
    load_sharded(ShardedFolder(folder / "model"), model);
    load_sharded(ShardedFolder(folder / "optimizer"), optimizer);
}

void expect_same_state(const Tree& actual, const Tree& expected) {
    ASSERT_EQ(actual["state"].size(), expected["state"].size());
    for (const auto& [number, entry] : expected["state"].entries())
        for (const auto& [name, value] : entry.entries()) {
            SCOPED_TRACE(number + " " + name);
            expect_same_bits(actual["state"][number][name].tensor(), value.tensor());
        }
    EXPECT_EQ(to_json(actual["param_groups"]), to_json(expected["param_groups"]));
}

// Saves with each layout, loads with each layout, and compares all bits.
// Covers 14.set_state_dict_type, 30.10.
TEST(ShardedState, LoadsWithOtherNumbersOfRanksAndStrategies) {
    const std::vector<Layout> layouts = {{1},
                                         {2, ShardingStrategy::full_shard},
                                         {3, ShardingStrategy::shard_optimizer},
                                         {4, ShardingStrategy::shard_grad_op, false}};
    for (const Layout& saved : layouts) {
        const TemporaryFolder folder(tests::FolderStorage::in_memory);
        make_folders(folder);
        auto models = clones_of(Gpt64().make(), saved.ranks);
        nn::StateDict weights;
        Tree moments;
        on_ranks(saved.ranks, [&](const Group& group) {
            nn::Gpt& model = models[at(group)];
            with_layout(saved, model, group, [&](optim::Optimizer& optimizer) {
                for (std::int64_t step = 0; step < 2; ++step) {
                    loss_of(model, step, *group).backward();
                    optimizer.step();
                    optimizer.zero_grad();
                }
                nn::StateDict own = full_state_dict(model);
                Tree own_moments = full_state_dict(optimizer);
                if (group->rank() == 0) {
                    for (auto& [name, tensor] : own) tensor = tensor.clone();
                    weights = own;
                    moments = map_tensors(own_moments, [](const Tensor& t) { return t.clone(); });
                }
                save(folder, model, optimizer, *group);
            });
        });
        for (const Layout& loaded : layouts) {
            SCOPED_TRACE(str("from ", saved.ranks, " to ", loaded.ranks, " ranks"));
            auto others = clones_of(Gpt64().make(), loaded.ranks);
            on_ranks(loaded.ranks, [&](const Group& group) {
                nn::Gpt& model = others[at(group)];
                with_layout(loaded, model, group, [&](optim::Optimizer& optimizer) {
                    load(folder, model, optimizer);
                    const nn::StateDict state = full_state_dict(model);
                    const Tree tree = full_state_dict(optimizer);
                    if (group->rank() != 0) return;
                    ASSERT_EQ(state.size(), weights.size());
                    for (std::size_t i = 0; i < state.size(); ++i)
                        expect_same_bits(state[i].second, weights[i].second);
                    expect_same_state(tree, moments);
                });
            });
        }
    }
}

TEST(ShardedState, StoresEveryElementOnceWithReplicas) {
    const TemporaryFolder folder(tests::FolderStorage::in_memory);
    make_folders(folder);
    const Gpt64 gpt;
    auto models = clones_of(gpt.make(), 4);
    on_ranks(4, [&](const Group& group) {
        nn::Gpt& model = models[at(group)];
        const auto shards = group->split(group->rank() / 2),
                   replicas = group->split(group->rank() % 2);
        const ShardedDataParallel sharded(model, shards,
                                          {.units = gpt.units(), .replicas = replicas});
        save_sharded(folder / "model", dist::sharded_state(model, group->rank() == 0), *group);
    });
    std::uintmax_t bytes = 0;
    for (const auto& file : std::filesystem::directory_iterator(folder / "model"))
        if (file.path().extension() == ".safetensors") bytes += file.file_size();
    const auto elements = static_cast<double>(gpt.make().num_parameters());
    EXPECT_LT(static_cast<double>(bytes), 8 * elements + 4 * 16384);
    nn::Gpt whole = gpt.make();
    const nn::StateDict expected = whole.saved_state();
    const ShardedFolder state(folder / "model");
    for (const auto& [name, tensor] : expected) expect_same_bits(state.read(name), tensor);
}

TEST(ShardedState, RejectsTheStateOfAnotherModel) {
    const TemporaryFolder folder(tests::FolderStorage::in_memory);
    make_folders(folder);
    nn::Gpt model = Gpt64().make();
    const auto alone = dist::ProcessGroup::alone();
    save_sharded(folder / "model", dist::sharded_state(model, true), *alone);
    const ShardedFolder saved(folder / "model");
    nn::Gpt deeper = Gpt64{.layers = 4}.make();
    expect_error<ValueError>(
        {"load_sharded: the names in ", "missing: transformer.h.3.attn.c_attn", "unexpected: none"},
        [&] { load_sharded(saved, deeper); });
    nn::Gpt wider({.vocab_size = 14, .block_size = 6, .n_layer = 3, .n_head = 2, .n_embd = 8});
    expect_error<ShapeError>({"load_sharded: transformer.wte.weight is [14, 8] in the model and "
                              "[13, 8] in "},
                             [&] { load_sharded(saved, wider); });
}

TEST(ShardedState, RejectsTheStateOfAnotherOptimizer) {
    const TemporaryFolder folder(tests::FolderStorage::in_memory);
    make_folders(folder);
    nn::Gpt model = Gpt64().make();
    const auto alone = dist::ProcessGroup::alone();
    loss_of(model, 0, *alone).backward();
    optim::AdamW optimizer(model.parameters());
    optimizer.step();
    save_sharded(folder / "optimizer", dist::sharded_state(optimizer, true), *alone);
    const ShardedFolder saved(folder / "optimizer");
    optim::AdamW other({model.parameters()[0]});
    expect_error<FileError>(
        {folder.path().c_str(), "is not the number of one of the optimizer's 1"},
        [&] { load_sharded(saved, other); });
}

TEST(ShardedState, ReportsAnErrorOfOneRankOnAllRanks) {
    const TemporaryFolder folder(tests::FolderStorage::in_memory);
    make_folders(folder);
    // The file of rank 1 cannot be replaced, because a folder has its name.
    std::filesystem::create_directories(folder / "model/rank_00001.safetensors/full");
    const Gpt64 gpt;
    auto models = clones_of(gpt.make(), 2);
    const auto errors = tests::outcomes(2, [&](const Group& group) {
        nn::Gpt& model = models[at(group)];
        const ShardedDataParallel sharded(model, group, {.units = gpt.units()});
        save_sharded(folder / "model", dist::sharded_state(model, group->rank() == 0), *group);
    });
    for (const std::exception_ptr& error : errors) {
        EXPECT_THAT(tests::text_of(error), testing::HasSubstr("rank_00001.safetensors"));
        EXPECT_THROW(std::rethrow_exception(error), FileError);
    }
    EXPECT_FALSE(ShardedFolder::is_one(folder / "model"));
}

}  // namespace
}  // namespace axle
