#include "dist/parallel/data_parallel.h"

#include "core/autograd/autograd.h"
#include "gmock/gmock.h"
#include "nn/layers/linear.h"
#include "nn/layers/norm.h"
#include "nn/models/gpt.h"
#include "tests/dist/parallel/replicas.h"

namespace axle {
namespace {

using dist::DataParallel;
using tests::expect_close;
using tests::expect_error;
using tests::expect_gradients;
using tests::expect_same_bits;
using tests::gradients_of;
using tests::Group;
using tests::kTinyBucket;
using tests::on_ranks;
using tests::part;
using tests::small_mlp;

using tests::at;

class DataParallelRanks : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(DataParallel, DataParallelRanks, testing::Values(1, 2, 3, 4));

// Covers 9.gradient.
TEST_P(DataParallelRanks, MatchGradientsOfTheWholeBatch) {
    nn::Mlp whole = small_mlp();
    const Tensor x = randn({12, 5}, {f64}), y = randn({12, 2}, {f64});
    mse_loss(whole(x), y).backward();
    const std::vector<Tensor> expected = gradients_of(whole);
    auto models = tests::clones_of(whole, GetParam());
    for (const bool as_view : {true, false})
        for (const double bucket : {25.0, kTinyBucket})
            on_ranks(GetParam(), [&](const Group& group) {
                nn::Mlp& model = models[at(group)];
                DataParallel replicas(
                    model, group, {.bucket_cap_mb = bucket, .gradient_as_bucket_view = as_view});
                for (int step = 0; step < 3; ++step) {
                    model.zero_grad();
                    mse_loss(model(part(x, *group)), part(y, *group)).backward();
                    expect_gradients(model, expected);
                }
            });
}

nn::Gpt small_gpt() {
    manual_seed(5);
    nn::Gpt model({.vocab_size = 13,
                   .block_size = 8,
                   .n_layer = 3,
                   .n_head = 2,
                   .n_embd = 8,
                   .checkpoint_blocks = true});
    model.to(f64);
    // Freezes the position embedding and the attention of a block.
    model.transformer.wpe.requires_grad_(false);
    model.transformer.h[1].attn.requires_grad_(false);
    return model;
}

// The model's output layer is tied to the embedding, and its blocks are checkpointed.
TEST_P(DataParallelRanks, MatchGradientsOfTheWholeBatchForATiedFrozenCheckpointedModel) {
    nn::Gpt whole = small_gpt();
    const Tensor ids = randint(0, 13, {12, 8}), labels = randint(0, 13, {12, 8});
    whole.loss(ids, labels).backward();
    const std::vector<Tensor> expected = gradients_of(whole);
    std::vector<nn::Gpt> models;
    for (int rank = 0; rank < GetParam(); ++rank) models.push_back(small_gpt());
    for (const bool is_static : {false, true})
        on_ranks(GetParam(), [&](const Group& group) {
            nn::Gpt& model = models[at(group)];
            DataParallel replicas(model, group,
                                  {.bucket_cap_mb = 2000.0 / (1 << 20), .static_graph = is_static});
            for (int step = 0; step < 3; ++step) {
                model.zero_grad();
                model.loss(part(ids, *group), part(labels, *group)).backward();
                expect_gradients(model, expected);
            }
            EXPECT_GT(replicas.buckets().size(), 3U);
        });
}

// A model like small_gpt() with an additional unused layer.
struct PartlyUsed : nn::Model<PartlyUsed> {
    PartlyUsed() { spare.to(f64); }
    Tensor loss(const Tensor& ids, const Tensor& labels) { return gpt.loss(ids, labels); }
    void visit(nn::Visitor& v) override { v("gpt", gpt), v("spare", spare); }

