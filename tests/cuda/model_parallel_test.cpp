// Several ranks train a model on GPUs and divide its tensors, sequences, layers or experts. All
// runs must give the losses and the parameters of one process on the CPU.
#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "dist/expert_parallel/expert_parallel.h"
#include "dist/group/mesh.h"
#include "nn/layers/mixture.h"
#include "tests/cuda/nccl_ranks.h"
#include "tests/dist/pipeline/pipeline_models.h"
#include "tests/dist/sequence/sequences.h"
#include "tests/dist/tensor_parallel/divided_models.h"

namespace axle::tests {
namespace {

constexpr double kTolerance = 1e-9;
constexpr std::int64_t kSteps = kSanitized ? 1 : 20;

nn::StateDict on_host(const nn::StateDict& state) {
    nn::StateDict result;
    for (const auto& [name, tensor] : state)
        result.emplace_back(name, tensor.detach().to(Device::cpu()));
    return result;
}

class ModelParallelOnGpu : public ProcessGroupOnGpu {
  protected:
    void on_gpus(const std::function<void(const Group&, Device)>& f) {
        for (const std::string& error : on_groups(f)) EXPECT_EQ(error, "");
    }

    template <class M>
    void expect_tensor_parallel(M whole, bool sequence_parallel) {
        SCOPED_TRACE(sequence_parallel);
        const DividedTraining training{.steps = kSteps};
        auto models = clones_of(whole, GetParam());
        const std::vector<double> expected = train(whole, training);
        on_gpus([&](const Group& group, Device gpu) {
            M& model = models[at(group)];
            model.to(gpu);
            dist::tensor_parallelize(model, group, {.sequence_parallel = sequence_parallel});
            expect_same_losses(train(model, training), expected, kTolerance);
            expect_same_state(on_host(dist::full_state_dict(model, {.rank0_only = false})),
                              whole.saved_state(), kTolerance);
        });
    }

    template <class M>
    void expect_divided_sequences(const std::function<SequenceParts(const Group&)>& make_parts) {
        M whole = model_of<M>(f64);
        auto models = clones_of(whole, GetParam());
        const SequenceRun expected = train_whole_sequences(whole, kSteps);
        on_gpus([&](const Group& group, Device gpu) {
            M& model = models[at(group)];
            model.to(gpu);
            SequenceRun run = train_parts(model, group, kSteps, make_parts(group));
            for (Tensor& parameter : run.parameters) parameter = parameter.to(Device::cpu());
            expect_same_run(model, run, expected, kTolerance);
        });
    }

