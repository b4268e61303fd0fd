// Tests how DistributedDataParallelKwargs and sync_each_batch of an Accelerator change when and how
// prepared models reduce gradients and broadcast buffers.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "dist/parallel/data_parallel.h"
#include "nn/layers/norm.h"
#include "optim/sgd.h"
#include "tests/accel/training.h"
#include "tests/dist/ranks.h"

namespace axle {
namespace {

using accel::DistributedDataParallelKwargs;
using tests::expect_error;
using tests::on_ranks;
using tests::SmallNet;
using Group = std::shared_ptr<dist::ProcessGroup>;

// A hook that averages like the default hook and records the buckets.
struct RecordingHook : dist::CommHook {
    Pending start(dist::GradientBucket& bucket, dist::ProcessGroup& group) override {
        buckets.push_back(bucket.buffer);
        return average->start(bucket, group);
    }
    // Returns the number of buckets that were reduced since the last call.
    std::size_t take() { return std::exchange(buckets, {}).size(); }

    std::shared_ptr<dist::CommHook> average = dist::all_reduce_hook();
    std::vector<Tensor> buckets;
};

// A model with two layers. Each call uses only one of them: the second if uses_second is true.
struct TwoLayers : nn::Model<TwoLayers> {
    nn::Linear first{4, 1}, second{4, 1};
    Tensor forward(const Tensor& x, bool uses_second = false) {
        return uses_second ? second(x) : first(x);
    }
    void visit(nn::Visitor& v) override { v("first", first), v("second", second); }
};

Tensor batch_of(const Group& group) { return full({2, 4}, group->rank() + 1.0); }

// Returns whether x has the same values on all ranks.
bool is_equal_on_all_ranks(const Group& group, const Tensor& x) {
    const Tensor all = group->all_gather(x.detach());
    for (int rank = 1; rank < group->size(); ++rank)
        if (all[rank].to_vector() != all[0].to_vector()) return false;
    return true;
}

// Covers 7.sync_each_batch, 9.comm_hook, 30.3.
TEST(SyncEachBatch, ReducesGradientsInEveryMicroBatchButUpdatesOncePerWindow) {
    for (const bool each : {false, true})
        on_ranks(2, [&](const Group& group) {
            const auto hook = std::make_shared<RecordingHook>();
            SmallNet net;
            net.eval();
            optim::SGD sgd(net.parameters(), {.lr = 0.5});
            Accelerator accelerator(
                {.cpu = true,
                 .gradient_accumulation_plugin = {{.num_steps = 3, .sync_each_batch = each}},
                 .ddp_kwargs = {.hook = hook},
                 .process_group = group});
            accelerator.prepare(net, sgd);
            std::vector<std::size_t> reductions;
            std::vector<bool> equal, updates;
            for (int k = 0; k < 6; ++k) {
                const auto scope = accelerator.accumulate(net);
                const std::vector<double> before = net.out.bias.to_vector();
                accelerator.backward(tests::squared_error(net(batch_of(group)), zeros({2, 1})));
                reductions.push_back(hook->take());
                equal.push_back(is_equal_on_all_ranks(group, net.out.bias.grad()));
                sgd.step();
                sgd.zero_grad();
                updates.push_back(net.out.bias.to_vector() != before);
            }
            const std::vector<std::size_t> once = {0, 0, 1, 0, 0, 1};
            EXPECT_EQ(reductions, each ? std::vector<std::size_t>(6, 1) : once);
            const std::vector<bool> last = {false, false, true, false, false, true};
            EXPECT_EQ(equal, each ? std::vector<bool>(6, true) : last);
            EXPECT_EQ(updates, last);
        });
}

// Covers 1.kwargs_handlers, 9.bucket_cap_mb, 9.comm_hook, 29.KwargsHandler, 30.3.
TEST(DdpKwargs, SetHookAndBucketSizeOfPreparedModels) {
    constexpr double kOneByte = 1.0 / (1 << 20);
    for (const double size : {kOneByte, 25.0})
        on_ranks(2, [&](const Group& group) {
            const auto hook = std::make_shared<RecordingHook>();
            SmallNet net;
            Accelerator accelerator({.cpu = true,
                                     .kwargs_handlers = {DistributedDataParallelKwargs{
                                         .bucket_cap_mb = size, .hook = hook}},
                                     .process_group = group});
            accelerator.prepare(net);
            accelerator.backward(net(batch_of(group)).sum());
            EXPECT_EQ(hook->take(), size == kOneByte ? net.parameters().size() : 1);
        });
}

// Covers 9.find_unused_parameters, 30.3, 30.18.
TEST(DdpKwargs, AllowUnusedParametersOnRequest) {
    for (const bool find : {false, true})
        on_ranks(2, [&](const Group& group) {
            TwoLayers net;
            Accelerator accelerator({.cpu = true,
                                     .ddp_kwargs = {.find_unused_parameters = find},
                                     .process_group = group});
            accelerator.prepare(net);
            const auto backward = [&] { accelerator.backward(net(batch_of(group)).sum()); };
            if (!find)
                return expect_error<UsageError>({"DataParallel: these parameters got no gradient "
                                                 "in this backward: second.weight, "
                                                 "second.bias; set find_unused_parameters = true"},
                                                backward);
            backward();
            EXPECT_EQ(net.first.weight.grad().to_vector(), std::vector<double>(4, 3));
            EXPECT_FALSE(net.second.weight.grad().defined());
        });
}

// Covers 9.static_graph, 30.3.
TEST(DdpKwargs, RejectAChangedGraphIfStaticGraphIsTrue) {
    on_ranks(2, [](const Group& group) {
        TwoLayers net;
        Accelerator accelerator(
            {.cpu = true, .ddp_kwargs = {.static_graph = true}, .process_group = group});
        accelerator.prepare(net);
        for (int step = 0; step < 2; ++step) {
            net.zero_grad();
            accelerator.backward(net(batch_of(group)).sum());
            EXPECT_EQ(net.first.weight.grad().to_vector(), std::vector<double>(4, 3));
        }
        expect_error<UsageError>({"DataParallel: the graph is not static: second."},
                                 [&] { accelerator.backward(net(batch_of(group), true).sum()); });
    });
}

// Covers 9.broadcast_buffers, 30.3.
TEST(DdpKwargs, CanTurnOffTheBroadcastOfBuffers) {
    for (const bool broadcast : {true, false})
        on_ranks(2, [&](const Group& group) {
            nn::BatchNorm1d norm(4);
            Accelerator accelerator({.cpu = true,
                                     .ddp_kwargs = {.broadcast_buffers = broadcast},
                                     .process_group = group});
            accelerator.prepare(norm);
            norm.running_mean.fill_(group->rank() + 1.0);
            norm(ones({2, 4}));
            EXPECT_EQ(is_equal_on_all_ranks(group, norm.running_mean), broadcast);
        });
}

// Covers 9.gradient_as_bucket_view, 30.3.
TEST(DdpKwargs, ControlWhetherGradientsAreStoredInBuckets) {
    for (const bool as_view : {true, false})
        on_ranks(2, [&](const Group& group) {
            const auto hook = std::make_shared<RecordingHook>();
            SmallNet net;
            Accelerator accelerator(
                {.cpu = true,
                 .ddp_kwargs = {.gradient_as_bucket_view = as_view, .hook = hook},
                 .process_group = group});
            accelerator.prepare(net);
            accelerator.backward(net(batch_of(group)).sum());
            ASSERT_EQ(hook->buckets.size(), 1U);
            EXPECT_EQ(net.in.weight.grad().impl()->storage == hook->buckets[0].impl()->storage,
                      as_view);
        });
}

}  // namespace
}  // namespace axle
