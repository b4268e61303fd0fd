// Trains a model with combined data, sharded, context, tensor and pipeline parallelism, and the
// same model on one process.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "accel/accelerator.h"
#include "dist/sequence/ulysses.h"
#include "dist/sharding/full_state.h"
#include "optim/clip.h"
#include "tests/dist/sequence/sequences.h"
#include "tests/dist/sharding/rank_runner.h"

namespace axle::tests {

inline constexpr std::int64_t kMeshRows = 4;
inline constexpr double kMeshMaxNorm = 0.3;

// The sizes of a mesh of processes, and the options of training on it.
struct TrainingMesh {
    int replicas = 1, shards = 1, cp = 1, tp = 1, pp = 1;
    bool fsdp = true;       // whether parameters are sharded over shards * cp processes
    bool pipeline = false;  // whether a MegatronLMPlugin trains the model as a pipeline
    bool sequence_parallel = false, ring = false;

    int processes() const { return replicas * shards * cp * tp * pp; }
    // Returns the mesh without the dimensions along which processes train on the same batches.
    TrainingMesh data_parallel() const {
        return {.replicas = replicas, .shards = shards, .fsdp = fsdp, .pipeline = pipeline};
    }
    std::string text() const {
        return str("replicas ", replicas, ", shards ", shards, ", cp ", cp, ", tp ", tp, ", pp ",
                   pp, fsdp ? ", fsdp" : "", pipeline ? ", pipeline" : "",
                   sequence_parallel ? ", sequence parallel" : "", ring ? ", ring" : "");
    }
};

inline accel::AcceleratorOptions options_of(const TrainingMesh& mesh, const Group& group,
                                            Device device) {
    accel::AcceleratorOptions options{.cpu = device.is_cpu(), .process_group = group};
    if (mesh.pipeline) {
        options.megatron_lm_plugin = {{.tp_degree = mesh.tp,
                                       .pp_degree = mesh.pp,
                                       .num_micro_batches = 2,
                                       .gradient_clipping = kMeshMaxNorm,
                                       .sequence_parallelism = mesh.sequence_parallel}};
        return options;
    }
    if (mesh.fsdp)
        options.fsdp_plugin = {{.fsdp_version = 2, .auto_wrap_policy = "TRANSFORMER_BASED_WRAP"}};
    // Without sharding, a ParallelismConfig rejects tensor parallel replicas, as in Accelerate.
    if (!mesh.fsdp && mesh.replicas > 1 && mesh.tp > 1) {
        options.device_mesh = std::make_shared<const dist::DeviceMesh>(
            group, std::vector<dist::DeviceMesh::Dimension>{{"dp_replicate", mesh.replicas},
                                                            {"tp", mesh.tp}});
        return options;
    }
    accel::ParallelismConfig config{.dp_replicate_size = mesh.replicas,
                                    .dp_shard_size = mesh.shards,
                                    .tp_size = mesh.tp,
                                    .cp_size = mesh.cp};
    if (mesh.tp > 1) config.tp_handler = {{.sequence_parallel = mesh.sequence_parallel}};
    if (mesh.cp > 1)
        config.cp_handler = {{.cp_comm_strategy = mesh.ring ? "alltoall" : "allgather"}};
    options.parallelism_config = config;
    return options;
}

// Returns new ids and labels [kMeshRows, kSequenceLength] of a step.
inline std::pair<Tensor, Tensor> mesh_batch(std::int64_t step) {
    std::vector<std::int64_t> ids;
    for (std::int64_t i = 0; i < kMeshRows * (kSequenceLength + 1); ++i)
        ids.push_back((i * i + 3 * step + i / 5) % kSequenceVocabulary);
    const Tensor all = tensor(ids).reshape({kMeshRows, kSequenceLength + 1});
    return {all.narrow(1, 0, kSequenceLength).contiguous(),
            all.narrow(1, 1, kSequenceLength).contiguous()};
}

// Trains on one process with whole batches, and returns the losses.
template <class Model>
std::vector<double> train_mesh_alone(Model& model, std::int64_t steps) {
    std::vector<double> losses;
    optim::AdamW optimizer(model.parameters(), {.lr = 0.01});
    for (std::int64_t step = 0; step < steps; ++step) {
        const auto [ids, labels] = mesh_batch(step);
        const Tensor loss = model.loss(ids, labels);
        loss.backward();
        optim::clip_grad_norm_(model.parameters(), kMeshMaxNorm);
        optimizer.step();
        optimizer.zero_grad();
        losses.push_back(loss.item());
    }
    return losses;
}

// A model that this process of a mesh trains.
template <class Model>
struct MeshRun {
    MeshRun(Model& model_, const TrainingMesh& mesh_, const Group& group_, Device device_)
        : model(model_),
          mesh(mesh_),
          group(group_),
          device(device_),
          accelerator(options_of(mesh_, group_, device_)) {
        accelerator.prepare(model, optimizer);
        const dist::DeviceMesh* const dimensions = accelerator.torch_device_mesh();
        if (dimensions != nullptr) place = accel::data_rank(*dimensions);
    }

