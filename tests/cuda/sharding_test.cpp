// Tests sharded training with parameters on GPUs. The ranks communicate with NCCL or through the
// host.
#include <string>

#include "core/autograd/local_part.h"
#include "tests/cuda/nccl_ranks.h"
#include "tests/dist/sharding/architectures.h"
#include "tests/dist/sharding/communication.h"
#include "tests/dist/sharding/memory.h"
#include "tests/dist/sharding/resharding.h"
#include "tests/sanitized.h"

namespace axle::tests {
namespace {

using dist::ShardingStrategy;

constexpr std::int64_t kTrainedSteps = kSanitized ? 2 : 20;

template <class Model>
class ShardedArchitecturesOnGpu : public GpuTest {};
using Architectures = testing::Types<nn::Gpt, nn::Llama, nn::BertForMaskedLM>;
TYPED_TEST_SUITE(ShardedArchitecturesOnGpu, Architectures);

TYPED_TEST(ShardedArchitecturesOnGpu, TrainLikeOneProcessInF64) {
    expect_training_of_one_process<TypeParam>(on_gpu_ranks, f64, 1e-9, kTrainedSteps);
}

TYPED_TEST(ShardedArchitecturesOnGpu, TrainLikeOneProcessInF32) {
    expect_training_of_one_process<TypeParam>(on_gpu_ranks, f32, 1e-4, kTrainedSteps);
}

class ShardedDataParallelOnGpu : public GpuTest {};

// The simulated NCCL counts the collectives too.
TEST_F(ShardedDataParallelOnGpu, RunsOnlyTheCollectivesThatItsStrategyNeeds) {
    const auto expect = [](int ranks, ShardingStrategy strategy, bool has_replicas) {
#ifdef AXLE_SIMULATED_GPU
        const auto counted = [] {
            using kernels::simulator::bytes_of, kernels::simulator::calls_of;
            Communication result;
            result.all_gathers = calls_of("ncclAllGather");
            result.reduce_scatters = calls_of("ncclReduceScatter");
            result.all_reduces = calls_of("ncclAllReduce");
            result.gathered_bytes = bytes_of("ncclAllGather");
            result.reduced_bytes = bytes_of("ncclReduceScatter");
            return result;
        };
        Communication before = counted();
        before += expect_communication_of_formula(on_gpu_ranks, ranks, strategy, has_replicas);
        EXPECT_EQ(counted(), before);
#else
        expect_communication_of_formula(on_gpu_ranks, ranks, strategy, has_replicas);
#endif
    };
    using enum ShardingStrategy;
    for (const int ranks : {2, 3, 4}) expect(ranks, full_shard, false);
    for (const auto strategy : {shard_grad_op, shard_optimizer}) expect(4, strategy, false);
    for (const auto strategy : {full_shard, shard_grad_op}) expect(4, strategy, true);
}

TEST_F(ShardedDataParallelOnGpu, NeedsTheMemoryOfPartsAndAFewUnits) {
    const auto sum_over_gpus = [] {
        MemoryStats sum;
        for (int gpu = 0; gpu < cuda::device_count(); ++gpu) {
            const MemoryStats own = cuda::memory_stats(gpu);
            sum.current += own.current, sum.peak += own.peak;
        }
        return sum;
    };
    const auto reset_peaks = [] {
        for (int gpu = 0; gpu < cuda::device_count(); ++gpu) cuda::reset_peak_memory_stats(gpu);
    };
    // The kernels of a real GPU use workspaces.
    const MeasuredMemory memory{sum_over_gpus, reset_peaks, !kSimulated};
    expect_memory_of_parts(measure_sharded_bytes(on_gpu_ranks, memory, kGpu, 64), 1);
}

TEST_F(ShardedDataParallelOnGpu, LoadsStatesOfOtherNumbersOfRanksAndStrategies) {
    expect_same_bits_after_resharding(on_gpu_ranks, {.layers = 1});
}

class ShardingOnGpu : public ProcessGroupOnGpu {};
INSTANTIATE_TEST_SUITE_P(Ranks, ShardingOnGpu, testing::Values(2, 3, 4));

TEST_P(ShardingOnGpu, CommunicatesThroughTheHostIfRanksShareAGpu) {
    const Gpt64 gpt{.layers = 2};
    nn::Gpt whole = gpt.make();
    auto models = clones_of(whole, GetParam());
    const ReferenceRun expected = train_alone(whole, kTrainedSteps);
    const auto errors = on_groups(
        [&](const Group& group, Device gpu) {
            nn::Gpt& model = models[at(group)];
            const dist::ShardedDataParallel sharded(model, group,
                                                    {.units = gpt.units(), .device = gpu});
            expect_same_training(model, group, expected);
        },
        false);
    for (const std::string& error : errors) EXPECT_EQ(error, "");
}

TEST_P(ShardingOnGpu, OffloadsPartsToTheCpu) {
    const Gpt64 gpt{.layers = 2};
    nn::Gpt whole = gpt.make();
    auto models = clones_of(whole, GetParam());
    const ReferenceRun expected = train_alone(whole, kTrainedSteps);
    const auto errors = on_groups([&](const Group& group, Device gpu) {
        nn::Gpt& model = models[at(group)];
        const dist::ShardedDataParallel sharded(
            model, group, {.units = gpt.units(), .device = gpu, .offload_to_cpu = true});
        const Tensor weight = model.transformer.h[0].mlp.c_fc.weight;
        EXPECT_EQ(weight.device(), gpu);
        EXPECT_TRUE(autograd::local_part(weight).device().is_cpu());
        expect_same_training(model, group, expected);
    });
    for (const std::string& error : errors) EXPECT_EQ(error, "");
}

// A copy is kept by each rank alone, or by all ranks together.
TEST_P(ShardingOnGpu, GathersForBackwardFromASecondaryCopy) {
    const Gpt64 gpt{.layers = 2};
    nn::Gpt whole = gpt.make();
    const nn::Gpt initial = whole.clone();
    const ReferenceRun expected = train_alone(whole, kTrainedSteps);
    for (const bool alone : {true, false}) {
        SCOPED_TRACE(alone);
        auto models = clones_of(initial, GetParam());
        const auto errors = on_groups([&](const Group& group, Device gpu) {
            nn::Gpt& model = models[at(group)];
            const dist::ShardedDataParallel sharded(
                model, group,
                {.units = gpt.units(),
                 .device = gpu,
                 .secondary = group->split(alone ? group->rank() : 0)});
            expect_same_training(model, group, expected);
            EXPECT_GT(sharded.counters().secondary_all_gathers, 0);
        });
        for (const std::string& error : errors) EXPECT_EQ(error, "");
    }
}

}  // namespace
}  // namespace axle::tests
