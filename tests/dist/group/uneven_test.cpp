#include <algorithm>

#include "core/autograd/autograd.h"
#include "core/system/numerics.h"
#include "dist/parallel/data_parallel.h"
#include "gmock/gmock.h"
#include "nn/layers/norm.h"
#include "optim/sgd.h"
#include "tests/dist/parallel/replicas.h"

namespace axle {
namespace {

using dist::DataParallel;
using dist::Join;
using tests::expect_close;
using tests::Group;
using tests::kTinyBucket;
using tests::on_ranks;
using tests::small_mlp;

using Lengths = std::vector<int>;

using tests::at;

// Returns the input [1, 5] of a rank in step i. Inputs differ between ranks and steps.
Tensor batch(int rank, int i) {
    return tensor({0.1 * rank + 1, 0.3 * i - 1, 0.2, rank * i - 0.5, 0.7}, {1, 5}, {f64});
}

// Trains the reference on one process with the batches of all ranks. Divides gradients by the
// number of all ranks if `by_all` is true, else by the number of ranks with data.
nn::Mlp trained_alone(const Lengths& lengths, bool by_all) {
    nn::Mlp model = small_mlp();
    optim::SGD sgd(model.parameters(), {.lr = 0.1});
    for (int i = 0; i < *std::max_element(lengths.begin(), lengths.end()); ++i) {
        sgd.zero_grad();
        const auto with_data =
            std::count_if(lengths.begin(), lengths.end(), [i](int n) { return n > i; });
        const double count =
            by_all ? static_cast<double>(lengths.size()) : static_cast<double>(with_data);
        for (std::size_t rank = 0; rank < lengths.size(); ++rank)
            if (lengths[rank] > i)
                (model(batch(static_cast<int>(rank), i)).pow(2).sum() / count).backward();
        sgd.step();
    }
    return model;
}

// Trains on lengths[rank] batches on each rank, and expects the parameters of `expected`.
void expect_training(const Group& group, const Lengths& lengths, dist::DataParallelOptions options,
                     bool by_all, const nn::Mlp& expected, nn::Mlp model) {
    SCOPED_TRACE(testing::PrintToString(lengths));
    options.bucket_cap_mb = kTinyBucket;
    DataParallel replicas(model, group, options);
    optim::SGD sgd(model.parameters(), {.lr = 0.1});
    {
        const Join join(replicas, {.divide_by_initial_world_size = by_all});
        for (int i = 0; i < lengths[at(group)]; ++i) {
            sgd.zero_grad();
            replicas.before_forward();
            model(batch(group->rank(), i)).pow(2).sum().backward();
            sgd.step();
        }
    }
    for (std::size_t p = 0; p < model.parameters().size(); ++p)
        expect_close(model.parameters()[p].detach(), expected.parameters()[p].detach(), 1e-12);
    // This backward pass succeeds only if all ranks have made the same number of collective calls.
    model.zero_grad();
    model(batch(0, 0)).sum().backward();
}

void expect_training(const std::vector<Lengths>& all,
                     const std::vector<dist::DataParallelOptions>& options) {
    std::vector<nn::Mlp> expected;
    for (const Lengths& lengths : all)
        for (const bool by_all : {true, false}) expected.push_back(trained_alone(lengths, by_all));
    const auto size = static_cast<int>(all.front().size());
    const auto models = tests::clones_of(small_mlp(), size);
    on_ranks(size, [&](const Group& group) {
        for (std::size_t i = 0; i < expected.size(); ++i)
            for (const dist::DataParallelOptions& o : options)
                expect_training(group, all[i / 2], o, i % 2 == 0, expected[i],
                                models[at(group)].clone());
    });
}

TEST(UnevenInputs, TrainLikeTheReferenceModelOnTwoRanks) {
    std::vector<Lengths> all;
    for (const int a : {0, 1, 4, 5})
        for (const int b : {0, 1, 4, 5}) all.push_back({a, b});
    expect_training(all, {{}});
}

TEST(UnevenInputs, TrainLikeTheReferenceModelOnFourRanks) {
    expect_training({{0, 1, 4, 5}, {5, 4, 1, 0}, {3, 3, 3, 3}, {0, 0, 0, 2}, {2, 0, 5, 1}},
                    {{}, {.find_unused_parameters = true}, {.static_graph = true}});
}

TEST(UnevenInputs, AccumulateGradientsLikeTheReferenceModel) {
    for (const bool deterministic : {false, true}) {
        use_deterministic_algorithms(deterministic);
        auto models = tests::clones_of(small_mlp(), 2);
        on_ranks(2, [&](const Group& group) {
            nn::Mlp& model = models[at(group)];
            DataParallel replicas(model, group);
            {
                const Join join(replicas);
                for (int i = 0; i < 4 - 2 * group->rank(); ++i) {
                    if (i % 2 == 0) model.zero_grad();
                    replicas.set_sync(i % 2 == 1);
                    model(batch(0, i)).sum().backward();
                }
            }
            // Rank 1 has no data when rank 0 trains on its last two batches.
            if (group->rank() == 1) return;
            nn::Mlp reference = model.clone();
            for (int i = 2; i < 4; ++i) (reference(batch(0, i)).sum() / 2).backward();
            tests::expect_gradients(model, tests::gradients_of(reference));
        });
        use_deterministic_algorithms(false);
    }
}

// While rank 0 has data, its buffers are broadcast. Then the buffers of the next rank with data are
// broadcast.
TEST(UnevenInputs, BroadcastBuffersOfTheFirstRankWithData) {
    std::vector<nn::BatchNorm1d> models;
    for (int rank = 0; rank < 3; ++rank) models.emplace_back(2);
    const std::vector<int> lengths{1, 3, 2};
    on_ranks(3, [&](const Group& group) {
        nn::BatchNorm1d& model = models[at(group)];
        DataParallel replicas(model, group);
        {
            const Join join(replicas);
            for (int i = 0; i < lengths[at(group)]; ++i) {
                model.running_mean.fill_(group->rank());
                replicas.before_forward();
                EXPECT_EQ(model.running_mean[0].item(), i == 0 ? 0 : 1);
                model(randn({4, 2})).sum().backward();
            }
            model.running_mean.fill_(10 + group->rank());
        }
        EXPECT_EQ(model.running_mean[0].item(), 11);
    });
}

TEST(UnevenInputs, ThrowOnAllRanksAtTheEndOfTheShortestInputIfRequested) {
    auto models = tests::clones_of(small_mlp(), 3);
    const auto errors = tests::outcomes(3, [&](const Group& group) {
        nn::Mlp& model = models[at(group)];
        DataParallel replicas(model, group);
        const Join join(replicas, {.throw_on_early_termination = true});
        for (int i = 0; i < (group->rank() == 1 ? 2 : 4); ++i)
            model(batch(group->rank(), i)).sum().backward();
    });
    for (const std::exception_ptr& error : errors)
        EXPECT_EQ(tests::text_of(error),
                  "Join: rank 1 has no more batches, but other ranks still have some");
}

TEST(UnevenInputs, RejectRanksWithDifferentOrderOfForwardAndBackward) {
    std::vector<nn::BatchNorm1d> models;
    for (int rank = 0; rank < 3; ++rank) models.emplace_back(2);
    const auto errors = tests::outcomes(3, [&](const Group& group) {
        nn::BatchNorm1d& model = models[at(group)];
        DataParallel replicas(model, group);
        const Join join(replicas);
        if (group->rank() == 1) replicas.before_forward();
        if (group->rank() == 2) model(randn({4, 2})).sum().backward();
    });
    for (const std::exception_ptr& error : errors)
        EXPECT_EQ(tests::text_of(error),
                  "Join: ranks with data must make the same calls: rank 0 is out of data, rank 1 "
                  "is before "
                  "a forward, rank 2 is in a synchronized backward");
}

TEST(Join, LetsExceptionsPassAndRejectsASecondJoinOfAModel) {
    nn::Mlp model = small_mlp();
    DataParallel replicas(model, dist::ProcessGroup::alone());
    tests::expect_error<ValueError>({"bad batch"}, [&] {
        const Join join(replicas);
        throw ValueError("bad batch");
    });
    tests::expect_error<UsageError>({"Join: ", "already"}, [&] {
        const Join one(replicas);
        const Join another(replicas);
    });
    const Join again(replicas);
}

}  // namespace
}  // namespace axle
