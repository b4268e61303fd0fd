// Tests an Accelerator whose processes share sequences.
#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "accel/accelerator.h"
#include "dist/sequence/ulysses.h"
#include "dist/sharding/full_state.h"
#include "dist/sharding/sharded_data_parallel.h"
#include "optim/clip.h"
#include "optim/schedules/schedules.h"
#include "tests/dist/sequence/sequences.h"
#include "tests/environment_variable.h"
#include "tests/log_capture.h"
#include "tests/sanitized.h"

namespace axle {
namespace {

using accel::AcceleratorOptions;
using accel::FullyShardedDataParallelPlugin;
using accel::ParallelismConfig;
using tests::expect_close;
using tests::Group;
using tests::kSequenceLength;
using tests::on_ranks;

constexpr std::int64_t kSteps = tests::kSanitized ? 3 : 20;
constexpr std::int64_t kBatch = 4;
constexpr double kMaxNorm = 0.3;

AcceleratorOptions fsdp2(const Group& group, const ParallelismConfig& config) {
    return {
        .cpu = true,
        .fsdp_plugin = FullyShardedDataParallelPlugin{.fsdp_version = 2,
                                                      .auto_wrap_policy = "TRANSFORMER_BASED_WRAP"},
        .parallelism_config = config,
        .process_group = group};
}

// Returns new ids and labels [kBatch, kSequenceLength] of a step.
std::pair<Tensor, Tensor> batch_of(std::int64_t step) {
    std::vector<std::int64_t> ids;
    for (std::int64_t i = 0; i < kBatch * (kSequenceLength + 1); ++i)
        ids.push_back((i * i + 3 * step + i / 5) % tests::kSequenceVocabulary);
    const Tensor all = tensor(ids).reshape({kBatch, kSequenceLength + 1});
    return {all.narrow(1, 0, kSequenceLength).contiguous(),
            all.narrow(1, 1, kSequenceLength).contiguous()};
}

// Trains on one process with whole sequences.
template <class Model>
tests::SequenceRun train_alone(Model& model) {
    tests::SequenceRun run;
    optim::AdamW optimizer(model.parameters(), {.lr = 0.01});
    for (std::int64_t step = 0; step < kSteps; ++step) {
        const auto [ids, labels] = batch_of(step);
        const Tensor loss = model.loss(ids, labels);
        loss.backward();
        optim::clip_grad_norm_(model.parameters(), kMaxNorm);
        optimizer.step();
        optimizer.zero_grad();
        run.losses.push_back(loss.item());
    }
    for (const Tensor& p : model.parameters()) run.parameters.push_back(p.detach().clone());
    return run;
}

// Returns the rows of x for this process's data parallel rank.
Tensor rows_of(const Tensor& x, const Accelerator& accelerator) {
    const accel::DataRank place = accel::data_rank(*accelerator.torch_device_mesh());
    const std::int64_t rows = x.size(0) / place.count;
    return x.narrow(0, place.index * rows, rows).contiguous();
}

// Trains with an Accelerator whose processes share sequences, and expects the results of training
// on one process.
template <class Model>
void expect_context_training(const AcceleratorOptions& options, Model& model,
                             const tests::SequenceRun& expected) {
    Accelerator accelerator(options);
    optim::AdamW optimizer(model.parameters(), {.lr = 0.01});
    accelerator.prepare(model, optimizer);
    tests::SequenceRun run;
    for (std::int64_t step = 0; step < kSteps; ++step) {
        const auto [whole_ids, whole_labels] = batch_of(step);
        const Tensor ids = rows_of(whole_ids, accelerator),
                     labels = rows_of(whole_labels, accelerator);
        const auto scope = accelerator.maybe_context_parallel({ids, labels}, {1, 1}, {ids, labels});
        const Tensor loss = model.loss(ids, labels);
        accelerator.backward(loss);
        accelerator.clip_grad_norm_(model.parameters(), kMaxNorm);
        optimizer.step();
        optimizer.zero_grad();
        run.losses.push_back(tests::mean_over(options.process_group, loss));
    }
    for (const auto& [name, tensor] : dist::full_state_dict(model, {.rank0_only = false}))
        run.parameters.push_back(tensor);
    tests::expect_same_run(model, run, expected, 1e-9);
}

template <class Model>
void expect_context_training_for_meshes() {
    Model alone = tests::model_of<Model>(f64);
    const tests::SequenceRun expected = train_alone(alone);
    struct Mesh {
        int processes;
        ParallelismConfig config;
    };
    const accel::TorchContextParallelConfig ring{.cp_comm_strategy = "alltoall"};
    for (const Mesh& mesh : {Mesh{2, {.cp_size = 2}}, Mesh{4, {.cp_size = 4, .cp_handler = ring}},
                             Mesh{4, {.dp_replicate_size = 2, .dp_shard_size = 2}},
                             Mesh{4, {.dp_shard_size = 2, .cp_size = 2}},
                             Mesh{4, {.dp_shard_size = 2, .cp_size = 2, .cp_handler = ring}}}) {
        auto models = tests::clones_of(tests::model_of<Model>(f64), mesh.processes);
        on_ranks(mesh.processes, [&](const Group& group) {
            auto model = std::move(models[tests::at(group)]);
            expect_context_training(fsdp2(group, mesh.config), model, expected);
        });
    }
}

// Covers 3.maybe_context_parallel, 17.CP, 17.cp_handler, 17.fsdp_dim_names, 17.HSDP,
// 1.parallelism_config.
TEST(ContextParallelTraining, TrainsLikeOneProcessOnMeshesOfDataAndContextParallelRanks) {
    expect_context_training_for_meshes<nn::Gpt>();
    expect_context_training_for_meshes<nn::Llama>();
}

// Parameters are shards of slices, and processes share sequences.
// Covers 17.CP, 17.TP, 17.mesh.
TEST(ContextParallelTraining, TrainsLikeOneProcessWithTensorParallelism) {
    nn::Gpt alone = tests::model_of<nn::Gpt>(f64);
    const tests::SequenceRun expected = train_alone(alone);
    struct Mesh {
        int processes;
        ParallelismConfig config;
    };
    const accel::TorchTensorParallelConfig sequence{.sequence_parallel = true};
    const accel::TorchContextParallelConfig ring{.cp_comm_strategy = "alltoall"};
    for (const Mesh& mesh :
         {Mesh{4, {.tp_size = 2, .cp_size = 2}},
          Mesh{4, {.tp_size = 2, .cp_size = 2, .tp_handler = sequence, .cp_handler = ring}},
          Mesh{8, {.dp_shard_size = 2, .tp_size = 2, .cp_size = 2, .tp_handler = sequence}}}) {
        auto models = tests::clones_of(tests::model_of<nn::Gpt>(f64), mesh.processes);
        on_ranks(mesh.processes, [&](const Group& group) {
            auto model = std::move(models[tests::at(group)]);
            expect_context_training(fsdp2(group, mesh.config), model, expected);
        });
    }
}

// Covers 17.CP, 27.ACCELERATE_BYPASS_DEVICE_MAP.
TEST(ContextParallelTraining, TrainsLikeOneProcessWithoutShardingIfStandaloneIsAllowed) {
    const tests::EnvironmentVariable standalone("ACCELERATE_ALLOW_CP_STANDALONE", "1");
    nn::Gpt alone = tests::model_of<nn::Gpt>(f64);
    const tests::SequenceRun expected = train_alone(alone);
    auto models = tests::clones_of(tests::model_of<nn::Gpt>(f64), 2);
    on_ranks(2, [&](const Group& group) {
        expect_context_training({.cpu = true,
                                 .parallelism_config = ParallelismConfig{.cp_size = 2},
                                 .process_group = group},
                                models[tests::at(group)], expected);
    });
}

// Losses that ignore labels count different numbers of tokens on each process, so gradients must be
// weighted by these numbers.
// Covers 17.CP.
TEST(ContextParallelTraining, WeightsGradientsByTokens) {
    const auto batch = [] {
        auto [ids, labels] = batch_of(0);
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
        EXPECT_NE(tokens.item(), kBatch * 5);
        {
            const auto micro_batch = accelerator.accumulate(model);
            accelerator.backward(model.loss(ids, labels) * tokens, tokens);
        }
        tests::expect_gradients(model, expected, 1e-12);
        optimizer.zero_grad();
        const auto micro_batch = accelerator.accumulate(model);
        accelerator.backward(model.loss(ids, labels));  // the mean of means is another loss
        double largest = 0;
        const std::vector<Tensor> unweighted = tests::gradients_of(model);
        for (std::size_t i = 0; i < expected.size(); ++i)
            largest = std::max(largest, max(abs(unweighted[i] - expected[i])).item());
        EXPECT_GT(largest, 1e-4);
    });
}

// Covers 3.maybe_context_parallel, 31.maybe_context_parallel.
TEST(MaybeContextParallel, HasNoEffectWithoutContextParallelism) {
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

// Returns samples {"input_ids", "labels"}; the labels are the ids, as in Transformers.
data::TensorDataset texts(std::int64_t n) {
    std::vector<std::int64_t> ids;
    for (std::int64_t i = 0; i < n * kSequenceLength; ++i)
        ids.push_back((i * i + i / 7) % tests::kSequenceVocabulary);
    const Tensor all = tensor(ids).reshape({n, kSequenceLength});
    return data::TensorDataset(Tree{{"input_ids", all}, {"labels", all}});
}

Tensor shifted(const Tensor& ids) {
    return cat({ids.narrow(1, 1, kSequenceLength - 1), full({ids.size(0), 1}, -100, {i64})}, 1);
}

// Trains with `processes` processes in groups of two that share sequences, and expects the results
// of one process that reads the samples of an update in the order of the loaders. `slices`
// processes divide each layer.
template <class Model>
void expect_ulysses_training(int processes, const AcceleratorOptions& given, int slices = 1) {
    constexpr std::int64_t kSamples = 24;
    const int readers = processes / slices, replicas = readers / 2;
    const data::TensorDataset dataset = texts(kSamples);
    // In each step, a group reads two samples, one per sequence parallel rank. Update u trains on
    // sample u % 2 of each group.
    Model alone = tests::model_of<Model>(f64);
    tests::SequenceRun expected;
    optim::AdamW optimizer(alone.parameters(), {.lr = 0.01});
    for (std::int64_t update = 0; update < kSamples / replicas; ++update) {
        std::vector<Tensor> rows;
        for (std::int64_t r = 0; r < replicas; ++r) {
            const std::int64_t sample = update / 2 * readers + 2 * r + update % 2;
            rows.push_back(dataset.get(sample)["input_ids"].tensor().reshape({1, kSequenceLength}));
        }
        const Tensor ids = cat(rows, 0), loss = alone.loss(ids, shifted(ids));
        loss.backward();
        optimizer.step();
        optimizer.zero_grad();
        expected.losses.push_back(loss.item());
    }
    for (const Tensor& p : alone.parameters()) expected.parameters.push_back(p.detach().clone());

    auto models = tests::clones_of(tests::model_of<Model>(f64), processes);
    on_ranks(processes, [&](const Group& group) {
        Model model = std::move(models[tests::at(group)]);
        AcceleratorOptions options = given;
        options.cpu = true;
        options.process_group = group;
        Accelerator accelerator(options);
        optim::AdamW adamw(model.parameters(), {.lr = 0.01});
        data::DataLoader loader(dataset);
        accelerator.prepare(model, adamw, loader);
        accelerator.deepspeed_ulysses_dl_adapter(loader, model);
        const auto sharing = accelerator.torch_device_mesh()->get_group("sp");
        tests::SequenceRun run;
        for (auto& batch : loader) {
            const Tensor tokens = ne(batch["shift_labels"].tensor(), -100).to(f64).sum();
            const Tensor loss = dist::mean_over_tokens(
                model.loss(batch["input_ids"], batch["shift_labels"]), tokens, sharing);
            accelerator.backward(loss);
            adamw.step();
            adamw.zero_grad();
            run.losses.push_back(tests::mean_over(group, loss));
        }
        for (const auto& [name, tensor] : dist::full_state_dict(model, {.rank0_only = false}))
            run.parameters.push_back(tensor);
        tests::expect_same_run(model, run, expected, 1e-9);
    });
}

// Covers 3.deepspeed_ulysses_dl_adapter, 17.SP, 17.data.
TEST(UlyssesTraining, TrainsReplicasLikeOneProcess) {
    expect_ulysses_training<nn::Gpt>(2, {.parallelism_config = ParallelismConfig{.sp_size = 2}});
    expect_ulysses_training<nn::Llama>(
        4, {.parallelism_config = ParallelismConfig{.dp_replicate_size = 2, .sp_size = 2}});
}

// Two processes share the sequences, and two divide each of their layers.
// Covers 17.SP, 17.TP.
TEST(UlyssesTraining, TrainsLikeOneProcessWithTensorParallelism) {
    for (const bool sequence_parallel : {false, true}) {
        const accel::TorchTensorParallelConfig handler{.sequence_parallel = sequence_parallel};
        expect_ulysses_training<nn::Gpt>(
            4,
            {.parallelism_config =
                 ParallelismConfig{.tp_size = 2, .sp_size = 2, .tp_handler = handler}},
            2);
        expect_ulysses_training<nn::Llama>(
            8,
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
        4, {.fsdp_plugin = FullyShardedDataParallelPlugin{.fsdp_version = 2},
            .parallelism_config = ParallelismConfig{.dp_shard_size = 2, .sp_size = 2}});
    expect_ulysses_training<nn::Llama>(
        4, {.deepspeed_plugin = accel::DeepSpeedPlugin{.gradient_clipping = 0, .zero_stage = 3},
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
