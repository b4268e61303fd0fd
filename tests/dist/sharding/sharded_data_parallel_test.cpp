#include "dist/sharding/sharded_data_parallel.h"

#include <string>
#include <tuple>

#include "core/autograd/autograd.h"
#include "core/autograd/local_part.h"
#include "gmock/gmock.h"
#include "tests/dist/sharding/communication.h"
#include "tests/dist/sharding/memory.h"

namespace axle {
namespace {

using dist::FullParameters;
using dist::ShardedDataParallel;
using dist::ShardingStrategy;
using tests::clones_of;
using tests::expect_close;
using tests::expect_same_losses;
using tests::expect_same_training;
using tests::Gpt64;
using tests::Group;
using tests::loss_of;
using tests::on_ranks;
using tests::ReferenceRun;
using tests::train_alone;

using tests::at;

constexpr ShardingStrategy kStrategies[] = {ShardingStrategy::full_shard,
                                            ShardingStrategy::shard_grad_op,
                                            ShardingStrategy::shard_optimizer};

// Trains a model on one process and sharded over ranks, and expects the same losses and parameters.
void expect_to_train_like_one_process(const Gpt64& gpt, int ranks, dist::ShardingOptions options) {
    options.units = gpt.units();
    nn::Gpt whole = gpt.make();
    auto models = clones_of(whole, ranks);
    const ReferenceRun expected = train_alone(whole);
    on_ranks(ranks, [&](const Group& group) {
        nn::Gpt& model = models[at(group)];
        const ShardedDataParallel sharded(model, group, options);
        expect_same_training(model, group, expected);
    });
}

class ShardedRanks : public testing::TestWithParam<std::tuple<int, ShardingStrategy>> {
  protected:
    int ranks() const { return std::get<0>(GetParam()); }
    ShardingStrategy strategy() const { return std::get<1>(GetParam()); }
};
INSTANTIATE_TEST_SUITE_P(Sharded, ShardedRanks,
                         testing::Combine(testing::Values(1, 2, 3, 4),
                                          testing::ValuesIn(kStrategies)),
                         [](const auto& suffix) {
                             return std::to_string(std::get<0>(suffix.param)) + "_" +
                                    name_of(std::get<1>(suffix.param));
                         });

TEST_P(ShardedRanks, TrainLikeOneProcess) {
    expect_to_train_like_one_process({}, ranks(), {.strategy = strategy()});
}

TEST_P(ShardedRanks, TrainCheckpointedBlocksLikeOneProcess) {
    expect_to_train_like_one_process({.checkpoint_blocks = true}, ranks(),
                                     {.strategy = strategy()});
}

TEST_P(ShardedRanks, AccumulateGradientsWithoutSync) {
    const Gpt64 gpt;
    nn::Gpt whole = gpt.make();
    for (std::int64_t step = 0; step < 3; ++step)
        loss_of(whole, step, *dist::ProcessGroup::alone()).backward();
    const double expected = optim::get_total_norm(whole.parameters()).item();
    for (const bool reduce_without_sync : {false, true}) {
        auto models = clones_of(gpt.make(), ranks());
        on_ranks(ranks(), [&](const Group& group) {
            nn::Gpt& model = models[at(group)];
            ShardedDataParallel sharded(model, group,
                                        {.strategy = strategy(),
                                         .units = gpt.units(),
                                         .reduce_without_sync = reduce_without_sync});
            for (std::int64_t step = 0; step < 3; ++step) {
                sharded.set_sync(step == 2);
                loss_of(model, step, *group).backward();
            }
            EXPECT_NEAR(optim::get_total_norm(model.parameters()).item(), expected, 1e-10);
            const std::int64_t reduced = reduce_without_sync ? 3 : 1;
            EXPECT_EQ(sharded.counters().reduce_scatters, reduced * (gpt.layers + 1));
        });
    }
}

TEST(ShardedDataParallel, RunsOnlyTheCollectivesThatItsStrategyNeeds) {
    for (const ShardingStrategy strategy : kStrategies)
        for (const int ranks : {2, 3, 4})
            tests::expect_communication_of_formula(tests::on_cpu_ranks, ranks, strategy);
    for (const auto strategy : {ShardingStrategy::full_shard, ShardingStrategy::shard_grad_op})
        tests::expect_communication_of_formula(tests::on_cpu_ranks, 4, strategy, true);
}

TEST(ShardedDataParallel, GathersAtMostThreeUnitsAtOnce) {
    const Gpt64 gpt{.layers = 8};
    auto models = clones_of(gpt.make(), 2);
    on_ranks(2, [&](const Group& group) {
        nn::Gpt& model = models[at(group)];
        ShardedDataParallel sharded(model, group, {.units = gpt.units()});
        for (std::int64_t step = 0; step < 3; ++step) loss_of(model, step, *group).backward();
        // At the peak of forward, three units are gathered: the unit of the model, the active unit
        // and the next unit. At the peak of backward, these are the unit of the model and two
        // blocks.
        EXPECT_EQ(sharded.counters().peak_gathered_buffers, 3);
        EXPECT_EQ(sharded.counters().gathered_buffers, 0);
    });
}

TEST(ShardedDataParallel, KeepsOnlyThePartOfThisRank) {
    const Gpt64 gpt;
    auto models = clones_of(gpt.make(), 4);
    on_ranks(4, [&](const Group& group) {
        nn::Gpt& model = models[at(group)];
        const std::int64_t all = model.num_parameters();
        const ShardedDataParallel sharded(model, group, {.units = gpt.units()});
        std::int64_t local = 0;
        for (const Tensor& p : model.parameters()) {
            EXPECT_FALSE(p.impl()->storage->has_memory());
            local += autograd::local_part(p).numel();
        }
        // Each unit is cut into equal parts. A unit ends with up to 4 * 64 bytes of padding, and
        // has up to 64 bytes of padding between parameters.
        EXPECT_NEAR(static_cast<double>(local), static_cast<double>(all) / 4, 200);
        const Tensor total = full({}, static_cast<double>(local), {.dtype = f64});
        group->all_reduce(total);
        EXPECT_EQ(total.item(), static_cast<double>(all));
    });
}

// The allocator rounds each size up by up to a quarter.
TEST(ShardedDataParallel, NeedsTheMemoryOfPartsAndAFewUnits) {
    tests::ShardedBytes bytes;
    for (const std::int64_t width : {128, 160, 192, 224, 256})
        bytes += tests::measure_sharded_bytes(tests::on_cpu_ranks,
                                              {host_memory::stats, host_memory::reset_peak},
                                              Device::cpu(), width);
    tests::expect_memory_of_parts(bytes, 1.25);
}

// Four ranks together keep the gradients of one model, or of four models if whole gradients are
// added up without sync.
TEST(ShardedDataParallel, KeepsWholeGradientsWithoutSyncUnlessReduceWithoutSyncIsSet) {
    const nn::Gpt whole(
        {.vocab_size = 128, .block_size = 6, .n_layer = 4, .n_head = 2, .n_embd = 192});
    const double bytes = 4 * static_cast<double>(whole.num_parameters());
    for (const bool reduces : {true, false}) {
        auto models = clones_of(whole, 4);
        double kept = 0;
        on_ranks(4, [&](const Group& group) {
            nn::Gpt& model = models[at(group)];
            ShardedDataParallel sharded(
                model, group,
                {.units = Gpt64{.layers = 4}.units(), .reduce_without_sync = reduces});
            sharded.set_sync(false);
            group->barrier();
            const std::int64_t before = host_memory::stats().current;
            group->barrier();
            for (std::int64_t step = 0; step < 2; ++step) loss_of(model, step, *group).backward();
            group->barrier();
            if (group->rank() == 0)
                kept = static_cast<double>(host_memory::stats().current - before) / bytes;
            group->barrier();
        });
        EXPECT_NEAR(kept, reduces ? 1 : 4, reduces ? 0.3 : 1) << "models";
    }
}

TEST(ShardedDataParallel, EvaluatesWithoutKeepingGatheredParameters) {
    const Gpt64 gpt;
    nn::Gpt whole = gpt.make();
    auto models = clones_of(whole, 2);
    const auto [ids, labels] = tests::batch_of(0);
    const Tensor expected = whole(ids).detach();
    on_ranks(2, [&](const Group& group) {
        nn::Gpt& model = models[at(group)];
        ShardedDataParallel sharded(model, group, {.units = gpt.units()});
        const NoGrad no_grad;
        expect_close(model(ids), expected, 1e-12);
        EXPECT_EQ(sharded.counters().gathered_buffers, 0);
    });
}

// A unit may have trained and frozen parameters.
// Covers 14.use_orig_params.
TEST(ShardedDataParallel, TrainsPartlyFrozenUnits) {
    const Gpt64 gpt;
    const auto freeze = [](nn::Gpt& model) {
        for (auto& [name, tensor] : model.named_parameters())
            if (name.find("h.1.") != std::string::npos || name.find("c_fc") != std::string::npos)
                tensor.set_requires_grad(false);
    };
    nn::Gpt whole = gpt.make();
    auto models = clones_of(whole, 3);
    freeze(whole);
    const ReferenceRun expected = train_alone(whole);
    on_ranks(3, [&](const Group& group) {
        nn::Gpt& model = models[at(group)];
        freeze(model);
        const ShardedDataParallel sharded(model, group, {.units = gpt.units()});
        expect_same_training(model, group, expected);
        EXPECT_EQ(sharded.counters().gathered_buffers, 0);
    });
}

// Two layers with one weight.
struct TiedPair : nn::Model<TiedPair> {
    TiedPair() { b.weight = a.weight; }
    Tensor forward(const Tensor& x) { return b(relu(a(x))); }
    void visit(nn::Visitor& v) override { v("a", a), v("b", b); }

