// Trains on GPUs with Accelerators whose meshes combine sharding or replicas with tensor, context,
// sequence or pipeline parallelism. All runs must give the losses and the parameters of one process
// on the CPU.
#include "tests/accel/prepare/mesh_training.h"

#include "tests/cuda/nccl_ranks.h"

namespace axle::tests {
namespace {

class MeshTrainingOnGpu : public GpuTest {};

constexpr std::int64_t kMeshSteps = kSanitized ? 1 : 20;

TEST_F(MeshTrainingOnGpu, TrainsShardedModelsWithTensorParallelismLikeOneProcess) {
    expect_training_on_meshes<nn::Gpt>(on_gpu_ranks, kMeshSteps,
                                       {{.replicas = 2, .shards = 2, .tp = 2}});
    expect_training_on_meshes<nn::Llama>(on_gpu_ranks, kMeshSteps,
                                         {{.shards = 2, .tp = 2, .sequence_parallel = true}});
}

TEST_F(MeshTrainingOnGpu, TrainsShardedModelsWithContextParallelismLikeOneProcess) {
    expect_training_on_meshes<nn::Llama>(on_gpu_ranks, kMeshSteps,
                                         {{.shards = 2, .cp = 2, .ring = true}});
}

TEST_F(MeshTrainingOnGpu, TrainsShardedModelsWithTensorAndContextParallelismLikeOneProcess) {
    expect_training_on_meshes<nn::Gpt>(
        on_gpu_ranks, kMeshSteps, {{.shards = 2, .cp = 2, .tp = 2, .sequence_parallel = true}});
}

TEST_F(MeshTrainingOnGpu, TrainsReplicasWithTensorAndPipelineParallelismLikeOneProcess) {
    expect_training_on_meshes<nn::Gpt>(
        on_gpu_ranks, kMeshSteps,
        {{.replicas = 2, .tp = 2, .pp = 2, .fsdp = false, .pipeline = true}});
}

TEST_F(MeshTrainingOnGpu, TrainsShardedModelsWithUlyssesLikeOneProcess) {
    expect_ulysses_training<nn::Llama>(
        on_gpu_ranks, 4,
        {.fsdp_plugin = accel::FullyShardedDataParallelPlugin{.fsdp_version = 2},
         .parallelism_config = accel::ParallelismConfig{.dp_shard_size = 2, .sp_size = 2}},
        1, kSanitized ? 4 : 24);
}

}  // namespace
}  // namespace axle::tests
