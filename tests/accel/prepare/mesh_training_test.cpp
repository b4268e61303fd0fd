// Tests an Accelerator on meshes that combine sharding or data parallelism with tensor, context and
// pipeline parallelism.
#include "tests/accel/prepare/mesh_training.h"

#include <chrono>
#include <cmath>
#include <string>
#include <vector>

#include "core/autograd/local_part.h"
#include "core/autograd/tensor_slice.h"
#include "dist/sharding/sharded_data_parallel.h"
#include "tests/job.h"
#include "tests/sanitized.h"

namespace axle {
namespace {

using namespace std::chrono_literals;
using tests::expect_training_on_meshes;
using tests::on_cpu_ranks;
using tests::TrainingMesh;

constexpr std::int64_t kSteps = tests::kSanitized ? 3 : 20;

// Covers 3.maybe_context_parallel, 17.CP, 17.cp_handler, 17.fsdp_dim_names, 17.HSDP,
// 1.parallelism_config.
TEST(MeshTraining, TrainsShardedModelsWithContextParallelismLikeOneProcess) {
    const std::vector<TrainingMesh> meshes = {{.cp = 2},
                                              {.cp = 4, .ring = true},
                                              {.replicas = 2, .shards = 2},
                                              {.shards = 2, .cp = 2},
                                              {.shards = 2, .cp = 2, .ring = true}};
    expect_training_on_meshes<nn::Gpt>(on_cpu_ranks, kSteps, meshes);
    expect_training_on_meshes<nn::Llama>(on_cpu_ranks, kSteps, meshes);
}

// Parameters are shards of slices.
// Covers 17.TP, 17.HSDP, 17.mesh.
TEST(MeshTraining, TrainsShardedModelsWithTensorParallelismLikeOneProcess) {
    expect_training_on_meshes<nn::Gpt>(
        on_cpu_ranks, kSteps,
        {{.shards = 2, .tp = 2},
         {.replicas = 2, .shards = 2, .tp = 2},
         {.replicas = 2, .shards = 2, .tp = 2, .sequence_parallel = true}});
    expect_training_on_meshes<nn::Llama>(
        on_cpu_ranks, kSteps,
        {{.shards = 2, .tp = 2, .sequence_parallel = true}, {.replicas = 2, .shards = 2, .tp = 2}});
}

// Covers 17.CP, 17.TP, 17.mesh.
TEST(MeshTraining, TrainsShardedModelsWithTensorAndContextParallelismLikeOneProcess) {
    expect_training_on_meshes<nn::Gpt>(
        on_cpu_ranks, kSteps,
        {{.cp = 2, .tp = 2},
         {.cp = 2, .tp = 2, .sequence_parallel = true, .ring = true},
         {.shards = 2, .cp = 2, .tp = 2, .sequence_parallel = true}});
}

// Covers 17.TP, 16.tp_degree.
TEST(MeshTraining, TrainsReplicasWithTensorAndPipelineParallelismLikeOneProcess) {
    expect_training_on_meshes<nn::Gpt>(
        on_cpu_ranks, kSteps,
        {{.replicas = 2, .tp = 2, .fsdp = false},
         {.replicas = 2, .tp = 2, .pp = 2, .fsdp = false, .pipeline = true}});
    TrainingMesh stages{.replicas = 2, .tp = 2, .pp = 2, .fsdp = false, .pipeline = true};
    stages.sequence_parallel = true;
    expect_training_on_meshes<nn::Llama>(on_cpu_ranks, kSteps, {stages});
}

// Ranks 0, 2, 4 and 6 have the first slice of each divided parameter. Ranks 0 and 2 have its two
// shards, and ranks 4 and 6 have the same shards.
// Covers 17.HSDP, 17.TP.
TEST(MeshTraining, ShardsSlicesWithinReplicas) {
    auto models = tests::clones_of(tests::model_of<nn::Gpt>(f64), 8);
    on_cpu_ranks(8, [&](const tests::Group& group, Device device) {
        nn::Gpt& model = models[tests::at(group)];
        const tests::MeshRun<nn::Gpt> run(model, {.replicas = 2, .shards = 2, .tp = 2}, group,
                                          device);
        const auto& sharded =
            dynamic_cast<const dist::ShardedDataParallel&>(*run.accelerator.data_parallel(model));
        ASSERT_NE(sharded.options().replicas, nullptr);
        EXPECT_EQ(sharded.options().replicas->size(), 2);
        EXPECT_EQ(sharded.options().replicas->rank(), group->rank() / 4);
        EXPECT_EQ(run.place.index, group->rank() / 2);
        EXPECT_EQ(run.place.count, 4);
        const Tensor weight = model.transformer.h[0].mlp.c_fc.weight;  // [16, 64] on one process
        EXPECT_EQ(weight.shape(), Shape({16, 32}));
        ASSERT_NE(autograd::slice_of(weight), nullptr);
        const auto parts = group->all_gather_object(autograd::local_part(weight).detach());
        EXPECT_EQ(parts[0].tensor().numel() + parts[2].tensor().numel(), 16 * 32);
        for (std::size_t rank = 0; rank < 4; ++rank)
            tests::expect_same_bits(parts[rank + 4].tensor(), parts[rank].tensor());
        EXPECT_NE(parts[0].tensor().to_vector(), parts[1].tensor().to_vector());
    });
}

// Returns the losses of three steps with dropout as text. Processes that read the same data start
// with the same random numbers.
std::string losses_with_dropout(const dist::Environment& environment, const TrainingMesh& mesh) {
    const auto group = dist::ProcessGroup::create(environment, {.join_timeout = 30s});
    nn::Gpt model = tests::model_of<nn::Gpt>(f64, 0.2);
    tests::MeshRun<nn::Gpt> run(model, mesh, group, Device::cpu());
    manual_seed(static_cast<std::uint64_t>(20 + run.place.index));
    std::string text;
    for (const double loss : run.train(3)) text += str(std::llround(loss * 1e9), ' ');
    return text;
}

// Returns the losses that all processes of the mesh report. Each rank is a process, because the
// threads of a process share a random generator.
std::string losses_on(const TrainingMesh& mesh) {
    tests::Job job(mesh.processes(), [&](const dist::Environment& environment) {
        return losses_with_dropout(environment, mesh);
    });
    const auto outcomes = job.wait(120s);
    for (const tests::RankOutcome& outcome : outcomes)
        EXPECT_EQ(outcome.text, outcomes[0].text) << mesh.text();
    return outcomes[0].text;
}

// Covers 17.TP, 17.CP, 17.HSDP, 16.tp_degree.
TEST(MeshTraining, DrawsTheSameDropoutAsDataParallelProcesses) {
    const std::vector<TrainingMesh> meshes = {
        {.shards = 2, .tp = 2},
        {.replicas = 2, .shards = 2, .tp = 2},
        {.shards = 2, .cp = 2},
        {.shards = 2, .cp = 2, .tp = 2, .sequence_parallel = true},
        {.replicas = 2, .tp = 2, .fsdp = false},
        {.replicas = 2, .tp = 2, .pp = 2, .fsdp = false, .pipeline = true}};
    for (const TrainingMesh& mesh : meshes)
        EXPECT_EQ(losses_on(mesh), losses_on(mesh.data_parallel())) << mesh.text();
}

}  // namespace
}  // namespace axle