    nn::Linear a{4, 4}, b{4, 4};
};

// The weight belongs to the unit of the model, because no other unit contains both of its names.
// In the unit of one layer, it would be gathered again for the other layer.
TEST(ShardedDataParallel, AssignsAWeightOfTwoUnitsToTheUnitOfTheModel) {
    manual_seed(4);
    TiedPair whole;
    whole.to(f64);
    const Tensor x = randn({6, 4}, {.dtype = f64});
    auto models = clones_of(whole, 3);
    const auto loss_of_rows = [](TiedPair& model, const Tensor& rows) {
        return (model(rows) - 1).pow(2).mean();
    };
    loss_of_rows(whole, x).backward();
    const std::vector<Tensor> expected = tests::gradients_of(whole);
    on_ranks(3, [&](const Group& group) {
        TiedPair& model = models[at(group)];
        const ShardedDataParallel sharded(model, group, {.units = {{{"a"}}, {{"b"}}}});
        loss_of_rows(model, tests::part(x, *group)).backward();
        EXPECT_EQ(sharded.counters().all_gathers, 3);  // the weight and the two biases
        EXPECT_EQ(sharded.counters().reduce_scatters, 3);
        const auto parameters = model.parameters();
        ASSERT_EQ(parameters.size(), expected.size());
        for (std::size_t i = 0; i < expected.size(); ++i)
            expect_close(autograd::local_part(parameters[i]).grad(),
                         autograd::local_part_of(parameters[i], expected[i]), 1e-12);
    });
}

TEST(ShardedDataParallel, AveragesOverReplicasOfShards) {
    const Gpt64 gpt;
    nn::Gpt whole = gpt.make();
    auto models = clones_of(whole, 4);
    const ReferenceRun expected = train_alone(whole);
    on_ranks(4, [&](const Group& group) {
        nn::Gpt& model = models[at(group)];
        const auto shards = group->split(group->rank() / 2),
                   replicas = group->split(group->rank() % 2);
        const ShardedDataParallel sharded(model, shards,
                                          {.units = gpt.units(), .replicas = replicas});
        expect_same_training(model, group, expected);
        EXPECT_EQ(sharded.counters().all_reduces, tests::kSteps * (gpt.layers + 1));
    });
}

TEST(ShardedDataParallel, ComputesInTheParameterDType) {
    const Gpt64 gpt;
    nn::Gpt whole = gpt.make();
    whole.to(f32);
    auto models = clones_of(whole, 2);
    const ReferenceRun expected = train_alone(whole);
    on_ranks(2, [&](const Group& group) {
        nn::Gpt& model = models[at(group)];
        ShardedDataParallel sharded(
            model, group,
            {.units = gpt.units(), .precision = {.param_dtype = bf16, .reduce_dtype = f32}});
        EXPECT_EQ(model.transformer.wpe.weight.dtype(), bf16);
        EXPECT_EQ(autograd::local_part(model.transformer.wpe.weight).dtype(), f32);
        const std::int64_t before = sharded.counters().gathered_bytes;
        const NoGrad no_grad;
        static_cast<void>(loss_of(model, 0, *group));
        const std::int64_t bytes = sharded.counters().gathered_bytes - before;
        EXPECT_NEAR(static_cast<double>(bytes), 2.0 * static_cast<double>(whole.num_parameters()),
                    64.0 * 2 * 16 * 4);
        // A step of Adam has nearly the same size for every gradient, even if the gradient is only
        // a rounding error. Therefore the parameters can differ, and only the losses are compared.
        const GradMode recording(true);
        expect_same_losses(model, group, expected, 0.02);
    });
}

TEST(ShardedDataParallel, GathersParametersThatAreUsedOutsideOfTheModel) {
    const Gpt64 gpt;
    nn::Gpt whole = gpt.make();
    auto models = clones_of(whole, 2);
    const auto penalty = [](nn::Gpt& model) {
        const Tensor w = model.transformer.h[1].mlp.c_fc.weight;
        return sum(w * w);
    };
    const Tensor loss = penalty(whole);
    loss.backward();
    const double norm = optim::get_total_norm(whole.parameters()).item();
    on_ranks(2, [&](const Group& group) {
        nn::Gpt& model = models[at(group)];
        const ShardedDataParallel sharded(model, group, {.units = gpt.units()});
        const Tensor own = penalty(model);
        own.backward();
        EXPECT_NEAR(own.item(), loss.item(), 1e-12);
        EXPECT_NEAR(optim::get_total_norm(model.parameters()).item(), norm, 1e-12);
    });
}

TEST(ShardedDataParallel, UsesNewParametersAfterAnUpdate) {
    const Gpt64 gpt;
    for (const ShardingStrategy strategy : kStrategies) {
        auto models = clones_of(gpt.make(), 2);
        on_ranks(2, [&](const Group& group) {
            nn::Gpt& model = models[at(group)];
            const ShardedDataParallel sharded(model, group,
                                              {.strategy = strategy, .units = gpt.units()});
            optim::AdamW optimizer(model.parameters(), {.lr = 0.01});
            const Tensor before = loss_of(model, 0, *group);
            before.backward();
            optimizer.step();
            const double after = loss_of(model, 0, *group).item();
            EXPECT_LT(after, before.item() - 0.001);
            // The weights are also correct if an op uses them outside of a forward pass.
            const Tensor w = model.transformer.h[0].attn.c_attn.weight;
            const double gathered = sum(w * w).item();
            const FullParameters full(model);
            EXPECT_NEAR(gathered, sum(w * w).item(), 1e-12);
        });
    }
}

TEST(ShardedDataParallel, ContinuesTrainingAfterAnExceptionInBackward) {
    const Gpt64 gpt;
    nn::Gpt whole = gpt.make();
    auto models = clones_of(whole, 2);
    const ReferenceRun expected = train_alone(whole);
    on_ranks(2, [&](const Group& group) {
        nn::Gpt& model = models[at(group)];
        const ShardedDataParallel sharded(model, group, {.units = gpt.units()});
        {
            const auto hook = autograd::on_leaf_final(
                model.transformer.h[1].mlp.c_fc.weight,
                [](const Tensor&) { throw ValueError("an error of this test"); });
            const Tensor loss = loss_of(model, 3, *group);
            EXPECT_THROW(loss.backward(), ValueError);
        }
        model.zero_grad();
        expect_same_training(model, group, expected);
    });
}

TEST(ShardedDataParallel, AveragesGradientsOfIgnoredModules) {
    expect_to_train_like_one_process(
        {}, 2, {.ignored_modules = {"transformer.ln_f", "transformer.h.2.mlp"}});
    nn::Gpt model = Gpt64().make();
    const ShardedDataParallel sharded(model, dist::ProcessGroup::alone(),
                                      {.ignored_modules = {"transformer.ln_f"}});
    EXPECT_FALSE(autograd::is_sharded(model.transformer.ln_f.weight));
    EXPECT_TRUE(autograd::is_sharded(model.transformer.wte.weight));
}

TEST(ShardedDataParallel, ComputesTheNormOfAllGradients) {
    const Gpt64 gpt;
    nn::Gpt whole = gpt.make();
    auto models = clones_of(whole, 3);
    loss_of(whole, 0, *dist::ProcessGroup::alone()).backward();
    for (const double norm_type : {1.0, 2.0, 3.0, std::numeric_limits<double>::infinity()}) {
        const double expected = optim::get_total_norm(whole.parameters(), norm_type).item();
        on_ranks(3, [&](const Group& group) {
            nn::Gpt model = models[at(group)].clone();
            const ShardedDataParallel sharded(model, group, {.units = gpt.units()});
            loss_of(model, 0, *group).backward();
            const Tensor norm = optim::get_total_norm(model.parameters(), norm_type);
            EXPECT_NEAR(norm.item(), expected, 1e-12);
            const Tensor all = group->all_gather(norm);
            for (int rank = 0; rank < 3; ++rank) tests::expect_same_bits(all[rank], norm);
        });
    }
}

}  // namespace
}  // namespace axle
