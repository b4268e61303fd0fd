#include "dist/parallel/sync_batch_norm.h"

#include <vector>

#include "core/autograd/autograd.h"
#include "gmock/gmock.h"
#include "nn/layers/container.h"
#include "nn/layers/linear.h"
#include "nn/layers/norm.h"
#include "nn/models/resnet.h"
#include "tests/dist/parallel/replicas.h"

namespace axle {
namespace {

using tests::expect_close;
using tests::expect_error;
using tests::Group;
using tests::on_ranks;

// The number of rows of each rank.
using Rows = std::vector<std::int64_t>;

std::int64_t start_of(const Rows& rows, int rank) {
    std::int64_t start = 0;
    for (int r = 0; r < rank; ++r) start += rows[static_cast<std::size_t>(r)];
    return start;
}

template <class Norm>
void expect_whole_batch(const Rows& rows, const Shape& trailing_dims, DType dtype, double tolerance,
                        nn::BatchNormOptions options = {}) {
    manual_seed(4);
    Dims sizes{start_of(rows, static_cast<int>(rows.size())), 3};
    for (int d = 0; d < trailing_dims.size(); ++d) sizes.push_back(trailing_dims[d]);
    const Tensor x = to(2 * randn(Shape(sizes), {f64}) + 5, dtype);
    const Tensor dy = to(randn(Shape(sizes), {f64}), dtype);

    const auto make = [&] {
        Norm norm(3, options);
        norm.to(dtype);
        if (options.affine) norm.weight.detach().copy_(tensor({0.5, 1, 2}, {3}));
        return norm;
    };
    Norm whole = make();
    const Tensor input = x.clone().set_requires_grad();
    const Tensor y = whole(input);
    y.backward(dy);

    on_ranks(static_cast<int>(rows.size()), [&](const Group& group) {
        Norm norm = make();
        EXPECT_EQ(dist::convert_sync_batchnorm(norm, group), 1);
        const std::int64_t start = start_of(rows, group->rank());
        const std::int64_t count = rows[static_cast<std::size_t>(group->rank())];
        const Tensor own = x.narrow(0, start, count).clone().set_requires_grad();
        const Tensor out = norm(own);
        out.backward(dy.narrow(0, start, count));
        expect_close(out.detach(), y.detach().narrow(0, start, count), tolerance);
        expect_close(own.grad(), input.grad().narrow(0, start, count), tolerance);
        if (options.affine) {
            const Tensor dweight = norm.weight.grad().clone(), dbias = norm.bias.grad().clone();
            group->all_reduce(dweight);
            group->all_reduce(dbias);
            expect_close(dweight, whole.weight.grad(), tolerance);
            expect_close(dbias, whole.bias.grad(), tolerance);
        }
        if (options.track_running_stats) {
            expect_close(norm.running_mean, whole.running_mean, tolerance);
            expect_close(norm.running_var, whole.running_var, tolerance);
            EXPECT_EQ(norm.num_batches_tracked.item_int(), 1);
        }
    });
}

TEST(SyncBatchNorm, MatchesBatchNormOfTheWholeBatch) {
    for (const Rows& rows : {Rows{6}, Rows{4, 4}, Rows{3, 3, 3, 3}}) {
        expect_whole_batch<nn::BatchNorm1d>(rows, {}, f64, 1e-12);
        expect_whole_batch<nn::BatchNorm1d>(rows, {5}, f64, 1e-12);
        expect_whole_batch<nn::BatchNorm2d>(rows, {2, 3}, f64, 1e-12);
        expect_whole_batch<nn::BatchNorm3d>(rows, {2, 3, 2}, f64, 1e-12);
        expect_whole_batch<nn::BatchNorm2d>(rows, {2, 3}, f32, 1e-5);
    }
}

TEST(SyncBatchNorm, MatchesBatchNormIfRanksHaveDifferentBatchSizes) {
    for (const Rows& rows : {Rows{1, 5}, Rows{1, 1}, Rows{4, 1, 2}, Rows{0, 3}, Rows{3, 0, 1}}) {
        expect_whole_batch<nn::BatchNorm1d>(rows, {}, f64, 1e-12);
        expect_whole_batch<nn::BatchNorm2d>(rows, {2, 2}, f64, 1e-12);
    }
}

TEST(SyncBatchNorm, KeepsTheOptionsOfTheLayer) {
    expect_whole_batch<nn::BatchNorm1d>({3, 4}, {}, f64, 1e-12, {.affine = false});
    expect_whole_batch<nn::BatchNorm1d>({3, 4}, {}, f64, 1e-12, {.momentum = std::nullopt});
    expect_whole_batch<nn::BatchNorm1d>({3, 4}, {}, f64, 1e-12, {.track_running_stats = false});
}

// The means of the ranks are far apart, and far from zero.
TEST(SyncBatchNorm, ComputesVarianceAccuratelyIfMeansAreLarge) {
    manual_seed(7);
    const Tensor x = randn({2, 64, 1}, {f64}) + tensor({1000, 3000}, {2, 1, 1}, {f64});
    const double expected = var(x, {}, 0).item();
    on_ranks(2, [&](const Group& group) {
        nn::BatchNorm1d norm(1, {.momentum = 1.0});
        dist::convert_sync_batchnorm(norm, group);
        norm(to(x[group->rank()], f32));
        EXPECT_NEAR(norm.running_var.item() * 127 / 128, expected, 1e-5 * expected);
    });
}

TEST(SyncBatchNorm, UsesRunningStatisticsInEvaluation) {
    on_ranks(2, [&](const Group& group) {
        nn::BatchNorm1d norm(3);
        dist::convert_sync_batchnorm(norm, group);
        norm.running_mean.fill_(2);
        norm.running_var.fill_(4 - 1e-5);
        norm.eval();
        // Only one rank calls the layer, so the call must not communicate.
        if (group->rank() != 0) return;
        tests::expect_close(norm(full({1, 3}, 8.0)), full({1, 3}, 3.0));
        EXPECT_EQ(norm.running_mean[0].item(), 2);
    });
}

TEST(SyncBatchNorm, ConvertsNestedLayersAndSharesItsPolicyWithClones) {
    const Group alone = dist::ProcessGroup::alone();
    nn::Sequential net{nn::Linear(2, 3), nn::BatchNorm1d(3),
                       nn::Sequential{nn::Linear(3, 3), nn::BatchNorm1d(3)}};
    EXPECT_EQ(dist::convert_sync_batchnorm(net, alone), 2);
    nn::BatchNorm1d norm(3);
    dist::convert_sync_batchnorm(norm, alone);
    EXPECT_EQ(norm.clone().policy, norm.policy);
}

TEST(SyncBatchNorm, RejectsASingleValuePerChannel) {
    nn::BatchNorm1d norm(3);
    dist::convert_sync_batchnorm(norm, dist::ProcessGroup::alone());
    expect_error<ShapeError>({"sync_batch_norm: ", "more than 1 value", "[1, 3]"}, [&] {
        norm(ones({1, 3}));
    });
}

// DataParallel averages the gradients of the parameters. For the gradient of its input, the layer
// sums statistics of the gradients of its output over the ranks.
TEST(SyncBatchNorm, HasTheGradientsOfTheWholeBatchWithDataParallel) {
    manual_seed(9);
    const auto make = [] {
        manual_seed(11);
        nn::Sequential net{nn::Linear(4, 6), nn::BatchNorm1d(6), relu, nn::Linear(6, 2)};
        net.to(f64);
        return net;
    };
    const Tensor x = randn({8, 4}, {f64});
    nn::Sequential whole = make();
    whole(x).pow(2).mean().backward();
    const std::vector<Tensor> expected = tests::gradients_of(whole);
    // The models are created one after another because they share a generator.
    std::vector<nn::Sequential> nets;
    for (int rank = 0; rank < 4; ++rank) nets.push_back(make());
    on_ranks(4, [&](const Group& group) {
        nn::Sequential& net = nets[static_cast<std::size_t>(group->rank())];
        dist::convert_sync_batchnorm(net, group);
        dist::DataParallel replicas(net, group, {.bucket_cap_mb = tests::kTinyBucket});
        for (int step = 0; step < 2; ++step) {
            net.zero_grad();
            replicas.before_forward();
            net(tests::part(x, *group)).pow(2).mean().backward();
            tests::expect_gradients(net, expected);
        }
    });
}

}  // namespace
}  // namespace axle