    // Trains with this process's rows of each batch, and returns the losses of whole batches.
    std::vector<double> train(std::int64_t steps) {
        std::vector<double> losses;
        for (std::int64_t step = 0; step < steps; ++step) {
            const auto [all_ids, all_labels] = mesh_batch(step);
            const Tensor ids = own_rows(all_ids), labels = own_rows(all_labels);
            const auto scope = mesh.cp > 1 ? accelerator.maybe_context_parallel(
                                                 {ids, labels}, {1, 1}, {ids, labels})
                                           : accel::ContextParallelScope();
            losses.push_back(update(ids, labels));
        }
        return losses;
    }

    Model& model;
    TrainingMesh mesh;
    Group group;
    Device device;
    optim::AdamW optimizer{model.parameters(), {.lr = 0.01}};
    accel::Accelerator accelerator;
    accel::DataRank place;

  private:
    Tensor own_rows(const Tensor& all) const {
        const std::int64_t rows = all.size(0) / place.count;
        return all.narrow(0, place.index * rows, rows).contiguous().to(device);
    }
    double update(const Tensor& ids, const Tensor& labels) {
        Tensor loss;
        if (mesh.pipeline) {  // computes gradients, clips them, and returns the mean loss
            loss = accelerator.pipeline_step(model, {{"input_ids", ids}, {"labels", labels}});
        } else {
            loss = model.loss(ids, labels);
            accelerator.backward(loss);
            accelerator.clip_grad_norm_(model.parameters(), kMeshMaxNorm);
        }
        optimizer.step();
        optimizer.zero_grad();
        return mesh.pipeline ? loss.item() : mean_over(group, loss);
    }
};

// Trains a model on each mesh, and expects the losses and the parameters of one process.
template <class Model>
void expect_training_on_meshes(const RankRunner& run, std::int64_t steps,
                               const std::vector<TrainingMesh>& meshes) {
    constexpr double kTolerance = 1e-9;
    Model whole = model_of<Model>(f64);
    const Model start = whole.clone();
    const std::vector<double> expected = train_mesh_alone(whole, steps);
    for (const TrainingMesh& mesh : meshes) {
        auto models = clones_of(start, mesh.processes());
        run(mesh.processes(), [&](const Group& group, Device device) {
            SCOPED_TRACE(mesh.text());
            Model& model = models[at(group)];
            MeshRun<Model> own(model, mesh, group, device);
            const std::vector<double> losses = own.train(steps);
            for (std::size_t step = 0; step < expected.size(); ++step)
                EXPECT_NEAR(losses[step], expected[step], kTolerance) << "step " << step;
            std::map<std::string, Tensor> state;
            for (const auto& [name, tensor] : own.accelerator.get_state_dict(model))
                state[name] = tensor.cpu();
            if (!own.accelerator.is_main_process()) return;
            for (const auto& [name, tensor] : whole.saved_state()) {
                SCOPED_TRACE(name);
                expect_close(state.at(name), tensor, kTolerance);
            }
        });
    }
}

// Returns samples {"input_ids", "labels"}; the labels are the ids, as in Transformers.
inline data::TensorDataset mesh_texts(std::int64_t n) {
    std::vector<std::int64_t> ids;
    for (std::int64_t i = 0; i < n * kSequenceLength; ++i)
        ids.push_back((i * i + i / 7) % kSequenceVocabulary);
    const Tensor all = tensor(ids).reshape({n, kSequenceLength});
    return data::TensorDataset(Tree{{"input_ids", all}, {"labels", all}});
}

// Returns ids shifted by one token, with -100 at the end.
inline Tensor shifted_labels(const Tensor& ids) {
    return cat({ids.narrow(1, 1, kSequenceLength - 1), full({ids.size(0), 1}, -100, {i64})}, 1);
}

// Trains on `processes` processes in pairs that share sequences with Ulysses. Expects the results
// of one process that reads the samples of an update in the order of the loaders. `slices`
// processes divide each layer.
template <class Model>
void expect_ulysses_training(const RankRunner& run, int processes,
                             const accel::AcceleratorOptions& given, int slices = 1,
                             std::int64_t samples = 24) {
    const int readers = processes / slices, replicas = readers / 2;
    const data::TensorDataset dataset = mesh_texts(samples);
    // In each step, a group reads two samples, one per sequence parallel rank. Update u trains on
    // sample u % 2 of each group.
    Model alone = model_of<Model>(f64);
    SequenceRun expected;
    optim::AdamW optimizer(alone.parameters(), {.lr = 0.01});
    for (std::int64_t update = 0; update < samples / replicas; ++update) {
        std::vector<Tensor> rows;
        for (std::int64_t r = 0; r < replicas; ++r) {
            const std::int64_t sample = update / 2 * readers + 2 * r + update % 2;
            rows.push_back(dataset.get(sample)["input_ids"].tensor().reshape({1, kSequenceLength}));
        }
        const Tensor ids = cat(rows, 0), loss = alone.loss(ids, shifted_labels(ids));
        loss.backward();
        optimizer.step();
        optimizer.zero_grad();
        expected.losses.push_back(loss.item());
    }
    for (const Tensor& p : alone.parameters()) expected.parameters.push_back(p.detach().clone());

    auto models = clones_of(model_of<Model>(f64), processes);
    run(processes, [&](const Group& group, Device device) {
        Model& model = models[at(group)];
        accel::AcceleratorOptions options = given;
        options.cpu = device.is_cpu();
        options.process_group = group;
        accel::Accelerator accelerator(options);
        optim::AdamW adamw(model.parameters(), {.lr = 0.01});
        data::DataLoader loader(dataset);
        accelerator.prepare(model, adamw, loader);
        accelerator.deepspeed_ulysses_dl_adapter(loader, model);
        const auto sharing = accelerator.torch_device_mesh()->get_group("sp");
        SequenceRun own;
        for (auto& batch : loader) {
            const Tensor tokens = ne(batch["shift_labels"].tensor(), -100).to(f64).sum();
            const Tensor loss = dist::mean_over_tokens(model.outputs(batch).loss, tokens, sharing);
            accelerator.backward(loss);
            adamw.step();
            adamw.zero_grad();
            own.losses.push_back(mean_over(group, loss));
        }
        for (const auto& [name, tensor] : dist::full_state_dict(model, {.rank0_only = false}))
            own.parameters.push_back(tensor.cpu());
        expect_same_run(model, own, expected, 1e-9);
    });
}

}  // namespace axle::tests
