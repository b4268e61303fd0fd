// Tests scopes in which sharded parameters have all of their elements.
#include <cstddef>

#include "core/autograd/autograd.h"
#include "core/ops.h"
#include "dist/sharding/sharded_data_parallel.h"
#include "gtest/gtest.h"
#include "tests/dist/sharding/sharded_models.h"

namespace axle {
namespace {

using dist::FullParameters;
using dist::ShardedDataParallel;
using tests::clones_of;
using tests::Gpt64;
using tests::Group;
using tests::on_ranks;

using tests::at;

TEST(FullParameters, KeepsChangesUnlessWriteBackIsFalse) {
    const Gpt64 gpt;
    auto models = clones_of(gpt.make(), 2);
    on_ranks(2, [&](const Group& group) {
        nn::Gpt& model = models[at(group)];
        const ShardedDataParallel sharded(model, group, {.units = gpt.units()});
        const Tensor bias = model.transformer.h[0].mlp.c_fc.bias;
        const NoGrad no_grad;
        for (const bool write_back : {true, false}) {
            const FullParameters full(model, {.write_back = write_back});
            Tensor(bias).fill_(write_back ? 5 : 6);
        }
        EXPECT_EQ(sum(bias).item(), 5.0 * 32);
        const FullParameters full(model.transformer.h[0]);
        EXPECT_EQ(bias.to_vector()[3], 5);
        EXPECT_THROW(static_cast<void>(model.transformer.wpe.weight.to_vector()), UsageError);
    });
}

// Covers 13.GatheredParameters.
TEST(FullParameters, KeepsTheChangesOfTheModifierRankUnlessTheScopeThrows) {
    const Gpt64 gpt;
    auto models = clones_of(gpt.make(), 2);
    on_ranks(2, [&](const Group& group) {
        nn::Gpt& model = models[at(group)];
        const ShardedDataParallel sharded(model, group, {.units = gpt.units()});
        const Tensor bias = model.transformer.h[0].mlp.c_fc.bias;
        const NoGrad no_grad;
        {
            const FullParameters full(model, {.modifier_rank = 1});
            Tensor(bias).fill_(group->rank() == 1 ? 5 : 6);
        }
        EXPECT_EQ(sum(bias).item(), 5.0 * 32);
        try {
            const FullParameters full(model, {.modifier_rank = 1});
            Tensor(bias).fill_(7);
            throw ValueError("an error of this test");
        } catch (const ValueError&) {
            EXPECT_EQ(sum(bias).item(), 5.0 * 32);
        }
        tests::expect_error<IndexError>(
            {"FullParameters: modifier_rank 2 is out of range for a group of 2 ranks"},
            [&] { const FullParameters full(model, {.modifier_rank = 2}); });
    });
}

}  // namespace
}  // namespace axle
