// Tests an Accelerator that shards models over processes.
#include <filesystem>
#include <string>
#include <tuple>

#include "accel/local_sgd.h"
#include "core/autograd/local_part.h"
#include "gmock/gmock.h"
#include "nn/files/weight_files.h"
#include "tests/accel/prepare/sharded_run.h"
#include "tests/temporary_folder.h"

namespace axle {
namespace {

using accel::AcceleratorOptions;
using tests::at;
using tests::clones_of;
using tests::expect_error;
using tests::expect_same_bits;
using tests::fsdp;
using tests::Gpt64;
using tests::Group;
using tests::loss_of;
using tests::on_group;
using tests::on_ranks;
using tests::ShardedRun;
using tests::TemporaryFolder;

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

// A state has parts of all ranks, so a rank that saves alone would wait forever.
TEST(ShardedAccelerator, ThrowsCommErrorIfOnlyOneRankSavesACheckpoint) {
    const TemporaryFolder folder;
    auto models = clones_of(Gpt64().make(), 2);
    const auto errors = tests::outcomes(2, [&](const Group& group) {
        ShardedRun run(models[at(group)], on_group(group));
        if (group->rank() == 0)
            run.accelerator.save_state(folder / "state");
        else
            run.train(0, 1, group);
    });
    for (const std::exception_ptr& error : errors) {
        ASSERT_NE(error, nullptr);
        EXPECT_THROW(std::rethrow_exception(error), CommError) << tests::text_of(error);
        EXPECT_THAT(tests::text_of(error),
                    testing::AllOf(testing::HasSubstr("rank 0 calls all_gather_object"),
                                   testing::HasSubstr("rank 1 calls all_gather ")));
    }
    EXPECT_FALSE(std::filesystem::exists(folder / "state"));
}

TEST(ShardedAccelerator, KeepsMasterWeightsInF32AndLowersTheLossUnderBf16) {
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
// Covers 14.state_dict_type, 30.10.
TEST_P(ShardedStateDicts, ResumeOnOtherNumbersOfRanks) {
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

TEST(ShardedAccelerator, RejectsLocalSgdAndJoinUnevenInputs) {
    auto models = clones_of(Gpt64().make(), 2);
    on_ranks(2, [&](const Group& group) {
        nn::Gpt& model = models[at(group)];
        ShardedRun run(model, on_group(group));
        expect_error<UsageError>({"LocalSGD: needs data parallel training"},
                                 [&] { const accel::LocalSGD local(run.accelerator, model, 2); });
        expect_error<UsageError>({"join_uneven_inputs: the model ", " is sharded"}, [&] {
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
