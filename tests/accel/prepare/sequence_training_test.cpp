// Tests an Accelerator whose processes share sequences, and calls that have no effect if they share
// none.
#include <algorithm>
#include <vector>

#include "accel/accelerator.h"
#include "optim/schedules/schedules.h"
#include "tests/accel/prepare/mesh_training.h"
#include "tests/environment_variable.h"
#include "tests/log_capture.h"
#include "tests/sanitized.h"

namespace axle {
namespace {

using accel::FullyShardedDataParallelPlugin;
using accel::ParallelismConfig;
using tests::expect_ulysses_training;
using tests::Group;
using tests::kSequenceLength;
using tests::on_cpu_ranks;
using tests::on_ranks;

// Covers 17.CP, 27.ACCELERATE_BYPASS_DEVICE_MAP.
TEST(ContextParallelTraining, TrainsLikeOneProcessWithoutShardingIfStandaloneIsAllowed) {
    const tests::EnvironmentVariable standalone("ACCELERATE_ALLOW_CP_STANDALONE", "1");
    tests::expect_training_on_meshes<nn::Gpt>(on_cpu_ranks, tests::kSanitized ? 3 : 20,
                                              {{.cp = 2, .fsdp = false}});
}

// Losses that ignore labels count different numbers of tokens on each process, so gradients must be
// weighted by these numbers.
// Covers 17.CP.
TEST(ContextParallelTraining, DividesGradientsByAllTokensOnlyIfLossesAreWeighted) {
    const auto batch = [] {
        auto [ids, labels] = tests::mesh_batch(0);
        labels.narrow(1, 10, kSequenceLength - 10).fill_(-100);
        return std::pair(ids, labels);
    };
    nn::Gpt alone = tests::model_of<nn::Gpt>(f64);
    const auto [whole_ids, whole_labels] = batch();
    alone.loss(whole_ids, whole_labels).backward();
    const std::vector<Tensor> expected = tests::gradients_of(alone);
    auto models = tests::clones_of(tests::model_of<nn::Gpt>(f64), 2);
    const tests::EnvironmentVariable standalone("ACCELERATE_ALLOW_CP_STANDALONE", "1");
    on_ranks(2, [&](const Group& group) {
        nn::Gpt& model = models[tests::at(group)];
        Accelerator accelerator({.cpu = true,
                                 .parallelism_config = ParallelismConfig{.cp_size = 2},
                                 .process_group = group});
        optim::AdamW optimizer(model.parameters());
        accelerator.prepare(model, optimizer);
        const auto [ids, labels] = batch();
        const auto scope = accelerator.maybe_context_parallel({ids, labels}, {1, 1});
        const Tensor tokens = ne(labels, -100).to(f64).sum();
        EXPECT_NE(tokens.item(), tests::kMeshRows * 5);
        {
            const auto micro_batch = accelerator.accumulate(model);
            accelerator.backward(model.loss(ids, labels) * tokens, tokens);
        }
        tests::expect_gradients(model, expected, 1e-12);
        optimizer.zero_grad();
        const auto micro_batch = accelerator.accumulate(model);
        accelerator.backward(model.loss(ids, labels));  // gives the mean of means
        double largest = 0;
        const std::vector<Tensor> unweighted = tests::gradients_of(model);
        for (std::size_t i = 0; i < expected.size(); ++i)
            largest = std::max(largest, max(abs(unweighted[i] - expected[i])).item());
        EXPECT_GT(largest, 1e-4);
    });
}

// Covers 3.maybe_context_parallel, 31.maybe_context_parallel.
TEST(MaybeContextParallelAndUlyssesAdapter, HaveNoEffectWithoutSharedSequences) {
    tests::LogCapture log;
    Accelerator accelerator;
    const Tensor buffer = ones({2, 4});
    for (int i = 0; i < 2; ++i) {
        const auto scope = accelerator.maybe_context_parallel({buffer}, {1}, {buffer});
        EXPECT_EQ(buffer.shape(), Shape({2, 4}));
        EXPECT_EQ(nn::sequence_policy(), nullptr);
    }
    EXPECT_NO_THROW(static_cast<void>(accelerator.maybe_context_parallel()));
    const auto lines = log.lines();
    EXPECT_EQ(std::count(lines.begin(), lines.end(),
                         "maybe_context_parallel: has no effect, because cp_size is 1"),
              1);
    nn::Gpt model = tests::model_of<nn::Gpt>(f64);
    data::DataLoader loader(data::TensorDataset(Tree{{"input_ids", ones({4, 8})}}));
    EXPECT_EQ(&accelerator.deepspeed_ulysses_dl_adapter(loader, model), &loader);
    EXPECT_EQ(loader.micro_batches(), 1);
}

// --- sequence parallelism

// Covers 3.deepspeed_ulysses_dl_adapter, 17.SP, 17.data.
TEST(UlyssesTraining, TrainsReplicasLikeOneProcess) {
    expect_ulysses_training<nn::Gpt>(on_cpu_ranks, 2,
                                     {.parallelism_config = ParallelismConfig{.sp_size = 2}});
    expect_ulysses_training<nn::Llama>(
        on_cpu_ranks, 4,
        {.parallelism_config = ParallelismConfig{.dp_replicate_size = 2, .sp_size = 2}});
}

// Two processes share each sequence, and two processes divide each layer.
// Covers 17.SP, 17.TP.
TEST(UlyssesTraining, TrainsLikeOneProcessWithTensorParallelism) {
    for (const bool sequence_parallel : {false, true}) {
        const accel::TorchTensorParallelConfig handler{.sequence_parallel = sequence_parallel};
        expect_ulysses_training<nn::Gpt>(
            on_cpu_ranks, 4,
            {.parallelism_config =
                 ParallelismConfig{.tp_size = 2, .sp_size = 2, .tp_handler = handler}},
            2);
        expect_ulysses_training<nn::Llama>(
            on_cpu_ranks, 8,
            {.fsdp_plugin = FullyShardedDataParallelPlugin{.fsdp_version = 2},
             .parallelism_config =
                 ParallelismConfig{
                     .dp_shard_size = 2, .tp_size = 2, .sp_size = 2, .tp_handler = handler}},
            2);
    }
}

// Covers 17.SP, 1.parallelism_config.
TEST(UlyssesTraining, TrainsShardedParametersLikeOneProcess) {
    expect_ulysses_training<nn::Gpt>(
        on_cpu_ranks, 4,
        {.fsdp_plugin = FullyShardedDataParallelPlugin{.fsdp_version = 2},
         .parallelism_config = ParallelismConfig{.dp_shard_size = 2, .sp_size = 2}});
    expect_ulysses_training<nn::Llama>(
        on_cpu_ranks, 4,
        {.deepspeed_plugin = accel::DeepSpeedPlugin{.gradient_clipping = 0, .zero_stage = 3},
         .parallelism_config = ParallelismConfig{.dp_shard_size = 2, .sp_size = 2}});
}

// Covers 31.scheduler, 17.SP.
TEST(UlyssesTraining, AdvancesSchedulesByTheDataParallelSize) {
    on_ranks(4, [](const Group& group) {
        Accelerator accelerator(
            {.cpu = true,
             .parallelism_config = ParallelismConfig{.dp_replicate_size = 2, .sp_size = 2},
             .process_group = group});
        nn::Gpt model = tests::model_of<nn::Gpt>(f64);
        optim::AdamW adamw(model.parameters(), {.lr = 1});
        optim::LambdaLR schedule(adamw,
                                 [](std::int64_t step) { return static_cast<double>(step); });
        accelerator.prepare(model, adamw, schedule);
        adamw.step();
        schedule.step();
        EXPECT_EQ(schedule.get_last_lr(), std::vector<double>{2});
    });
}

}  // namespace
}  // namespace axle
