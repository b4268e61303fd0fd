// Tests models that are constructed in shards.
#include "accel/zero3_init.h"

#include <optional>
#include <string>
#include <vector>

#include "core/memory/memory.h"
#include "gtest/gtest.h"
#include "tests/accel/prepare/sharded_run.h"

namespace axle {
namespace {

using accel::Accelerator;
using accel::DeepSpeedPlugin;
using accel::Zero3Init;
using tests::at;
using tests::Group;
using tests::on_group;
using tests::on_ranks;

nn::Gpt make_gpt(std::int64_t width) {
    return nn::Gpt({.vocab_size = 64, .block_size = 6, .n_layer = 4, .n_head = 2, .n_embd = width});
}

// Covers 15.zero3_init_flag.
TEST(Zero3Init, HasAnEffectOnlyForZeroStage3OnSeveralProcesses) {
    struct Setup {
        int ranks, stage;
        std::optional<bool> flag;
        bool enabled, expected;
    };
    for (const Setup& c : {Setup{2, 3, {}, true, true}, Setup{2, 3, true, true, true},
                           Setup{2, 3, false, true, false}, Setup{2, 3, {}, false, false},
                           Setup{2, 2, true, true, false}, Setup{1, 3, {}, true, false}}) {
        SCOPED_TRACE(str(c.ranks, " ranks, stage ", c.stage));
        on_ranks(c.ranks, [&](const Group& group) {
            const Accelerator accelerator(on_group(
                group, {.deepspeed_plugin =
                            DeepSpeedPlugin{.zero_stage = c.stage, .zero3_init_flag = c.flag}}));
            {
                const Zero3Init scope(accelerator, c.enabled);
                EXPECT_EQ(scope.is_enabled(), c.expected);
                EXPECT_EQ(nn::init::is_deferred(nn::Linear(2, 2).weight), c.expected);
            }
            EXPECT_FALSE(nn::init::is_deferred(nn::Linear(2, 2).weight));
        });
    }
    on_ranks(2, [&](const Group& group) {
        const Accelerator accelerator(on_group(group));  // enables FSDP
        EXPECT_FALSE(Zero3Init(accelerator).is_enabled());
    });
}

// The ranks are threads of this process and share its random numbers, so each rank constructs its
// model while the other ranks wait.
// Covers 15.zero3_init_flag.
TEST(Zero3Init, ConstructsModelsThatTrainLikeModelsConstructedWithoutIt) {
    manual_seed(7);
    nn::Gpt whole = make_gpt(8);
    const nn::Gpt initial = whole.clone();
    const tests::ReferenceRun expected = tests::train_alone(whole, 3);
    on_ranks(3, [&](const Group& group) {
        Accelerator accelerator(
            on_group(group, {.deepspeed_plugin = DeepSpeedPlugin{.zero_stage = 3}}));
        std::optional<nn::Gpt> model;
        for (int rank = 0; rank < 3; ++rank) {
            if (rank == group->rank()) {
                manual_seed(7);
                const Zero3Init scope(accelerator);
                model.emplace(make_gpt(8));
            }
            group->barrier();
        }
        accelerator.prepare(*model);
        {
            const dist::FullParameters full(*model);
            const auto values = model->named_parameters(), wanted = initial.named_parameters();
            for (std::size_t i = 0; i < wanted.size(); ++i) {
                SCOPED_TRACE(wanted[i].first);
                tests::expect_same_bits(values[i].second.detach(), wanted[i].second.detach());
            }
        }
        tests::expect_same_losses(*model, group, expected, 1e-4);
    });
}

// Four ranks share this process. No rank may have more than its part and one unit.
// Covers 15.zero3_init_flag.
TEST(Zero3Init, ConstructsModelsInTheMemoryOfOnePartAndOneUnit) {
    nn::Gpt whole = make_gpt(192);
    const std::int64_t all = whole.num_parameters() * 4;
    const std::int64_t unit = whole.transformer.h[0].num_parameters() * 4;
    host_memory::reset_peak();
    const std::int64_t before = host_memory::stats().current;
    on_ranks(4, [&](const Group& group) {
        Accelerator accelerator(
            on_group(group, {.deepspeed_plugin = DeepSpeedPlugin{.zero_stage = 3}}));
        std::optional<Zero3Init> scope(accelerator);
        nn::Gpt model = make_gpt(192);
        scope.reset();
        accelerator.prepare(model);
        accelerator.wait_for_everyone();
    });
    // The allocator rounds each size up by up to a quarter.
    EXPECT_LT(host_memory::stats().peak - before, (all + 4 * unit) * 5 / 4);
}

}  // namespace
}  // namespace axle
