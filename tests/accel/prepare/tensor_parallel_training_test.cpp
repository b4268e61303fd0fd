// Tests an Accelerator that divides models among processes (tensor parallel training).
#include <string>

#include "accel/accelerator.h"
#include "accel/local_sgd.h"
#include "core/autograd/local_part.h"
#include "core/autograd/tensor_slice.h"
#include "core/files/safetensors.h"
#include "data/loading/loader.h"
#include "gmock/gmock.h"
#include "optim/lomo.h"
#include "tests/dist/tensor_parallel/divided_models.h"
#include "tests/temporary_folder.h"

namespace axle {
namespace {

using accel::AcceleratorOptions;
using accel::ParallelismConfig;
using tests::at;
using tests::clones_of;
using tests::Group;
using tests::on_ranks;
using tests::small_gpt;
using tests::TemporaryFolder;

AcceleratorOptions divided_on(const Group& group, const ParallelismConfig& config = {}) {
    AcceleratorOptions options{.cpu = true, .process_group = group};
    if (config.total_size() > 1) options.parallelism_config = config;
    if (config.dp_shard_size > 1)
        options.fsdp_plugin = accel::FullyShardedDataParallelPlugin{
            .fsdp_version = 2, .auto_wrap_policy = "TRANSFORMER_BASED_WRAP"};
    return options;
}

// Returns a loader over eight rows of ids and labels.
data::DataLoader rows_loader(std::int64_t batch_size) {
    std::vector<Tensor> ids, labels;
    for (std::int64_t step = 0; step < 4; ++step) {
        const auto [all_ids, all_labels] = tests::ids_and_labels(step);
        ids.push_back(all_ids.narrow(0, 0, 2));
        labels.push_back(masked_fill(all_labels, eq(all_labels, -100), 0).narrow(0, 0, 2));
    }
    return data::DataLoader(
        data::TensorDataset(Tree{{"ids", cat(ids, 0)}, {"labels", cat(labels, 0)}}),
        {.batch_size = batch_size});
}

// A model with its optimizer, loader and Accelerator.
struct DividedRun {
    DividedRun(nn::Gpt&& model_, AcceleratorOptions options, std::int64_t batch_size)
        : model(std::move(model_)),
          loader(rows_loader(batch_size)),
          accelerator(std::move(options)) {
        accelerator.prepare(model, optimizer, loader);
    }

    void train(std::int64_t epochs) {
        for (std::int64_t epoch = 0; epoch < epochs; ++epoch)
            for (auto& batch : loader) {
                const Tensor loss = model.loss(batch["ids"], batch["labels"]);
                accelerator.backward(loss);
                norm = accelerator.clip_grad_norm_(model.parameters(), 0.3).item();
                optimizer.step();
                optimizer.zero_grad();
            }
    }

