// Tests which values a sharded model begins with, models and optimizers that cannot be sharded, and
// misuse of sharded parameters.
#include <string>
#include <utility>

#include "core/autograd/autograd.h"
#include "dist/sharding/sharded_data_parallel.h"
#include "gmock/gmock.h"
#include "optim/algorithms/adafactor.h"
#include "optim/lomo.h"
#include "tests/dist/sharding/sharded_models.h"

namespace axle {
namespace {

using dist::FullParameters;
using dist::ShardedDataParallel;
using tests::clones_of;
using tests::expect_close;
using tests::expect_error;
using tests::Gpt64;
using tests::Group;
using tests::loss_of;
using tests::on_ranks;
using tests::run_ranks;

using tests::at;

TEST(ShardedDataParallel, TakesTheValuesOfRankZero) {
    const Gpt64 gpt;
    nn::Gpt whole = gpt.make();
    auto models = clones_of(whole, 2);
    {
        const NoGrad no_grad;
        models[1].transformer.wpe.weight.fill_(3);
    }
    const Tensor expected = whole.transformer.wpe.weight.detach();
    on_ranks(2, [&](const Group& group) {
        nn::Gpt& model = models[at(group)];
        const ShardedDataParallel sharded(model, group, {.units = gpt.units()});
        const FullParameters full(model);
        expect_close(model.transformer.wpe.weight.detach(), expected, 0);
    });
}

TEST(ShardedDataParallel, RejectsRanksWithDifferentValuesWithoutSync) {
    const Gpt64 gpt;
    auto models = clones_of(gpt.make(), 2);
    {
        const NoGrad no_grad;
        models[1].transformer.wpe.weight.fill_(3);
    }
    const auto texts = run_ranks(2, [&](const Group& group) {
        const ShardedDataParallel sharded(models[at(group)], group, {.sync_module_states = false});
    });
    for (const std::string& text : texts)
        EXPECT_THAT(text,
                    testing::StartsWith("ShardedDataParallel: the ranks' values differ: rank 1 has "
                                        "'transformer.wpe.weight"));
}

TEST(ShardedDataParallel, RejectsRanksWithDifferentUnits) {
    const Gpt64 gpt;
    auto models = clones_of(gpt.make(), 2);
    const auto texts = run_ranks(2, [&](const Group& group) {
        const ShardedDataParallel sharded(
            models[at(group)], group,
            {.units = {{{group->rank() == 0 ? "transformer.h.0" : "transformer.h.1"}}}});
    });
    for (const std::string& text : texts)
        EXPECT_THAT(
            text, testing::StartsWith("ShardedDataParallel: the ranks' plans differ: rank 1 has "));
}

TEST(ShardedDataParallel, RejectsUnknownRepeatedAndEmptyUnits) {
    nn::Gpt model = Gpt64().make();
    const auto group = dist::ProcessGroup::alone();
    const auto shard = [&](std::vector<dist::ShardUnit> units) {
        const ShardedDataParallel sharded(model, group, {.units = std::move(units)});
    };
    expect_error<ValueError>(
        {"ShardedDataParallel: units: the model has no module 'transformer.h.9'"},
        [&] { shard({{{"transformer.h.9"}}}); });
    expect_error<ValueError>(
        {"ShardedDataParallel: the module 'transformer.h.0' is listed twice in the units"}, [&] {
            shard({{{"transformer.h.0"}}, {{"transformer.h.0"}}});
        });
    expect_error<ValueError>(
        {"ShardedDataParallel: each unit must have parameters of its own: the unit of module "
         "'transformer.drop' has none"},
        [&] { shard({{{"transformer.drop"}}}); });
    expect_error<ValueError>(
        {"ShardedDataParallel: a unit must have at least one module: unit 1 has none"}, [&] {
            shard({{{"transformer.h.0"}}, {}});
        });
    EXPECT_TRUE(model.transformer.wpe.weight.impl()->storage->has_memory());
}

TEST(ShardedDataParallel, RejectsReadingAndChangingShardedParameters) {
    nn::Gpt model = Gpt64().make();
    const auto group = dist::ProcessGroup::alone();
    const ShardedDataParallel sharded(model, group);
    Tensor weight = model.transformer.wpe.weight;
    const NoGrad no_grad;
    const char* const what = "elements of transformer.wte.weight and other parameters are sharded";
    expect_error<UsageError>({"to_vector: the ", what, "FullParameters"},
                             [&] { static_cast<void>(weight.to_vector()); });
    expect_error<UsageError>({"data: the ", what}, [&] { weight.data<double>(); });
    // An op, even a user-defined op, may read the elements through a const tensor.
    EXPECT_NE(std::as_const(weight).data<double>(), nullptr);
    expect_error<UsageError>({"fill_: the ", what}, [&] { weight.fill_(0); });
    expect_error<UsageError>({"copy_: the ", what}, [&] { weight.copy_(zeros({6, 8}, {f64})); });
    expect_error<UsageError>({"set_data: the ", what}, [&] { weight.set_data(zeros({6, 8})); });
    expect_error<UsageError>({"grad: the gradient of the parameter of shape [6, 8] is sharded"},
                             [&] { static_cast<void>(weight.grad()); });
    expect_error<UsageError>(
        {"ShardedDataParallel: the parameter transformer.wte.weight is already sharded"},
        [&] { const ShardedDataParallel again(model, group); });
}

TEST(ShardedDataParallel, RejectsTrainingAFrozenParameter) {
    nn::Gpt model = Gpt64().make();
    model.transformer.wpe.weight.set_requires_grad(false);
    const ShardedDataParallel sharded(model, dist::ProcessGroup::alone());
    expect_error<UsageError>(
        {"set_requires_grad: a frozen parameter can't be trained after its model "
         "was sharded over processes: shape [6, 8]"},
        [&] { model.transformer.wpe.weight.set_requires_grad(); });
    model.transformer.wte.weight.set_requires_grad(false);
    model.transformer.wte.weight.set_requires_grad(false);
    EXPECT_FALSE(model.transformer.wte.weight.requires_grad());
}

TEST(ShardedDataParallel, CannotBeTrainedWithAdaLomo) {
    nn::Gpt model = Gpt64().make();
    const auto alone = dist::ProcessGroup::alone();
    const ShardedDataParallel sharded(model, alone);
    optim::AdaLomo optimizer(model.parameters());
    expect_error<UsageError>({"AdaLomo: parameters must not be sharded or divided among processes"},
                             [&] { optimizer.fused_backward(loss_of(model, 0, *alone), 0.1); });
}

TEST(ShardedDataParallel, CannotBeTrainedWithAdafactor) {
    nn::Gpt model = Gpt64().make();
    const auto alone = dist::ProcessGroup::alone();
    const ShardedDataParallel sharded(model, alone);
    optim::Adafactor optimizer(model.parameters());
    loss_of(model, 0, *alone).backward();
    expect_error<UsageError>(
        {"Adafactor: parameters must not be sharded or divided among processes"},
        [&] { optimizer.step(); });
}

TEST(ShardedDataParallel, MakesParametersUnusableWhenDestroyed) {
    nn::Gpt model = Gpt64().make();
    { const ShardedDataParallel sharded(model, dist::ProcessGroup::alone()); }
    expect_error<UsageError>({"storage: the elements of this tensor were sharded"}, [&] {
        static_cast<void>(loss_of(model, 0, *dist::ProcessGroup::alone()));
    });
}

}  // namespace
}  // namespace axle