    // Trains a pipeline on all ranks, or on all pairs of ranks that divide the tensors.
    void expect_pipeline(dist::ScheduleKind kind, bool divide_tensors) {
        SCOPED_TRACE(str(name_of(kind), divide_tensors ? " with divided tensors" : ""));
        constexpr std::int64_t kTime = 4;  // a multiple of the number of slices
        const int slices = divide_tensors ? 2 : 1, stages = GetParam() / slices;
        const auto batch_of = [](std::int64_t step) {
            return pipeline_batch(step, kPipelineRows, kTime);
        };
        nn::Gpt whole = pipeline_gpt();
        auto models = clones_of(whole, GetParam());
        const PipelineReference expected = train_whole(whole, kSteps, batch_of);
        on_gpus([&](const Group& group, Device gpu) {
            nn::Gpt& model = models[at(group)];
            model.to(gpu);
            const dist::DeviceMesh mesh(group, {{"pp", stages}, {"tp", slices}});
            dist::tensor_parallelize(model, mesh.get_group("tp"));
            dist::Pipeline pipeline(model, nn::pieces(model), mesh.get_group("pp"),
                                    {.schedule = kind,
                                     .micro_batches = 2 * stages,
                                     .chunks = kind == dist::ScheduleKind::interleaved ? 2 : 1});
            optim::AdamW optimizer(model.parameters(), {.lr = 0.01});
            for (std::size_t step = 0; step < expected.losses.size(); ++step) {
                const Tree batch = batch_of(static_cast<std::int64_t>(step));
                const Tree on_gpu{{"input_ids", batch["input_ids"].tensor().to(gpu)},
                                  {"labels", batch["labels"].tensor().to(gpu)}};
                const Tensor loss = pipeline.step(on_gpu, nn::label_loss);
                pipeline.clip_grad_norm_(kClip);
                optimizer.step();
                optimizer.zero_grad();
                EXPECT_NEAR(loss.item(), expected.losses[step], kTolerance) << "step " << step;
            }
            expect_same_state(on_host(pipeline.full_state_dict({.rank0_only = false})),
                              expected.state, kTolerance);
        });
    }
};
INSTANTIATE_TEST_SUITE_P(Ranks, ModelParallelOnGpu, testing::Values(2, 4));

TEST_P(ModelParallelOnGpu, TrainsGptWithTensorParallelismLikeOneProcess) {
    for (const bool sequence_parallel : {false, true})
        expect_tensor_parallel(small_gpt(), sequence_parallel);
}

TEST_P(ModelParallelOnGpu, TrainsLlamaWithTensorParallelismLikeOneProcess) {
    expect_tensor_parallel(small_llama(true), false);
    expect_tensor_parallel(small_llama(false), true);
}

TEST_P(ModelParallelOnGpu, TrainsBertWithTensorParallelismLikeOneProcess) {
    manual_seed(9);
    nn::BertForMaskedLM masked(small_bert());
    nn::BertForSequenceClassification classifier(small_bert());
    masked.to(f64), classifier.to(f64);
    expect_tensor_parallel(masked.clone(), true);
    expect_tensor_parallel(classifier.clone(), false);
}

TEST_P(ModelParallelOnGpu, TrainsWithContextParallelismLikeOneProcess) {
    expect_divided_sequences<nn::Gpt>(
        [](const Group& group) { return context_parts(group, dist::ContextExchange::all_gather); });
    expect_divided_sequences<nn::Llama>(
        [](const Group& group) { return context_parts(group, dist::ContextExchange::ring); });
}

TEST_P(ModelParallelOnGpu, TrainsWithUlyssesLikeOneProcess) {
    expect_divided_sequences<nn::Gpt>(ulysses_parts);
    expect_divided_sequences<nn::Llama>(ulysses_parts);
}

TEST_P(ModelParallelOnGpu, TrainsWithEachPipelineScheduleLikeOneProcess) {
    using enum dist::ScheduleKind;
    for (const auto kind : {gpipe, one_forward_one_backward, interleaved, zero_bubble})
        expect_pipeline(kind, false);
}

TEST_P(ModelParallelOnGpu, TrainsWithPipelineAndTensorParallelismLikeOneProcess) {
    expect_pipeline(dist::ScheduleKind::one_forward_one_backward, true);
}

struct SparseBlock : nn::Model<SparseBlock> {
    SparseBlock() : experts(6, 5, {.experts = 8, .top_k = 2}), out(6, 2) {}
    Tensor forward(const Tensor& x) { return out(x + experts(x)); }
    void visit(nn::Visitor& v) override { v("experts", experts), v("out", out); }

    nn::MixtureOfExperts experts;
    nn::Linear out;
};

// Trains on a part of 8 rows per step and returns the mean loss of all ranks in each step.
std::vector<double> train_experts(SparseBlock& model, const Group& group, Device device) {
    const dist::DataParallel replicas(model, group);
    optim::AdamW optimizer(model.parameters(), {.lr = 0.01});
    const std::int64_t rows = 8 / group->size();
    std::vector<double> losses;
    for (std::int64_t step = 0; step < kSteps; ++step) {
        Tensor x = Tensor::empty({8, 6}, {.dtype = f64});
        for (std::int64_t i = 0; i < x.numel(); ++i)
            x.data<double>()[i] = std::sin(0.7 * static_cast<double>(i + 50 * step + 1));
        const Tensor own = x.narrow(0, group->rank() * rows, rows).to(device);
        const Tensor loss = (model(own) - own.narrow(1, 0, 2)).pow(2).mean();
        loss.backward();
        optimizer.step();
        optimizer.zero_grad();
        losses.push_back(mean_over(group, loss));
    }
    return losses;
}

TEST_P(ModelParallelOnGpu, TrainsWithExpertParallelismLikeOneProcess) {
    manual_seed(5);
    SparseBlock whole;
    whole.to(f64);
    auto models = clones_of(whole, GetParam());
    const std::vector<double> expected =
        train_experts(whole, dist::ProcessGroup::alone(), Device::cpu());
    on_gpus([&](const Group& group, Device gpu) {
        SparseBlock& model = models[at(group)];
        model.to(gpu);
        dist::expert_parallelize(model, group);
        EXPECT_EQ(model.experts.experts.up.size(0), 8 / GetParam());
        expect_same_losses(train_experts(model, group, gpu), expected, kTolerance);
        expect_same_state(on_host(dist::full_state_dict(model, {.rank0_only = false})),
                          whole.saved_state(), kTolerance);
    });
}

}  // namespace
}  // namespace axle::tests
