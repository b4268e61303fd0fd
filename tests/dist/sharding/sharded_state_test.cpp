#include "dist/sharding/sharded_state.h"

#include <filesystem>

#include "dist/sharding/full_state.h"
#include "gmock/gmock.h"
#include "nn/layers/linear.h"
#include "optim/algorithms/adam_variants.h"
#include "optim/algorithms/lion.h"
#include "tests/dist/sharding/resharding.h"

namespace axle {
namespace {

using dist::load_sharded;
using dist::ShardedDataParallel;
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

// Covers 14.set_state_dict_type, 30.10.
TEST(ShardedState, LoadsWithOtherNumbersOfRanksAndStrategies) {
    tests::expect_same_bits_after_resharding(tests::on_cpu_ranks, {});
}

TEST(ShardedState, StoresEveryElementOnceWithReplicas) {
    const TemporaryFolder folder(tests::FolderStorage::in_memory);
    tests::make_state_folders(folder);
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
    std::int64_t stored = 0;
    for (const auto& file : std::filesystem::directory_iterator(folder / "model"))
        if (file.path().extension() == ".safetensors")
            for (const auto& [name, tensor] : load_safetensors(file.path()).tensors)
                stored += tensor.numel();
    nn::Gpt whole = gpt.make();
    EXPECT_EQ(stored, whole.num_parameters());
    const nn::StateDict expected = whole.saved_state();
    const ShardedFolder state(folder / "model");
    for (const auto& [name, tensor] : expected) expect_same_bits(state.read(name), tensor);
}

// Trains sharded models for two steps, and expects the states of one process. Restores the state of
// the first step into new optimizers, with and without gathering.
template <class Optimizer>
void expect_numbers_are_kept() {
    const TemporaryFolder folder(tests::FolderStorage::in_memory);
    tests::make_state_folders(folder);
    const Gpt64 gpt;
    nn::Gpt whole = gpt.make();
    auto models = clones_of(whole, 2);
    const auto train = [](nn::Gpt& model, optim::Optimizer& optimizer, std::int64_t step,
                          const dist::ProcessGroup& group) {
        loss_of(model, step, group).backward();
        optimizer.step();
        optimizer.zero_grad();
    };
    Optimizer alone(whole.parameters());
    for (std::int64_t step = 0; step < 2; ++step)
        train(whole, alone, step, *dist::ProcessGroup::alone());
    const Tree expected = alone.state_dict();
    on_ranks(2, [&](const Group& group) {
        nn::Gpt& model = models[at(group)];
        const ShardedDataParallel sharded(model, group, {.units = gpt.units()});
        Optimizer first(model.parameters()), gathered(model.parameters()),
            in_parts(model.parameters());
        train(model, first, 0, *group);
        const Tree full = dist::full_state_dict(first, {.rank0_only = false});
        gathered.load_state_dict(full);
        save_sharded(folder / "optimizer", dist::sharded_state(first, group->rank() == 0), *group);
        load_sharded(ShardedFolder(folder / "optimizer"), in_parts);
        train(model, gathered, 1, *group);
        const Tree state = dist::full_state_dict(gathered, {.rank0_only = false})["state"];
        ASSERT_EQ(state.size(), expected["state"].size());
        for (const auto& [number, entry] : state.entries())
            for (const auto& [name, value] : entry.entries()) {
                SCOPED_TRACE(number + " " + name);
                tests::expect_close(value.tensor(), expected["state"][number][name].tensor(),
                                    1e-10);
            }
        const Tree restored = dist::full_state_dict(in_parts, {.rank0_only = false})["state"];
        for (const auto& [number, entry] : full["state"].entries())
            for (const auto& [name, value] : entry.entries())
                expect_same_bits(restored[number][name].tensor(), value.tensor());
    });
}

TEST(ShardedState, KeepsTheScalarStateOfNAdamAndASGD) {
    expect_numbers_are_kept<optim::NAdam>();
    expect_numbers_are_kept<optim::ASGD>();
}

TEST(ShardedState, RejectsTheStateOfAnotherModel) {
    const TemporaryFolder folder(tests::FolderStorage::in_memory);
    tests::make_state_folders(folder);
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

TEST(ShardedState, IgnoresMissingAndUnexpectedNamesUnlessStrict) {
    const TemporaryFolder folder(tests::FolderStorage::in_memory);
    tests::make_state_folders(folder);
    const auto alone = dist::ProcessGroup::alone();
    nn::Linear without_bias(3, 2, {.bias = false});
    save_sharded(folder / "model", dist::sharded_state(without_bias, true), *alone);
    nn::Linear with_bias(3, 2);
    const Tensor bias = with_bias.bias.detach().clone();
    const ShardedFolder weight(folder / "model");
    expect_error<ValueError>({"load_sharded: the names in ", "missing: bias; unexpected: none"},
                             [&] { dist::check_sharded(weight, with_bias); });
    dist::check_sharded(weight, with_bias, false);
    load_sharded(weight, with_bias, false);
    expect_same_bits(with_bias.weight.detach(), without_bias.weight.detach());
    expect_same_bits(with_bias.bias.detach(), bias);
    save_sharded(folder / "optimizer", dist::sharded_state(nn::Linear(3, 2), true), *alone);
    const ShardedFolder weight_and_bias(folder / "optimizer");
    expect_error<ValueError>({"load_sharded: the names in ", "missing: none; unexpected: bias"},
                             [&] { load_sharded(weight_and_bias, without_bias); });
    load_sharded(weight_and_bias, without_bias, false);
    EXPECT_NE(without_bias.weight.detach().to_vector(), with_bias.weight.detach().to_vector());
}

TEST(ShardedState, RejectsOptimizerStateWithMoreParametersThanTheOptimizer) {
    const TemporaryFolder folder(tests::FolderStorage::in_memory);
    tests::make_state_folders(folder);
    nn::Gpt model = Gpt64().make();
    const auto alone = dist::ProcessGroup::alone();
    loss_of(model, 0, *alone).backward();
    optim::AdamW optimizer(model.parameters());
    optimizer.step();
    save_sharded(folder / "optimizer", dist::sharded_state(optimizer, true), *alone);
    const ShardedFolder saved(folder / "optimizer");
    optim::AdamW other({model.parameters()[0]});
    expect_error<ValueError>({"load_sharded: the optimizer must have the parameters in ",
                              folder.path().c_str(), "it has 1 parameter, and"},
                             [&] { load_sharded(saved, other); });
}

TEST(ShardedState, ReportsAnErrorOfOneRankOnAllRanks) {
    const TemporaryFolder folder(tests::FolderStorage::in_memory);
    tests::make_state_folders(folder);
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
