// Tests an Accelerator that shards models over processes.
#include <filesystem>
#include <string>
#include <tuple>

#include "accel/accelerator.h"
#include "accel/local_sgd.h"
#include "accel/state/checkpoint.h"
#include "core/autograd/local_part.h"
#include "core/files/file.h"
#include "core/files/safetensors.h"
#include "gmock/gmock.h"
#include "nn/files/weight_files.h"
#include "tests/core/files/faulty_file_system.h"
#include "tests/core/files/memory_file_system.h"
#include "tests/dist/sharding/sharded_models.h"
#include "tests/temporary_folder.h"

namespace axle {
namespace {

using accel::AcceleratorOptions;
using accel::FullyShardedDataParallelPlugin;
using tests::clones_of;
using tests::expect_close;
using tests::expect_error;
using tests::expect_same_bits;
using tests::Gpt64;
using tests::Group;
using tests::loss_of;
using tests::on_ranks;
using tests::TemporaryFolder;

using tests::at;

FullyShardedDataParallelPlugin fsdp(const std::string& strategy = "FULL_SHARD") {
    return {.reshard_after_forward = strategy,
            .auto_wrap_policy = "TRANSFORMER_BASED_WRAP",
            .sync_module_states = true};
}

AcceleratorOptions on_group(const Group& group, AcceleratorOptions options = {}) {
    options.cpu = true;
    options.process_group = group;
    if (group->size() > 1 && !options.fsdp_plugin && !options.deepspeed_plugin)
        options.fsdp_plugin = fsdp();
    return options;
}

// A model with its optimizer and Accelerator.
struct ShardedRun {
    ShardedRun(nn::Gpt& model_, AcceleratorOptions options)
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

// Covers 14.clip_grad_norm_, 14.optimizer.
TEST(ShardedAccelerator, TrainsLikeOneProcess) {
    for (const int steps : {1, 3})
        for (const char* strategy : {"FULL_SHARD", "SHARD_GRAD_OP"}) {
            SCOPED_TRACE(str(strategy, ", ", steps, " micro-batches"));
            nn::Gpt whole = Gpt64().make();
            auto models = clones_of(whole, 3);
            const auto alone = dist::ProcessGroup::alone();
            ShardedRun expected(whole, on_group(alone, {.gradient_accumulation_steps = steps}));
            expected.train(0, 6, alone);
            on_ranks(3, [&](const Group& group) {
                ShardedRun run(models[at(group)],
                               on_group(group, {.gradient_accumulation_steps = steps,
                                                .fsdp_plugin = fsdp(strategy)}));
                EXPECT_TRUE(autograd::is_sharded(run.model.transformer.wte.weight));
                run.train(0, 6, group);
                EXPECT_NEAR(run.norm, expected.norm, 1e-9);
                run.expect_weights(whole);
            });
        }
}

TEST(ShardedAccelerator, KeepsMasterWeightsInF32UnderBf16) {
    auto models = clones_of(Gpt64().make(), 2);
    on_ranks(2, [&](const Group& group) {
        nn::Gpt& model = models[at(group)];
        model.to(f32);
        ShardedRun run(model, on_group(group, {.mixed_precision = "bf16"}));
        EXPECT_EQ(model.transformer.wte.weight.dtype(), bf16);
        EXPECT_EQ(autograd::local_part(model.transformer.wte.weight).dtype(), f32);
        const double before = run.train(0, 1, group).front();
        for (int i = 0; i < 10; ++i) run.train(0, 1, group);
        EXPECT_LT(run.train(0, 1, group).front(), before - 0.1);
    });
}

TEST(ShardedAccelerator, SkipsStepsWithInfiniteGradientsOnAllRanks) {
    auto models = clones_of(Gpt64().make(), 2);
    on_ranks(2, [&](const Group& group) {
        nn::Gpt& model = models[at(group)];
        model.to(f32);
        ShardedRun run(model, on_group(group, {.mixed_precision = "fp16"}));
        const Tensor weight = model.transformer.h[1].mlp.c_fc.weight;
        const Tensor before = autograd::local_part(weight).clone();
        const Tensor loss = loss_of(model, 0, *group);
        run.accelerator.backward(loss);
        // Changes the local part of rank 1 only.
        if (group->rank() == 1) autograd::local_part(weight).grad().fill_(INFINITY);
        run.optimizer.step();
        EXPECT_TRUE(run.accelerator.optimizer_step_was_skipped());
        expect_same_bits(autograd::local_part(weight), before);
        run.optimizer.zero_grad();
        run.train(1, 2, group);
        EXPECT_FALSE(run.accelerator.optimizer_step_was_skipped());
    });
}

class ShardedStateDicts : public testing::TestWithParam<std::tuple<int, accel::StateDictType>> {};
INSTANTIATE_TEST_SUITE_P(ShardedAccelerator, ShardedStateDicts,
                         testing::Combine(testing::Values(1, 2),
                                          testing::Values(accel::StateDictType::full,
                                                          accel::StateDictType::sharded)));

// Saves on 3 ranks and continues on 1, 2 and 4. With two micro-batches per update, the state is
// saved between two updates.
// Covers 14.state_dict_type.
TEST_P(ShardedStateDicts, ResumeOnAnyNumberOfRanks) {
    const auto [micro_batches, type] = GetParam();
    {
        const TemporaryFolder folder(tests::FolderStorage::in_memory);
        const std::string path = folder / "state";
        nn::Gpt whole = Gpt64().make();
        auto models = clones_of(whole, 3);
        const auto alone = dist::ProcessGroup::alone();
        const AcceleratorOptions options{.gradient_accumulation_steps = micro_batches};
        ShardedRun expected(whole, on_group(alone, options));
        expected.train(0, 6, alone);
        on_ranks(3, [&](const Group& group) {
            ShardedRun run(models[at(group)], on_group(group, options));
            run.train(0, 3, group);
            run.accelerator.save_state(path, {.state_dict_type = type});
        });
        EXPECT_EQ(std::filesystem::exists(path + "/pytorch_model_fsdp_0/index.json"),
                  type == accel::StateDictType::sharded);
        EXPECT_EQ(std::filesystem::exists(path + "/model.safetensors"),
                  type == accel::StateDictType::full);
        for (const int ranks : {1, 2, 4}) {
            SCOPED_TRACE(str(ranks, " ranks"));
            auto others = clones_of(Gpt64().make(), ranks);
            on_ranks(ranks, [&](const Group& group) {
                ShardedRun run(others[at(group)], on_group(group, options));
                run.accelerator.load_state(path);
                run.train(3, 6, group);
                run.expect_weights(whole);
            });
        }
    }
}

// Covers 10.DeepSpeed.
TEST(ShardedAccelerator, ResumesDeepSpeedOnAnotherNumberOfRanks) {
    for (const int stage : {2, 3}) {
        SCOPED_TRACE(str("stage ", stage));
        const TemporaryFolder folder(tests::FolderStorage::in_memory);
        nn::Gpt whole = Gpt64().make();
        auto models = clones_of(whole, 3);
        auto others = clones_of(Gpt64().make(), 2);
        const auto alone = dist::ProcessGroup::alone();
        ShardedRun expected(whole, on_group(alone));
        expected.train(0, 4, alone);
        const AcceleratorOptions options{.deepspeed_plugin =
                                             accel::DeepSpeedPlugin{.zero_stage = stage}};
        on_ranks(3, [&](const Group& group) {
            ShardedRun run(models[at(group)], on_group(group, options));
            run.train(0, 2, group);
            run.accelerator.save_state(folder / "state");
        });
        on_ranks(2, [&](const Group& group) {
            ShardedRun run(others[at(group)], on_group(group, options));
            run.accelerator.load_state(folder / "state");
            run.train(2, 4, group);
            run.expect_weights(whole);
        });
    }
}

TEST(ShardedAccelerator, SavesTheFullModelAsynchronously) {
    const TemporaryFolder folder(tests::FolderStorage::in_memory);
    auto models = clones_of(Gpt64().make(), 2);
    const auto again = clones_of(Gpt64().make(), 1);
    on_ranks(2, [&](const Group& group) {
        ShardedRun run(models[at(group)], on_group(group));
        run.train(0, 2, group);
        const nn::StateDict weights = run.accelerator.get_state_dict(run.model);
        run.accelerator.save_state(folder / "state", {.asynchronous = true});
        run.train(2, 4, group);
        run.accelerator.wait_for_saves();
        if (group->rank() != 0) {
            EXPECT_TRUE(weights.empty());
            return;
        }
        const SafetensorsFile file(folder / "state/model.safetensors");
        for (const auto& [name, tensor] : weights) {
            SCOPED_TRACE(name);
            if (file.contains(name)) expect_same_bits(file.tensor(name), tensor);
        }
    });
}

// The saved parts must have the values at the time of the call of save_state(), although training
// changes the values before the parts are written.
TEST(ShardedAccelerator, SavesPartsAsynchronously) {
    const TemporaryFolder folder(tests::FolderStorage::in_memory);
    auto models = clones_of(Gpt64().make(), 2);
    on_ranks(2, [&](const Group& group) {
        ShardedRun run(models[at(group)], on_group(group));
        for (int save = 0; save < 2; ++save) {
            run.train(save, save + 1, group);
            const std::string expected = folder / str("expected_", save);
            const std::string found = folder / str("found_", save);
            constexpr auto kSharded = accel::StateDictType::sharded;
            run.accelerator.save_state(expected, {.state_dict_type = kSharded});
            run.accelerator.save_state(found, {.asynchronous = true, .state_dict_type = kSharded});
            // The background threads and this training communicate at the same time.
            run.train(save + 1, save + 3, group);
            run.accelerator.load_state(found);  // waits for the save
            const std::string file = str("/rank_0000", group->rank(), ".safetensors");
            for (const char* state : {"/pytorch_model_fsdp_0", "/optimizer_0"})
                EXPECT_TRUE(read_file(found + state + file) == read_file(expected + state + file));
        }
    });
}

// A file system without space for the parts of rank 1.
class DiskWithoutSpaceForRank1 final : public tests::FaultyFileSystem {
  public:
    DiskWithoutSpaceForRank1() : FaultyFileSystem(file_system(), SIZE_MAX, 0) {}
    int open(int folder, const std::string& name, int flags, unsigned mode) override {
        if (name.find("rank_00001") != std::string::npos) return -ENOSPC;
        return FaultyFileSystem::open(folder, name, flags, mode);
    }
};

// If one rank cannot write its part, save_state() or wait_for_saves() throws on all ranks, and no
// checkpoint remains.
TEST(ShardedAccelerator, ThrowsTheErrorOfAnAsynchronousPartOnAllRanks) {
    const TemporaryFolder folder(tests::FolderStorage::in_memory);
    auto models = clones_of(Gpt64().make(), 2);
    DiskWithoutSpaceForRank1 full;
    const tests::ReplacedFileSystem replaced(full);
    on_ranks(2, [&](const Group& group) {
        ShardedRun run(models[at(group)], on_group(group));
        run.train(0, 1, group);
        EXPECT_THROW(
            {
                run.accelerator.save_state(
                    folder / "state",
                    {.asynchronous = true, .state_dict_type = accel::StateDictType::sharded});
                run.accelerator.wait_for_saves();
            },
            FileError);
        EXPECT_FALSE(accel::is_checkpoint(folder / "state"));
    });
}

// An object whose state can only be read on rank 0.
struct StateOfRankZero {
    int rank;
    Tree state_dict() const {
        if (rank != 0) throw ValueError("StateOfRankZero: no state on this rank");
        return Tree::map();
    }
    void load_state_dict(const Tree&) {}
};

TEST(ShardedAccelerator, ThrowsTheErrorOfARegisteredObjectOnAllRanks) {
    const TemporaryFolder folder(tests::FolderStorage::in_memory);
    auto models = clones_of(Gpt64().make(), 2);
    on_ranks(2, [&](const Group& group) {
        ShardedRun run(models[at(group)], on_group(group));
        StateOfRankZero object{group->rank()};
        run.accelerator.register_for_checkpointing(object);
        const char* text = group->rank() == 1
                               ? "StateOfRankZero: no state on this rank"
                               : "save_state: process 1: StateOfRankZero: no state on this rank";
        for (const bool asynchronous : {false, true}) {
            expect_error<ValueError>({text}, [&] {
                run.accelerator.save_state(folder / "state",
                                           {.asynchronous = asynchronous,
                                            .state_dict_type = accel::StateDictType::sharded});
            });
            EXPECT_FALSE(accel::is_checkpoint(folder / "state"));
        }
    });
}

TEST(ShardedAccelerator, SavesTheWholeModel) {
    const TemporaryFolder folder(tests::FolderStorage::in_memory);
    const nn::Gpt whole = Gpt64().make();
    auto models = clones_of(whole, 2);
    on_ranks(2, [&](const Group& group) {
        ShardedRun run(models[at(group)], on_group(group));
        run.accelerator.save_model(run.model, folder.path());
        run.accelerator.wait_for_everyone();
    });
    const nn::WeightFiles files(folder / "model.safetensors");
    for (const auto& [name, tensor] : whole.saved_state())
        expect_same_bits(files.weights().at(name).mapped(), tensor);
}

TEST(ShardedAccelerator, RejectsFunctionsThatNeedWholeModels) {
    auto models = clones_of(Gpt64().make(), 2);
    on_ranks(2, [&](const Group& group) {
        nn::Gpt& model = models[at(group)];
        ShardedRun run(model, on_group(group));
        expect_error<UsageError>({"LocalSGD: needs data parallel training"},
                                 [&] { const accel::LocalSGD local(run.accelerator, model, 2); });
        expect_error<UsageError>({"join_uneven_inputs: needs data parallel training"}, [&] {
            const auto scope = run.accelerator.join_uneven_inputs({&model});
        });
    });
}

// Covers 14.optimizer.
TEST(ShardedAccelerator, RejectsAModelAfterTheFirstStepOfItsOptimizer) {
    auto models = clones_of(Gpt64().make(), 2);
    on_ranks(2, [&](const Group& group) {
        nn::Gpt& model = models[at(group)];
        optim::AdamW optimizer(model.parameters());
        accel::Accelerator accelerator(on_group(group));
        accelerator.prepare(optimizer);
        sum(model.transformer.wte.weight).backward();
        optimizer.step();
        optimizer.zero_grad();
        expect_error<UsageError>(
            {"prepare: the model must be prepared before the first step of its "
             "optimizer",
             "transformer.wte.weight has an optimizer state"},
            [&] { accelerator.prepare(model); });
    });
}

}  // namespace
}  // namespace axle
