#include "dist/expert_parallel/expert_parallel.h"

#include <cmath>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/autograd/autograd.h"
#include "core/autograd/tensor_slice.h"
#include "core/random.h"
#include "dist/group/mesh.h"
#include "dist/ops/collective_ops.h"
#include "dist/parallel/data_parallel.h"
#include "dist/sharding/full_state.h"
#include "dist/sharding/sharded_data_parallel.h"
#include "dist/tensor_parallel/tensor_parallel.h"
#include "nn/layers/mixture.h"
#include "optim/adam.h"
#include "optim/clip.h"
#include "tests/close.h"
#include "tests/dist/parallel/replicas.h"

namespace axle {
namespace {

using dist::expert_parallelize;
using tests::at;
using tests::clones_of;
using tests::expect_close;
using tests::expect_error;
using tests::Group;
using tests::on_ranks;

constexpr std::int64_t kWidth = 6, kRows = 24, kExperts = 8;
constexpr double kBalance = 0.05;

struct SparseNet : nn::Model<SparseNet> {
    explicit SparseNet(const nn::MixtureOptions& options)
        : in(3, kWidth), block(kWidth, 5, options), out(kWidth, 2) {}
    Tensor forward(const Tensor& x) {
        const Tensor h = tanh(in(x));
        return out(h + block(h));
    }
    void visit(nn::Visitor& v) override { v("in", in), v("block", block), v("out", out); }
    nn::Linear in;
    nn::MixtureOfExperts block;
    nn::Linear out;
};

SparseNet sparse_net(std::optional<double> capacity_factor = {}) {
    manual_seed(5);
    SparseNet net({.experts = kExperts, .top_k = 2, .capacity_factor = capacity_factor});
    net.to(f64);
    return net;
}

// Returns the rows of a step that a rank trains on.
Tensor rows_of(std::int64_t step, int rank, int ranks) {
    Tensor x = Tensor::empty({kRows, 3}, {.dtype = f64});
    for (std::int64_t i = 0; i < x.numel(); ++i)
        x.data<double>()[i] = std::sin(0.7 * static_cast<double>(i + 100 * step + 1));
    return x.narrow(0, rank * (kRows / ranks), kRows / ranks);
}

// Trains on this rank's rows, and returns the mean losses over the ranks. `balance` is the weight
// of the load balancing loss.
std::vector<double> train(SparseNet& net, const dist::ProcessGroup& group, double balance,
                          const std::function<double(const Tensor&)>& mean_of) {
    std::vector<double> losses;
    optim::AdamW optimizer(net.parameters(), {.lr = 0.01});
    for (std::int64_t step = 0; step < 6; ++step) {
        const Tensor x = rows_of(step, group.rank(), group.size());
        const Tensor y = net(x);
        Tensor loss = (y - x.narrow(1, 0, 2)).pow(2).mean();
        if (balance > 0) loss = loss + net.block.auxiliary_loss() * balance;
        loss.backward();
        optim::clip_grad_norm_(net.parameters(), 0.05);
        optimizer.step();
        optimizer.zero_grad();
        losses.push_back(mean_of(loss));
    }
    return losses;
}
std::vector<double> train(SparseNet& net, const Group& group, double balance) {
    const dist::DataParallel replicas(net, group);
    return train(net, *group, balance, [&](const Tensor& loss) {
        const Tensor mean = loss.detach().clone();
        group->all_reduce(mean, dist::ReduceOp::mean);
        return mean.item();
    });
}

void expect_same_numbers(const std::vector<double>& actual, const std::vector<double>& expected) {
    ASSERT_EQ(actual.size(), expected.size());
    for (std::size_t i = 0; i < actual.size(); ++i)
        EXPECT_NEAR(actual[i], expected[i], 1e-9) << "step " << i;
}

TEST(JoinSlices, RestoresWholeExpertsAndRemovesTheirPolicy) {
    const SparseNet original = sparse_net();
    auto nets = clones_of(original, 2);
    on_ranks(2, [&](const Group& group) {
        SparseNet net = std::move(nets[at(group)]);
        expert_parallelize(net, group);
        dist::join_slices(net);
        EXPECT_EQ(net.block.policy, nullptr);
        SparseNet whole = original.clone();
        if (group->rank() == 0)  // without experts on other ranks, one rank computes alone
            expect_close(net(rows_of(0, 0, 1)).detach(), whole(rows_of(0, 0, 1)).detach(), 1e-12);
    });
}

// The test uses neither a capacity nor a load balancing loss, because both depend on the tokens of
// a rank.
TEST(ExpertParallel, TrainsLikeOneProcess) {
    SparseNet whole = sparse_net();
    const SparseNet original = whole.clone();
    const std::vector<double> expected = train(whole, *dist::ProcessGroup::alone(), 0,
                                               [](const Tensor& loss) { return loss.item(); });
    for (const int ranks : {2, 4, 8}) {
        auto nets = clones_of(original, ranks);
        on_ranks(ranks, [&](const Group& group) {
            SparseNet net = std::move(nets[at(group)]);
            expert_parallelize(net, group);
            EXPECT_EQ(net.block.experts.up.shape(), Shape({kExperts / ranks, 5, kWidth}));
            expect_same_numbers(train(net, group, 0), expected);
            tests::expect_same_state(dist::full_state_dict(net, {.rank0_only = false}),
                                     whole.saved_state(), 1e-9);
        });
    }
}

// Ranks that divide the experts must drop the same tokens as ranks with all experts.
TEST(ExpertParallel, TrainsLikeDataParallelWithCapacityAndBalancingLoss) {
    struct Sizes {
        int replicas, experts;
    };
    for (const auto& [replicas, divided] : {Sizes{1, 2}, {1, 4}, {2, 2}, {3, 2}, {2, 4}}) {
        const int ranks = replicas * divided;
        SCOPED_TRACE(str(replicas, " replicas, ", divided, " parts"));
        const SparseNet original = sparse_net(0.8);
        auto expected = clones_of(original, ranks), nets = clones_of(original, ranks);
        on_ranks(ranks, [&, replicas = replicas, divided = divided](const Group& group) {
            SparseNet reference = std::move(expected[at(group)]);
            SparseNet net = std::move(nets[at(group)]);
            const std::vector<double> losses = train(reference, group, kBalance);
            const Tensor dropped = tensor({reference.block.dropped()});
            group->all_reduce(dropped);
            EXPECT_GT(dropped.item_int(), 0);
            const dist::DeviceMesh mesh(group, {{"dp", replicas}, {"ep", divided}});
            expert_parallelize(net, mesh.get_group("ep"),
                               replicas > 1 ? mesh.get_group("dp") : nullptr);
            expect_same_numbers(train(net, group, kBalance), losses);
            EXPECT_EQ(net.block.counts(), reference.block.counts());
            tests::expect_same_state(dist::full_state_dict(net, {.rank0_only = false}),
                                     reference.saved_state(), 1e-9);
        });
    }
}

// All tokens of all ranks choose experts of rank 0.
TEST(ExpertParallel, TrainsLikeDataParallelIfAllTokensChooseExpertsOfOneRank) {
    auto nets = clones_of(sparse_net(), 2), others = clones_of(sparse_net(), 2);
    on_ranks(2, [&](const Group& group) {
        SparseNet net = std::move(nets[at(group)]);
        SparseNet reference = std::move(others[at(group)]);
        for (SparseNet* each : {&net, &reference}) {
            const NoGrad no_grad;
            each->in.bias.detach().fill_(1);
            Tensor weight = each->block.router.weight.detach();
            weight.fill_(0), weight.narrow(0, 0, 2).fill_(1);
        }
        expert_parallelize(net, group);
        expect_same_numbers(train(net, group, 0), train(reference, group, 0));
    });
}

TEST(ExpertParallel, LoadsWholeStateDictsAndCountsEachExpertOnceInNorms) {
    SparseNet other = sparse_net();
    for (const Tensor& parameter : other.parameters()) {
        const NoGrad no_grad;
        parameter.detach().mul_(1.5);
    }
    auto nets = clones_of(sparse_net(), 4);
    on_ranks(4, [&](const Group& group) {
        SparseNet net = std::move(nets[at(group)]);
        expert_parallelize(net, group);
        net.load_state_dict(other.saved_state());
        tests::expect_same_state(dist::full_state_dict(net, {.rank0_only = false}),
                                 other.saved_state(), 1e-9);
        for (const Tensor& parameter : net.parameters())
            parameter.set_grad(ones_like(parameter.detach()));
        std::int64_t numbers = 0;
        for (const Tensor& parameter : net.parameters())
            numbers += numel(autograd::whole_shape(parameter));
        EXPECT_NEAR(optim::get_total_norm(net.parameters()).item(),
                    std::sqrt(static_cast<double>(numbers)), 1e-9);
    });
}

TEST(ExpertParallel, RejectsLaterShardingAndModelsThatCannotBeDivided) {
    auto nets = clones_of(sparse_net(), 3);
    on_ranks(3, [&](const Group& group) {
        SparseNet net = std::move(nets[at(group)]);
        expect_error<ValueError>({"expert_parallelize: ",
                                  "the 8 experts of 'block' can't be divided"
                                  " among 3 ranks"},
                                 [&] { expert_parallelize(net, group); });
        nn::Linear layer(2, 2);
        expect_error<ValueError>({"expert_parallelize: ", "the model has no MixtureOfExperts"},
                                 [&] { expert_parallelize(layer, group); });
    });
    auto others = clones_of(sparse_net(), 2);
    on_ranks(2, [&](const Group& group) {
        SparseNet net = std::move(others[at(group)]);
        if (group->rank() == 1) net.block.experts.up.set_grad(ones_like(net.block.experts.up));
        expect_error<UsageError>({"expert_parallelize: ", "the experts of 'block' have a gradient"},
                                 [&] { expert_parallelize(net, group); });
        net.zero_grad();
        expert_parallelize(net, group);
        expect_error<UsageError>(
            {"expert_parallelize: ",
             "already has a policy; expert_parallelize() can be called once per model"},
            [&] { expert_parallelize(net, group); });
        expect_error<UsageError>(
            {"ShardedDataParallel: block.experts.gate has the experts of this rank"},
            [&] { const dist::ShardedDataParallel sharded(net, group); });
    });
}

TEST(ExchangeRows, SendsUnevenNumbersOfRowsAndReturnsTheirGradients) {
    on_ranks(3, [](const Group& group) {
        // Rank r sends s rows to rank s. The rows contain 10 r + s.
        const int r = group->rank();
        std::vector<double> values;
        std::vector<std::int64_t> sends;
        for (int s = 0; s < 3; ++s) {
            sends.push_back(s);
            for (int i = 0; i < s; ++i) values.push_back(10 * r + s);
        }
        Tensor x = tensor(values, {3, 1}, {.dtype = f64});
        x.set_requires_grad();
        const Tensor y = dist::exchange_rows(x, sends, {r, r, r}, group);
        ASSERT_EQ(y.shape(), Shape({3 * r, 1}));
        std::vector<double> expected;
        for (int from = 0; from < 3; ++from)
            for (int i = 0; i < r; ++i) expected.push_back(10 * from + r);
        EXPECT_EQ(y.to_vector(), expected);
        (y * y).sum().backward();
        expect_close(x.grad(), x.detach() * 2, 0);
    });
}

TEST(ExchangeRows, RejectsCountsThatDoNotAddUpToTheRows) {
    on_ranks(3, [](const Group& group) {
        const Tensor x = zeros({3, 1});
        expect_error<ShapeError>({"exchange_rows: sends must have one number for each of 3 ranks",
                                  "3 numbers with the sum 4"},
                                 [&] {
                                     dist::exchange_rows(x, {1, 1, 2}, {1, 1, 1}, group);
                                 });
    });
}

}  // namespace
}  // namespace axle