    nn::Gpt model;
    optim::AdamW optimizer{model.parameters(), {.lr = 0.01}};
    data::DataLoader loader;
    double norm = 0;
    accel::Accelerator accelerator;
};

void expect_weights(const DividedRun& run, const nn::Gpt& expected) {
    const nn::StateDict state = run.accelerator.get_state_dict(run.model);
    if (run.accelerator.is_main_process())
        tests::expect_same_state(state, expected.saved_state(), 1e-9);
}

// Covers 17.TP, 1.torch_tp_plugin, 2.tensor_parallel_rank.
TEST(TensorParallelAccelerator, TrainsLikeOneProcessAndAcceptsTheDeprecatedPlugin) {
    nn::Gpt whole = small_gpt();
    auto models = clones_of(whole, 6);
    DividedRun expected(std::move(whole), divided_on(dist::ProcessGroup::alone()), 2);
    expected.train(3);
    on_ranks(2, [&](const Group& group) {
        DividedRun run(std::move(models[at(group)]), divided_on(group, {.tp_size = 2}), 2);
        EXPECT_EQ(run.accelerator.tensor_parallel_rank(), group->rank());
        EXPECT_TRUE(dist::has_slices(run.model));
        run.train(3);
        EXPECT_NEAR(run.norm, expected.norm, 1e-9);
        expect_weights(run, expected.model);

        AcceleratorOptions deprecated = divided_on(group);
        deprecated.torch_tp_plugin = {{.tp_size = 2}};
        DividedRun other(std::move(models[at(group) + 2]), deprecated, 2);
        EXPECT_TRUE(dist::has_slices(other.model));

        DividedRun sequence(
            std::move(models[at(group) + 4]),
            divided_on(group, {.tp_size = 2, .tp_handler = {{.sequence_parallel = true}}}), 2);
        sequence.train(3);
        expect_weights(sequence, expected.model);
    });
}

// Two pairs of processes read different rows.
TEST(TensorParallelAccelerator, TrainsLikeOneProcessWithShardedDataParallelism) {
    nn::Gpt whole = small_gpt();
    auto models = clones_of(whole, 4);
    DividedRun expected(std::move(whole), divided_on(dist::ProcessGroup::alone()), 2);
    expected.train(2);
    on_ranks(4, [&](const Group& group) {
        DividedRun run(std::move(models[at(group)]),
                       divided_on(group, {.dp_shard_size = 2, .tp_size = 2}), 1);
        EXPECT_TRUE(autograd::is_sharded(run.model.transformer.ln_f.weight));
        EXPECT_NE(autograd::slice_of(run.model.transformer.wte.weight), nullptr);
        run.train(2);
        EXPECT_NEAR(run.norm, expected.norm, 1e-9);
        expect_weights(run, expected.model);
    });
}

TEST(TensorParallelAccelerator, TrainsLikeOneProcessWithDataParallelism) {
    nn::Gpt whole = small_gpt();
    auto models = clones_of(whole, 4);
    DividedRun expected(std::move(whole), divided_on(dist::ProcessGroup::alone()), 2);
    expected.train(2);
    on_ranks(4, [&](const Group& group) {
        AcceleratorOptions options = divided_on(group);
        options.device_mesh = std::make_shared<const dist::DeviceMesh>(
            group, std::vector<dist::DeviceMesh::Dimension>{{"dp_replicate", 2}, {"tp", 2}});
        DividedRun run(std::move(models[at(group)]), std::move(options), 1);
        run.train(2);
        EXPECT_NEAR(run.norm, expected.norm, 1e-9);
        expect_weights(run, expected.model);
    });
}

// Accelerate has no mesh dimension "batch". Processes along this dimension read different rows.
TEST(TensorParallelAccelerator, TrainsLikeOneProcessWithAnUnknownMeshDimension) {
    for (const char* slices : {"tp", "dp_replicate"}) {
        const int ranks = 8;
        nn::Gpt whole = small_gpt();
        auto models = clones_of(whole, ranks);
        const bool is_divided = std::string(slices) == "tp";
        DividedRun expected(std::move(whole), divided_on(dist::ProcessGroup::alone()),
                            is_divided ? 4 : 8);
        expected.train(2);
        on_ranks(ranks, [&](const Group& group) {
            AcceleratorOptions options = divided_on(group, {});
            options.fsdp_plugin = accel::FullyShardedDataParallelPlugin{
                .fsdp_version = 2, .auto_wrap_policy = "TRANSFORMER_BASED_WRAP"};
            options.device_mesh = std::make_shared<const dist::DeviceMesh>(
                group, std::vector<dist::DeviceMesh::Dimension>{
                           {"batch", 2}, {"dp_shard", 2}, {slices, 2}});
            DividedRun run(std::move(models[at(group)]), std::move(options), 1);
            EXPECT_TRUE(autograd::is_sharded(run.model.transformer.ln_f.weight));
            EXPECT_EQ(dist::has_slices(run.model), is_divided);
            run.train(2);
            EXPECT_NEAR(run.norm, expected.norm, 1e-9);
            expect_weights(run, expected.model);
        });
    }
}

// A checkpoint has whole tensors, and can be loaded on any number of processes.
TEST(TensorParallelAccelerator, SavesAndLoadsWholeTensors) {
    const TemporaryFolder folder;
    nn::Gpt whole = small_gpt();
    const nn::Gpt initial = whole.clone();
    auto models = clones_of(whole, 6);
    DividedRun expected(std::move(whole), divided_on(dist::ProcessGroup::alone()), 2);
    expected.train(1);
    on_ranks(2, [&](const Group& group) {
        DividedRun run(std::move(models[at(group)]), divided_on(group, {.tp_size = 2}), 2);
        run.train(1);
        run.accelerator.save_state(folder / "state");
        run.accelerator.save_model(run.model, folder / "model");
    });
    const Safetensors file = load_safetensors(folder / "state/model.safetensors");
    for (const auto& [name, tensor] : expected.model.saved_state()) {
        SCOPED_TRACE(name);
        tests::expect_close(file.tensors.at(name), tensor, 1e-9);
    }
    EXPECT_EQ(load_safetensors(folder / "model/model.safetensors").tensors.size(),
              file.tensors.size());
    expected.train(1);
    on_ranks(4, [&](const Group& group) {
        DividedRun run(std::move(models[at(group) + 2]), divided_on(group, {.tp_size = 4}), 2);
        run.accelerator.load_state(folder / "state");
        run.train(1);
        expect_weights(run, expected.model);
    });
    // One process can load the checkpoint too.
    nn::Gpt single = initial.clone();
    DividedRun alone(std::move(single), divided_on(dist::ProcessGroup::alone()), 2);
    alone.accelerator.load_state(folder / "state");
    alone.train(1);
    tests::expect_same_state(alone.model.saved_state(), expected.model.saved_state(), 1e-9);
}

// The ranks of a group must continue with equal gradients and random states, so a rank cannot load
// only the files of its own rank. The gradients must include all processes, so the ranks cannot
// load the files of one process.
TEST(TensorParallelAccelerator, LoadsTheMeanGradientOfReplicasOnAllRanksOfAGroup) {
    const TemporaryFolder folder;
    auto models = clones_of(small_gpt(), 4);
    const auto options_of = [](const Group& group, const ParallelismConfig& config) {
        AcceleratorOptions options = divided_on(group, config);
        options.gradient_accumulation_steps = 2;
        return options;
    };
    // Two replicas save different gradients between two updates.
    Tensor mean;
    on_ranks(2, [&](const Group& group) {
        DividedRun run(std::move(models[at(group)]), options_of(group, {}), 1);
        for (auto& batch : run.loader) {
            const auto scope = run.accelerator.accumulate(run.model);
            run.accelerator.backward(run.model.loss(batch["ids"], batch["labels"]));
            break;
        }
        const auto all = group->all_gather_object(run.model.transformer.ln_f.weight.grad());
        EXPECT_NE(all[0].tensor().to_vector(), all[1].tensor().to_vector());
        if (group->rank() == 0) mean = (all[0].tensor() + all[1].tensor()) / 2;
        run.accelerator.save_state(folder / "state");
    });
    on_ranks(2, [&](const Group& group) {
        DividedRun run(std::move(models[at(group) + 2]), options_of(group, {.tp_size = 2}), 2);
        run.accelerator.load_state(folder / "state");
        const Tensor gradient = run.model.transformer.ln_f.weight.grad();
        ASSERT_TRUE(gradient.defined());
        for (const Tree& other : group->all_gather_object(gradient))
            tests::expect_same_bits(other.tensor(), gradient);
        tests::expect_close(gradient, mean, 1e-12);
    });
}

// The registered objects are a clone of the model and an optimizer that is not prepared.
// Covers 3.register_for_checkpointing.
TEST(TensorParallelAccelerator, SavesRegisteredObjectsAsWholeTensors) {
    const TemporaryFolder folder;
    const nn::Gpt whole = small_gpt();
    auto models = clones_of(whole, 4);
    for (const bool shards : {false, true}) {
        const std::string path = folder / str("state_", shards);
        on_ranks(2, [&](const Group& group) {
            DividedRun run(std::move(models[at(group) + (shards ? 2 : 0)]),
                           divided_on(group, shards ? ParallelismConfig{.dp_shard_size = 2}
                                                    : ParallelismConfig{.tp_size = 2}),
                           1);
            nn::Gpt average = run.model.clone();
            optim::AdamW other(run.model.parameters(), {.lr = 0.01});
            run.accelerator.register_for_checkpointing(average, other);
            for (auto& batch : run.loader) {
                run.accelerator.backward(run.model.loss(batch["ids"], batch["labels"]));
                other.step();
                break;
            }
            run.accelerator.save_state(path);
        });
        nn::Gpt single = small_gpt(), average = small_gpt();
        for (const Tensor& parameter : average.parameters()) Tensor(parameter.detach()).zero_();
        optim::AdamW other(single.parameters());
        DividedRun alone(std::move(single), divided_on(dist::ProcessGroup::alone()), 1);
        alone.accelerator.register_for_checkpointing(average, other);
        alone.accelerator.load_state(path);
        tests::expect_same_state(average.saved_state(), whole.saved_state(), 1e-12);
        const Tensor moments = other.state_dict()["state"]["0"]["exp_avg"].tensor();
        EXPECT_EQ(moments.shape(), Shape({tests::kVocabularySize, 16}));
        EXPECT_GT(max(abs(moments)).item(), 0);
    }
}

TEST(TensorParallelAccelerator, RejectsLocalSgdAdaLomoAndDeepSpeed) {
    auto models = clones_of(small_gpt(), 2);
    on_ranks(2, [&](const Group& group) {
        DividedRun run(std::move(models[at(group)]), divided_on(group, {.tp_size = 2}), 2);
        tests::expect_error<UsageError>(
            {"LocalSGD: needs whole parameters, but processes divide the model"},
            [&] { const accel::LocalSGD local(run.accelerator, run.model, 2); });
        optim::AdaLomo lomo(run.model.parameters());
        run.accelerator.prepare(lomo);
        const Tensor loss = tests::loss_at(run.model, 0);
        tests::expect_error<UsageError>(
            {"AdaLomo: parameters must not be sharded or divided among processes"},
            [&] { run.accelerator.lomo_backward(loss, 0.1); });
        AcceleratorOptions options = divided_on(group);
        options.deepspeed_plugin = accel::DeepSpeedPlugin{};
        options.device_mesh = std::make_shared<const dist::DeviceMesh>(
            group, std::vector<dist::DeviceMesh::Dimension>{{"tp", 2}});
        tests::expect_error<accel::NotImplementedError>(
            {"Accelerator: device_mesh: tensor parallel training with DeepSpeed"},
            [&] { const accel::Accelerator accelerator(options); });
    });
}

// As in Accelerate, the program may divide the model before prepare().
TEST(TensorParallelAccelerator, AcceptsDividedModelsOnlyIfTheirSlicesMatchTpSize) {
    auto models = clones_of(small_gpt(), 6);
    on_ranks(2, [&](const Group& group) {
        nn::Gpt model = std::move(models[at(group)]);
        dist::tensor_parallelize(model, group);
        accel::Accelerator accelerator(divided_on(group, {.tp_size = 2}));
        EXPECT_NO_THROW(accelerator.prepare(model));
    });
    on_ranks(4, [&](const Group& group) {
        nn::Gpt model = std::move(models[at(group) + 2]);
        dist::tensor_parallelize(model, group->split(group->rank() / 2));
        accel::Accelerator accelerator(divided_on(group, {.tp_size = 4}));
        tests::expect_error<ValueError>(
            {"prepare: the model is already divided into 2 slices, but tp_size is 4"},
            [&] { accelerator.prepare(model); });
    });
}

TEST(TensorParallelAccelerator, RejectsModelsThatCannotBeDivided) {
    auto models = clones_of(small_gpt(), 2);
    on_ranks(2, [&](const Group& group) {
        accel::Accelerator accelerator(divided_on(group, {.tp_size = 2}));
        nn::Linear layer(4, 4);
        tests::expect_error<ValueError>({"tensor_parallelize: the model has no plan"},
                                        [&] { accelerator.prepare(layer); });
        // A model cannot be divided after its optimizer's first step, because the optimizer's state
        // would have to be divided too.
        nn::Gpt model = std::move(models[at(group)]);
        optim::AdamW optimizer(model.parameters());
        accelerator.prepare(optimizer);
        tests::loss_at(model, 0).backward();
        optimizer.step();
        optimizer.zero_grad();
        tests::expect_error<UsageError>({"prepare: the model must be prepared before the first"},
                                        [&] { accelerator.prepare(model); });
    });
}

}  // namespace
}  // namespace axle
