// Tests when units are gathered in advance, and how many.
#include "core/autograd/autograd.h"
#include "tests/dist/sharding/sharded_models.h"

namespace axle {
namespace {

using dist::BackwardPrefetch;
using dist::ShardedDataParallel;
using tests::clones_of;
using tests::Gpt64;
using tests::Group;
using tests::loss_of;
using tests::on_ranks;

using tests::at;

// The numbers of gathered units when the first and when the last gradient of the last block is
// final.
struct InBackward {
    std::int64_t first = 0, last = 0;
};

InBackward measure(nn::Gpt& model, const Group& group, BackwardPrefetch prefetch) {
    ShardedDataParallel sharded(model, group,
                                {.units = Gpt64().units(), .backward_prefetch = prefetch});
    loss_of(model, 0, *group).backward();  // records the order of the units
    std::vector<std::int64_t> counts;
    std::vector<autograd::HookHandle> hooks;
    for (const Tensor& parameter : model.transformer.h[2].parameters())
        hooks.push_back(autograd::on_leaf_final(parameter, [&](const Tensor&) {
            counts.push_back(sharded.counters().gathered_buffers);
        }));
    loss_of(model, 1, *group).backward();
    return {counts.front(), counts.back()};
}

// The unit of the model is always gathered.
// Covers 14.backward_prefetch.
TEST(BackwardPrefetch, GathersTheNextUnitBeforeOrAfterTheGradientsOfTheCurrentUnit) {
    auto models = clones_of(Gpt64().make(), 2);
    struct Expected {
        BackwardPrefetch prefetch;
        std::int64_t first, last;
    };
    for (const Expected& expected :
         {Expected{BackwardPrefetch::backward_pre, 3, 2},
          Expected{BackwardPrefetch::backward_post, 2, 2}, Expected{BackwardPrefetch::none, 2, 1}})
        on_ranks(2, [&](const Group& group) {
            nn::Gpt model = models[at(group)].clone();
            const InBackward counts = measure(model, group, expected.prefetch);
            EXPECT_EQ(counts.first, expected.first) << static_cast<int>(expected.prefetch);
            EXPECT_EQ(counts.last, expected.last) << static_cast<int>(expected.prefetch);
        });
}

// Covers 14.forward_prefetch.
TEST(ForwardPrefetch, GathersTheUnitAfterTheCurrentUnit) {
    auto models = clones_of(Gpt64().make(), 2);
    for (const bool prefetch : {true, false})
        on_ranks(2, [&](const Group& group) {
            nn::Gpt model = models[at(group)].clone();
            ShardedDataParallel sharded(model, group,
                                        {.units = Gpt64().units(), .forward_prefetch = prefetch});
            const NoGrad no_grad;
            static_cast<void>(loss_of(model, 0, *group));  // records the order of the units
            sharded.reset_counters();
            static_cast<void>(loss_of(model, 1, *group));
            EXPECT_EQ(sharded.counters().peak_gathered_buffers, prefetch ? 3 : 2);
            EXPECT_EQ(sharded.counters().all_gathers, 4);
        });
}

// Covers 14.limit_all_gathers.
TEST(LimitAllGathers, FreesUnitsGatheredForUsesOutsideOfTheirModules) {
    const Gpt64 gpt{.layers = 6};
    auto models = clones_of(gpt.make(), 2);
    for (const bool limit : {true, false})
        on_ranks(2, [&](const Group& group) {
            nn::Gpt model = models[at(group)].clone();
            ShardedDataParallel sharded(
                model, group,
                {.units = gpt.units(), .forward_prefetch = false, .limit_all_gathers = limit});
            const NoGrad no_grad;
            for (nn::GptBlock& block : model.transformer.h)
                static_cast<void>(sum(block.mlp.c_fc.weight).item());
            EXPECT_EQ(sharded.counters().gathered_buffers, 6);
            static_cast<void>(model.transformer.h[0](zeros({1, 2, 8}, {f64})));
            // The forward call has freed the unit of block 0 and, with the limit, four other units.
            EXPECT_EQ(sharded.counters().gathered_buffers, limit ? 1 : 5);
        });
}

}  // namespace
}  // namespace axle
