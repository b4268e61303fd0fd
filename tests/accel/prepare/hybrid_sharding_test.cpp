// Tests an Accelerator that shards models within each machine and averages gradients between
// machines. Four processes simulate two machines with two processes each.
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <stdlib.h>

#include "core/autograd/local_part.h"
#include "gtest/gtest.h"
#include "tests/accel/prepare/sharded_run.h"
#include "tests/dist/launch/child.h"

namespace axle {
namespace {

using accel::Accelerator;
using dist::ShardedDataParallel;
using tests::Gpt64;
using tests::loss_of;

// Runs f(rank) in four processes on two simulated machines.
void on_two_machines(const std::function<void(int rank)>& f) {
    const std::string port = std::to_string(tests::free_port());
    std::vector<std::unique_ptr<tests::Child>> children;
    for (int rank = 0; rank < 4; ++rank)
        children.push_back(std::make_unique<tests::Child>([&, rank] {
            setenv("MASTER_ADDR", "127.0.0.1", 1);
            setenv("MASTER_PORT", port.c_str(), 1);
            setenv("WORLD_SIZE", "4", 1);
            setenv("LOCAL_WORLD_SIZE", "2", 1);
            setenv("LOCAL_RANK", std::to_string(rank % 2).c_str(), 1);
            setenv("RANK", std::to_string(rank).c_str(), 1);
            try {
                f(rank);
            } catch (const std::exception& error) {
                ADD_FAILURE() << "on rank " << rank << ": " << error.what();
            }
            if (testing::Test::HasFailure()) throw std::runtime_error("failed");
        }));
    for (const auto& child : children) EXPECT_EQ(child->wait(), 0);
}

Accelerator hybrid(const std::string& strategy, int micro_batches = 1) {
    return Accelerator({.gradient_accumulation_steps = micro_batches,
                        .cpu = true,
                        .fsdp_plugin = tests::fsdp(strategy)});
}

const ShardedDataParallel& sharded(const Accelerator& accelerator, const nn::Module& model) {
    return dynamic_cast<const ShardedDataParallel&>(*accelerator.data_parallel(model));
}

constexpr const char* kStrategies[] = {"HYBRID_SHARD", "HYBRID_SHARD_ZERO2"};

// Covers 14.sharding_strategy.
TEST(HybridSharding, TrainsLikeOneProcess) {
    nn::Gpt whole = Gpt64().make();
    const nn::Gpt initial = whole.clone();
    const tests::ReferenceRun expected = tests::train_alone(whole);
    for (const char* strategy : kStrategies) {
        SCOPED_TRACE(strategy);
        on_two_machines([&](int) {
            nn::Gpt model = initial.clone();
            Accelerator accelerator = hybrid(strategy);
            accelerator.prepare(model);
            tests::expect_same_training(model, accelerator.state().process_group(), expected);
        });
    }
}

// Each process has half of the elements of each gradient. They must be the mean over all four
// processes.
// Covers 14.sharding_strategy.
TEST(HybridSharding, AveragesGradientsOverAllProcesses) {
    nn::Gpt whole = Gpt64().make();
    const nn::Gpt initial = whole.clone();
    loss_of(whole, 0, *dist::ProcessGroup::alone()).backward();
    const auto expected = tests::gradients_of(whole);
    const double all = static_cast<double>(whole.num_parameters());
    for (const char* strategy : kStrategies) {
        SCOPED_TRACE(strategy);
        on_two_machines([&](int) {
            nn::Gpt model = initial.clone();
            Accelerator accelerator = hybrid(strategy);
            accelerator.prepare(model);
            const auto& group = accelerator.state().process_group();
            accelerator.backward(loss_of(model, 0, *group));
            const auto parameters = model.parameters();
            double stored = 0;
            for (std::size_t i = 0; i < parameters.size(); ++i) {
                const Tensor part = autograd::local_part(parameters[i]);
                stored += static_cast<double>(part.numel());
                if (part.numel() == 0) continue;
                tests::expect_close(part.grad(),
                                    autograd::local_part_of(parameters[i], expected[i]), 1e-12);
            }
            const Tensor total = full({}, stored, {.dtype = f64});
            group->all_reduce(total);
            EXPECT_EQ(total.item(), 2 * all);
        });
    }
}

// Parameters are gathered within a machine. Gradients are scattered within a machine, and averaged
// between machines once per update.
// Covers 14.sharding_strategy.
TEST(HybridSharding, GathersInEachMicroBatchAndReducesOncePerUpdate) {
    for (const char* strategy : kStrategies) {
        SCOPED_TRACE(strategy);
        on_two_machines([&](int) {
            nn::Gpt model = Gpt64().make();
            Accelerator accelerator = hybrid(strategy, 2);
            optim::AdamW optimizer(model.parameters());
            accelerator.prepare(model, optimizer);
            const ShardedDataParallel& distributed = sharded(accelerator, model);
            ASSERT_NE(distributed.options().replicas, nullptr);
            EXPECT_EQ(distributed.options().replicas->size(), 2);
            EXPECT_EQ(distributed.options().replicas->rank(), accelerator.process_index() / 2);
            const std::int64_t blocks = Gpt64().layers, units = blocks + 1;
            const bool frees = strategy == std::string("HYBRID_SHARD");
            const auto& counters = distributed.counters();
            for (std::int64_t batch = 0; batch < 4; ++batch) {
                const dist::ShardingCounters before = counters;
                auto scope = accelerator.accumulate(model);
                accelerator.backward(loss_of(model, batch, *accelerator.state().process_group()));
                optimizer.step();
                optimizer.zero_grad();
                const std::int64_t reductions = accelerator.sync_gradients() ? units : 0;
                EXPECT_EQ(counters.all_gathers - before.all_gathers, units + (frees ? blocks : 0));
                EXPECT_EQ(counters.reduce_scatters - before.reduce_scatters, reductions);
                EXPECT_EQ(counters.all_reduces - before.all_reduces, reductions);
            }
        });
    }
}

// Ranks 0 and 1 share one copy of the parameters, and ranks 2 and 3 share another copy.
// Covers 17.HSDP, 14.sharding_strategy.
TEST(HybridSharding, ShardsAndReplicatesByTheDimensionsOfTheMesh) {
    nn::Gpt whole = Gpt64().make();
    const nn::Gpt initial = whole.clone();
    const tests::ReferenceRun expected = tests::train_alone(whole);
    auto models = tests::clones_of(initial, 4);
    tests::on_ranks(4, [&](const tests::Group& group) {
        nn::Gpt& model = models[tests::at(group)];
        auto plugin = tests::fsdp();
        plugin.fsdp_version = 2;
        plugin.reshard_after_forward = true;
        plugin.sync_module_states = {};
        Accelerator accelerator(
            {.cpu = true,
             .fsdp_plugin = plugin,
             .parallelism_config =
                 accel::ParallelismConfig{.dp_replicate_size = 2, .dp_shard_size = 2},
             .process_group = group});
        accelerator.prepare(model);
        const ShardedDataParallel& distributed = sharded(accelerator, model);
        ASSERT_NE(distributed.options().replicas, nullptr);
        EXPECT_EQ(distributed.options().replicas->rank(), group->rank() / 2);
        double stored = 0;
        for (const Tensor& p : model.parameters())
            stored += static_cast<double>(autograd::local_part(p).numel());
        const Tensor total = full({}, stored, {.dtype = f64});
        group->all_reduce(total);
        EXPECT_EQ(total.item(), 2.0 * static_cast<double>(initial.num_parameters()));
        tests::expect_same_training(model, group, expected);
        const dist::ShardingCounters& counters = distributed.counters();
        EXPECT_GT(counters.reduce_scatters, 0);
        EXPECT_EQ(counters.all_reduces, counters.reduce_scatters);
    });
}

}  // namespace
}  // namespace axle