    nn::Gpt gpt = small_gpt();
    nn::Linear spare{3, 2};
};

TEST_P(DataParallelRanks, MatchGradientsOfTheWholeBatchForAPartlyUsedModel) {
    nn::Gpt whole = small_gpt();
    const Tensor ids = randint(0, 13, {12, 8}), labels = randint(0, 13, {12, 8});
    whole.loss(ids, labels).backward();
    const std::vector<Tensor> expected = gradients_of(whole);
    std::vector<PartlyUsed> models(static_cast<std::size_t>(GetParam()));
    on_ranks(GetParam(), [&](const Group& group) {
        PartlyUsed& model = models[at(group)];
        const DataParallel replicas(model, group,
                                    {.bucket_cap_mb = kTinyBucket, .find_unused_parameters = true});
        for (int step = 0; step < 3; ++step) {
            model.zero_grad();
            model.loss(part(ids, *group), part(labels, *group)).backward();
            expect_gradients(model.gpt, expected);
            EXPECT_FALSE(model.spare.weight.grad().defined());
        }
    });
}

// Covers 9.initial.
TEST(DataParallel, BroadcastsTheModelOfRankZero) {
    std::vector<nn::BatchNorm1d> models;
    for (int rank = 0; rank < 3; ++rank) {
        models.emplace_back(2);
        models.back().running_mean.fill_(rank);
        models.back().num_batches_tracked.fill_(5 + rank);
        models.back().weight.detach().fill_(rank + 1);
    }
    on_ranks(3, [&](const Group& group) {
        nn::BatchNorm1d& model = models[at(group)];
        const DataParallel replicas(model, group);
        expect_same_bits(model.weight.detach(), ones({2}));
        expect_same_bits(model.running_mean, zeros({2}));
        EXPECT_EQ(model.num_batches_tracked.item_int(), 5);
    });
}

TEST(DataParallel, RejectsAModelWithoutTrainableParameters) {
    nn::Mlp model = small_mlp();
    model.requires_grad_(false);
    expect_error<UsageError>({"DataParallel: ", "no parameter"},
                             [&] { DataParallel(model, dist::ProcessGroup::alone()); });
}

TEST(DataParallel, RejectsInvalidSizesOfBuckets) {
    nn::Mlp model = small_mlp();
    for (const double size : {-1.0, std::nan(""), 2e6})
        expect_error<ValueError>({"DataParallel: bucket_cap_mb must be in [0, 1048576]"}, [&] {
            DataParallel(model, dist::ProcessGroup::alone(), {.bucket_cap_mb = size});
        });
}

TEST(DataParallel, ReportsTheFirstParameterThatDiffersBetweenRanks) {
    std::vector<nn::Mlp> models = tests::clones_of(small_mlp(), 2);
    models.push_back(small_mlp({5, 7, 4, 2}));
    const auto errors =
        tests::outcomes(3, [&](const Group& group) { DataParallel(models[at(group)], group); });
    for (const std::exception_ptr& error : errors)
        EXPECT_EQ(tests::text_of(error),
                  "DataParallel: the ranks' models differ: rank 2 has 'layers.1.weight float64 "
                  "[4, 7]' instead of rank 0's 'layers.1.weight float64 [6, 7]'");
}

TEST(DataParallel, IgnoresBackwardPassesOfOtherModelsAndCallsOfGrad) {
    auto models = tests::clones_of(small_mlp(), 2), others = tests::clones_of(small_mlp(), 2);
    on_ranks(2, [&](const Group& group) {
        nn::Mlp &model = models[at(group)], &other = others[at(group)];
        DataParallel replicas(model, group);
        const Tensor x = full({1, 5}, group->rank() + 1, {f64});
        // Only rank 0 trains the other model.
        if (group->rank() == 0) other(x).sum().backward();
        model(x).sum().backward();
        EXPECT_EQ(other.parameters()[0].grad().defined(), group->rank() == 0);
        // grad() does not communicate.
        model.zero_grad();
        EXPECT_TRUE(autograd::grad({model(x).sum()}, {model.layers[0].weight})[0].defined());
        EXPECT_FALSE(model.layers[0].weight.grad().defined());
    });
}

TEST(DataParallel, StopsReducingWhenDestroyed) {
    auto models = tests::clones_of(small_mlp(), 2);
    on_ranks(2, [&](const Group& group) {
        nn::Mlp& model = models[at(group)];
        const Tensor x = full({1, 5}, group->rank() + 1, {f64});
        model(x).sum().backward();
        const std::vector<Tensor> own = gradients_of(model);
        model.zero_grad();
        { const DataParallel replicas(model, group); }
        model(x).sum().backward();
        expect_gradients(model, own);
    });
}

// --- accumulation

TEST_P(DataParallelRanks, ReduceGradientsAccumulatedWithoutSync) {
    nn::Mlp whole = small_mlp();
    const Tensor x = randn({3, 12, 5}, {f64});
    for (int k = 0; k < 3; ++k) whole(x[k]).pow(2).mean().backward();
    const std::vector<Tensor> expected = gradients_of(whole);
    auto models = tests::clones_of(whole, GetParam());
    for (const bool as_view : {true, false})
        on_ranks(GetParam(), [&](const Group& group) {
            nn::Mlp& model = models[at(group)];
            DataParallel replicas(model, group, {.gradient_as_bucket_view = as_view});
            for (int step = 0; step < 3; ++step) {
                model.zero_grad();
                for (int k = 0; k < 2; ++k) {
                    const dist::NoSyncGuard alone = replicas.no_sync();
                    model(part(x[k], *group)).pow(2).mean().backward();
                }
                model(part(x[2], *group)).pow(2).mean().backward();
                expect_gradients(model, expected);
            }
        });
}

TEST(DataParallel, KeepsGradientsLocalWithoutSync) {
    auto models = tests::clones_of(small_mlp(), 2);
    on_ranks(2, [&](const Group& group) {
        nn::Mlp& model = models[at(group)];
        DataParallel replicas(model, group);
        const Tensor x = full({1, 5}, group->rank() + 1, {f64});
        nn::Mlp reference = model.clone();
        reference(x).sum().backward();
        {
            const dist::NoSyncGuard outer = replicas.no_sync();
            EXPECT_FALSE(replicas.syncs());
            { const dist::NoSyncGuard inner = replicas.no_sync(); }
            EXPECT_FALSE(replicas.syncs());
            model(x).sum().backward();
        }
        EXPECT_TRUE(replicas.syncs());
        expect_gradients(model, gradients_of(reference), 0);
    });
}

TEST(DataParallel, ReadsTheSyncFlagWhenBackwardBegins) {
    auto models = tests::clones_of(small_mlp(), 2);
    on_ranks(2, [&](const Group& group) {
        nn::Mlp& model = models[at(group)];
        DataParallel replicas(model, group);
        Tensor loss;
        {
            const dist::NoSyncGuard guard = replicas.no_sync();
            loss = model(full({1, 5}, group->rank(), {f64})).sum();
        }
        loss.backward();
        const Tensor mine = model.layers[0].weight.grad().clone();
        group->broadcast(mine, 0);
        expect_close(model.layers[0].weight.grad(), mine, 0);
    });
}

// A gradient that zero_grad() did not clear is already the mean over all ranks.
TEST(DataParallel, AccumulatesAveragedGradientsOverBackwardPasses) {
    nn::Mlp whole = small_mlp();
    const Tensor x = randn({8, 5}, {f64});
    for (int k = 0; k < 3; ++k) whole(x).pow(2).mean().backward();
    auto models = tests::clones_of(whole, 2);
    on_ranks(2, [&](const Group& group) {
        nn::Mlp& model = models[at(group)];
        DataParallel replicas(model, group, {.bucket_cap_mb = kTinyBucket});
        for (int k = 0; k < 3; ++k) model(part(x, *group)).pow(2).mean().backward();
        expect_gradients(model, gradients_of(whole));
    });
}

// --- buffers

// Covers 9.broadcast_buffers.
TEST(DataParallel, BroadcastsBuffersBeforeForwardInTrainingUnlessSyncOrBroadcastBuffersIsOff) {
    std::vector<nn::BatchNorm1d> models;
    for (int rank = 0; rank < 3; ++rank) models.emplace_back(2);
    on_ranks(3, [&](const Group& group) {
        nn::BatchNorm1d& model = models[at(group)];
        DataParallel replicas(model, group);
        const auto mean_after = [&](const auto& prepare) {
            model.running_mean.fill_(group->rank() + 1);
            prepare();
            replicas.before_forward();
            return model.running_mean[0].item();
        };
        EXPECT_EQ(mean_after([] {}), 1);
        EXPECT_EQ(mean_after([&] { model.eval(); }), group->rank() + 1);
        EXPECT_EQ(mean_after([&] { model.train(); }), 1);
        // A forward pass without sync leaves its statistics local: the next before_forward() does
        // not broadcast them. Therefore set_sync() takes effect one call later.
        replicas.set_sync(false);
        EXPECT_EQ(mean_after([] {}), 1);
        EXPECT_EQ(mean_after([] {}), group->rank() + 1);
        replicas.set_sync(true);
        EXPECT_EQ(mean_after([] {}), group->rank() + 1);
        EXPECT_EQ(mean_after([] {}), 1);
    });
    on_ranks(2, [&](const Group& group) {
        nn::BatchNorm1d& model = models[at(group)];
        DataParallel replicas(model, group, {.broadcast_buffers = false});
        model.running_mean.fill_(group->rank() + 1);
        replicas.before_forward();
        EXPECT_EQ(model.running_mean[0].item(), group->rank() + 1);
    });
}

TEST(DataParallel, BroadcastsConstantBuffersOnlyWhenItIsCreated) {
    struct Net : nn::Model<Net> {
        Tensor scale = ones({2}, {.requires_grad = true}), table = zeros({2}), count = zeros({2});
        void visit(nn::Visitor& v) override {
            v("scale", scale), v.buffer("table", table, {.constant = true});
            v.buffer("count", count);
        }
    };
    std::vector<Net> models(2);
    on_ranks(2, [&](const Group& group) {
        Net& model = models[at(group)];
        model.table.fill_(group->rank() + 1);
        DataParallel replicas(model, group);
        EXPECT_EQ(model.table[0].item(), 1);
        model.table.fill_(group->rank() + 1), model.count.fill_(group->rank() + 1);
        replicas.before_forward();
        EXPECT_EQ(model.table[0].item(), group->rank() + 1);
        EXPECT_EQ(model.count[0].item(), 1);
    });
}

}  // namespace
}  // namespace axle
